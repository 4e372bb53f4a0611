"""Sessions of other programs, read from their files as drafts for the store.

`read_sessions` yields an `ImportedSession` for every session in a file or below a folder; whoever stores appends its
events by their keys, as `drafts` says, and counts into the `ImportReport`. Nothing here waits, writes or knows a store.
"""

from __future__ import annotations

from .drafts import ImportedEvent, ImportedSession, SessionHeader
from .files import find_files
from .reading import FORMATS, UnknownFormat, read_sessions
from .report import ImportReport, Problem

__all__ = [
    "FORMATS",
    "ImportReport",
    "ImportedEvent",
    "ImportedSession",
    "Problem",
    "SessionHeader",
    "UnknownFormat",
    "find_files",
    "read_sessions",
]
