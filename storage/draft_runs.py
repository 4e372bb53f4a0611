"""A run while its batch is being built: what the append rule has put into it so far, and answers that wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .format import Run

RUN_ENTRY_BYTES = 160
"""What a run takes in its batch's header, without its patch, at most."""


class DraftRun:
    """One stream's run in the batch being built."""

    __slots__ = ("chunks", "crc", "entry_bytes", "epoch", "events", "keys", "patch", "seq", "size", "stream")

    def __init__(self, stream: str, epoch: int, seq: int) -> None:
        self.stream = stream
        self.epoch = epoch
        self.seq = seq
        self.events = 0
        self.size = 0
        self.crc = 0
        self.chunks: list[bytes] = []
        self.patch: dict[str, Any] | None = None
        self.keys: dict[str, int] = {}
        self.entry_bytes = RUN_ENTRY_BYTES

    @property
    def head(self) -> int:
        return self.seq + self.events

    def merge(self, patch: Mapping[str, Any]) -> None:
        merged = dict(self.patch or ())
        for name, value in patch.items():
            if name == "keys":
                merged["keys"] = {**merged.get("keys", {}), **value}
            elif name == "blobs":
                merged["blobs"] = list(dict.fromkeys([*merged.get("blobs", ()), *value]))
            elif name == "deleted_to":
                if value is not None:
                    merged[name] = max(value, merged.get(name, 0))
            else:
                merged[name] = value
        self.patch = merged

    def finished(self) -> Run:
        return Run(self.stream, self.epoch, self.seq, self.events, self.size, self.crc, self.patch)


class Waiting(NamedTuple):
    """An answer that holds once the batch is written: `events` of `run` stand before the end of this append.

    `has_lines` is whether any of them are its own.
    """

    first: int
    run: DraftRun
    events: int
    has_lines: bool
