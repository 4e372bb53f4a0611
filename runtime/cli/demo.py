"""`turnkeeper demo`: agents append and start tasks while what serves them is killed, and nothing of it is lost."""

from __future__ import annotations

import os
from pathlib import Path

import click

from turnkeeper.benchmarks.demonstration.demo import DemoOptions, DemoResult, StoreHoldsData, run_demo
from turnkeeper.benchmarks.measuring.marked_processes import WrongProcess
from turnkeeper.benchmarks.stores.transcripts import NoTranscripts

from .commands import command
from .demo_screen import live_screen, print_result
from .failures import Failure
from .invocation import Invocation
from .printing import print_json


@command("demo", example="turnkeeper demo --from ~/.claude/projects --seed 7")
@click.option("--sessions", type=click.IntRange(1, 1000), default=8, show_default=True, help="How many agents.")
@click.option("--seed", type=click.IntRange(min=0), help="Plan the same turns and kills again.  [default: a new one]")
@click.option(
    "--from",
    "given",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH...",
    help="Replay these session files of Claude Code or Codex, or those in these folders.",
)
@click.argument("more", nargs=-1, type=click.Path(path_type=Path), metavar="")
@click.option("--no-kill", is_flag=True, help="Kill nothing.")
@click.option(
    "--seconds", type=click.FloatRange(0.5, 3600), default=5.0, show_default=True, help="How long the agents work."
)
def demo(
    invocation: Invocation,
    sessions: int,
    seed: int | None,
    given: tuple[Path, ...],
    more: tuple[Path, ...],
    no_kill: bool,
    seconds: float,
) -> None:
    """Watch sessions and tasks survive the death of what serves them.

    Agents in worker processes replay recorded transcripts, turn by turn, start small commands as tasks, and note what
    was acknowledged in synced files outside the store, while its writer, node and spawner are killed. Then every
    session is read back and compared, and so is every task: its end, its output, and what it left behind. The same
    agents, tasks and kills also run over plain JSONL files and child processes, beside it. The exit code is 1 if
    anything was lost.

    It takes a store of its own, which it removes; one given by --store must be new or empty, and stays.
    """
    if more and not given:
        raise click.UsageError(f"unexpected argument {os.fspath(more[0])!r}")
    paths = given + more
    for path in paths:
        if not os.path.lexists(path):
            raise Failure("not_found", "no such file or folder", os.fspath(path), "check the path")
    if invocation.given_store is not None and invocation.place.backend is not None:
        raise click.UsageError("the demo looks into a journal; give it a directory for one")
    store = None if invocation.given_store is None else Path(invocation.store)
    options = DemoOptions(sessions, seed, paths, not no_kill, seconds, store)
    result = _run(options, invocation)
    if invocation.is_json:
        print_json(result.as_map())
    else:
        print_result(result)
    if not result.is_clean:
        what = f"a promise was broken: {'; '.join(result.violations[:3]) or 'nothing was acknowledged'}"
        advice = f"run it again with --seed {result.plan.seed}"
        raise Failure("failed", what, str(store or "the demo's own store"), advice, told=True)


def _run(options: DemoOptions, invocation: Invocation) -> DemoResult:
    """Run it, with a live display where somebody looks. Raises Failure for what it can't be run with."""
    try:
        with live_screen() as screen:
            return run_demo(options, screen)
    except StoreHoldsData as error:
        raise Failure("usage", "this directory is not empty", error.path, "give a new or an empty one") from None
    except NoTranscripts as error:
        raise Failure("failed", "nothing to replay", str(error), "give session files of Claude Code or Codex") from None
    except WrongProcess as error:
        raise Failure("failed", str(error), "the demo", "run it again") from None
