"""Events of another session as the beginning of a new one: the same, with numbers of their own."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..folding import REWOUND
from ..reading.rewinds import Rewind
from ..records import Event

if TYPE_CHECKING:
    from .session import Session


async def sow(session: Session, seeds: Sequence[Event]) -> None:
    """Append the seeds, in order; a rewind among them goes back to the same place under its new number."""
    numbers = [seed.seq for seed in seeds]
    newest: int | None = None
    for seed in seeds:
        data = seed.data
        if seed.type == REWOUND:
            meant = Rewind.from_event(seed.seq, seed.type, seed.data)
            newest, before = session.head, newest
            data = {**data, **Rewind(newest, bisect_left(numbers, meant.to), before).as_data()}
        await session.append(seed.type, data)
