"""Times as other tools write them, in milliseconds since 1970.

A time is data, never an order: a bad one is replaced by the last good one before it, and no record is lost for it.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LATEST = 253_402_300_799_999  # the end of the year 9999
_SECONDS_BELOW = 100_000_000_000  # as seconds the year 5138, as milliseconds 1973: no session is as old


def milliseconds(value: object) -> int | None:
    """Read ISO 8601 text (UTC unless it says otherwise), seconds or milliseconds; None if it is no time after 1970."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
            found = (moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        found = round(value * 1000 if abs(value) < _SECONDS_BELOW else value)
    else:
        return None
    return found if 0 < found <= _LATEST else None


class Clock:
    """The last good time of one session, while its records are read in the order of the file."""

    def __init__(self) -> None:
        self.last: int | None = None

    def read(self, value: object) -> int | None:
        """Take a record's time if it is good; return it, or the last good one."""
        found = milliseconds(value)
        if found is not None:
            self.last = found
        return self.last
