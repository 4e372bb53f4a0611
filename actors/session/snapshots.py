"""The newest snapshot of a session that can be used. Nothing is written.

The summary names the last snapshots, so one look at each is enough, however long the log is. What is damaged, or was
rewound away, is passed over for the one before it; with none left the program folds the log itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core_types import SNAPSHOT
from ..reading.logs import StoredLog
from ..records import Snapshot


async def last_snapshot(log: StoredLog, seqs: Sequence[int]) -> Snapshot | None:
    """Give the newest of the snapshots with these numbers that counts and can be read; None if there is none.

    Raises Corrupt if it can't be told what was rewound.
    """
    if not seqs:
        return None
    stretches = await log.live_stretches()
    for seq in reversed(seqs):
        if any(start <= seq and (stop is None or seq < stop) for start, stop in stretches):
            for event in await log.read(start=seq, limit=1):
                if event.seq == seq and event.type == SNAPSHOT and "state" in event.data:
                    return Snapshot(seq, event.data["state"])
    return None
