"""Tell stories: `python -m tests.simulation SEED… | --count N | --minutes M`, in one process, on one core.

A story in which a promise was broken is printed, step by step; without one the exit code is 0. The first seed of
`--count` and `--minutes` is drawn, and printed, unless `--first` names one.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from .story import FAULTS, STEPS, memory, tell

SEEDS = 1 << 32
PROGRESS_SECONDS = 60.0


def main() -> int:
    """Tell what the command line asks for; 1 if a promise was broken."""
    arguments = _parser().parse_args()
    begun = told = time.monotonic()
    stories = steps = broken = 0
    with tempfile.TemporaryDirectory(dir=memory(), prefix="turnkeeper-stories-") as name:
        for seed in _seeds(arguments, begun):
            outcome = tell(seed, Path(name), arguments.steps, arguments.fault)
            stories, steps, broken = stories + 1, steps + outcome.steps, broken + bool(outcome.violations)
            if outcome.violations or arguments.tell:
                _say(str(outcome))
            if time.monotonic() > told + PROGRESS_SECONDS:
                told = time.monotonic()
                _say(f"… {stories:,} stories up to seed {seed}, {broken} with broken promises")
    seconds = time.monotonic() - begun
    rate = stories / max(seconds, 0.001) * 60
    _say(
        f"{stories:,} stories, {steps:,} steps in {seconds:.1f} s ({rate:,.0f} a minute), {broken} with broken promises"
    )
    return 1 if broken else 0


def _seeds(arguments: argparse.Namespace, begun: float) -> Iterator[int]:
    """Give the seeds that are asked for."""
    if arguments.seeds:
        yield from arguments.seeds
        return
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
