"""Openings that close what a crash left open, killed at each operation on the disk: one closing comes of it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.client import owned_stream
from turnkeeper.actors.folding import CallFate
from turnkeeper.actors.records import Event
from turnkeeper.actors.session.opening import open_session
from turnkeeper.actors.session.session import Session
from turnkeeper.storage import store
from turnkeeper.storage.backend import Backend, open_reader

from ..closed_logs import assert_closed, reason_of
from ..loopback import Loopback
from ..stores import make_store
from .killed_moments import Snapshots, opened

CALLS = 12
"""Calls that the killed owner has left unanswered; every second one had begun."""

FATES = [CallFate(f"call-{n}", "bash", "unknown" if n % 2 else "not_started") for n in range(CALLS)]


@contextlib.asynccontextmanager
async def opened_session(path: Path, backend: Backend) -> AsyncIterator[Session]:
    """Open the session "job" of a store as a client does."""
    client = Loopback(path, backend).client
    stream, reply = await client.open_stream("job")
    session = await open_session(client, stream, reply["summary"])
    try:
        yield session
    finally:
        await session.aclose()
        await client.reads.aclose()


async def leave_turn_open(path: Path) -> None:
    """Do as an owner does that is killed in a turn."""
    with opened(path) as backend:
        client = Loopback(path, backend).client
        header = {"id": "left-open-0000", "kind": "session", "key": "job"}
        stream, reply = await client.open_stream("job", create=header)
        session = await open_session(client, stream, reply["summary"])
        await session.append("turn/start", {"turn": 1})
        calls = [{"id": fate.id, "name": fate.name} for fate in FATES]
        await session.append("assistant/message", {"text": "", "tool_calls": calls})
        for fate in FATES[1::2]:
            await session.tool_started(fate.id, fate.name, {})
        await session.flush()
        session.give_up = lambda: None  # type: ignore[method-assign]
        session._is_closed = True
        await client.reads.aclose()


async def close(path: Path, snapshots: Snapshots | None = None) -> tuple[list[Event], list[CallFate] | None]:
    """Open the session, and give its log and what the opening told."""
    with opened(path, snapshots) as backend:
        async with opened_session(path, backend) as session:
            log = await session.read()
            return log, None if session.interrupted is None else session.interrupted.calls


@pytest.mark.parametrize("kept_by", ["journal", "sqlite"])
@pytest.mark.parametrize("is_long", [False, True], ids=["in one commit", "in several"])
def test_a_closing_killed_at_any_step_is_made_once(
    memory_path: Path, kept_by: store.BackendName, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of it was stored, the next opening adds the rest, byte for byte as if nothing had happened.

    It tells of every call, also of those that the killed one had closed; so does the opening after that, which has
    nothing to do.
    """
    path = memory_path / "store"
    make_store(path, kept_by)
    anyio.run(leave_turn_open, path)
    if is_long:
        monkeypatch.setattr(owned_stream, "GROUP_BYTES_MAX", 300)
        monkeypatch.setattr(owned_stream, "EARLY_BYTES", 1)
    snapshots = Snapshots(path)
    log, fates = anyio.run(close, path, snapshots)
    assert fates == FATES
    assert_closed(log)
    assert reason_of(log) == "interrupted"
    heads = set()
    for copy in snapshots.taken:
        with contextlib.closing(open_reader(str(copy))) as reader:
            heads.add(reader.row("job").head)
        again, fates = anyio.run(close, copy)
        assert (contents(again), fates) == (contents(log), FATES)
        assert anyio.run(close, copy) == (again, FATES)
        shutil.rmtree(copy)
    assert heads >= {log[-1].seq + 1, log[-1].seq - CALLS}
    assert (len(heads) > 2) == is_long


def contents(log: list[Event]) -> list[tuple[int, str, object, int]]:
    """Give what an event is, wherever in the store it lies."""
    return [(event.seq, event.type, event.data, event.time) for event in log]
