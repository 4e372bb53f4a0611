"""What messages to actors cost, over what trio and msgpack alone can do, and beside other actor libraries.

Three ways: telling an actor of the same loop, asking one in a worker process, asking one of another process by its
name; and, beside Ray, telling one in a worker process. One sender tells as many as fit through, and waits whenever the
mailbox is full; asks come one after another, so their figure is the way there and back. Whatever exchanges messages has
a process of its own (`driving.exchanges`). All that are compared take turns in one run; a result is the median over its
rounds.

Also how soon a session actor goes on that is killed in its turns (`kills`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..driving import exchanges
from ..driving.exchanges import Exchanger, Loop
from ..measuring.runs import Figures, Run, Tell, be_quiet, interleaved, run_of
from ..peers.catalogue import INSTALL, failure, installed_version
from ..peers.exchanging import exchange
from ..workplace import Workplace, run_alone
from .kills import measure_kills

LIBRARIES: Final = ("pykka", "xoscar", "ray")
"""What is measured beside ours if it is installed; `peers.<name>_actors` is how."""

HEAVY: Final = "ray"
"""The one that starts ten processes, and takes some hundred times longer for a message than the others."""

_CHANNEL: Final = "a memory channel of trio"
_PING_PONG: Final = "msgpack over a Unix socket"

_LOOPS: Final[tuple[Loop, ...]] = ("trio", "asyncio")

Start: TypeAlias = Callable[[], Exchanger]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many messages a burst has, and how often each subject has its turn, after one burst to warm up.

    Beside Ray a burst has `heavy_messages`; with none it isn't measured. A session actor is killed `kills` times, or
    that isn't measured.
    """

    tells: int
    asks: int
    rounds: int
    heavy_messages: int = 0
    kills: int = 0


QUICK = Sizes(tells=5_000, asks=500, rounds=5, kills=5)
FULL = Sizes(tells=50_000, asks=5_000, rounds=9, heavy_messages=1_000, kills=100)


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
    """Measure messages to actors, for some three minutes, 15 seconds if `quick`; report a run for each way, and kills.

    The actors' store lies in `out`, or else in the current directory, and is removed; with `out` the result is kept
    there as actors.json. A library that isn't installed is left out, and said.
    """
    return run_alone("actors", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace, libraries: tuple[str, ...] = LIBRARIES) -> list[Run]:
    """Measure with these sizes."""
    comparisons = _comparisons(place.directory, sizes, libraries)
    runs = [run for each in comparisons for run in _compare(each, sizes.rounds, place.tell)]
    return [*runs, measure_kills(sizes.kills, place)] if sizes.kills else runs


def _comparisons(directory: Path, sizes: Sizes, libraries: tuple[str, ...]) -> list[_Comparison]:
    store = str(directory / "store")
    ping_pong = {_PING_PONG: partial(Exchanger, exchanges.play_ping_pong, str(directory))}
    ask_worker: dict[str, Start] = {loop: partial(Exchanger, exchanges.ask_worker, store, loop) for loop in _LOOPS}
    light, light_left_out = _peers(directory, [name for name in libraries if name != HEAVY], sizes)
    heavy, heavy_left_out = _peers(directory, [name for name in libraries if name == HEAVY], sizes)
    return [
        _Comparison(
            "tell in the loop",
            "us_a_tell",
            sizes.tells,
            {loop: partial(Exchanger, exchanges.tell_in_loop, store, loop) for loop in _LOOPS},
            {_CHANNEL: partial(Exchanger, exchanges.send_through_channel), **light("tell")},
            light_left_out,
        ),
        _Comparison(
            "tell a worker",
            "us_a_tell",
            sizes.heavy_messages,
            {loop: partial(Exchanger, exchanges.tell_worker, store, loop) for loop in _LOOPS},
            heavy("tell"),
            heavy_left_out,
        ),
        _Comparison("ask a worker", "p50_us", sizes.asks, ask_worker, {**ping_pong, **light("ask")}, light_left_out),
        _Comparison("ask a worker", "p50_us", sizes.heavy_messages, ask_worker, heavy("ask"), heavy_left_out),
        _Comparison(
            "ask by name",
            "p50_us",
            sizes.asks,
            {loop: partial(Exchanger, exchanges.ask_named, store, loop) for loop in _LOOPS},
            ping_pong,
            {},
            server=partial(Exchanger, exchanges.serve_named, store),
        ),
    ]


def _peers(
    directory: Path, libraries: list[str], sizes: Sizes
) -> tuple[Callable[[str], dict[str, Start]], dict[str, str]]:
    """Give what starts a kind of exchange of each library that can be measured, and why the others can't."""
    left_out = {name: INSTALL for name in libraries if installed_version(name) is None}
    if HEAVY in libraries and not sizes.heavy_messages:
        left_out.setdefault(HEAVY, "takes too long for --quick")

    def starts(kind: str) -> dict[str, Start]:
        there = [name for name in libraries if name not in left_out]
        return {name: partial(Exchanger, exchange, name, kind, str(directory)) for name in there}

    return starts, left_out


def _compare(comparison: _Comparison, rounds: int, tell: Tell) -> list[Run]:
    """Let all take turns, and compare each of ours with each of the others."""
    params = {"messages": comparison.messages}
    left_out = [{"against": library, "left_out": why, **params} for library, why in comparison.left_out.items()]
    runs = _measure(comparison, rounds, tell, params) if comparison.others else []
    return runs + [Run(comparison.name, each, {}) for each in left_out]


def _measure(comparison: _Comparison, rounds: int, tell: Tell, params: dict[str, Any]) -> list[Run]:
    with ExitStack() as opened:
        if comparison.server is not None:
            opened.enter_context(comparison.server()).wait_ready()
        starts = {**{f"turnkeeper on {loop}": start for loop, start in comparison.ours.items()}, **comparison.others}
        subjects = {name: opened.enter_context(start()) for name, start in starts.items()}
        bursts = {name: partial(subject.burst, comparison.messages) for name, subject in subjects.items()}
        failed = {name: why for name, subject in subjects.items() if (why := _failure(name, subject, bursts[name]))}
        for name in failed:
            del bursts[name]
        taken = interleaved(rounds, bursts, lambda line: tell(f"{comparison.name}: {line}"))
    runs = [
        run_of(
            f"{comparison.name}, {comparison.figure}",
            {"loop": loop, "against": other, **_version(other), **params},
            taken[f"turnkeeper on {loop}"],
            taken[other],
            compared=comparison.figure,
        )
        for loop in comparison.ours
        for other in comparison.others
        if other not in failed
    ]
    return runs + [Run(comparison.name, {"against": name, "left_out": failed[name], **params}, {}) for name in failed]


def _failure(name: str, subject: Exchanger, burst: Callable[[], Figures]) -> str | None:
    """Let a subject do one burst to warm up; say what keeps a library from that, raise what keeps ours."""
    try:
        subject.wait_ready()
        burst()
    except Exception as error:
        if name not in LIBRARIES:
            raise
        return failure(_version(name)["installed"], error)
    return None


def _version(other: str) -> dict[str, str]:
    """Say which version of a library takes part."""
    found = installed_version(other) if other in LIBRARIES else None
    return {} if found is None else {"installed": f"{other} {found}"}
