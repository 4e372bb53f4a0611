"""The append rule inside a transaction: each request is answered in turn, and sees what those before it have changed.

Lines that are stored already, byte for byte and under the same epoch, are acknowledged as the first time; then the
epoch decides, then the number. Everything is checked before a row is written, so a refusal leaves nothing behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from ..blobs import fault_of_names
from ..errors import (
    Conflict,
    Deleted,
    Exists,
    Fenced,
    InvalidFork,
    InvalidLine,
    NotFound,
    SessionBusy,
    StorageError,
    StoreFull,
    TooLarge,
    WrongKind,
)
from ..filesystem import FileSystem
from ..limits import BATCH_BYTES_MAX, ID_PATTERN, LINE_BYTES_MAX, PATCH_BYTES_MAX
from ..patches import fault_of_patch, patch_of_grant
from ..requests import (
    OWNERLESS,
    PATCHES_BY_ANYONE,
    Append,
    Appended,
    Grant,
    Granted,
    Patch,
    Post,
    Request,
    Result,
    Summary,
)
from .streams import Stream, find, find_named, get, key_bytes

_NOT_OF_THE_SUMMARY = frozenset(("keys", "blobs"))
"""Members of a patch that belong to its lines."""


class Answering:
    """One transaction's requests. With `full`, whatever would be written is refused with it instead."""

    def __init__(
        self,
        database: sqlite3.Connection,
        fs: FileSystem,
        is_gone: Callable[[Mapping[str, Any]], bool],
        now: int,
        next_position: int,
        full: StoreFull | None,
    ) -> None:
        self._database = database
        self._fs = fs
        self._is_gone = is_gone
        self._now = now
        self._full = full
        self._unwritten: set[str] = set()
        self.next_position = next_position
        self.has_written = False

    def answer(self, request: Request) -> Result:
        """Carry a request out, or say why it is refused. Raises sqlite3.Error."""
        try:
            if isinstance(request, Grant):
                return self._grant(request)
            if isinstance(request, Post):
                return self._post(request)
            fault = None if request.patch is None else fault_of_patch(request)
            if fault is not None:
                return fault
            return self._append(request) if isinstance(request, Append) else self._patch(request)
        except StoreFull as refusal:
            self._unwritten.add(request.stream)
            return refusal
        except (Conflict, Fenced, NotFound) as refusal:
            # What found no room might have been what it builds on.
            return self._full if self._full is not None and request.stream in self._unwritten else refusal
        except StorageError as refusal:
            return refusal

    # -- appends

    def _append(self, request: Append) -> Appended:
        stream = find(self._database, request.stream)
        if stream is None:
            return self._create(request)
        if request.key is not None:
            known = self._answer_to_key(request, request.key, stream)
            if known is not None:
                return known
        lines = _split(request.stream, request.first, request.lines)
        stored, position = self._count_stored(request, lines)
        if lines and stored == len(lines):
            return Appended(request.first, request.first + stored, position)
        if request.create and not stored:
            raise Exists(stream.id)
        if request.epoch != stream.epoch:
            raise Fenced(stream.id, stream.summary.get("owner"), stored)
        if request.first + stored != stream.head:
            raise Conflict(stream.id, stream.head, stored)
        return self._extend(request, stream, lines[stored:])

    def _create(self, request: Append) -> Appended:
        id, header = request.stream, request.patch or {}
        if not request.create:
            raise NotFound(id)
        if not ID_PATTERN.match(id):
            raise InvalidLine(id, 0, "this can't be an id")
        taken = None if header.get("key") is None else find_named(self._database, header["key"])
        if taken is not None:
            raise Exists(taken.id, "key")
        begin = self._check_fork(header) if header.get("parent_seq") is not None else 0
        if request.epoch != 1 or request.first != begin or not (request.lines or begin):
            raise Conflict(id, begin)
        lines = _split(id, begin, request.lines)
        return self._extend(request, Stream(id, begin, 1, 0, 0, "{}"), lines)

    def _check_fork(self, header: Mapping[str, Any]) -> int:
        """Give the number of its parent's events that a fork begins with. Raises InvalidFork."""
        parent, seq = header.get("parent"), header["parent_seq"]
        if not isinstance(parent, str) or type(seq) is not int or seq < 0:
            raise InvalidFork(str(parent), 0, "a fork's header has its parent's id and a number of events")
        stream = find(self._database, parent)
        if stream is None:
            raise InvalidFork(parent, seq, "there is no such stream")
        summary = stream.summary
        open_turn = summary.get("open_turn")
        if stream.epoch == OWNERLESS:
            raise InvalidFork(parent, seq, "it has no owner")
        if summary.get("deleted"):
            raise InvalidFork(parent, seq, "it is deleted")
        if seq > stream.head:
            raise InvalidFork(parent, seq, f"it has {stream.head} events")
        if 0 < seq <= summary.get("deleted_to", 0):
            raise InvalidFork(parent, seq, "those events are deleted")
        if open_turn is not None and seq > open_turn:
            raise InvalidFork(parent, seq, f"event {open_turn} began a turn that is open")
        return seq

    def _answer_to_key(self, request: Append, key: str, stream: Stream) -> Appended | None:
        """Answer an append whose key is known by what was stored under it; None for a new key. Raises Conflict."""
        found = self._database.execute(
            "SELECT seq, line, position FROM keys JOIN events USING (stream, seq) WHERE stream = ? AND key = ?",
            (stream.id, key_bytes(key)),
        ).fetchone()
        if found is None:
            return None
        seq, line, position = found
        if _content(line + b"\n") != _content(request.lines):
            raise Conflict(stream.id, stream.head, key=key)
        return Appended(seq, seq + 1, position)

    def _count_stored(self, request: Append, lines: list[bytes]) -> tuple[int, int]:
        """Count the leading lines that are stored already; give also the last one's position."""
        stored = position = 0
        rows = self._database.execute(
            "SELECT seq, epoch, line, position FROM events WHERE stream = ? AND seq >= ? AND seq < ? ORDER BY seq",
            (request.stream, request.first, request.first + len(lines)),
        ).fetchall()
        for line, (seq, epoch, found, its_position) in zip(lines, rows, strict=False):
            if (seq, epoch, found) != (request.first + stored, request.epoch, line):
                break
            stored, position = stored + 1, its_position
        return stored, position

    def _extend(self, request: Append, stream: Stream, lines: list[bytes]) -> Appended:
        """Write lines at the stream's head, with the patch and the key."""
        if request.key is not None and len(lines) != 1:
            raise InvalidLine(stream.id, stream.head, "only a line by itself can have a key")
        if not lines and request.patch is None:
            return Appended(stream.head, stream.head, 0)
        size = sum(map(len, lines)) + len(lines)
        if size > BATCH_BYTES_MAX:
            raise TooLarge(f"an append to {stream.id}", size, BATCH_BYTES_MAX)
        self._write(stream, stream.epoch, request.patch or {}, lines)
        if request.key is not None:
            key = (stream.id, key_bytes(request.key), stream.head)
            self._database.execute("INSERT INTO keys VALUES (?, ?, ?)", key)
        return Appended(request.first, stream.head + len(lines), self.next_position - 1 if lines else 0)

    # -- posts

    def _post(self, request: Post) -> Appended:
        id, tail, patch = request.stream, request.tail, request.patch
        if not ID_PATTERN.match(id):
            raise InvalidLine(id, 0, "this can't be an id")
        stream = find(self._database, id) or Stream(id, 0, OWNERLESS, 0, 0, "{}")
        if stream.epoch != OWNERLESS:
            raise Exists(id)
        append = Append(id, OWNERLESS, stream.head, _prefix(id, stream.head) + tail, patch, request.key)
        known = self._answer_to_key(append, request.key, stream)
        if known is not None:
            return known
        self._check_author(request)
        lines = _split(id, stream.head, append.lines)
        if not tail.startswith(b'"time":') or len(lines) != 1:
            raise InvalidLine(id, stream.head, "what is posted is one event from its time on")
        fault = None if patch is None else fault_of_patch(append)
        if fault is not None:
            raise fault
        if not stream.head:
            append.patch = {**request.header, **(patch or {})}
        return self._extend(append, stream, lines)

    def _check_author(self, request: Post) -> None:
        """See that a post in a stream's name is its owner's. Raises NotFound, Fenced."""
        if request.author is not None:
            author = get(self._database, request.author[0])
            if author.epoch != request.author[1]:
                raise Fenced(author.id, author.summary.get("owner"))

    # -- grants, and patches by anyone

    def _grant(self, request: Grant) -> Granted:
        stream = get(self._database, request.stream)
        summary = stream.summary
        if stream.epoch == OWNERLESS:
            raise WrongKind(stream.id, summary.get("kind", ""), "session")
        if summary.get("deleted"):
            raise Deleted(stream.id)
        owner = summary.get("owner")
        may_take = owner is None or request.takeover or owner.get("token") == request.owner.get("token")
        if not may_take and owner is not None and not self._is_gone(owner):
            raise SessionBusy(stream.id, owner)
        patch = patch_of_grant(summary, stream.head, request.owner)
        self._write(stream, stream.epoch + 1, patch)
        return Granted(stream.epoch + 1, stream.head, {**summary, **patch})

    def _patch(self, request: Patch) -> Appended:
        stream = get(self._database, request.stream)
        foreign = sorted(set(request.patch) - PATCHES_BY_ANYONE)
        if foreign:
            raise InvalidLine(stream.id, 0, f"{', '.join(foreign)}: that is its owner's to change")
        summary, patch = stream.summary, dict(request.patch)
        owner = summary.get("owner")
        if patch.get("deleted") and owner is not None and not self._is_gone(owner):
            raise SessionBusy(stream.id, owner)
        if patch.get("labels") is not None:
            changed = summary.get("labels", {}) | patch["labels"]
            patch["labels"] = {name: changed[name] for name in changed if changed[name] is not None} or None
        self._write(stream, stream.epoch, patch)
        return Appended(stream.head, stream.head, 0)

    # -- the rows

    def _write(self, stream: Stream, epoch: int, patch: Mapping[str, Any], lines: list[bytes] | None = None) -> None:
        """Write a stream's new state and lines. Raises TooLarge for a large patch, BlobMissing, StoreFull.

        What it names as its blobs has to be there already.
        """
        size = len(orjson.dumps(dict(patch)))
        if size > PATCH_BYTES_MAX:
            raise TooLarge(f"the header or patch of {stream.id}", size, PATCH_BYTES_MAX)
        fault = fault_of_names(self._fs, stream.id, stream.head, patch["blobs"]) if "blobs" in patch else None
        if fault is not None:
            raise fault
        if self._full is not None:
            raise self._full
        self.has_written = True
        position, active = stream.position, stream.active
        if lines:
            events = [
                (self.next_position + place, stream.id, stream.head + place, epoch, line)
                for place, line in enumerate(lines)
            ]
            self._database.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", events)
            self.next_position += len(lines)
            position, active = self.next_position - 1, self._now
        summary_json = stream.summary_json
        if patch:
            summary_json = orjson.dumps(_patched(stream.summary, patch)).decode()
        if "blobs" in patch:
            named = [(bytes.fromhex(digest), stream.id, stream.head) for digest in patch["blobs"]]
            self._database.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?, ?)", named)
        if patch.get("key") is not None:
            self._database.execute("REPLACE INTO names VALUES (?, ?)", (key_bytes(patch["key"]), stream.id))
        row = (stream.id, stream.head + len(lines or ()), epoch, position, active, summary_json)
        self._database.execute("REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?)", row)


def _patched(summary: Summary, patch: Mapping[str, Any]) -> Summary:
    """Give a summary with a patch applied: whole values, None removes, and a deleted beginning never comes back."""
    changed = {**summary, **{name: value for name, value in patch.items() if name not in _NOT_OF_THE_SUMMARY}}
    if "deleted_to" in patch:
        marks = [mark for mark in (patch["deleted_to"], summary.get("deleted_to")) if mark is not None]
        changed["deleted_to"] = max(marks, default=None)
    return {name: value for name, value in changed.items() if value is not None}


def _split(stream: str, first: int, lines: bytes) -> list[bytes]:
    """Take lines apart, without their newlines, each checked to be its event's. Raises InvalidLine, TooLarge."""
    if not lines:
        return []
    *whole, rest = lines.split(b"\n")
    for seq, line in enumerate(whole, first):
        _check_size(stream, seq, len(line) + 1)
        if not line.startswith(_prefix(stream, seq)) or not line.endswith(b"}}"):
            raise InvalidLine(stream, seq, "it isn't the line of this event")
    if rest:
        _check_size(stream, first + len(whole), len(rest))
        raise InvalidLine(stream, first + len(whole), "it doesn't end in a newline")
    return whole


def _prefix(stream: str, seq: int) -> bytes:
    return f'{{"stream":"{stream}","seq":{seq},'.encode()


def _check_size(stream: str, seq: int, size: int) -> None:
    if size > LINE_BYTES_MAX:
        raise TooLarge(f"event {seq} of {stream}", size, LINE_BYTES_MAX)


def _content(line: bytes) -> bytes:
    """Give what a line says, without stream, number and time."""
    return line[line.find(b',"type":') :]
