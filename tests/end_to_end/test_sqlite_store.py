"""End to end: a store that SQLite keeps, through the public face and the command line, which don't know."""

from __future__ import annotations

import json
import math
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import InvalidValue, StoreRefused
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import describe

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line
from ..served import SECONDS_MAX, kill, node_of, wait_unserved, writer_of


@pytest.mark.anyio
async def test_sessions_outlive_the_kill_of_writer_and_node(tmp_path: Path) -> None:
    """What was flushed is there once and in order, also for a follower; changing data later changes nothing."""
    path = tmp_path / "store"
    data: dict[str, Any] = {"number": 0, "text": "U+2028 \u2028"}
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(f"sqlite:{path}") as runtime, await runtime.create_session(key="k") as session:
            assert describe(str(path)).backend == "sqlite"
            for number in range(30):
                data["number"] = number
                await session.append("note/number", data)
                data["number"] = math.nan
                if number in (5, 15):
                    kill(writer_of(path))
                elif number == 25:
                    kill(node_of(path))
                if number % 2:
                    await session.flush()
            with pytest.raises(InvalidValue):
                await session.append("note/number", data)
            await session.flush()
            events = await runtime.read("k")
            assert [(event.seq, event.data["number"]) for event in events] == [(seq, seq) for seq in range(30)]
            followed: list[int] = []
            async with aclosing(runtime.follow(after=0)) as following:
                async for event in following:
                    followed.append(event.position)
                    if len(followed) == 30:
                        break
            assert followed == list(range(1, 31))
            assert [info.id for info in await runtime.sessions()] == [session.id]
    wait_unserved(path, SECONDS_MAX)
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(path) as runtime, await runtime.open_session("k") as session, session.turn():
            await session.append("note/again", {})
        async with open_runtime(path) as runtime:
            types = [event.type for event in await runtime.read("k", last=3)]
            assert types == ["turn/start", "note/again", "turn/end"]
    wait_unserved(path, SECONDS_MAX)


@pytest.mark.anyio
async def test_a_store_that_something_else_keeps_is_refused(tmp_path: Path) -> None:
    """Whether it is served or not; its path alone opens it."""
    path = tmp_path / "store"
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(path):
            with pytest.raises(StoreRefused, match="kept by journal"):
                async with open_runtime(f"sqlite:{path}"):
                    pass
        wait_unserved(path, SECONDS_MAX)
        with pytest.raises(StoreRefused, match="kept by journal"):
            async with open_runtime(f"sqlite:{path}"):
                pass
    assert not store_is_held(str(path))


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store that SQLite keeps once it is made."""
    made = CommandLine(tmp_path / "store", tmp_path)
    made.environment["TURNKEEPER_STORE"] = f"sqlite:{made.store}"
    return made


def test_every_command_works_on_it(cli: CommandLine) -> None:
    """Make, append, list, show and follow; then its path alone will do."""
    id = cli.new_session("--key", "k", "--title", "Kept by SQLite")
    assert describe(str(cli.store)).backend == "sqlite"
    lines = "".join(event_line("note/n", number=number) for number in range(20))
    assert cli.succeed("session", "append", "k", stdin=lines).out == "1-20\n"
    (row,) = cli.succeed_here("session", "list", "--json").objects
    assert (row["id"], row["title"], row["events"]) == (id, "Kept by SQLite", 21)
    shown = cli.succeed("--store", str(cli.store), "session", "show", id, "--json", "--last", "2").objects
    assert [event["data"]["number"] for event in shown] == [18, 19]
    follower = cli.start("follow", "--after", "0", "--json")
    assert follower.stdout is not None
    followed = [json.loads(follower.stdout.readline())["position"] for _ in range(21)]
    follower.send_signal(signal.SIGINT)
    follower.communicate(timeout=DEADLINE_SECONDS)
    assert followed == list(range(1, 22))
    stats = cli.succeed_here("journal", "stats", "--json").object
    assert (stats["sessions"], stats["events"]) == (1, 21)
    assert stats["bytes"]["database"] > 0
    wait_unserved(cli.store, SECONDS_MAX)


def test_it_is_served_in_the_foreground_too(cli: CommandLine) -> None:
    """`serve` makes it, and others attach to it."""
    with cli.running("serve", "--json") as server:
        assert server.stdout is not None
        pids = json.loads(server.stdout.readline())["pids"]
        assert describe(str(cli.store)).backend == "sqlite"
        id = cli.new_session()
        status = cli.succeed_here("status", "--json").object
        assert status["pids"]["writer"] == pids["writer"]
        assert (status["sessions"], status["position"]) == (1, 1)
        (row,) = cli.succeed_here("session", "list", "--json").objects
        assert row["id"] == id
    wait_unserved(cli.store, SECONDS_MAX)


@pytest.mark.parametrize("command", [["verify"], ["rebuild"], ["cat"], ["cat", "--batches"]])
def test_what_is_about_a_journals_files_says_that_there_is_none(cli: CommandLine, command: list[str]) -> None:
    """In one line, with exit code 1, and nothing is started."""
    cli.new_session()
    wait_unserved(cli.store, SECONDS_MAX)
    outcome = cli.here("journal", *command)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.count("\n") == 1
    assert "this store has no journal" in outcome.err
    assert not store_is_held(str(cli.store))


def test_a_journal_is_refused_where_sqlite_was_asked_for(cli: CommandLine) -> None:
    """Also by commands that only look."""
    cli.succeed("--store", str(cli.store), "session", "new")
    outcome = cli.here("session", "list")
    assert (outcome.code, outcome.out) == (1, "")
    assert "kept by journal" in outcome.err
    assert cli.run("demo", "--store", f"sqlite:{cli.store}-2").code == 2
