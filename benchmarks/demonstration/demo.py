"""The main job, to be watched: agents append and start tasks while what serves them is killed, and nothing is lost.

Agents in worker processes replay recorded transcripts, turn by turn, start commands as tasks, and note what was
acknowledged, and how each task must end, in synced files of their own. Meanwhile writer, node and spawner are killed at
moments planned from a seed. Afterwards the store is opened again, and oracles that share no code with the product
compare journal and notes, and look for what tasks left behind. The same agents, turns, tasks and moments also run over
plain JSONL files and plain child processes, so that one sees what is prevented and what is not. Whatever happens, no
process of a demo outlives it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio

from turnkeeper import TurnkeeperError

from ..measuring.machine import file_system
from ..measuring.marked_processes import carrying, kill_left_behind, wait_left_behind
from ..stores import transcripts
from ..stores.transcripts import Transcript
from . import oracle, task_oracle
from .oracle import Verdict
from .performance import Place, perform, read_back
from .plan import Plan, make_plan
from .planned_tasks import MARK
from .progress import Column, Kill, Progress
from .task_oracle import FoundTasks, TaskVerdict
from .workbench import Workbench

SHOWN_SECONDS = 0.1
"""How often the display is told."""

LEFT_SECONDS = 1.0
"""How long what is ending anyway may take, before it counts as left behind."""

END_SECONDS = 5.0
"""How long the store's processes have for an end in order, after a demo that failed, before they are killed."""

_SEEDS = 1_000_000


class StoreHoldsData(TurnkeeperError):
    """The store that was given is not empty, and what kills and fills takes none but its own."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def message(self) -> str:
        """Say it in one line."""
        return f"{self.path} is not empty, and the demo kills what serves its store; give a new or an empty directory"


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What to show: `seconds` of replaying by `sessions` agents.

    Without a seed one is drawn. `paths` are session files, or folders of them, to replay instead of the shipped
    transcripts. A given store must be new or empty and is kept; else a temporary one is made and removed.
    """

    sessions: int = 8
    seed: int | None = None
    paths: tuple[Path, ...] = ()
    kill: bool = True
    seconds: float = 5.0
    store: Path | None = None


class DemoDisplay(Protocol):
    """Shows how far the demo is, ten times a second."""

    def show(self, progress: Progress) -> None:
        """Show this moment."""
        ...


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo has shown: both columns, the oracle's judgement of each, and what follows from it."""

    plan: Plan
    progress: Progress
    verdict: Verdict
    plain_verdict: Verdict
    task_verdict: TaskVerdict
    plain_task_verdict: TaskVerdict
    file_system: str
    elapsed: float

    @property
    def is_clean(self) -> bool:
        """Say whether turnkeeper kept all its promises, and something was there to be kept."""
        is_kept = self.verdict.is_clean and self.task_verdict.is_clean and not self.progress.store.owners_let_in
        return is_kept and self.verdict.acknowledged > 0 and self.task_verdict.tasks > 0

    @property
    def violations(self) -> tuple[str, ...]:
        """Say what is wrong in turnkeeper's column, one by one, the first ones of it."""
        return self.verdict.violations + self.task_verdict.violations

    @property
    def proven(self) -> str:
        """Say in one line what this run proves and what not."""
        unproven = "Not proven: power loss; nobody cut the power."
        if not self.is_clean:
            return f"Not proven: a promise was broken. {unproven}"
        victims = ", ".join(f"{victim} {count} x" for victim, count in _kills(self.progress.store).items())
        if not victims:
            return f"Nothing was killed, so nothing is proven about it. {unproven}"
        tasks = f"all {self.task_verdict.tasks} tasks ended as they had to, and left nothing behind"
        return f"Proven: the death of processes ({victims}) lost nothing that was acknowledged; {tasks}. {unproven}"

    @property
    def about_plain(self) -> list[str]:
        """Say in a few lines what the plain column shows, and how that came about."""
        plain, found, tasks = self.progress.plain, self.plain_verdict, self.plain_task_verdict
        lines = ["Plain files are written by the agents themselves, so agents are killed there; nothing is synced."]
        if plain.kills:
            lines.append("What reached write() outlives its process: these kills alone lose nothing from plain files.")
        if tasks.wrong_exits:
            lines.append(
                "Exit codes die with the agent that waits for them: "
                f"of {tasks.tasks} tasks, {tasks.wrong_exits} ended and nobody knows how, or go on."
            )
        if tasks.orphans:
            lines.append(
                f"Processes that nobody would have stopped: {tasks.orphans}; their agent had died, or they had left "
                "the process group that it killed. The demo has ended them."
            )
        if plain.torn_writes:
            lines.append(
                "On purpose, one agent was killed between two writes of one line: "
                f"unreadable {found.unreadable}, and lost with it what was appended behind: {found.lost}."
            )
        if plain.owners_let_in:
            lines.append(
                "On purpose, a second process opened a file that was open: it was let in, and both gave the same "
                f"numbers: repeated {found.repeated}."
            )
        return lines

    def as_map(self) -> dict[str, Any]:
        """Give the result as plain values."""
        store = self.progress.store
        return {
            **_figures(store, self.verdict, self.task_verdict),
            "serving_ms": _times(store, store.serving_ms),
            "violations": list(self.violations),
            "plain": {
                **_figures(self.progress.plain, self.plain_verdict, self.plain_task_verdict),
                "torn_writes": self.progress.plain.torn_writes,
                "unreadable": self.plain_verdict.unreadable,
                "about": self.about_plain,
            },
            "proven": self.proven,
            "file_system": self.file_system,
            "elapsed_seconds": round(self.elapsed, 1),
            "plan": self.plan.as_map(),
        }


def run_demo(options: DemoOptions, display: DemoDisplay | None = None) -> DemoResult:
    """Run the demo and judge it. Takes a little more than twice the time of its replay, and 15 processes.

    Raises StoreHoldsData; NoTranscripts where the paths hold nothing to replay; what an agent failed with, and
    WrongProcess for a kill that could not be done or that nothing came back from: then nothing is shown.
    """
    played = transcripts.from_paths(options.paths) if options.paths else transcripts.shipped()
    seed = secrets.randbelow(_SEEDS) if options.seed is None else options.seed
    turns = [len(each.turns) for each in played]
    plan = make_plan(seed, options.sessions, options.seconds, turns, kill=options.kill)
    progress = Progress(seed, options.seconds)
    with _place(options.store) as place:
        return anyio.run(partial(_run, plan, played, place, progress, display), backend="trio")


@contextmanager
def _place(store: Path | None) -> Iterator[Place]:
    """Make room for a demo, and remove it, but for a store that was given; end whatever processes of it are left."""
    if store is not None and store.exists() and (not store.is_dir() or any(store.iterdir())):
        raise StoreHoldsData(str(store))
    root = Path(tempfile.mkdtemp(prefix="turnkeeper-demo-"))
    try:
        place = Place(root, root / "store" if store is None else store)
        with _marked(place.tasks), _held(place.tasks), _held(place.plain_tasks):
            yield place
    finally:
        shutil.rmtree(root)


@contextmanager
def _marked(bench: Workbench) -> Iterator[None]:
    """Have all that is started meanwhile carry the mark: the store's processes, shims among them, are known by it."""
    with carrying(MARK, str(bench.root)):
        try:
            yield
        finally:
            # In order, if they can, once the tasks are gone that they are there for.
            if wait_left_behind(bench.mark, END_SECONDS):
                kill_left_behind(bench.mark, END_SECONDS)


@contextmanager
def _held(bench: Workbench) -> Iterator[None]:
    """Hold open what lasting tasks read from, and end what is left of tasks."""
    hold = bench.prepare()
    try:
        yield
    finally:
        try:
            kill_left_behind(f"{bench.mark}/", END_SECONDS)
        finally:
            os.close(hold)


async def _run(
    plan: Plan, played: Sequence[Transcript], place: Place, progress: Progress, display: DemoDisplay | None
) -> DemoResult:
    left: list[int] = []
    plain_left: list[int] = []
    try:
        async with anyio.create_task_group() as group:
            if display is not None:
                group.start_soon(_keep_showing, display, progress)
            ids = await perform(plan, played, place, progress)
            progress.phase = "reading everything back"
            names = [task.name for task in _task_notes(place.tasks) if task.is_acknowledged]
            async with anyio.create_task_group() as reading:
                reading.start_soon(_look_for_left, place.plain_tasks, plain_left)
                read, read_tasks = await read_back(place.store, ids, names)
            await _look_for_left(place.tasks, left)
            group.cancel_scope.cancel()
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return DemoResult(
        plan=plan,
        progress=progress,
        verdict=_judge(place, read),
        plain_verdict=oracle.judge(_notes(place.plain_notes), oracle.read_plain(place.plain)),
        task_verdict=_judge_tasks(place.tasks, [task_oracle.read_journal_tasks(place.store), read_tasks], left),
        plain_task_verdict=_judge_tasks(place.plain_tasks, [_read_logs(place.plain_tasks)], plain_left),
        file_system=file_system(place.store),
        elapsed=progress.elapsed,
    )


async def _keep_showing(display: DemoDisplay, progress: Progress) -> None:
    while True:
        display.show(progress)
        await anyio.sleep(SHOWN_SECONDS)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """Give the failure that matters: Ctrl-C before all else, otherwise the first one."""
    leaves = list(_leaves(failures))
    return next((each for each in leaves if isinstance(each, KeyboardInterrupt)), leaves[0])


def _leaves(failure: BaseException) -> Iterator[BaseException]:
    if isinstance(failure, BaseExceptionGroup):
        for each in failure.exceptions:
            yield from _leaves(each)
    else:
        yield failure


def _judge(place: Place, read: oracle.Found) -> Verdict:
    """Judge the store by its files and by what the product reads from it: what is wrong in either is wrong."""
    by_files = oracle.judge(_notes(place.store_notes), oracle.read_journal(place.store))
    return oracle.worse(by_files, oracle.judge(_notes(place.store_notes), read))


async def _look_for_left(bench: Workbench, left: list[int]) -> None:
    """Add the processes that a column's tasks left behind; the store's own, shims among them, count as such."""
    left += await anyio.to_thread.run_sync(wait_left_behind, bench.mark, LEFT_SECONDS)


def _judge_tasks(bench: Workbench, readings: Sequence[FoundTasks], left: Sequence[int]) -> TaskVerdict:
    witnesses = task_oracle.read_witnesses(bench.witnesses)
    return task_oracle.judge_tasks(_task_notes(bench), witnesses, readings, left)


def _read_logs(bench: Workbench) -> FoundTasks:
    return task_oracle.read_logs(bench.logs.iterdir(), bench.outputs)


def _task_notes(bench: Workbench) -> list[task_oracle.NotedTask]:
    return task_oracle.read_task_notes(sorted(bench.notes.iterdir()))


def _notes(directory: Path) -> Iterator[oracle.NotedEvent]:
    return oracle.read_notes(sorted(directory.iterdir()))


# -- figures


def _figures(column: Column, verdict: Verdict, tasks: TaskVerdict) -> dict[str, Any]:
    """Give what both columns have."""
    return {
        "sessions": verdict.sessions,
        "events": verdict.events,
        "acknowledged": verdict.acknowledged,
        "found": verdict.found,
        "lost": verdict.lost,
        "repeated": verdict.repeated,
        "holes": verdict.holes,
        "open_turns": verdict.open_turns,
        "tasks": tasks.tasks,
        "wrong_exits": tasks.wrong_exits,
        "wrong_runs": tasks.wrong_runs,
        "wrong_outputs": tasks.wrong_outputs,
        "wrong_notices": tasks.wrong_notices,
        "orphans": tasks.orphans,
        "kills": _kills(column),
        "second_owners": {"refused": column.owners_refused, "let_in": column.owners_let_in},
        "flush_ms": column.flush_ms(),
        "start_ms": column.start_ms(),
        "recovery_ms": _times(column, column.recovery_ms),
    }


def _kills(column: Column) -> dict[str, int]:
    return dict(Counter(kill.victim for kill in column.kills))


def _times(column: Column, time_of: Callable[[Kill], float | None]) -> dict[str, list[float | None]]:
    """Give a time of each kill, by victim, in the order of the kills."""
    times: dict[str, list[float | None]] = {}
    for kill in column.kills:
        times.setdefault(kill.victim, []).append(time_of(kill))
    return times
