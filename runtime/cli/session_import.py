"""`turnkeeper session import`: sessions of other programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path

import click

from turnkeeper.actors.blob_references import EVENT_BYTES_MAX
from turnkeeper.actors.errors import Corrupt, SessionBusy, TurnkeeperError
from turnkeeper.actors.importing import FORMATS, ImportedSession, ImportReport, read_sessions
from turnkeeper.actors.runtime_opening import open_runtime

from ..printable_text import printable
from .commands import command
from .failures import Failure, failure_of
from .import_storing import KEY_BYTES, ImportedSessions
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_figures, print_json, print_note
from .progress import told_progress

PROBLEMS_SHOWN = 20
"""Damaged lines that are shown to people; scripts get all of them."""


@command("import", example="turnkeeper session import ~/.claude/projects ~/.codex/sessions")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--format", type=click.Choice(FORMATS), help="Take only files of this format.  [default: all known]")
def import_sessions(invocation: Invocation, paths: tuple[Path, ...], format: str | None) -> None:
    """Import session files of Claude Code and Codex, or all of those in a folder.

    What is damaged is reported with file and line, the rest is kept. Importing the same files again adds nothing;
    importing a file that has grown adds what is new. The exit code is 1 if a path holds no session at all.
    """
    for path in paths:
        if not os.path.lexists(path):
            raise Failure("not_found", "no such file or folder", str(path), "check the path; nothing was imported")
    report, refusals = ImportReport(), list[TurnkeeperError]()
    empty: list[Path] = []
    sessions = _sessions(paths, format, report, empty)
    first = next(sessions, None)
    if first is not None:
        _store(invocation, chain([first], sessions), report, refusals)
    if invocation.is_json:
        print_json(report.totals())
    else:
        _print(report)
    if refusals:
        failure = failure_of(refusals[0], invocation.store)
        failure.told = True
        raise failure
    if empty:
        raise _nothing_in(empty, report)


def _sessions(
    paths: Iterable[Path], format: str | None, report: ImportReport, empty: list[Path]
) -> Iterator[ImportedSession]:
    """Yield the sessions of all paths; note those paths that hold none."""
    for path in paths:
        is_empty = True
        for session in read_sessions(path, report, format, event_bytes_max=EVENT_BYTES_MAX - KEY_BYTES):
            is_empty = False
            yield session
        if is_empty:
            empty.append(path)


def _store(
    invocation: Invocation, sessions: Iterator[ImportedSession], report: ImportReport, refusals: list[TurnkeeperError]
) -> None:
    try:
        with told_progress() as tell:

            def tell_totals() -> None:
                tell(f"{report.sessions:,} sessions, {report.events:,} events, {report.skipped:,} there already")

            run_in_loop(partial(_store_all, invocation, sessions, report, refusals, tell_totals))
    except BaseException:
        print_note(f"stopped after {report.events:,} events; the same import again adds what is missing")
        raise


async def _store_all(
    invocation: Invocation,
    sessions: Iterator[ImportedSession],
    report: ImportReport,
    refusals: list[TurnkeeperError],
    tell: Callable[[], None],
) -> None:
    async with open_runtime(invocation.given_store) as runtime:
        importing = ImportedSessions(invocation.store, runtime, report, tell)
        for session in sessions:
            try:
                await importing.store(session)
            except (SessionBusy, Corrupt) as error:
                # One session that can't be added to must not keep the others out.
                report.add_problem(session.path, 0, f"not imported: {error.message()}")
                refusals.append(error)
        await importing.join_children()


def _nothing_in(empty: list[Path], report: ImportReport) -> Failure:
    """Make the failure of paths that hold no session; of a file the report has said why."""
    path = printable(str(empty[0]))
    reasons = [problem.why for problem in report.problems if problem.file == str(empty[0]) and problem.line == 0]
    more = f" (and {len(empty) - 1} other paths)" if len(empty) > 1 else ""
    what = f"no session to import: {reasons[-1]}" if reasons else "no session files in this folder"
    advice = f"it takes files of {' and '.join(FORMATS)}"
    return Failure("failed", what, f"{path}{more}", advice, told=True)


def _print(report: ImportReport) -> None:
    for problem in report.problems[:PROBLEMS_SHOWN]:
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        print_note(f"{place}: {problem.why}")
    left_out = len(report.problems) + report.problems_left_out - PROBLEMS_SHOWN
    if left_out > 0:
        print_note(f"and {left_out:,} lines more; --json gives all")
    print_figures(
        [
            ("sessions", f"{report.sessions:,}"),
            ("events", f"{report.events:,} new, {report.skipped:,} there already"),
            ("damaged lines", f"{len(report.problems) + report.problems_left_out:,}"),
        ]
    )
