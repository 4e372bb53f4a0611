"""Tell stories: `python -m tests.simulation SEED… | --count N | --minutes M`, on all cores.

A story in which a promise was broken is printed, step by step; without one the exit code is 0. Stories are printed in
the order of their seeds. The first seed of `--count` and `--minutes` is drawn, and printed, unless `--first` names one.
SIGINT and SIGTERM end it behind the stories that are told by then, and what came of those is said.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count

from .story import FAULTS, STEPS
from .tellers import Telling, tell_all

SEEDS = 1 << 32
PROGRESS_SECONDS = 60.0


def main() -> int:
    """Tell what the command line asks for; 1 if a promise was broken, 128 and its number if a signal ended it."""
    arguments = _parser().parse_args()
    signals: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.append(number))
    begun = told = time.monotonic()
    stories = steps = broken = 0
    telling = Telling(arguments.steps, arguments.fault, arguments.tell)
    for outcome in tell_all(telling, _seeds(arguments, begun, signals), arguments.processes):
        stories, steps, broken = stories + 1, steps + outcome.steps, broken + bool(outcome.violations)
        if outcome.violations or arguments.tell:
            _say(str(outcome))
        if time.monotonic() > told + PROGRESS_SECONDS:
            told = time.monotonic()
            _say(f"… {stories:,} stories up to seed {outcome.seed}, {broken} with broken promises")
    seconds = time.monotonic() - begun
    rate = stories / max(seconds, 0.001) * 60
    _say(
        f"{stories:,} stories, {steps:,} steps in {seconds:.1f} s ({rate:,.0f} a minute), {broken} with broken promises"
    )
    return 128 + signals[0] if signals else 1 if broken else 0


def _seeds(arguments: argparse.Namespace, begun: float, signals: list[int]) -> Iterator[int]:
    """Give the seeds that are asked for, until a signal comes."""
    seeds = iter(arguments.seeds or _row(arguments, begun))
    while not signals and (seed := next(seeds, None)) is not None:
        yield seed


def _row(arguments: argparse.Namespace, begun: float) -> Iterator[int]:
    """Give one seed after another, from the first one on."""
    first = random.randrange(SEEDS) if arguments.first is None else arguments.first
    _say(f"from seed {first} on")
    for number in count():
        over = number >= arguments.count if arguments.minutes is None else False
        if over or (arguments.minutes is not None and time.monotonic() > begun + 60 * arguments.minutes):
            return
        yield first + number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.partition("\n")[0])
    parser.add_argument("seeds", nargs="*", type=_number, metavar="SEED", help="stories to tell")
    parser.add_argument("--count", type=_number, default=100, metavar="N", help="so many stories (100)")
    parser.add_argument("--minutes", type=float, metavar="M", help="as many as fit into so many minutes")
    parser.add_argument("--first", type=_number, metavar="SEED", help="the first seed of these")
    parser.add_argument("--steps", type=_number, default=STEPS, metavar="K", help=f"steps of a story ({STEPS})")
    parser.add_argument("--fault", choices=FAULTS, action="append", default=[], help="let only these go wrong, often")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--processes", type=_number, default=cores, metavar="P", help=f"processes ({cores}); 1: none")
    parser.add_argument("--tell", action="store_true", help="print those, too, in which all promises were kept")
    return parser


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _say(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
