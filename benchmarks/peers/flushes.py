"""Flushes of the peers that keep sessions, in turns with ours: one session, a hundred, and ten events at a time.

Closed loops only: to a timetable most of them would be late, by how much would say nothing. Each row says what the
peer's events outlive; ours outlive a power loss. A peer has fewer sessions where more would wait for seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from ..durability import Durability
from ..loads import Load
from ..measuring import Figures, Run, Tell, interleaved, run_of
from .catalogue import FLUSHING, INSTALL, KeeperPeer
from .keeper_hosts import KeeperHost

Subject: TypeAlias = Callable[[Load], Figures]

_OURS: Final = "turnkeeper"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Which loads are measured, each for `rounds` rounds, after a burst of `warm_up_seconds` of each subject."""

    loads: tuple[Load, ...]
    rounds: int
    warm_up_seconds: float
    peers: tuple[KeeperPeer, ...] = FLUSHING


QUICK = Sizes((Load(1, 0.1), Load(100, 0.1), Load(100, 0.1, events=10)), rounds=3, warm_up_seconds=0.05)
FULL = Sizes((Load(1, 0.5), Load(100, 0.5), Load(100, 0.5, events=10)), rounds=7, warm_up_seconds=0.2)


def measure_flushes(ours: Subject, sizes: Sizes, directory: Path, tell: Tell, params: Mapping[str, Any]) -> list[Run]:
    """Compare ours with each peer that is installed; a row for each of the others says how it would be.

    `params` are those of every run. The peers' files lie in `directory`.
    """
    there = [peer for peer in sizes.peers if peer.installed is not None]
    with ExitStack() as opened:
        hosts = {peer: opened.enter_context(_host(peer, sizes, directory)) for peer in there}
        durabilities = {peer: host.durability() for peer, host in hosts.items()}
        runs = [
            run
            for load in (sizes.loads if hosts else ())
            for run in _measure_load(ours, hosts, durabilities, load, sizes, tell, params)
        ]
    missing = [{**params, "against": peer.name, "left_out": INSTALL} for peer in sizes.peers if peer not in there]
    return runs + [Run("flush", left_out, {}) for left_out in missing]


def _host(peer: KeeperPeer, sizes: Sizes, directory: Path) -> KeeperHost:
    sessions = max(_load_of(peer, load).sessions for load in sizes.loads)
    return KeeperHost(peer, directory / f"peer-{sizes.peers.index(peer)}", sessions)


def _load_of(peer: KeeperPeer, load: Load) -> Load:
    return replace(load, sessions=min(load.sessions, peer.sessions_max))


def _measure_load(
    ours: Subject,
    hosts: Mapping[KeeperPeer, KeeperHost],
    durabilities: Mapping[KeeperPeer, Durability],
    load: Load,
    sizes: Sizes,
    tell: Tell,
    params: Mapping[str, Any],
) -> list[Run]:
    """Let all take turns under a load."""
    subjects = {_OURS: (ours, load)} | {peer.name: (host.burst, _load_of(peer, load)) for peer, host in hosts.items()}
    for burst, theirs in subjects.values():
        burst(replace(theirs, seconds=sizes.warm_up_seconds))
    kind = f"{load.sessions} sessions, {load.events} a flush"
    bursts = {name: partial(burst, theirs) for name, (burst, theirs) in subjects.items()}
    taken = interleaved(sizes.rounds, bursts, lambda line: tell(f"{kind}: {line}"))
    compared = "per_second" if load.sessions > 1 else "p50_ms"
    runs = []
    for peer in hosts:
        about = {
            "sessions": load.sessions,
            "base_sessions": _load_of(peer, load).sessions,
            "load": load.kind,
            "events_a_flush": load.events,
            "against": peer.name,
            "installed": peer.installed,
            **durabilities[peer]._asdict(),
            "burst_seconds": load.seconds,
        }
        runs.append(run_of(f"flush {compared}", {**params, **about}, taken[_OURS], taken[peer.name], compared=compared))
    return runs
