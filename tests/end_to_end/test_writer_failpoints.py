"""End to end: a writer that was started with failpoints dies or stops there, and has the limits that it was given."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.failpoints import limits_of
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.benchmarks.chaos.checker.journal import read_journal, read_segments
from turnkeeper.runtime import failpoints

from ..served import SECONDS_MAX, wait_unserved

EVENTS = 12
PART_BYTES = 2500


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the failpoints of all that is started; a writer has small segments."""
    (tmp_path / "points").mkdir()
    monkeypatch.setenv(failpoints.VARIABLE, str(tmp_path / "points"))
    monkeypatch.setenv(failpoints.LIMITS_VARIABLE, json.dumps(limits_of(PART_BYTES)))
    return tmp_path / "points"


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["trio"])
@pytest.mark.parametrize("point", ["writer-names-segment", "writer-named-segment", "writer-cuts-filling"])
async def test_a_writer_that_dies_when_it_rolls_loses_nothing(tmp_path: Path, points: Path, point: str) -> None:
    """Its successor goes on in the old segment or the new one, and what is sealed has no filling in the end."""
    store = tmp_path / "store"
    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(store) as runtime, await runtime.create_session() as session:
            for number in range(EVENTS):
                await session.append("note/number", {"number": number, "text": "some text " * 50})
                await session.flush()
                if number == 1:
                    (points / point).write_text(str(signal.SIGKILL.value))
    wait_unserved(store, SECONDS_MAX)
    (obeyed,) = os.listdir(points)
    assert obeyed.startswith(f"{point}.")
    assert len(read_segments(store)) >= EVENTS * 500 // PART_BYTES
    stored = read_journal(store)
    assert stored.faults == []
    assert [event.data["number"] for event in stored.events] == list(range(EVENTS))
