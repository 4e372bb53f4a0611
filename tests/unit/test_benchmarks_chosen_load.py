"""A load that somebody asks for: what makes no sense is refused, what does is measured as it was asked."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import orjson
import pytest
from click.testing import CliRunner

from turnkeeper.actors.blob_references import SPILL_BYTES
from turnkeeper.benchmarks.driving.baselines import DATABASE
from turnkeeper.benchmarks.driving.hosts import Terms
from turnkeeper.benchmarks.driving.loads import Lines, Load
from turnkeeper.benchmarks.driving.sessions import DrivenSessions, Workers
from turnkeeper.benchmarks.flushing import chosen_load
from turnkeeper.benchmarks.flushing.chosen_load import BASELINE_WORDS, PEER_WORDS, Question, measure, question_of
from turnkeeper.benchmarks.flushing.subjects import BASELINES, SQLITE_STORE
from turnkeeper.benchmarks.measuring.durability import PROCESS_DEATH
from turnkeeper.benchmarks.measuring.runs import Run
from turnkeeper.benchmarks.peers.catalogue import SQLITE
from turnkeeper.benchmarks.peers.keeper_hosts import KeeperHost
from turnkeeper.benchmarks.report.flushes import flushes_of
from turnkeeper.benchmarks.report.marks import MARKS
from turnkeeper.benchmarks.stores.contents import EVENT_BYTES, EVENT_BYTES_MAX, Contents, EventSizes
from turnkeeper.benchmarks.workplace import run_alone
from turnkeeper.runtime.cli.bench import flush
from turnkeeper.runtime.cli.program import run

from ..bench_results import flush_runs, result_of


def sizes_of(sizes: EventSizes, session: int, count: int) -> list[int]:
    """Give how long the lines of a session's first events are."""
    return [len(each.line) for each in Lines(session + 1, sizes).events(session, count)]


@pytest.mark.parametrize("size", [128, 460, 250_000])
def test_events_of_one_size_have_it(size: int) -> None:
    """Within the bytes that their numbers take."""
    assert sizes_of(EventSizes.parse(str(size)), 0, 20) == pytest.approx([size] * 20, abs=3)


def test_the_largest_event_is_a_line_and_no_blob() -> None:
    """Blobs of one content are written once: ours would be measured with less than the others write."""
    assert EVENT_BYTES_MAX + 1_000 < SPILL_BYTES


def test_sizes_between_two_have_each_octave_as_often() -> None:
    """None lies outside; half of them lie below the geometric middle, so a large one is rare."""
    sizes = EventSizes.parse("200-3200")
    drawn = sizes.drawn()
    assert 200 <= min(drawn) < 220
    assert 2_900 < max(drawn) <= 3_200
    assert sum(each < 800 for each in drawn) == pytest.approx(len(drawn) / 2, rel=0.1)
    assert sizes.params == {
        "event_bytes": "200-3200 log-uniform",
        "event_bytes_mean": round(sum(drawn) / len(drawn)),
        "seed": 1,
    }


def test_large_sizes_are_drawn_as_far_as_memory_allows() -> None:
    """What is drawn is kept, in every process that flushes."""
    assert sum(EventSizes.parse("100000-250000").drawn()) < 40_000_000


def test_agents_sizes_are_those_of_the_transcripts() -> None:
    """Most are small and some are long, as the shipped transcripts have them."""
    sizes = EventSizes.parse("agent")
    drawn = sorted(sizes.drawn())
    assert len(drawn) > 100
    assert drawn[len(drawn) // 2] * 3 < drawn[-1]
    assert sizes.params["event_bytes"] == f"{drawn[0]}-{drawn[-1]} as transcripts have them"


@pytest.mark.parametrize("words", ["460", "200-4000", "agent"])
def test_whoever_is_measured_gets_the_same_events(words: str) -> None:
    """An event depends on its session and number alone, in whatever process, and however many are taken at once."""
    sizes = EventSizes.parse(words)
    assert EventSizes.parse(sizes.words) == sizes
    one, other = Contents(sizes), Contents(sizes)
    taken = [one.take(session, 6) for session in (0, 1)]
    assert [other.take(1, 3) + other.take(1, 3), other.take(0, 6)] == [taken[1], taken[0]]
    assert (taken[0] == taken[1]) == (words == "460")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rate", "5", "--seconds", "1"], "plans 5 flushes of 1 session, and at least 10 are needed"),
        (["--rate", "100", "--seconds", "1", "--sessions", "101"], "and at least 101 are needed: a higher --rate"),
        (["--workers", "2"], "add --where worker"),
        (["--where", "worker", "--loop", "asyncio"], "a worker process runs trio"),
        (["--where", "worker", "--workers", "3", "--sessions", "2"], "3 workers for 2 sessions"),
        (["--event-bytes", "250001"], "250,001 bytes are more than an event may have here"),
        (["--event-bytes", "127-200"], "127 bytes are fewer than an event may have here"),
        (["--event-bytes", "300-200"], "200-300 is meant"),
        (["--event-bytes", "large"], "'large' is no size of events"),
        (["--events", "257", "--event-bytes", "250000"], "is more than 64 MB: fewer --events"),
        (["--against", "append,nobody"], "there is no 'nobody' to be compared with; there are append, "),
        (["--against", ""], "there is no '' to be compared with"),
        (["--seconds", "61"], "'--seconds'"),
        (["--durability", "disk"], "'--durability'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_wrong_usage(
    arguments: list[str], why: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One line says what is wrong, before anything is made."""
    assert run(["bench", "flush", "--quick", "--out", str(tmp_path / "out"), *arguments]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert why in line
    assert not (tmp_path / "out").exists()


def test_more_files_than_this_process_may_have_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file a session takes part, and only there."""
    monkeypatch.setattr("resource.getrlimit", lambda of: (1_000, 1_000))
    with pytest.raises(ValueError, match="files for 800 sessions are 1,056, and this process may have 1,000 open"):
        question_of(True, sessions=800)
    assert question_of(True, sessions=800, against=["append"]).against == ("append",)


def test_what_is_not_said_is_one_session_beside_those_that_keep_as_much() -> None:
    """Several sessions also have those that group; a store that isn't synced has others that aren't."""
    alone = question_of(True, rate=500)
    assert (alone.load, alone.terms, alone.stored) == (Load(1, 0.1, 500), Terms(), chosen_load.STORED)
    assert alone.against == ("append", "sqlite")
    assert "append-grouped" in question_of(True, sessions=2).against
    assert set(question_of(True, durability="os").against) == {"append-unsynced", "sqlite-normal", "files-unsynced"}


def test_every_word_means_somebody_and_the_help_names_it() -> None:
    """So that nobody has to guess, and no word is forgotten."""
    told = " ".join(CliRunner().invoke(flush, ["--help"], terminal_width=100).output.split())
    assert set(BASELINE_WORDS.values()) == {*BASELINES, SQLITE_STORE}
    for word in (*BASELINE_WORDS, *PEER_WORDS):
        assert f" {word}," in told or f" {word};" in told


def test_the_command_asks_what_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option; --stored alone is still about the loads that everybody has."""
    asked: list[Question] = []

    def measure_nothing(question: Question, out: Path | None, *, tell: Callable[[str], None]) -> dict[str, Any]:
        asked.append(question)
        return result_of(*flush_runs()).as_map()

    monkeypatch.setattr(chosen_load, "run_question", measure_nothing)
    words = "--sessions 40 --event-bytes 200-4000 --events 3 --rate 900 --seconds 2 --where worker --workers 3"
    more = "--durability os --stored 7 --against append,dbos --against files --against append"
    assert run(["bench", "flush", *words.split(), *more.split()]) == 0
    (question,) = asked
    assert question.load == Load(40, 2.0, 900, 3)
    assert question.terms == Terms("trio", 3, EventSizes(200, 4000, "log-uniform"), "os")
    assert question.against == ("append", "dbos", "files")
    assert (question.stored, question.rounds) == (7, 7)


class Counting:
    """Stands in for a session: counts what is appended, and flushes at once."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def append(self, type: str, data: dict[str, str]) -> None:
        """Note how long the text is."""
        self.sizes.append(len(data["text"]))

    async def flush(self) -> None:
        """Let others have their turn."""
        await anyio.lowlevel.checkpoint()


def test_as_many_sessions_flush_as_the_load_is_for() -> None:
    """A host has as many as the largest load needs; each appends what is its own, as many events a flush as asked."""
    sizes = EventSizes.parse("200-4000")
    sessions = [Counting() for _ in range(3)]
    driven = DrivenSessions(cast(Any, dict(enumerate(sessions))), sizes)
    tally = anyio.run(driven.drive, Load(2, 0.001, events=4), 0.0)
    contents = Contents(sizes)
    for number in (0, 1):
        assert sessions[number].sizes == [len(data["text"]) for data in contents.take(number, 4)]
    assert (sessions[2].sizes, len(tally.latencies), tally.figures()["per_second"]) == ([], 2, 8 / tally.seconds)


def test_a_peer_gets_the_same_events(tmp_path: Path) -> None:
    """As large as asked, in the order in which ours get them."""
    sizes = EventSizes.parse("1000-2000")
    with KeeperHost(SQLITE, tmp_path / "peer", 2, sizes) as peer:
        peer.durability()
        peer.burst(Load(2, 0.01, events=3))
    with closing(sqlite3.connect(tmp_path / "peer" / DATABASE)) as database:
        lines = [line for (line,) in database.execute("SELECT line FROM events WHERE session = 1 ORDER BY seq")]
    expected = Contents(sizes).take(1, len(lines))
    assert len(lines) >= 3
    assert [orjson.loads(line)["data"] for line in lines] == expected


class Answering:
    """Stands in for a worker that has flushed."""

    def __init__(self, seconds: float, latencies: list[float]) -> None:
        self._answer = seconds, array("d", latencies).tobytes()
        self.asked: list[object] = []

    async def ask(self, *asked: object) -> tuple[float, bytes]:
        """Give the answer."""
        self.asked.append(asked)
        return self._answer


def test_the_flushes_of_all_workers_are_of_one_load() -> None:
    """They begin at one moment; it takes as long as the slowest, and each latency counts."""
    workers = [Answering(2.0, [0.03]), Answering(0.5, [0.001] * 9)]
    figures = anyio.run(Workers(cast(Any, workers)).drive, Load(2, 0.5, events=3))
    assert workers[0].asked == workers[1].asked != []
    assert figures["per_second"] == 10 * 3 / 2.0
    assert [figures["p50_ms"], figures["most_ms"]] == pytest.approx([1.0, 30.0], rel=0.01)


def test_a_load_under_which_nothing_is_flushed_is_told() -> None:
    """Nothing has no percentiles: the line says what to ask for."""
    with pytest.raises(TimeoutError, match=r"nothing was flushed in 2\.0 s: ask for fewer at a time"):
        anyio.run(Workers(cast(Any, [Answering(2.0, [])])).drive, Load(1, 1.0, 10))


def asked_runs(directory: Path, **asked: Any) -> list[Run]:
    """Measure what is asked for, in a moment."""
    question = question_of(True, seconds=0.03, **asked)
    moments = Question(question.load, question.terms, question.against, question.stored, 2, 0.01)
    result: list[Run] = []

    def keep(place: Any) -> list[Run]:
        result.extend(measure(moments, place))
        return result

    run_alone("flush", keep, directory)
    return result


def test_sessions_in_workers_flush_by_a_timetable(tmp_path: Path) -> None:
    """Latencies of all workers make one figure; the row says all of it, and is bound to no mark, which is of others."""
    (timed,) = asked_runs(
        tmp_path,
        sessions=3,
        rate=400,
        events=2,
        where="worker",
        workers=2,
        event_bytes="128-300",
        stored=0,
        against=["append"],
    )
    assert timed.name == "flush p99_ms"
    assert (
        timed.params.items()
        >= {
            "sessions": 3,
            "load": "paced",
            "planned_per_second": 400,
            "events_a_flush": 2,
            "loop": "trio",
            "where": "worker",
            "workers": 2,
            "durability": "fsync",
            "event_bytes": "128-300 log-uniform",
            "stored": 0,
            "burst_seconds": 0.03,
        }.items()
    )
    assert 0 < timed.figures["p50_ms"] <= timed.figures["p99_ms"] <= timed.figures["most_ms"]
    assert timed.figures["per_second"] > 0
    assert not any(mark.is_of(timed) for mark in MARKS)
    assert [each.subject for each in flushes_of([timed])] == ["turnkeeper on trio in workers", "append"]


def test_a_store_that_is_not_synced_is_measured_on_asyncio_beside_others_that_are_not(tmp_path: Path) -> None:
    """Filled as one of its kind; what both sides' events outlive is said."""
    runs = asked_runs(
        tmp_path,
        loop="asyncio",
        durability="os",
        stored=200,
        against=["append-unsynced", "sqlite-normal", "turnkeeper-sqlite"],
    )
    assert {run.params["survives"] for run in runs} == {PROCESS_DEATH}
    assert {run.params["durability"] for run in runs} == {"os"}
    assert {(run.params["loop"], run.params["event_bytes"]) for run in runs} == {("asyncio", EVENT_BYTES)}
    bases = {run.params["against"]: run.params["base_stored"] for run in runs}
    assert bases == {"append, never synced": 0, "sqlite, NORMAL": 0, SQLITE_STORE: 200}
    assert {each.survives for each in flushes_of(runs)} == {PROCESS_DEATH}
