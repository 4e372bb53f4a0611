"""The follow benchmark on a small input: everybody had every event, message and token, or there is no figure."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.benchmarks.driving.baselines import AppendedFile, Flushed
from turnkeeper.benchmarks.following import followed_stores
from turnkeeper.benchmarks.following.followed_stores import (
    NUMBER,
    EventTable,
    Moments,
    Pace,
    Wakes,
    append_paced,
    receive,
)
from turnkeeper.benchmarks.following.follows import Sizes, measure
from turnkeeper.benchmarks.following.live import _figures
from turnkeeper.benchmarks.workplace import run_alone

TINY = Sizes(
    Pace(sessions=3, per_second=200, events=4),
    crowds=(2,),
    catching_up=1_000,
    messages=2,
    tokens_per_second=5_000,
    tokens=300,
    rounds=1,
)


def test_following_sending_and_writing_are_measured(tmp_path: Path) -> None:
    """Through real nodes, with everybody in a process of his own."""
    runs = run_alone("follow", partial(measure, TINY), tmp_path)["runs"]
    assert [(run["name"], run["params"]["against"]) for run in runs] == [
        ("follow live from_plan_p50_ms", "JSONL, inotify"),
        ("follow live from_plan_p99_ms", "JSONL, inotify"),
        ("follow live from_plan_p50_ms", "JSONL, each 100 ms"),
        ("follow live from_plan_p99_ms", "JSONL, each 100 ms"),
        ("follow live from_plan_p50_ms", "SQLite, each 10 ms"),
        ("follow live from_plan_p99_ms", "SQLite, each 10 ms"),
        ("follow catch_up per_second", "JSONL parsed"),
        ("follow catch_up per_second", "SQLite, by rowid"),
        ("send to accepted p50_ms", "a flush"),
        ("token us_a_token", "a buffered line a token"),
        ("token lines", "a line a token"),
    ]
    for run in runs[:6]:
        for figures in (run["figures"], run["base"]):
            assert figures["acknowledged_p50_ms"] > 0
            assert figures["p50_ms"] <= figures["from_plan_p50_ms"] <= figures["from_plan_p99_ms"]
    assert runs[6]["params"]["events"] == 1_000
    assert 0 < runs[10]["figures"]["lines"] < 30
    assert [path.name for path in tmp_path.iterdir()] == ["follow.json"]


def test_what_a_follower_had_counts_from_the_plan_and_from_the_acknowledgement() -> None:
    """Who had it before its appender knew had it at once, and is behind the plan all the same."""
    figures = _figures([Moments(1.0, 1.5), Moments(2.0, 2.002)], [[1.4, 2.003], [1.6, 2.006]])
    assert figures["most_ms"] == pytest.approx(100, rel=0.01)
    assert figures["p50_ms"] == pytest.approx(1, rel=0.01)
    assert figures["from_plan_p99_ms"] == pytest.approx(600, rel=0.01)


def test_a_timetable_has_a_moment_for_each_event() -> None:
    """Sessions have them in turn; the plan is kept to, whatever an append takes."""
    appended: list[tuple[int, int]] = []

    async def append(session: int, data: dict[str, Any]) -> int:
        appended.append((session, data[NUMBER]))
        return len(appended)

    moments, place = anyio.run(append_paced, append, Pace(2, 1_000, 5), backend="trio")
    assert sorted(appended) == [(0, 0), (0, 2), (0, 4), (1, 1), (1, 3)]
    assert place == 5
    assert [each.planned - moments[0].planned for each in moments] == pytest.approx([0, 0.001, 0.002, 0.003, 0.004])
    assert all(each.acknowledged >= each.planned for each in moments)


@pytest.mark.parametrize("wakes", [followed_stores._changes, followed_stores._ticks], ids=["woken", "looking"])
def test_a_file_is_followed_line_by_line(wakes: Wakes, tmp_path: Path) -> None:
    """From a place on, also lines that come in two pieces, and by several followers at a time."""
    path = tmp_path / "append.jsonl"
    lines = [b'{"data":{"number":%d}}\n' % number for number in range(3)]
    path.write_bytes(b"what was there before\n")

    async def follow() -> list[list[float]]:
        received: list[list[float]] = []

        async def be_followers() -> None:
            lines_of = partial(followed_stores._lines, path, wakes)
            received.extend(await receive(lines_of, 2, path.stat().st_size, 3))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_followers)
            await anyio.wait_all_tasks_blocked()
            with path.open("ab", buffering=0) as file:
                for piece in (lines[0] + lines[1][:5], lines[1][5:], lines[2]):
                    file.write(piece)
                    await anyio.wait_all_tasks_blocked()
        return received

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(followed_stores, "TAIL_SECONDS", 0.001)
        received = anyio.run(follow, backend="trio")
    assert len(received) == 2
    assert all(times == sorted(times) and all(times) for times in received)


def test_a_table_gives_what_is_behind_a_place(tmp_path: Path) -> None:
    """In the order in which it was inserted, to whoever has it open."""
    with closing(EventTable(tmp_path)) as writing, closing(EventTable(tmp_path)) as reading:
        assert writing.append(7, b"one") == 1
        writing.fill([b"two", b"three"])
        assert reading.behind(1) == [(2, b"two"), (3, b"three")]
        assert reading.behind(3) == []


def test_the_file_that_is_appended_to_is_the_one_that_is_followed(tmp_path: Path) -> None:
    """Or else everybody would wait for ever."""
    with closing(AppendedFile(tmp_path, 1)) as file:
        file.flush([Flushed(0, 0, b"line\n")])
    assert (tmp_path / followed_stores._FILE).read_bytes() == b"line\n"
