"""Contract of a round's course: by its notes, who lived when, what was done to whom, and how soon it was overcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos.course import Course, Lane, Lifetime, Mark, course_of
from turnkeeper.benchmarks.chaos.histogram import EDGES_MS, histogram
from turnkeeper.benchmarks.chaos.notes import Notebook, read_notebooks
from turnkeeper.benchmarks.chaos.times import Times
from turnkeeper.benchmarks.measuring.runs import percentile

BEGAN = 1_000.0


class Round:
    """The notebooks of a round, which are written at the moments that are said."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._at = BEGAN
        self._pid = 1
        monkeypatch.setattr("time.time", lambda: self._at)
        monkeypatch.setattr("os.getpid", lambda: self._pid)
        self.at(0.0, lambda runner: runner.process("node", 1, 10, 1))

    def at(self, seconds: float, write: Callable[[Notebook], None], file: str = "runner.jsonl") -> None:
        """Write a note."""
        self._at = BEGAN + seconds
        with Notebook(self._directory / file) as notebook:
            write(notebook)

    def host(self, name: str, pid: int) -> None:
        """Let a host write a note, and let the runner see it."""
        self._pid = pid
        self.at(0.5, Notebook.leaving, f"{name}.jsonl")
        self.at(1.0, lambda runner: runner.process("host", pid, 10, 1))

    def course(self, *overcome: tuple[int, float]) -> Course:
        """Read everything back; `overcome` are strikes by their lines in the runner's file, and seconds."""
        found = read_notebooks(self._directory.iterdir())
        by_line = {note["line"]: note for note in found if note["file"] == "runner.jsonl"}
        return course_of(found, [(by_line[line], seconds) for line, seconds in overcome])


@pytest.fixture
def round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Round:
    """A round that begins with the sight of a node."""
    return Round(tmp_path, monkeypatch)


def lane(course: Course, name: str) -> Lane:
    """Give the one lane of this name."""
    (found,) = [each for each in course.lanes if each.name == name]
    return found


def only_mark(course: Course) -> Mark:
    """Give the one mark that there is."""
    (mark,) = course.marks
    return mark


def test_a_life_lasts_from_birth_to_the_kill_or_the_last_sight(round: Round) -> None:
    """Who was seen but not killed was there at least as long as that; who was killed, until then, and no longer."""
    round.at(1.0, lambda runner: runner.process("writer", 2, 10, 1, born=BEGAN + 0.25))
    round.at(2.0, lambda runner: runner.process("writer", 2, 10, 1, born=BEGAN + 0.25))
    round.at(2.5, lambda runner: runner.strike("kill", "writer", [2]))
    round.at(2.6, lambda runner: runner.process("writer", 2, 10, 1, born=BEGAN + 0.25))
    round.at(3.0, lambda runner: runner.process("writer", 3, 10, 1))
    round.at(4.0, lambda runner: runner.process("writer", 3, 10, 1))
    course = round.course()
    assert lane(course, "writer").lifetimes == (Lifetime(2, 0.25, 2.5, True), Lifetime(3, 3.0, 4.0, False))
    assert lane(course, "node").lifetimes == (Lifetime(1, 0.0, 0.0, False),)
    assert (course.began, course.seconds) == (BEGAN, 4.0)


def test_who_was_killed_before_anybody_saw_it_has_a_life_too(round: Round) -> None:
    """A kill names its process, so it isn't forgotten, however short it lived."""
    round.at(1.0, lambda runner: runner.strike("kill", "spawner", [7]))
    assert lane(round.course(), "spawner").lifetimes == (Lifetime(7, 1.0, 1.0, True),)


def test_a_process_that_killed_itself_died_when_it_did(round: Round) -> None:
    """At a failpoint it dies by itself, and the runner learns of that later, when it has done other things."""
    round.at(1.0, lambda runner: runner.strike("arm", "writer", point="writer-committed"))
    round.at(1.0, lambda runner: runner.process("writer", 2, 10, 1))
    round.at(2.0, lambda runner: runner.strike("power", "disk"))
    round.at(3.0, lambda runner: runner.strike("kill", "writer", [2], point="writer-committed", died=BEGAN + 1.25))
    course = round.course()
    armed, killed, _ = course.marks
    assert (armed.kind, armed.name, armed.at) == ("arm", "writer-committed", 1.0)
    assert (killed.kind, killed.at, killed.says) == ("kill", 1.25, {"point": "writer-committed"})
    assert lane(course, "writer").lifetimes == (Lifetime(2, 1.0, 1.25, True),)


def test_hosts_have_lanes_by_name_whatever_run_they_are_in(round: Round) -> None:
    """Their names are in their notebooks, with their pids; one strike at two of them is a mark on each lane."""
    round.host("host-1.1", 20)
    round.host("host-0.2", 21)
    round.host("host-1.3", 22)
    round.at(1.0, lambda runner: runner.process("host", 99, 10, 1))
    round.at(2.0, lambda runner: runner.strike("kill", "host", [20, 21]))
    course = round.course()
    assert [each.name for each in course.lanes] == ["host-0", "host-1", "hosts", "node"]
    assert [life.pid for life in lane(course, "host-1").lifetimes] == [20, 22]
    assert [(mark.lane, mark.pids) for mark in course.marks] == [("host-1", (20,)), ("host-0", (21,))]
    assert course.kills == {"host": 2}


def test_a_worker_s_notebook_names_no_host(round: Round) -> None:
    """Its file begins as its host's, and it is another process."""
    round.host("host-0.1.agent-0-1.1", 30)
    round.at(1.0, lambda runner: runner.strike("kill", "worker", [30, 31]))
    course = round.course()
    mark = only_mark(course)
    assert (mark.lane, mark.pids) == ("workers", (30, 31))
    assert [each.name for each in course.lanes] == ["hosts", "node"]


def test_a_fault_lasts_until_it_is_lifted(round: Round) -> None:
    """Each lift ends the first of its kind that lasts; one that nothing ended has no end."""
    for at in (0.5, 1.0, 2.0):
        round.at(at, lambda runner: runner.strike("slow", "writer", [2]))
    for at in (2.5, 3.0):
        round.at(at, lambda runner: runner.strike("lift", "writer", fault="slow"))
    round.at(3.0, lambda runner: runner.strike("stop", "node", [1]))
    round.at(4.0, lambda runner: runner.strike("continue", "node", fault="stop"))
    course = round.course()
    assert [(mark.name, mark.lane, mark.until) for mark in course.marks] == [
        ("slow", "writer", 2.5),
        ("slow", "writer", 3.0),
        ("slow", "writer", None),
        ("stop", "node", 4.0),
    ]
    assert course.counted("fault") == {"slow": 3, "stop": 1}


def test_a_fault_that_hit_nobody_is_told_apart(round: Round) -> None:
    """Whether it was tried or not; and one of its kind that goes on meanwhile stays what it is."""
    round.at(1.0, lambda runner: runner.strike("eio", "writer", [2]))
    round.at(2.0, lambda runner: runner.strike("missed", "writer", fault="eio", tried=False, why="no writer"))
    round.at(3.0, lambda runner: runner.strike("short", "writer", [2]))
    round.at(3.1, lambda runner: runner.strike("missed", "writer", fault="short", tried=True, why="no journal"))
    course = round.course()
    assert course.counted("fault") == {"eio": 1}
    assert course.counted("missed") == {"eio": 1, "short": 1}
    assert [mark.says["why"] for mark in course.marks if mark.kind == "missed"] == ["no writer", "no journal"]


def test_how_something_was_spoiled_is_told_with_it(round: Round) -> None:
    """It is known only behind it, and noted then."""
    round.at(1.0, lambda runner: runner.strike("index-damaged", "index"))
    round.at(1.1, lambda runner: runner.strike("spoiled", "index", how="zeroed"))
    mark = only_mark(round.course())
    assert (mark.lane, mark.name, mark.says) == ("store", "index-damaged", {"how": "zeroed"})


def test_each_life_of_the_store_but_the_first_has_a_border(round: Round) -> None:
    """There it was opened anew, after all had left it or were killed."""
    for number, at in ((1, 0.5), (2, 3.0), (3, 5.5)):
        round.at(at, partial(Notebook.life, number=number))
    assert round.course().borders == (3.0, 5.5)


def test_what_was_overcome_says_after_how_long(round: Round) -> None:
    """A strike that nothing new came behind says nothing."""
    round.at(1.0, lambda runner: runner.strike("kill", "writer", [2]))
    round.at(2.0, lambda runner: runner.strike("kill", "node", [1]))
    course = round.course((2, 0.3))
    assert [mark.recovery for mark in course.marks] == [0.3, None]


def test_flushes_are_timed_by_who_waited_for_them(round: Round) -> None:
    """Wherever they were noted; an acknowledgement that nobody waited for has no time."""
    for _ in range(2):
        round.at(1.0, lambda host: host.acknowledged("a", 1, seconds=0.002), "host-0.1.jsonl")
    round.at(1.0, lambda host: host.acknowledged("a", 1, seconds=0.8), "host-0.2.agent-0-1.1.jsonl")
    round.at(1.0, lambda host: host.acknowledged("a", 1), "host-1.1.jsonl")
    flushes = round.course().flushes
    assert flushes.counts.total() == 3
    assert flushes.percentile(50) == pytest.approx(0.002, rel=0.01)


def test_times_in_little_memory_have_their_percentiles_to_within_a_hundredth() -> None:
    """From microseconds to hours, one for each percent or two for each; put together they are as one."""
    times = [0.000_003 * 1.3**power for power in range(80)]
    half, whole = Times.of(times[::2]), Times.of(times[1::2])
    whole.update(half)
    for percent in range(1, 101):
        assert whole.percentile(percent) == pytest.approx(percentile(times, percent), rel=0.0101)
    assert len(Times.of(0.001 + 0.000_000_02 * number for number in range(1000)).counts) <= 3
    assert Times.of([0.0]).percentile(50) == pytest.approx(1e-6, rel=0.01)
    assert Times().percentile(50) is None


def test_a_round_without_notes_has_an_empty_course() -> None:
    """As one that was interrupted before it began."""
    assert course_of([]) == Course(0.0, 0.0, (), ())


def test_times_are_counted_in_classes_that_leave_none_out() -> None:
    """From the first class that has any to the last, those between them too; a time on an edge begins its class."""
    found = histogram([0.0049, 0.005, 0.00999, 0.05, 3600.0])
    assert [(each.label, each.times) for each in found if each.times] == [
        ("below 5 ms", 1),
        ("5 ms - 10 ms", 2),
        ("50 ms - 100 ms", 1),
        ("from 50 s", 1),
    ]
    assert [each.from_ms for each in found] == list(EDGES_MS)
    assert [each.label for each in histogram([0.6, 1.0])] == ["500 ms - 1 s", "1 s - 2 s"]
    assert histogram([]) == []
