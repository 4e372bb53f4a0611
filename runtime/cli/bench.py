"""`turnkeeper bench`: measurements, each in a fresh directory that it fills and removes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from turnkeeper.benchmarks.measuring.room import PlaceHoldsStore

from .bench_result import print_result
from .commands import command
from .failures import Failure, failure_of
from .flush_options import flush_options
from .invocation import Invocation
from .printing import print_json, print_note
from .progress import told_progress

EXTRA: Final = ("hdrh", "matplotlib")
"""What measuring needs beside the product, as it is imported; the extra `bench` brings it."""

_quick = click.option("--quick", is_flag=True, help="Less of it, in some 15 seconds.")
_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="The directory to measure in, which also gets the result.  [default: the present one, which doesn't]",
)


@command(
    "flush",
    example="turnkeeper bench flush --quick --sessions 50 --event-bytes 200-4000 --rate 500 --against sqlite,files",
)
@_quick
@_out
@flush_options
def flush(invocation: Invocation, quick: bool, out: Path | None, stored: int | None, asked: dict[str, Any]) -> None:
    """Measure how long a flush takes, at 1, 100 and 1,000 sessions, in a store that holds many events.

    Beside it: a store that SQLite keeps and that holds as many, a bare append with fdatasync, SQLite alone, one file a
    session; and, where they are installed (pip install 'turnkeeper[peers]'), LangGraph's SQLite saver, the Agents SDK's
    SQLite sessions, DBOS. What counts is the ratio; times are this machine's. Takes 13 GB of disk, 1 GB with --quick.

    With any option but --quick, --out and --stored one load is measured in place of these: yours. What isn't said is
    one session in the host's loop, an event of 460 bytes a flush, the next one as soon as that is durable.
    """
    if not asked:
        _measure(invocation, partial(_benchmark("flushing.flush", "run_flush"), quick, out, stored=stored))
        return
    question_of, run_question = (_benchmark("flushing.chosen_load", name) for name in ("question_of", "run_question"))
    try:
        question = question_of(quick, stored=stored, **asked)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _measure(invocation, partial(run_question, question, out))


@command("recovery", example="turnkeeper bench recovery --quick")
@_quick
@_out
def recovery(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure how long a host's next append waits after a death: of the writer, the node, everything, the machine.

    In parts: noticed, another process runs, index open, journal replayed, ready to serve, acknowledged; also with the
    index lost, and behind a write that was cut in the middle. For logs of 100 MB, 1 GB and 10 GB, or 20 and 100 MB with
    --quick; beside it, a program with SQLite, and one that reads JSON lines to their end. Power is cut for root only.
    Also how long opening takes with 10,000,000 events over 100,000, and how fast their index is built anew, and the
    journal verified, on all cores, over parsing every line on one. With --quick there are 200,000. Takes 24 GB of disk,
    0.8 GB with --quick; a log that doesn't fit is left out.
    """
    _measure(invocation, partial(_benchmark("recovery.recovery", "run_recovery"), quick, out))


@command("load", example="turnkeeper bench load --quick")
@_quick
@_out
def load(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure reading from a store of 10,000,000 events: the last 50 of a session, and a whole one, cold.

    Beside it: reading the same bytes. Also opening a session of 10,000 events, 1,000 with --quick, beside a JSONL file,
    SQLite, and other libraries' sessions where they are installed (pip install 'turnkeeper[peers]'). With --quick the
    store has 200,000. Takes 7 GB of disk, 0.8 GB with --quick.
    """
    _measure(invocation, partial(_benchmark("reading.session_loading", "run_load"), quick, out))


@command("list", example="turnkeeper bench list --quick")
@_quick
@_out
@click.option(
    "--sessions",
    type=click.IntRange(min=1),
    metavar="N",
    help="Sessions there are.  [default: 100,000; 10,000 with --quick]",
)
def list_sessions(invocation: Invocation, quick: bool, out: Path | None, sessions: int | None) -> None:
    """Measure finding sessions among 100,000: the newest 20, one by the beginning of its id or by its key, all.

    Beside it: a directory with a file for each session, and SQLite. Takes 0.8 GB of disk, 0.1 GB with --quick.
    """
    _measure(invocation, partial(_benchmark("reading.session_lists", "run_list"), quick, out, sessions=sessions))


@command("fork", example="turnkeeper bench fork --quick")
@_quick
@_out
@click.option(
    "--events",
    type=click.IntRange(min=100),
    metavar="N",
    help="Events of the longest session.  [default: 1,000,000; 100,000 with --quick]",
)
def fork(invocation: Invocation, quick: bool, out: Path | None, events: int | None) -> None:
    """Measure forking a session of 1,000,000 events, and going on with one from its last snapshot.

    Beside it: a file that is copied, rows copied in SQLite, and reading it all. Takes 5.7 GB of disk, 0.6 GB with
    --quick.
    """
    _measure(invocation, partial(_benchmark("reading.forks", "run_fork"), quick, out, events=events))


@command("import", example="turnkeeper bench import --quick")
@_quick
@_out
@click.option(
    "--megabytes", type=click.IntRange(min=1), metavar="N", help="Of the large session.  [default: 40; 3 with --quick]"
)
@click.option(
    "--files", type=click.IntRange(min=1), metavar="N", help="Of one session each.  [default: 800; 40 with --quick]"
)
def import_files(
    invocation: Invocation, quick: bool, out: Path | None, megabytes: int | None, files: int | None
) -> None:
    """Measure importing a large session of another program, and many small ones, and what memory that takes.

    Beside it: parsing every line, and copying the files. Takes 0.2 GB of disk.
    """
    _measure(invocation, partial(_benchmark("imports", "run_import"), quick, out, megabytes=megabytes, files=files))


@command("follow", example="turnkeeper bench follow --quick")
@_quick
@_out
def follow(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure how soon followers have an event and an owner a message, catching up, and what a token costs.

    Beside it: a file that is watched or looked at again and again, rows that are selected, and a flush. Takes 2.8 GB of
    disk, 0.2 GB with --quick.
    """
    _measure(invocation, partial(_benchmark("following.follows", "run_follow"), quick, out))


@command("disk", example="turnkeeper bench disk")
@_quick
@_out
def disk(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure what events take on disk, over the bytes of their lines alone. Takes 1.5 GB of disk."""
    _measure(invocation, partial(_benchmark("disk", "run_disk"), quick, out))


@command("memory", example="turnkeeper bench memory --seconds 600")
@_quick
@_out
@click.option(
    "--seconds",
    type=click.FloatRange(min=5),
    help="How long they append.  [default: 110; 6 with --quick]",
)
def memory(invocation: Invocation, quick: bool, out: Path | None, seconds: float | None) -> None:
    """Measure whether the writer's memory grows while 1,000 sessions append.

    With --json all samples are printed, too. Takes 1.1 GB of disk, and 2.9 GB for ten minutes.
    """
    _measure(invocation, partial(_benchmark("memory", "run_memory"), quick, out, seconds=seconds))


@command("tasks", example="turnkeeper bench tasks --quick")
@_quick
@_out
def tasks(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure tasks: starting, waiting and idling beside 500 live ones, thousands of short ones, stopping 500 trees.

    Beside it: starting a plain program, waiting for a plain child, killing trees by a scan; and supervisord where it is
    installed. Also what is left in memory of a finished task, and while one prints 10 GB, which is what it takes of
    disk at most. Less with --quick.
    """
    _measure(invocation, partial(_benchmark("tasks.tasks", "run_tasks"), quick, out))


@command("actors", example="turnkeeper bench actors --quick")
@_quick
@_out
def actors(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure what a message to an actor costs: in the loop, in a worker process, by name in another process.

    Beside it: a memory channel of trio, msgpack over a Unix socket, and Pykka, xoscar and, without --quick, Ray where
    they are installed (pip install 'turnkeeper[peers]'). Also how soon a session actor goes on that is killed in its
    turns, 100 times or 5 with --quick, and what is lost; beside it, a program with SQLite.
    """
    _measure(invocation, partial(_benchmark("actors.actors", "run_actors"), quick, out))


@command("all", example="turnkeeper bench all --quick --out results")
@_quick
@_out
def all_suites(invocation: Invocation, quick: bool, out: Path | None) -> None:
    """Measure all of it, one suite after the other: less than 30 minutes, 2 with --quick.

    Stores are filled once for all that measure in them. A suite that can't be measured is left out and said, and the
    exit code is 1 then. Takes 20 GB of disk, 2 GB with --quick.
    """
    _measure(invocation, partial(_benchmark("suites", "run_all"), quick, out))


def _benchmark(module: str, function: str) -> Callable[..., Any]:
    """Give a benchmark by where it is, which loads it when it is called, and never the others.

    Raises Failure where the extra isn't installed.
    """
    if any(find_spec(name) is None for name in EXTRA):
        what = "what measuring needs beside turnkeeper isn't installed"
        raise Failure("usage", what, "turnkeeper bench", "pip install 'turnkeeper[bench]'")

    def run(*arguments: Any, **options: Any) -> Any:
        return getattr(import_module(f"turnkeeper.benchmarks.{module}"), function)(*arguments, **options)

    return run


def _measure(invocation: Invocation, run: Callable[..., dict[str, Any]]) -> None:
    if invocation.given_store is not None:
        raise click.UsageError("a benchmark makes stores of its own; --out says in which directory")
    out, name = _where_it_is_kept()
    try:
        with told_progress() as tell:
            result = run(tell=tell)
    except KeyboardInterrupt:
        print_note("interrupted: what was filled is removed, and nothing was kept")
        raise
    except PlaceHoldsStore as error:
        what, advice = "this directory belongs to a store", "measure elsewhere with --out"
        raise Failure("usage", what, error.path, advice) from None
    except Exception as error:
        raise failure_of(error, str(out or Path.cwd())) from error
    paths = [] if out is None else _write(result, name, out)
    if invocation.is_json:
        print_json(result)
    else:
        print_result(result)
        for path in paths:
            print_note(f"written: {path}")
    left_out = {each["name"]: each["left_out"] for each in result["suites"] if each["left_out"] is not None}
    if left_out:
        what = "; ".join(f"{name} could not be measured: {why}" for name, why in left_out.items())
        raise Failure("failed", what, "turnkeeper bench", "the others were measured", told=True)


def _where_it_is_kept() -> tuple[Path | None, str]:
    """Give the directory that the running command was given for its result, and the result's name."""
    context = click.get_current_context()
    name = str(context.info_name)
    return context.params["out"], "report" if name == "all" else name


def _write(result: dict[str, Any], name: str, out: Path) -> list[Path]:
    """Write a result in all its forms; drawing is loaded when it is needed."""
    try:
        from turnkeeper.benchmarks.report.results import Result
        from turnkeeper.benchmarks.report.writing import write_report

        return write_report(Result.from_map(result), name, out)
    except KeyboardInterrupt:
        print_note(f"interrupted: the result is kept in {out / name}.json, but not its report")
        raise
