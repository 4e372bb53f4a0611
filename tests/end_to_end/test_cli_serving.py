"""End to end: the commands about the processes that serve a store: serve, status, stop."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.storage.lock import store_is_held

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line
from ..serving import eventually, kill_holder, stopped, watched


@pytest.fixture
def served(cli: CommandLine) -> Iterator[subprocess.Popen[bytes]]:
    """The store, served by `turnkeeper serve`."""
    with cli.running("serve", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["store"] == str(cli.store)
        yield process


def pids(cli: CommandLine) -> dict[str, Any]:
    """Give the processes that serve the store, as `status` names them."""
    found: dict[str, Any] = cli.succeed_here("status", "--json").object["pids"]
    return found


def test_status_says_what_the_processes_do(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """The documented figures are there, true, and known without becoming a client."""
    cli.succeed("session", "append", cli.new_session(), stdin=event_line("note/one"))
    figures = cli.succeed_here("status", "--json").object
    assert (figures["position"], figures["sessions"], figures["clients"], figures["tasks"]) == (2, 1, 0, 0)
    assert (figures["queue_bytes"], figures["state"]) == (0, "serving")
    assert figures["flush_ms"]["p50"] > 0
    assert abs(figures["since"] / 1000 - time.time()) < 60
    commands = {role: Path(f"/proc/{pid}/cmdline").read_text() for role, pid in figures["pids"].items() if pid}
    assert "node_main" in commands["node"]
    assert "writer_main" in commands["writer"]
    assert set(figures["pids"]) == {"node", "writer", "spawner", "shims"}


def test_status_says_what_the_writer_found_when_it_opened(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """Also how long that took; a writer that follows a killed one tells of its own opening."""
    assert "; the index was built anew: index.json is missing" in opening(cli)
    first = pids(cli)["writer"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: pids(cli)["writer"] not in (None, first) and opening(cli) != "under way")
    assert re.fullmatch(r"\d+\.\d\d ms, \d+\.\d\d ms of it from the index on \(0 batches\)", opening(cli))


def opening(cli: CommandLine) -> str:
    """Give what `status` tells people of the opening."""
    (line,) = [each for each in cli.succeed("status").out.splitlines() if each.startswith("opening ")]
    return line.removeprefix("opening ").strip()


def test_status_of_a_store_that_nobody_serves_starts_nobody(cli: CommandLine) -> None:
    """The exit code is 3, for people and scripts alike."""
    cli.new_session()
    outcome = cli.here("status", "--json")
    assert (outcome.code, outcome.error["kind"]) == (3, "not_served")
    assert outcome.err.startswith("turnkeeper: nobody serves this store: ")
    assert not store_is_held(str(cli.store))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_in_order_at_a_signal(
    cli: CommandLine, served: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    """INT and TERM end it, the node and the writer, and the index is closed cleanly."""
    assert pids(cli)["node"] != served.pid
    served.send_signal(number)
    _, err = served.communicate(timeout=DEADLINE_SECONDS)
    assert (served.returncode, err) == (130 if number == signal.SIGINT else 0, b"")
    assert not store_is_held(str(cli.store))
    assert json.loads((cli.store / "index.json").read_text())["state"] == "clean"


def test_serve_outlives_its_clients(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """The same processes serve one client after another, and those between whom nobody was there."""
    before = pids(cli)
    cli.new_session()
    cli.new_session()
    assert pids(cli) == before


def test_serve_of_a_served_store_is_refused(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """A store has one node: the second one ends with 4 and names the first."""
    outcome = cli.run("serve", "--json")
    assert (outcome.code, outcome.error["kind"], outcome.error["pid"]) == (4, "busy", pids(cli)["node"])


def test_serve_fails_when_its_node_is_killed(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """A service manager is told by exit code 1, so that it starts the service again."""
    eventually(lambda: kill_holder(cli.store, "node"))
    _, err = served.communicate(timeout=DEADLINE_SECONDS)
    assert served.returncode == 1
    assert b"SIGKILL" in err


def test_stop_ends_what_serves_the_store(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """Node and writer have ended when it returns, and `serve` ends with 0."""
    before = pids(cli)
    stopped_pids = cli.succeed("stop", "--json").object
    assert stopped_pids == {"pids": {"node": before["node"], "writer": before["writer"]}, "forced": False}
    assert served.wait(DEADLINE_SECONDS) == 0
    assert not store_is_held(str(cli.store))


def test_stop_is_refused_while_somebody_has_the_store_open(cli: CommandLine) -> None:
    """Clients would start it again: the exit code is 4, they are named, and nothing is ended."""
    id = cli.new_session()
    with cli.running("session", "append", id) as client:
        eventually(lambda: cli.here("status").code == 0 and cli.succeed_here("status", "--json").object["clients"] == 1)
        outcome = cli.run("stop", "--json")
        assert (outcome.code, outcome.error["kind"]) == (4, "busy")
        assert [each["pid"] for each in outcome.error["clients"]] == [client.pid]
        assert f"(process {client.pid})" in outcome.err
        assert cli.here("status").code == 0


@pytest.mark.parametrize("options", [(), ("--force",)], ids=["in order", "by force"])
def test_stop_of_a_store_that_nobody_serves_is_not_found(cli: CommandLine, options: tuple[str, ...]) -> None:
    """There is nothing to stop: 3."""
    cli.new_session()
    outcome = cli.run("stop", "--json", *options)
    assert (outcome.code, outcome.error["kind"]) == (3, "not_served")


def test_stop_by_force_ends_processes_that_answer_nobody(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """A stopped node and a stopped writer are killed; what was acknowledged is there afterwards."""
    id = cli.new_session()
    before = pids(cli)
    with watched(before["node"]) as node_gone, watched(before["writer"]) as writer_gone:
        os.kill(before["node"], signal.SIGSTOP)
        os.kill(before["writer"], signal.SIGSTOP)
        forced = cli.succeed("stop", "--force", "--json").object
        assert forced == {"pids": {"node": before["node"], "writer": before["writer"]}, "forced": True}
        node_gone()
        writer_gone()
    assert served.wait(DEADLINE_SECONDS) == 1
    assert [row["id"] for row in cli.succeed_here("session", "list", "--json").objects] == [id]


def test_clients_come_back_after_a_stop_by_force(cli: CommandLine) -> None:
    """A program that has the store open goes on: nothing of it is lost or repeated."""
    id = cli.new_session()
    client = cli.start("session", "append", id, "--json")
    assert client.stdin is not None
    client.stdin.write(event_line("note/one").encode())
    client.stdin.flush()
    eventually(lambda: len(cli.here("session", "show", id, "--json").objects) == 2)
    cli.succeed("stop", "--force")
    out, err = client.communicate(event_line("note/two").encode(), timeout=DEADLINE_SECONDS)
    assert (client.returncode, json.loads(out)) == (0, {"first": 1, "last": 2}), err


def test_stop_by_force_spares_another_stores_processes(
    cli: CommandLine, served: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """A copy of a served store names that one's writer in its writer.json, who is none of the copy's."""
    before = pids(cli)
    copy = CommandLine(tmp_path / "copy", tmp_path)
    shutil.copytree(cli.store, copy.store, ignore=shutil.ignore_patterns("*.sock"))
    assert copy.run("stop", "--force").code == 3
    with copy.running("serve", "--json") as other:
        assert other.stdout is not None
        other.stdout.readline()
        shutil.copyfile(cli.store / "writer.json", copy.store / "writer.json")
        assert copy.run("stop", "--force").code == 0
        assert other.wait(DEADLINE_SECONDS) == 1
    assert pids(cli) == before


@pytest.mark.long
def test_a_writer_that_answers_nobody_is_named(cli: CommandLine, served: subprocess.Popen[bytes]) -> None:
    """Looking at a store whose writer is stopped ends after a patience, with the process and what it does."""
    writer = pids(cli)["writer"]
    with stopped(writer):
        outcome = cli.here("session", "list", "--json")
    assert (outcome.code, outcome.error["kind"]) == (1, "not_answering")
    assert (outcome.error["pid"], outcome.error["state"]) in [(writer, "stopped"), (pids(cli)["node"], "running")]
    assert "turnkeeper stop --force" in outcome.err
