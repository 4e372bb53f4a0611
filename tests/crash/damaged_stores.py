"""What is read of a store whose bytes were damaged, and whether anybody was told."""

from __future__ import annotations

from pathlib import Path

from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.verify import Verification

STREAMS = ("a", "b", "c")


def read_all(path: Path, served_index: str | None = None) -> dict[str, dict[int, bytes]]:
    """Read what can be read of every stream, by seq: by a living writer's index, a clean one, or else without."""
    reader = open_reader(str(path), served_index)
    try:
        found: dict[str, dict[int, bytes]] = {}
        for row in reader.rows(1000):
            page = reader.read(row.id, limit=100_000)
            found[row.id] = {stored.seq: stored.line for stored in page.events}
            gaps = {seq for gap in page.missing for seq in range(gap.first, gap.first + gap.events)}
            assert gaps | found[row.id].keys() == set(range(page.head)), (
                "each number below the head is given or missing"
            )
        return found
    finally:
        reader.close()


def is_reported(verification: Verification) -> bool:
    """Say whether verify found anything wrong with the journal."""
    return bool(verification.damaged) or verification.torn_tail is not None
