"""`turnkeeper chaos`: kills and faults from a seed while agents work, and a judgement of what is left."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from turnkeeper.benchmarks.chaos.page import write_page
from turnkeeper.benchmarks.chaos.plan import FAULTS, ROLES, RoundPlan
from turnkeeper.benchmarks.chaos.runner import (
    SPACE_BYTES_MIN,
    ChaosOptions,
    PlaceHoldsData,
    TooLittleSpace,
    run_chaos,
)

from .chaos_screen import live_screen, print_report
from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import print_json

NONE = "none"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _has_a_place(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """See before a long run that the page will have a directory."""
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(value.parent)!r}", ctx, param)
    return value


def _narrowing(decorated: Decorated) -> Decorated:
    """Add the options that say what may be struck, and what is told of it."""
    kill = click.option(
        "--kill",
        "kills",
        type=click.Choice([*ROLES, NONE]),
        multiple=True,
        help="Kill no others than these; may be repeated.  [default: all]",
    )
    fault = click.option(
        "--fault",
        "faults",
        type=click.Choice([*FAULTS, NONE]),
        multiple=True,
        help="Make no other faults than these; may be repeated.  [default: all that this machine can]",
    )
    html = click.option(
        "--html",
        "page",
        type=click.Path(dir_okay=False, writable=True, path_type=Path),
        callback=_has_a_place,
        help="Also write a page of timelines into this file.",
    )
    return kill(fault(html(decorated)))


@command("run", example="turnkeeper chaos run --seconds 600 --seed 7")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 7 * 24 * 3600),
    default=60.0,
    show_default=True,
    help="Begin no round after this time; each takes about 15 s.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), help="The first round's; the next ones follow it.  [default: drawn]"
)
@click.option(
    "--until-broken",
    is_flag=True,
    help="End with the first round that breaks a promise, and look for no shorter plan that does.",
)
@_narrowing
def run(
    invocation: Invocation,
    seconds: float,
    seed: int | None,
    until_broken: bool,
    kills: tuple[str, ...],
    faults: tuple[str, ...],
    page: Path | None,
) -> None:
    """Kill and disturb whatever serves a store while agents work in it, round after round, and judge what is left.

    Each round has a store of its own, and a plan that follows from its seed alone: hosts with agents that append, send,
    fork, delete and start tasks; kills, and faults of the disk, the clock and the files. What the agents noted outside
    the store is then compared with what is in it, by code that shares nothing with the product. The exit code is 1 if a
    promise was broken; what is left of that round is kept.

    The rounds' stores are made in a temporary directory, or below the one given by --store, which must be new or empty.
    """
    options = _options(invocation, seed, seconds, kills, faults)
    _play(invocation, replace(options, until_broken=until_broken), page)


@command("replay", example="turnkeeper chaos replay 7 --fault none")
@click.argument("seed", type=click.IntRange(min=0), required=False)
@click.option(
    "--plan",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Play this plan instead: a file that chaos has left of a round, or a `plan` that --json has printed.",
)
@_narrowing
def replay(
    invocation: Invocation,
    seed: int | None,
    file: Path | None,
    kills: tuple[str, ...],
    faults: tuple[str, ...],
    page: Path | None,
) -> None:
    """Play the round of one seed again: the same plan, which --json prints, and with fewer kills and faults if wanted.

    What is planned is the same each time. How far everybody has come at some moment is the machine's doing.
    """
    if (seed is None) == (file is None):
        raise click.UsageError("give either a seed or a plan")
    options = _options(invocation, seed, None, kills, faults)
    _play(invocation, options if file is None else replace(options, plan=_plan_in(file)), page)


def _plan_in(file: Path) -> RoundPlan:
    try:
        return RoundPlan.from_map(json.loads(file.read_text()))
    except (ValueError, TypeError, AttributeError) as error:
        raise Failure("invalid_input", f"this is no plan of a round ({error})", str(file), "check the file") from None


def _options(
    invocation: Invocation, seed: int | None, seconds: float | None, kills: tuple[str, ...], faults: tuple[str, ...]
) -> ChaosOptions:
    return ChaosOptions(seed, seconds, _chosen(kills, ROLES), _chosen(faults, FAULTS), _place(invocation))


def _chosen(given: tuple[str, ...], all_of_them: tuple[str, ...]) -> tuple[str, ...]:
    if NONE in given and len(set(given)) > 1:
        raise click.UsageError(f"{NONE!r} goes with nothing else")
    return tuple(each for each in given or all_of_them if each != NONE)


def _place(invocation: Invocation) -> Path | None:
    if invocation.given_store is None:
        return None
    if invocation.place.backend is not None:
        raise click.UsageError("chaos looks into a journal; give it a directory for one")
    return Path(invocation.store)


def _play(invocation: Invocation, options: ChaosOptions, page: Path | None) -> None:
    try:
        with live_screen() as show:
            report = run_chaos(options, show)
    except PlaceHoldsData as error:
        raise Failure("usage", "this directory is not empty", error.path, "give a new or an empty one") from None
    except TooLittleSpace as error:
        what = f"{error.free:,} bytes are free here, and a round needs {SPACE_BYTES_MIN:,}"
        raise Failure("store_full", what, error.path, "make space, or give another place by --store") from None
    if invocation.is_json:
        print_json(report.as_map())
    else:
        print_report(report)
    if page is not None:
        write_page(report, page)
    if not report.is_clean:
        first = report.violations[0]
        advice = f"play it again with: turnkeeper chaos replay {first['seed']}"
        where = next((each.kept for each in report.shown if each.kept is not None), None)
        what = f"a promise was broken: {first['promise']}: {first['subject']}: {first['says']}"
        raise Failure("failed", what, where or "chaos", advice, told=True)
