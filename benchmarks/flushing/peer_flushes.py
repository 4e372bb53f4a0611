"""Flushes of the peers that keep sessions, in turns with ours: one session, a hundred, and ten events at a time.

Closed loops, if nobody asks for another: to a timetable most of them would be late, and by how much would say nothing.
Each row says what the
peer's events outlive; ours outlive a power loss. A peer has fewer sessions where more would wait for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..driving.loads import Load
from ..measuring.durability import Durability
from ..measuring.runs import Figures, Run, Tell, interleaved, run_of
from ..peers.catalogue import AGENTS, DBOS, FLUSHING, INSTALL, LANGGRAPH, KeeperPeer, failure
from ..peers.keeper_hosts import KeeperHost
from ..stores.contents import USUAL, EventSizes

Subject: TypeAlias = Callable[[Load], Figures]

_OURS: Final = "turnkeeper"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which loads of which peers are measured, each for `rounds` rounds, after a burst of `warm_up_seconds` of each."""

    loads: tuple[Load, ...]
    rounds: int
    warm_up_seconds: float
    peers: tuple[KeeperPeer, ...] = FLUSHING
    events: EventSizes = USUAL


QUICK = Sizes((Load(1, 0.1), Load(100, 0.1)), rounds=3, warm_up_seconds=0.05, peers=(AGENTS, LANGGRAPH, DBOS))
FULL = Sizes((Load(1, 0.5), Load(100, 0.5), Load(100, 0.5, events=10)), rounds=7, warm_up_seconds=0.2)


@dataclass(frozen=True, slots=True)
class _Beside:
    """A peer that takes part."""

    peer: KeeperPeer
    host: KeeperHost
    durability: Durability

    @property
    def burst(self) -> Subject:
        """What puts it under a load, of as many sessions as it can have."""
        return lambda load: self.host.burst(_load_of(self.peer, load))


def measure_flushes(ours: Subject, sizes: Sizes, directory: Path, tell: Tell, params: Mapping[str, Any]) -> list[Run]:
    """Compare ours with each peer that is installed and works; a row for each of the others says what it lacks.

    `params` are those of every run. The peers' files lie in `directory`.
    """
    left_out = {peer: INSTALL for peer in sizes.peers if peer.installed is None}
    with ExitStack() as opened:
        hosts = {peer: opened.enter_context(_host(peer, sizes, directory)) for peer in sizes.peers if peer.installed}
        beside = []
        for peer, host in hosts.items():
            try:
                beside.append(_Beside(peer, host, host.durability()))
            except Exception as error:
                left_out[peer] = failure(str(peer.installed), error)
        loads = sizes.loads if beside else ()
        runs = [run for load in loads for run in _measure_load(ours, beside, load, sizes, tell, params)]
    return runs + [
        Run("flush", {**params, "against": peer.name, "left_out": why}, {}) for peer, why in left_out.items()
    ]


def _host(peer: KeeperPeer, sizes: Sizes, directory: Path) -> KeeperHost:
    sessions = max(_load_of(peer, load).sessions for load in sizes.loads)
    return KeeperHost(peer, directory / f"peer-{sizes.peers.index(peer)}", sessions, sizes.events)


def _load_of(peer: KeeperPeer, load: Load) -> Load:
    return replace(load, sessions=min(load.sessions, peer.sessions_max))


def _measure_load(
    ours: Subject, beside: Sequence[_Beside], load: Load, sizes: Sizes, tell: Tell, params: Mapping[str, Any]
) -> list[Run]:
    """Let all take turns under a load."""
    subjects = {_OURS: ours} | {each.peer.name: each.burst for each in beside}
    for burst in subjects.values():
        burst(load.warming(sizes.warm_up_seconds))
    kind = f"{load.sessions} sessions, {load.events} a flush"
    bursts = {name: partial(burst, load) for name, burst in subjects.items()}
    taken = interleaved(sizes.rounds, bursts, lambda line: tell(f"{kind}: {line}"))
    return [_compare(each, load, taken, params) for each in beside]


def _compare(beside: _Beside, load: Load, taken: Mapping[str, Sequence[Figures]], params: Mapping[str, Any]) -> Run:
    """Put ours beside a peer: one session's latency, or how many events a second many have."""
    peer = beside.peer
    about = {
        "sessions": load.sessions,
        "base_sessions": _load_of(peer, load).sessions,
        "load": load.kind,
        "planned_per_second": load.per_second,
        "events_a_flush": load.events,
        "against": peer.name,
        "installed": peer.installed,
        **beside.durability._asdict(),
        "burst_seconds": load.seconds,
    }
    name = f"flush {load.compared}"
    return run_of(name, {**params, **about}, taken[_OURS], taken[peer.name], compared=load.compared)
