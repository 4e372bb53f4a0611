"""Opening a long session: all its events as a program gets them that goes on with it, of ours and of the peers.

Warm, and each from a store of its own that holds this session alone. For LangGraph that is the last checkpoint's state,
for DBOS the steps of a workflow with what they gave, for a file or a table each line parsed.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ..measuring.runs import Run, Tell, interleaved, run_of
from ..peers.catalogue import INSTALL, OURS, READING, KeeperPeer, failure
from ..peers.keeper_hosts import KeeperReader

_NAME: Final = "load session p50_ms"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How long the session is, how often it is read in a round, and how many rounds there are."""

    events: int
    reads: int
    rounds: int
    peers: tuple[KeeperPeer, ...] = READING


QUICK = Sizes(events=1_000, reads=3, rounds=3)
FULL = Sizes(events=10_000, reads=3, rounds=7)


def measure_openings(sizes: Sizes, directory: Path, tell: Tell) -> list[Run]:
    """Compare ours with each peer that is installed and works; a row for each of the others says what it lacks."""
    left_out = {peer: INSTALL for peer in sizes.peers if peer.installed is None}
    tell(f"filling sessions of {sizes.events:,} events")
    with ExitStack() as opened:
        readers = {
            peer: opened.enter_context(KeeperReader(peer, directory / f"opening-{number}", sizes.events))
            for number, peer in enumerate([OURS, *sizes.peers])
            if peer.installed is not None
        }
        for peer, reader in readers.items():
            try:
                reader.wait_ready()
                reader.read(1)
            except Exception as error:
                if peer is OURS:
                    raise
                left_out[peer] = failure(str(peer.installed), error)
        there = [peer for peer in readers if peer not in left_out]
        reads = {peer.name: partial(readers[peer].read, sizes.reads) for peer in there}
        taken = interleaved(sizes.rounds, reads, lambda line: tell(f"opening a session: {line}"))
    params = {"session_events": sizes.events, "reads": sizes.reads, "cache": "warm"}
    runs = [
        run_of(
            _NAME,
            {**params, "against": peer.name, "installed": peer.installed},
            taken[OURS.name],
            taken[peer.name],
            compared="p50_ms",
        )
        for peer in there
        if peer is not OURS
    ]
    return runs + [Run(_NAME, {**params, "against": peer.name, "left_out": why}, {}) for peer, why in left_out.items()]
