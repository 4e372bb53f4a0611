"""Which of a session's events count: a rewind is a record, and nothing is destroyed by it.

    session/rewound {"to": N, "previous": SEQ | null}

After it the session goes on as it was when it had N events; what stands between is kept, and doesn't count any more. A
later rewind may go to a number that an earlier one had taken out: then what counted there counts again. `previous` is
the seq of the rewind before it, whatever became of that one. So the rewinds of a session are a list, which begins at
its summary's `rewound`; in a fork it leads on into the parent. Only these records are read to tell what counts. No
event loop is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

from turnkeeper.storage.backend import BackendReader

from ..folding import REWOUND, count_or_none
from ..records import Event
from .looking import whole_page

Range: TypeAlias = tuple[int, int]
"""Events from the first number to the second, without it."""


class Rewind(NamedTuple):
    """The rewind that event `seq` is: back to `to` events; `previous` is the seq of the one before it."""

    seq: int
    to: int
    previous: int | None

    @classmethod
    def from_event(cls, seq: int, type: str, data: Mapping[str, Any]) -> Rewind:
        """Read a rewind; one that couldn't be, as nothing of ours writes it, goes back by nothing but itself."""
        to, previous = count_or_none(data.get("to")), count_or_none(data.get("previous"))
        if type != REWOUND or to is None or to > seq:
            to = seq
        return cls(seq, to, previous if previous is not None and previous < seq else None)

    def as_data(self) -> dict[str, Any]:
        """Give the event's data."""
        return {"to": self.to, "previous": self.previous}


def live_ranges(
    reader: BackendReader, id: str, newest: int | None, stop: int, unstored: Collection[Rewind] = ()
) -> list[Range]:
    """Give the ranges of a session's first `stop` events that count, in order.

    `newest` is what its summary says as `rewound`, though it may be at or behind `stop`: then what counted at that
    time is given. The rewinds themselves aren't in a range. `unstored` are those that can't be read yet. Raises Corrupt
    if one can't be read any more: nobody could tell what it took out.
    """
    look = _looking(reader, id, unstored)
    ranges: list[Range] = []
    while stop > 0:
        rewind = _newest_below(stop, newest, look)
        begin = 0 if rewind is None else rewind.seq + 1
        if begin < stop:
            ranges.append((begin, stop))
        if rewind is None:
            break
        stop, newest = rewind.to, rewind.previous
    return ranges[::-1]


def newest_rewind(reader: BackendReader, id: str, newest: int | None, stop: int) -> int | None:
    """Give the seq of the newest rewind among a session's first `stop` events. Raises Corrupt."""
    found = _newest_below(stop, newest, _looking(reader, id, ()))
    return None if found is None else found.seq


_Look: TypeAlias = Callable[[int], Rewind]


def _looking(reader: BackendReader, id: str, unstored: Collection[Rewind]) -> _Look:
    known = {rewind.seq: rewind for rewind in unstored}

    def look(seq: int) -> Rewind:
        if seq in known:
            return known[seq]
        for event in map(Event.from_stored, whole_page(reader, id, seq, seq + 1)):
            return Rewind.from_event(seq, event.type, event.data)
        return Rewind(seq, seq, None)  # it went with a deleted beginning, and all that it could speak of

    return look


def _newest_below(stop: int, newest: int | None, look: _Look) -> Rewind | None:
    while newest is not None:
        rewind = look(newest)
        if rewind.seq < stop:
            return rewind
        newest = rewind.previous
    return None
