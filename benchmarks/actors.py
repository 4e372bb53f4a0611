"""What messages to actors cost, over what trio and msgpack alone can do, and beside other actor libraries.

Three ways: telling an actor of the same loop, asking one in a worker process, asking one of another process by its
name. One sender tells as many as fit through, and waits whenever the mailbox is full; asks come one after another, so
their figure is the way there and back. Whatever exchanges messages has a process of its own (exchanges.py). All that
are compared take turns in one run; a result is the median over its rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

from . import exchanges
from .exchanges import Exchanger
from .measuring import Run, Tell, be_quiet, interleaved, run_of
from .workplace import Workplace, run_alone

LIBRARIES: Final = ("pykka", "xoscar")
"""What is measured beside ours if it is installed; `turnkeeper.benchmarks.<name>_actors` is how."""

_CHANNEL: Final = "a memory channel of trio"
_PING_PONG: Final = "msgpack over a Unix socket"

Start: TypeAlias = Callable[[], Exchanger]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many messages a burst has, and how often each subject has its turn, after one burst to warm up."""

    tells: int
    asks: int
    rounds: int


QUICK = Sizes(tells=5_000, asks=500, rounds=5)
FULL = Sizes(tells=50_000, asks=5_000, rounds=9)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """One question: what is compared, by how many messages, and in which figure."""

    name: str
    figure: str
    messages: int
    ours: Mapping[str, Start]
    others: Mapping[str, Start]
    left_out: Mapping[str, str]
    server: Start | None = None


def run_actors(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Measure messages to actors, for about two minutes, ten seconds if `quick`; report a run for each way.

    The actors' store lies in `out`, or else in the current directory, and is removed; with `out` the result is kept
    there as actors.json. A library that isn't installed is left out, and said.
    """
    return run_alone("actors", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace, libraries: tuple[str, ...] = LIBRARIES) -> list[Run]:
    """Measure with these sizes."""
    comparisons = _comparisons(place.directory, sizes, libraries)
    return [run for each in comparisons for run in _compare(each, sizes.rounds, place.tell)]


def _comparisons(directory: Path, sizes: Sizes, libraries: tuple[str, ...]) -> list[_Comparison]:
    store = str(directory / "store")
    ping_pong = {_PING_PONG: partial(Exchanger, exchanges.play_ping_pong)}
    missing = {name: "pip install 'turnkeeper[peers]'" for name in libraries if find_spec(name) is None}
    there = [name for name in libraries if name not in missing]
    return [
        _Comparison(
            "tell in the loop",
            "us_a_tell",
            sizes.tells,
            {loop: partial(Exchanger, exchanges.tell_in_loop, store, loop) for loop in ("trio", "asyncio")},
            {_CHANNEL: partial(Exchanger, exchanges.send_through_channel), **_starts("tell", there)},
            missing,
        ),
        _Comparison(
            "ask a worker",
            "p50_us",
            sizes.asks,
            {loop: partial(Exchanger, exchanges.ask_worker, store, loop) for loop in ("trio", "asyncio")},
            {**ping_pong, **_starts("ask", there)},
            missing,
        ),
        _Comparison(
            "ask by name",
            "p50_us",
            sizes.asks,
            {loop: partial(Exchanger, exchanges.ask_named, store, loop) for loop in ("trio", "asyncio")},
            ping_pong,
            {},
            server=partial(Exchanger, exchanges.serve_named, store),
        ),
    ]


def _starts(exchange: str, libraries: list[str]) -> dict[str, Start]:
    """Give what starts an exchange of each library."""
    modules = {name: import_module(f"turnkeeper.benchmarks.{name}_actors") for name in libraries}
    return {name: partial(Exchanger, getattr(module, f"{exchange}_{name}")) for name, module in modules.items()}


def _compare(comparison: _Comparison, rounds: int, tell: Tell) -> list[Run]:
    """Let all take turns, and compare each of ours with each of the others."""
    with ExitStack() as opened:
        if comparison.server is not None:
            opened.enter_context(comparison.server()).wait_ready()
        starts = {**{f"turnkeeper on {loop}": start for loop, start in comparison.ours.items()}, **comparison.others}
        subjects = {name: opened.enter_context(start()) for name, start in starts.items()}
        for subject in subjects.values():
            subject.wait_ready()
            subject.burst(comparison.messages)
        bursts = {name: partial(subject.burst, comparison.messages) for name, subject in subjects.items()}
        taken = interleaved(rounds, bursts, lambda line: tell(f"{comparison.name}: {line}"))
    params = {"messages": comparison.messages}
    runs = [
        run_of(
            f"{comparison.name}, {comparison.figure}",
            {"loop": loop, "against": other, **params},
            taken[f"turnkeeper on {loop}"],
            taken[other],
            compared=comparison.figure,
        )
        for loop in comparison.ours
        for other in comparison.others
    ]
    for library, why in comparison.left_out.items():
        runs.append(Run(comparison.name, {"against": library, "left_out": why, **params}, {}))
    return runs
