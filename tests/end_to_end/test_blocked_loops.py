"""End to end: event loops that don't turn: a host is told, a worker killed with its stacks, node and writer return."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper import ChildSpec, Supervisor
from turnkeeper.actors import launch
from turnkeeper.actors.node import node_main
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.writer import writer_main
from turnkeeper.runtime.errors import ActorNotStarted, ActorUnknown, WorkerDied
from turnkeeper.runtime.watchdog import Blockage
from turnkeeper.runtime.workers.worker import spawn_in_process

from ..actors_at_work import Clerk
from ..marks import appears
from ..served import SECONDS_MAX, node_of, writer_of
from ..worker_hosts import write_module

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

ROOT = Path(__file__).resolve().parents[2]

CRASHING = """
import os, signal, sys
print("said by the import", file=sys.stderr)
class Crashing:
    async def crash(self):
        os.kill(os.getpid(), signal.SIGSEGV)
"""

BLOCKING = """
import os, runpy, sys, time
sys.path.insert(0, {imports!r})
from turnkeeper.actors import own_loop{imported}
own_loop.PROCESS_BLOCKED_SECONDS = 0.5
{patch}
runpy.run_path({file!r}, run_name="__main__")
"""
"""A node's or writer's program that has less patience than usual, and a patch."""

BLOCK_ONCE = """
def block(*args, _mark={mark!r}, _real={method}):
    if not os.path.exists(_mark):
        open(_mark, "w").close()
        time.sleep(600)
    return _real(*args)
{method} = block
"""


# -- Workers


async def test_a_blocked_worker_is_killed_and_its_end_tells_where_it_was(group: TaskGroup, tmp_path: Path) -> None:
    """Who asked gets the stacks as the cause; what waited behind wasn't started; and the end has them for monitors."""
    clerk = await spawn_in_process(group, Clerk, blocked_seconds=0.5)
    pid = await clerk.ask("pid")
    with pytest.raises(ActorUnknown) as caught:
        await clerk.ask("block", str(tmp_path / "mark"))
    how = f"its worker process {pid} was killed by SIGKILL: the event loop was blocked for 0.5 s"
    assert str(caught.value) == f"whether Clerk.block was done is unknown: {how}"
    died = caught.value.__cause__
    assert isinstance(died, WorkerDied)
    assert "Thread MainThread (most recent call last):" in died.words
    assert "in block\n" in died.words
    assert died.__notes__ == [f"Its last words:\n{died.words.rstrip()}"]
    end = await clerk.wait_ended()
    assert (end.reason, end.error, end.normal) == (how, died, False)
    with pytest.raises(ActorNotStarted, match="the event loop was blocked"):
        await clerk.ask("notes")


async def test_a_blocked_worker_is_started_again_by_its_supervisor(group: TaskGroup, tmp_path: Path) -> None:
    """As after any other death; a monitor is told of the stacks."""
    clerks = ChildSpec("clerk", Clerk, process=True, blocked_seconds=0.5)
    supervisor = await Supervisor.start(group, clerks)
    clerk = supervisor.ref("clerk")
    pid = await clerk.ask("pid")
    await clerk.tell("block", str(tmp_path / "mark"))
    down = await supervisor.monitor("clerk")
    assert isinstance(down.error, WorkerDied)
    assert "in block\n" in down.error.words
    assert await clerk.ask("pid") != pid
    await supervisor.stop()


async def test_a_worker_that_is_not_watched_may_block(group: TaskGroup) -> None:
    """Whoever computes in a handler says so."""
    clerk = await spawn_in_process(group, Clerk, blocked_seconds=None)
    assert await clerk.ask("nap", 1.0) == await clerk.ask("pid")
    with pytest.raises(ValueError, match="blocked after some seconds, not 0"):
        await spawn_in_process(group, Clerk, blocked_seconds=0)
    watched = await spawn_in_process(group, Clerk, blocked_seconds=0.2)
    with pytest.raises(ActorUnknown, match=r"was blocked for 0\.2 s"):
        await watched.ask("nap", 600.0)


async def test_a_worker_that_was_stopped_for_long_is_not_a_blocked_one(group: TaskGroup) -> None:
    """SIGSTOP, or a machine that sleeps: only time in which it could have run counts."""
    clerk = await spawn_in_process(group, Clerk, blocked_seconds=0.5)
    pid = await clerk.ask("pid")
    os.kill(pid, signal.SIGSTOP)
    await anyio.sleep(1.5)
    os.kill(pid, signal.SIGCONT)
    assert await clerk.ask("pid") == pid


async def test_a_crash_in_c_leaves_its_stacks_too(group: TaskGroup, tmp_path: Path) -> None:
    """A worker that dies of a segmentation fault says where, and not what its import said."""
    target = write_module(tmp_path, "crashing", CRASHING) + ":Crashing"
    with pytest.raises(ActorUnknown, match=r"SIGSEGV: Fatal Python error: Segmentation fault$"):
        await (crashing := await spawn_in_process(group, target)).ask("crash")
    end = await crashing.wait_ended()
    assert isinstance(end.error, WorkerDied)
    assert end.error.words.startswith("Fatal Python error: Segmentation fault\n")
    assert "in crash" in end.error.words


# -- Hosts


async def test_a_blocked_host_is_told_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By the log and by its own function, once, with its stacks; a function that fails is said and harms nothing."""
    told: list[Blockage] = []

    def on_blocked(blockage: Blockage) -> None:
        told.append(blockage)
        raise RuntimeError("not today")

    with caplog.at_level(logging.WARNING, "turnkeeper"):
        async with open_runtime(tmp_path / "store", blocked_seconds=0.2, on_blocked=on_blocked) as runtime:
            deadline = time.monotonic() + SECONDS_MAX
            while len(caplog.records) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)  # noqa: ASYNC251 - this blocks on purpose
            assert await runtime.sessions() == []
    assert [blockage.seconds for blockage in told] == [0.2]
    assert "in test_a_blocked_host_is_told_and_goes_on\n" in told[0].stacks
    said, failed = (record.getMessage() for record in caplog.records)
    assert said == f"the event loop was blocked for 0.2 s:\n{told[0].stacks.rstrip()}"
    assert failed == "on_blocked failed"


# -- Node and writer


def make_blocking(folder: Path, name: str, main_file: str, imported: str, method: str | None, patch: str = "") -> str:
    """Write a program that is the node or the writer, whose method blocks when it is called for the first time."""
    blocks = BLOCK_ONCE.format(mark=str(folder / f"{name} blocked"), method=method) if method else ""
    program = folder / name
    source = BLOCKING.format(
        imports=str(ROOT / ".import"), imported=imported, patch=f"{patch}\n{blocks}", file=main_file
    )
    program.write_text(source)
    return str(program)


async def test_a_blocked_writer_is_ended_with_its_stacks_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append that it was at is stored by the next one, once; the index isn't suspected."""
    writer = make_blocking(
        tmp_path,
        "writer.py",
        writer_main.__file__,
        "\nfrom turnkeeper.actors.writer.writer import Writer",
        "Writer._commit",
    )
    patch = f"from turnkeeper.actors import launch\nlaunch._WRITER_FILE = {writer!r}"
    monkeypatch.setattr(
        launch, "_NODE_FILE", make_blocking(tmp_path, "node.py", node_main.__file__, "", None, patch=patch)
    )
    store = tmp_path / "store"
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(store) as runtime:
            first = writer_of(store)
            async with await runtime.create_session() as session:
                await session.append("note/word", {"n": 1})
                await session.flush()
                assert (await runtime.read(session.id)).head == session.head
            assert writer_of(store) != first
    log = (store / "node.log").read_text()
    assert f"[{first}] the event loop was blocked for 0.5 s, and this process is ended; where it was:" in log
    assert "in block\n" in log
    assert f"the writer, process {first}, was killed by SIGKILL" in log
    assert log.count("is ended; where it was") == 1


async def test_a_blocked_node_is_ended_and_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its clients find the next one, as after any death of a node."""
    node = make_blocking(
        tmp_path, "node.py", node_main.__file__, "\nfrom turnkeeper.actors.node.node import Node", "Node._stands"
    )
    monkeypatch.setattr(launch, "_NODE_FILE", node)
    store = tmp_path / "store"
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(store) as runtime:
            first = node_of(store)
            await appears(tmp_path / "node.py blocked")
            while node_of_or_none(store) in (first, None):  # noqa: ASYNC110
                await anyio.sleep(0.01)
            async with await runtime.create_session() as session:
                await session.append("note/word", {"n": 1})
    assert f"[{first}] the event loop was blocked for 0.5 s" in (store / "node.log").read_text()


def node_of_or_none(store: Path) -> int | None:
    """Give the store's node; None between two."""
    try:
        return node_of(store)
    except AssertionError:
        return None
