"""How the command line reads and shows durations, sizes and tasks."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest

from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.runtime.cli.task_rows import as_row, ending, shown_progress
from turnkeeper.runtime.cli.values import age, duration, shown_duration, shown_size, size

TASK = TaskState(
    id="task-brave-otter-1c9e77f0",
    state="ended",
    how={"code": 0},
    by="itself",
    why=None,
    survivors=[],
    survivors_more=0,
    command=["true"],
    cwd="/",
    session=None,
    group=None,
    key=None,
    keep=True,
    pid=7,
    requested=1000,
    started=1001,
    ended=2001,
    output_bytes=0,
    output=None,
    progress=None,
    position=5,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("10m", 600),
        ("1h30m", 5400),
        ("7d", 604800),
        ("2w", 1209600),
        ("500ms", 0.5),
        ("1.5s", 1.5),
        ("1m500ms", 60.5),
        (" 1d2h3m4s ", 93784),
    ],
)
def test_a_duration_has_units(text: str, seconds: float) -> None:
    """Amounts with their units, the largest first."""
    assert duration(text) == seconds
    assert age(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "", " ", "-5s", "5", "s", "1Y", "5 s", "30m1h", "1e3s", "inf", "nan", "٣s", "1s1s"]
)
def test_a_duration_without_a_unit_is_refused(text: str) -> None:
    """What isn't clear is refused, and the line says what to write."""
    with pytest.raises(
        click.BadParameter, match=r"is no duration; write a number with its unit .* such as 30s or 1h30m"
    ):
        duration(text)


def test_no_time_at_all_is_an_age_only() -> None:
    """Nothing waits for 0 seconds, but something can be 0 seconds old."""
    assert age("0s") == 0
    with pytest.raises(click.BadParameter, match="'0s' is no time at all"):
        duration("0s")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1B", 1),
        ("100MB", 100_000_000),
        ("64KiB", 65_536),
        ("1.5kB", 1500),
        ("4GiB", 4 * 1024**3),
        ("2 TB", 2 * 10**12),
    ],
)
def test_a_size_has_a_unit(text: str, count: int) -> None:
    """Powers of 1000 and of 1024 are told apart."""
    assert size(text) == count


@pytest.mark.parametrize("text", ["100", "", "-1MB", "1M", "1mb", "MB", "1e3MB", "inf"])
def test_a_size_without_a_unit_is_refused(text: str) -> None:
    """What isn't clear is refused, and the line says what to write."""
    with pytest.raises(click.BadParameter, match=r"is no size; write a number with its unit .* such as 100MB"):
        size(text)


@pytest.mark.parametrize("text", ["0B", "0MB", "0.5B"])
def test_a_limit_of_nothing_is_refused(text: str) -> None:
    """Nothing could be written at all."""
    with pytest.raises(click.BadParameter, match="is less than a byte"):
        size(text)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99400, "99.4 kB"),
        (99600, "100 kB"),
        (999600, "1.0 MB"),
        (5 * 10**12, "5.0 TB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_sizes_are_shown_short(count: int, shown: str) -> None:
    """Three digits at most, below petabytes."""
    assert shown_size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.6, "1m0s"), (3599.9, "1h0m"), (90_061, "1d1h"), (604_800, "7d0h")],
)
def test_durations_are_shown_short(seconds: float, shown: str) -> None:
    """By their two largest units."""
    assert shown_duration(seconds) == shown


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({}, "exit 0"),
        ({"state": "running", "how": None}, ""),
        ({"how": {"code": 143}}, "exit 143"),
        ({"how": {"signal": 15}, "by": "unknown"}, "SIGTERM"),
        ({"how": {"signal": 15}, "by": "stop"}, "SIGTERM, by stop"),
        ({"how": {"signal": 9}, "by": "timeout"}, "SIGKILL, by timeout"),
        ({"how": {"signal": 9}, "by": "output limit"}, "SIGKILL, by output limit"),
        ({"how": {"signal": 99}, "by": "owner"}, "signal 99, by owner"),
        ({"how": {"not_started": "no such interpreter"}}, "not started: no such interpreter"),
        ({"state": "lost", "how": None, "by": "unknown", "why": "its shim was killed"}, "lost: its shim was killed"),
        ({"how": None, "by": None}, "unknown"),
        ({"survivors": [5]}, "exit 0, 1 process left"),
        ({"survivors": [5, 6], "survivors_more": 2}, "exit 0, 4 processes left"),
    ],
)
def test_each_end_is_shown_as_what_it_is(changes: dict[str, object], shown: str) -> None:
    """By itself or by whom, with what, and what is left; nobody's guess."""
    assert ending(replace(TASK, **changes)) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("progress", "shown"),
    [
        (None, ""),
        ({"percent": 42.4, "reported": True}, "42%"),
        ({"current": 1234, "unit": "files", "reported": False}, "1,234 files"),
        (
            {"percent": 50, "current": 5, "total": 10, "phase": "link", "message": "now", "reported": True},
            "50%  5/10  link  now",
        ),
    ],
)
def test_progress_is_shown_short(progress: dict[str, object] | None, shown: str) -> None:
    """What is known of it, and no figure that isn't."""
    assert shown_progress(replace(TASK, progress=progress)) == shown


def test_scripts_get_all_members_of_a_task() -> None:
    """The documented members are there, and no place in the journal."""
    row = as_row(TASK)
    assert {"id", "state", "how", "by", "command", "session", "group", "started", "ended"} <= row.keys()
    assert {"output_bytes", "progress", "survivors"} <= row.keys()
    assert "position" not in row
