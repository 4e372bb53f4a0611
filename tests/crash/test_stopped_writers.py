"""Writers that are stopped in the middle of something, outlive what they belong to, and are continued later."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import pytest

from turnkeeper.actors.client.asking import ask_hello
from turnkeeper.actors.errors import NodeNotAnswering
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.reading import open_reader

from ..serving import eventually, first_append, next_append, served_store, stopped, watched
from ..stores import event
from .killed_writer import Told, killed_writer
from .writer_program import EXIT_FAILED, Job


def _journal_bytes(path: Path) -> bytes:
    return (path / "journal" / "00000001.jsonl").read_bytes()


@pytest.mark.parametrize("number", [30, 31, 64, 65])
@pytest.mark.parametrize("then", ["continued", "killed"])
def test_a_writer_stopped_in_a_commit_keeps_everybody_out(memory_path: Path, number: int, then: str) -> None:
    """While it is stopped the lock is its own; continued it goes on as if nothing had been, killed it loses nothing."""
    path = memory_path / "store"
    told = Told()
    with killed_writer() as writer:
        writer.start(Job(str(path), seed=8, steps=40, kill_at=number, how="stop"))
        eventually(lambda: Path(f"/proc/{writer.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        assert store_is_held(str(path))
        before = _journal_bytes(path)
        with killed_writer() as successor:
            refused = Told()
            assert successor.run(Job(str(path), seed=9, steps=1), refused) == EXIT_FAILED
            assert refused.failed == "somebody else writes to this store"
        assert _journal_bytes(path) == before
        if then == "killed":
            writer.kill()
            assert writer.hear_end(told) == -signal.SIGKILL
        else:
            writer.go_on()
            assert writer.hear_end(told) == 0
    assert told.heads
    told.check(path, "boot 1")


def test_an_orphaned_writer_that_wakes_overwrites_nothing(tmp_path: Path) -> None:
    """Stopped under a killed node with work before it, it holds the store: openers are told who does, and wait.

    Continued it may still store what it was sent, as it has the lock; then it ends, and the next node's writer goes on
    behind everything that was acknowledged.
    """
    path = tmp_path / "store"
    with served_store(path) as store, store.writer() as writer:
        assert writer.ask([1, [first_append("a")]])[1][0][:2] == [0, 1]
        pid = store.writer_pid()
        with watched(pid) as wait_until_gone:
            with stopped(pid):
                writer.send([2, [next_append("a", 1)]])
                before = _journal_bytes(path)
                store.process.kill()
                store.process.wait()
                with pytest.raises(NodeNotAnswering) as caught:
                    ask_hello(str(path), patience=0.2)
                assert (caught.value.pid, caught.value.state) == (pid, "stopped")
                assert _journal_bytes(path) == before
            wait_until_gone()
        assert _journal_bytes(path).startswith(before.rstrip(b"\n"))
    with served_store(path) as store, store.writer() as writer:
        assert writer.ask([1, [next_append("a", 1), next_append("a", 2)]])[1][1][:2] == [2, 3]
        with contextlib.closing(open_reader(str(path), writer.hello["index"])) as reader:
            found = [stored.line + b"\n" for stored in reader.read("a").events]
    assert found == [event("a", 0), event("a", 1), event("a", 2)]
