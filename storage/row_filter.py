"""Which streams a list lets pass, by their summaries: told from a summary's bytes where that is possible.

A summary that lacks the very bytes of what is asked for is left out without being read, which makes a list of few among
many some ten times as fast.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress

import orjson

from .requests import Summary


class RowFilter:
    """What a list asks for; see `BackendReader.rows`."""

    def __init__(
        self,
        include_deleted: bool,
        label: tuple[str, str] | None,
        cwd: Collection[str] | str,
        having: str | None,
        equal: Mapping[str, str],
    ) -> None:
        self._include_deleted = include_deleted
        self._label = label
        self._cwds = frozenset((cwd,) if isinstance(cwd, str) else cwd)
        self._having = having
        self._equal = equal
        self._needles = self._make_needles()

    @property
    def is_selective(self) -> bool:
        """Say whether anything is asked for but the kind, which most streams share."""
        return len(self._needles) > ("kind" in self._equal)

    @property
    def needle(self) -> bytes:
        """Give bytes that each summary holds that may fit: a first test, which costs next to nothing."""
        first = self._needles[0] if self._needles else []
        return first[0] if len(first) == 1 else b""

    def passes(self, content: bytes) -> bool:
        """Say whether a summary, as the index holds it, may fit: all that do pass, and few others."""
        return all(any(needle in content for needle in needles) for needles in self._needles)

    def fits(self, summary: Summary) -> bool:
        """Say whether a summary fits."""
        if summary.get("deleted") and not self._include_deleted:
            return False
        if self._label is not None and (summary.get("labels") or {}).get(self._label[0]) != self._label[1]:
            return False
        if self._cwds and not self._cwds & {summary.get("cwd"), summary.get("cwd_real")}:
            return False
        if self._having is not None and self._having not in summary:
            return False
        return all(summary.get(name) == value for name, value in self._equal.items())

    def _make_needles(self) -> list[list[bytes]]:
        """Give, for each thing that is asked for, the bytes of which a summary that fits has at least one.

        What few streams have comes first. What JSON can't hold is in no summary.
        """
        members = [] if self._label is None else [self._label]
        members += sorted(self._equal.items(), key=lambda member: member[0] == "kind")
        needles = [_encoded([{name: value}]) for name, value in members]
        if self._cwds:
            needles.insert(0, _encoded(self._cwds))
        if self._having is not None:
            needles.insert(0, [orjson.dumps(self._having) + b":"])
        return needles


def _encoded(values: Collection[str | dict[str, str]]) -> list[bytes]:
    """Give values, or members, as they stand in compact JSON; those that can't be written are left out."""
    found = []
    for value in values:
        with suppress(TypeError):
            content = orjson.dumps(value)
            found.append(content if isinstance(value, str) else content[1:-1])
    return found
