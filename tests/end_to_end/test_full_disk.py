"""End to end: sessions on a disk that fills up, and gets space again."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.client.asking import ask_status
from turnkeeper.actors.errors import Fenced, StoreFull
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.storage.store import BackendName

from ..command_line import CommandLine
from ..served import LOOPS_AND_STORES, SECONDS_MAX, wait_unserved
from ..serving import kill_holder
from ..small_disk import take_all_space
from ..stores import make_store

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.root]

DISK_MEBIBYTES = 90
BALLAST_BYTES = 40 * 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path, kept_by: BackendName) -> Iterator[Path]:
    """A file system of its own, hardly larger than the reserve that a store keeps, with a store that nobody opened."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEBIBYTES}m", "tmpfs", str(mounted)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    make_store(mounted / "store", kept_by)
    yield mounted
    wait_unserved(mounted / "store", SECONDS_MAX)
    subprocess.run(["umount", str(mounted)], check=True)


def fill(disk: Path) -> Path:
    """Take the disk's space, and return what takes it."""
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(BALLAST_BYTES))
    return ballast


async def say(session: Session, text: str) -> None:
    """Append a message."""
    await session.append("user/message", {"text": text})


async def test_a_full_disk_is_told_and_loses_nothing(disk: Path) -> None:
    """A flush raises StoreFull and the event stays in its place; with space again all is stored, without a restart."""
    async with open_runtime(disk / "store") as runtime, await runtime.create_session() as session:
        await say(session, "0")
        await session.flush()
        ballast = fill(disk)
        await say(session, "1")
        for _ in range(2):
            with pytest.raises(StoreFull):
                await session.flush()
        await say(session, "2")
        assert [event.data["text"] for event in await runtime.read(session.id)] == ["0"]
        ballast.unlink()
        await session.flush()
        await say(session, "3")
        await session.flush()
        events = await runtime.read(session.id)
        assert [(event.seq, event.data["text"]) for event in events] == [(n, str(n)) for n in range(4)]


async def test_a_writer_that_is_killed_on_a_disk_without_a_byte_has_a_successor_that_refuses(disk: Path) -> None:
    """The same node starts one, which opens the store all the same; `status` and node.log say what is wrong."""
    store = disk / "store"
    async with open_runtime(store) as runtime, await runtime.create_session() as session:
        await say(session, "0")
        await session.flush()
        before = figures(store)
        take_all_space(disk / "ballast")
        assert kill_holder(store, "writer")
        await say(session, "1")
        for _ in range(2):
            with pytest.raises(StoreFull):
                await session.flush()
        assert [event.data["text"] for event in await runtime.read(session.id)] == ["0"]
        during = figures(store)
        assert during["pids"]["node"] == before["pids"]["node"]
        assert (before["full"], "are kept in reserve" in during["full"]) == (None, True)
        assert f"full at the last append: {during['full']}" in CommandLine(store, disk).succeed_here("status").out
        (disk / "ballast").unlink()
        await session.flush()
        assert [event.data["text"] for event in await runtime.read(session.id)] == ["0", "1"]
        after = figures(store)
        assert (after["pids"]["writer"], after["full"]) == (during["pids"]["writer"], None)
    assert "there is space again" in (store / "node.log").read_text()


def figures(store: Path) -> dict[str, Any]:
    """Ask the node for its figures."""
    answer = ask_status(str(store))
    assert answer is not None
    return answer


async def test_a_store_is_read_on_a_disk_without_a_byte(disk: Path, kept_by: BackendName) -> None:
    """A journal is opened, and what would be written refused; SQLite can't open it, and says so in the same words."""
    store = disk / "store"
    async with open_runtime(store) as runtime, await runtime.create_session(key="mine") as session:
        await say(session, "0")
    take_all_space(disk / "ballast")
    if kept_by == "journal":
        async with open_runtime(store) as runtime:
            assert [event.data["text"] for event in await runtime.read("mine")] == ["0"]
            with pytest.raises(StoreFull):
                await runtime.open_session("mine")
    else:
        with pytest.raises(StoreFull):
            await open_runtime(store).__aenter__()
    (disk / "ballast").unlink()
    async with open_runtime(store) as runtime, await runtime.open_session("mine") as session:
        assert session.head == 1


async def test_write_behind_tells_the_next_call_and_goes_on_trying(disk: Path) -> None:
    """Nobody waited, so the next append is told, once; without any new event the rest is stored when space returns."""
    async with open_runtime(disk / "store") as runtime, await runtime.create_session() as session:
        await say(session, "0")
        await session.flush()
        ballast = fill(disk)
        await say(session, "1")
        with anyio.fail_after(SECONDS_MAX):
            await wait_until_refused(session)
        with pytest.raises(StoreFull):
            await say(session, "refused at the call")
        ballast.unlink()
        following = runtime.follow(session.id, after=1)
        with anyio.fail_after(SECONDS_MAX):
            assert (await anext(following)).data == {"text": "1"}
        assert session.head == 2


async def test_written_text_is_told_of_and_kept_as_events_are(disk: Path) -> None:
    """The next write raises, once, and its text isn't taken; all that was is stored in order when space returns."""
    async with open_runtime(disk / "store") as runtime, await runtime.create_session() as session:
        await say(session, "0")
        await session.flush()
        ballast = fill(disk)
        session.write("1")
        with anyio.fail_after(SECONDS_MAX):
            await wait_until_refused(session)
        with pytest.raises(StoreFull):
            session.write("refused at the call")
        session.write("2")
        await say(session, "3")
        ballast.unlink()
        following = runtime.follow(session.id, after=1)
        with anyio.fail_after(SECONDS_MAX):
            assert [(await anext(following)).data["text"] for _ in range(3)] == ["1", "2", "3"]


async def test_a_turn_that_ends_on_a_full_disk_is_ended_all_the_same(disk: Path) -> None:
    """Its end raises that it isn't stored yet; it is as soon as there is space, and the next turn may begin at once."""
    async with open_runtime(disk / "store") as runtime, await runtime.create_session() as session:
        turn = session.turn()
        await turn.__aenter__()
        await session.flush()
        ballast = fill(disk)
        await say(session, "in the turn")
        with anyio.fail_after(SECONDS_MAX):
            await wait_until_refused(session)
        with pytest.raises(StoreFull):
            await turn.__aexit__(None, None, None)
        ballast.unlink()
        async with session.turn():
            pass
        types = [event.type for event in await runtime.read(session.id)]
    assert types == ["turn/start", "user/message", "turn/end", "turn/start", "turn/end"]


async def test_no_tool_runs_whose_start_cant_be_stored(disk: Path) -> None:
    """Neither form lets its body run; with space again the log says so, and the same calls may be made."""
    async with open_runtime(disk / "store") as runtime, await runtime.create_session() as session, session.turn():
        await session.flush()
        ballast = fill(disk)
        with pytest.raises(StoreFull):
            async with session.tool("a", "bash", {}):
                pytest.fail("the body ran")
        with pytest.raises(StoreFull):
            await session.tool_started("b", "bash", {})
        ballast.unlink()
        await session.flush()
        started, finished = await kinds(session)
        assert (started, finished) == (["a", "b"], [("a", "TOOL_NOT_STARTED"), ("b", "TOOL_NOT_STARTED")])
        async with session.tool("a", "bash", {}) as call:
            await call.finish("done")
        started, finished = await kinds(session)
        assert (started, finished[2:]) == (["a", "b", "a"], [("a", None)])


async def kinds(session: Session) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Give the calls that were started, and those that were finished with their errors."""
    log = await session.read()
    started = [event.data["id"] for event in log if event.type == "tool/started"]
    return started, [(e.data["id"], e.data.get("error")) for e in log if e.type == "tool/finished"]


async def wait_until_refused(session: Session) -> None:
    """Wait for the writer's refusal, without asking the session anything that would be told of it."""
    while not session._stream.failures:
        await session._client.wait_change(session._stream)


async def test_an_opening_that_a_full_disk_refuses_can_be_repeated(disk: Path) -> None:
    """Ownership can't be stored, so it raises and changes nothing; with space again it succeeds and closes once."""
    async with open_runtime(disk / "store") as runtime:
        session = await runtime.create_session()
        await session.append("turn/start", {})
        await session.flush()
        ballast = fill(disk)
        with pytest.raises(StoreFull):
            await runtime.open_session(session.id, takeover=True)
        ballast.unlink()
        with anyio.fail_after(SECONDS_MAX):
            async with await runtime.open_session(session.id, takeover=True) as again:
                assert again.interrupted is not None
                assert [event.type for event in await again.read()] == ["turn/start", "turn/end"]
                with pytest.raises(Fenced):
                    await session.aclose()
