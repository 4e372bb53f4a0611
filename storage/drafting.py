"""The append rule: what of a list of requests goes into one batch, and what each is answered. Writes nothing.

For an append, in this order: lines that are stored already, byte for byte and under the same epoch, are acknowledged
as the first time, whatever the epoch is now; another epoch is fenced; another head is a conflict; the rest is
appended. Every refusal says how many of the lines are stored. A post, which nobody has to own anything for, gets the
head's number unless its key is known. A refusal leaves its neighbours in the batch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from zlib_ng.zlib_ng import crc32

from .draft_runs import RUN_ENTRY_BYTES, DraftRun, Waiting
from .errors import (
    Conflict,
    Corrupt,
    Deleted,
    Exists,
    Fenced,
    InvalidFork,
    InvalidLine,
    NotFound,
    SessionBusy,
    StorageError,
    TooLarge,
    WrongKind,
)
from .format import Run, encode_patch, encode_run, event_prefix, is_id, line_fault
from .index_records import key_digest
from .limits import BATCH_BYTES_MAX, HEADER_BYTES_MAX, LINE_BYTES_MAX, PATCH_BYTES_MAX, RUNS_MAX
from .patches import fault_of_patch, patch_of_grant
from .requests import OWNERLESS, PATCHES_BY_ANYONE, Append, Appended, Grant, Granted, Patch, Post, Request, Summary

_HEADER_ROOM = HEADER_BYTES_MAX - 1024


class StoredHead(Protocol):
    """What is stored of a stream before this batch."""

    head: int
    epoch: int


class Stored(Protocol):
    """What the append rule asks of what is stored, in one snapshot."""

    def head(self, stream: str) -> StoredHead | None: ...
    def summary(self, stream: str) -> Summary: ...
    def lines(self, stream: str, first: int, stop: int) -> list[tuple[int, bytes, int]]:
        """Give (epoch, line with its newline, position) of the events `first` to `stop` (without it)."""
        ...

    def stored_key(self, stream: str, key: str) -> int | None: ...
    def stream_named(self, key: str) -> str | None: ...
    def blobs_fault(self, stream: str, seq: int, named: Any) -> StorageError | None:
        """Say why blobs can't be named."""
        ...


class BatchIsFull(Exception):
    """The request belongs into the next batch."""


Answer = Appended | Granted | StorageError | Waiting


class Draft:
    """One batch being built over what is stored."""

    def __init__(self, stored: Stored, is_gone: Callable[[Mapping[str, Any]], bool]) -> None:
        self._stored = stored
        self._is_gone = is_gone
        self.runs: dict[str, DraftRun] = {}
        self.size = 0
        self._header_bytes = 0
        self._names: dict[str, str] = {}

    def add(self, request: Request) -> Answer:
        """Take a request into the batch, or refuse it. Raises BatchIsFull."""
        if isinstance(request, Append):
            fault = None if request.patch is None else fault_of_patch(request)
            return self._append(request) if fault is None else fault
        if isinstance(request, Grant):
            return self._grant(request)
        if isinstance(request, Post):
            return self._post(request)
        return fault_of_patch(request) or self._patch(request)

    def finish(self) -> tuple[list[str], list[Run], bytes]:
        """Give the header's entries, the runs, and the event lines of the batch."""
        runs = [run.finished() for run in self.runs.values()]
        lines = b"".join([chunk for run in self.runs.values() for chunk in run.chunks])
        return [encode_run(run) for run in runs], runs, lines

    # -- appends

    def _append(self, request: Append) -> Answer:
        stream, first, lines = request.stream, request.first, request.lines
        run = self.runs.get(stream)
        if run is not None:
            head, epoch = run.head, run.epoch
        else:
            stored = self._stored.head(stream)
            if stored is None:
                return self._create(request)
            head, epoch = stored.head, stored.epoch
        if request.key is not None:
            known = self._known_key(request, run)
            if known is not None:
                return known
        try:
            events = _count_lines(stream, first, lines)
        except StorageError as error:
            return error
        if first < head and events:
            return self._again(request, events, head, epoch, run)
        if request.create:
            return Exists(stream)
        if request.epoch != epoch:
            return Fenced(stream, self._present(stream, run, "owner"))
        if first != head:
            return Conflict(stream, head)
        return self._extend(request, lines, first, events, run)

    def _again(self, request: Append, events: int, head: int, epoch: int, run: DraftRun | None) -> Answer:
        """Recognise lines that are stored already, and append the rest."""
        stream, first = request.stream, request.first
        offered = _split(request.lines)
        try:
            stored, position = self._stored_prefix(request, offered, run)
        except Corrupt as error:
            return error
        if stored == events:
            if position is None:
                assert run is not None
                return Waiting(first, run, first + events - run.seq, True)
            return Appended(first, first + events, position)
        if request.create and stored == 0:
            return Exists(stream)
        if request.epoch != epoch:
            return Fenced(stream, self._present(stream, run, "owner"), stored)
        if first + stored != head:
            return Conflict(stream, head, stored)
        return self._extend(request, b"".join(offered[stored:]), first + stored, events - stored, run)

    def _stored_prefix(self, request: Append, offered: list[bytes], run: DraftRun | None) -> tuple[int, int | None]:
        """Count the leading lines that are stored; give also the last one's position, None if it is in this batch."""
        stream, first = request.stream, request.first
        stop = first + len(offered)
        durable = stop if run is None else min(stop, run.seq)
        known: list[tuple[int, bytes, int | None]] = []
        if first < durable:
            known.extend(self._stored.lines(stream, first, durable))
        if run is not None and stop > run.seq and len(known) == max(0, durable - first):
            inside = _split(b"".join(run.chunks))
            known.extend((run.epoch, line, None) for line in inside[max(0, first - run.seq) : stop - run.seq])
        stored = 0
        position: int | None = 0
        for (line_epoch, line, line_position), mine in zip(known, offered, strict=False):
            if line_epoch != request.epoch or line != mine:
                break
            stored += 1
            position = line_position
        return stored, position

    def _create(self, request: Append) -> Answer:
        """Begin a stream by its first run."""
        stream = request.stream
        if not request.create:
            return NotFound(stream)
        if not is_id(stream):
            return InvalidLine(stream, 0, "an id has 1 to 64 of a-z, 0-9 and -")
        header = request.patch or {}
        key = header.get("key")
        if key is not None:
            taken = self._names.get(key) or self._stored.stream_named(key)
            if taken is not None:
                return Exists(taken, "key")
        begin = 0
        if header.get("parent_seq") is not None:
            fault = self._fork_fault(header)
            if fault is not None:
                return fault
            begin = int(header["parent_seq"])
        if request.epoch != 1 or request.first != begin or not (request.lines or begin):
            return Conflict(stream, begin)
        try:
            events = _count_lines(stream, begin, request.lines)
        except StorageError as error:
            return error
        answer = self._extend(request, request.lines, begin, events, None)
        if key is not None and isinstance(answer, Waiting):
            self._names[key] = stream
        return answer

    def _fork_fault(self, header: Mapping[str, Any]) -> InvalidFork | None:
        """Say why a header's parent can't be forked where it wants to; None if it can."""
        parent, seq = header.get("parent"), header["parent_seq"]
        if not isinstance(parent, str) or type(seq) is not int or seq < 0:
            return InvalidFork(str(parent), 0, "a fork's header has its parent's id and a number of events")
        run = self.runs.get(parent)
        stored = self._stored.head(parent)
        if run is None and stored is None:
            return InvalidFork(parent, seq, "there is no such stream")
        head = run.head if run is not None else stored.head if stored is not None else 0
        summary = dict(self._stored.summary(parent)) if stored is not None else {}
        deleted_to = summary.get("deleted_to") or 0
        summary.update((run.patch or {}) if run is not None else {})
        open_turn = summary.get("open_turn")
        if self._epoch(run, stored) == OWNERLESS:
            return InvalidFork(parent, seq, "nobody owns it, so nobody can own a fork of it")
        if summary.get("deleted"):
            return InvalidFork(parent, seq, "it is deleted")
        if seq > head:
            return InvalidFork(parent, seq, f"it has {head} events")
        if 0 < seq <= max(deleted_to, summary.get("deleted_to") or 0):
            return InvalidFork(parent, seq, "those events are deleted")
        if open_turn is not None and seq > open_turn:
            return InvalidFork(parent, seq, f"it lies in the turn that event {open_turn} began, which is open")
        return None

    def _extend(self, request: Append, lines: bytes, seq: int, events: int, run: DraftRun | None) -> Answer:
        """Put lines and patch at the end of the stream's run, if the batch has room."""
        patch = request.patch
        if request.key is not None:
            if events != 1:
                return InvalidLine(request.stream, seq, "a line with a key is an append of its own")
            patch = {**(patch or {}), "keys": {key_digest(request.key): seq}}
        if not events and patch is None:
            return Appended(seq, seq, 0)
        if len(lines) > BATCH_BYTES_MAX:
            return TooLarge(f"an append to {request.stream}", len(lines), BATCH_BYTES_MAX)
        patch_bytes = 0
        if patch is not None:
            patch_bytes = len(encode_patch(patch))
            if patch_bytes > PATCH_BYTES_MAX:
                return TooLarge(f"the header or patch of {request.stream}", patch_bytes, PATCH_BYTES_MAX)
            fault = self._stored.blobs_fault(request.stream, seq, patch["blobs"]) if "blobs" in patch else None
            if fault is not None:
                return fault
        self._check_room(len(lines), patch_bytes, run)
        if run is None:
            run = self.runs[request.stream] = DraftRun(request.stream, request.epoch, seq)
            self._header_bytes += run.entry_bytes
        if events:
            run.chunks.append(lines)
            run.crc = crc32(lines, run.crc)
            run.size += len(lines)
            run.events += events
            self.size += len(lines)
        if patch is not None:
            run.merge(patch)
            self._header_bytes += patch_bytes
            run.entry_bytes += patch_bytes
            if request.key is not None:
                run.keys[key_digest(request.key)] = seq
        return Waiting(request.first, run, run.events, events > 0)

    def _check_room(self, size: int, patch_bytes: int, run: DraftRun | None) -> None:
        if not self.runs:
            return
        if self.size + size > BATCH_BYTES_MAX or self._header_bytes + patch_bytes + RUN_ENTRY_BYTES > _HEADER_ROOM:
            raise BatchIsFull
        if run is None and len(self.runs) >= RUNS_MAX:
            raise BatchIsFull
        if run is not None and patch_bytes and run.entry_bytes - RUN_ENTRY_BYTES + patch_bytes > PATCH_BYTES_MAX:
            raise BatchIsFull

    def _known_key(self, request: Append, run: DraftRun | None) -> Answer | None:
        """Answer an append whose key is there with the old seq, if it is the same line but for its time."""
        assert request.key is not None
        stream = request.stream
        if run is not None:
            seq = run.keys.get(key_digest(request.key))
            if seq is not None:
                line = _split(b"".join(run.chunks))[seq - run.seq]
                if _without_number_and_time(line) != _without_number_and_time(request.lines):
                    return Conflict(stream, run.head, key=request.key)
                return Waiting(seq, run, seq + 1 - run.seq, True)
        seq = self._stored.stored_key(stream, request.key)
        if seq is None:
            return None
        stored = self._stored.head(stream)
        head = run.head if run is not None else stored.head if stored is not None else 0
        try:
            ((_, line, position),) = self._stored.lines(stream, seq, seq + 1)
        except Corrupt as error:
            return error
        if _without_number_and_time(line) != _without_number_and_time(request.lines):
            return Conflict(stream, head, key=request.key)
        return Appended(seq, seq + 1, position)

    def _present(self, stream: str, run: DraftRun | None, name: str) -> Mapping[str, Any] | None:
        """Give a member of a summary, a map, as it is after the batch so far."""
        if run is not None and run.patch is not None and name in run.patch:
            value: Mapping[str, Any] | None = run.patch[name]
            return value
        return self._stored.summary(stream).get(name)

    # -- posts

    def _post(self, request: Post) -> Answer:
        """Give an event the next number of a stream without owner, unless its key is known."""
        stream = request.stream
        run, stored = self.runs.get(stream), self._stored.head(stream)
        begins = run is None and stored is None
        if begins and not is_id(stream):
            return InvalidLine(stream, 0, "an id has 1 to 64 of a-z, 0-9 and -")
        if not begins and self._epoch(run, stored) != OWNERLESS:
            summary = {**self._stored.summary(stream), **((run.patch if run is not None else None) or {})}
            if not summary.get("damaged") or summary.get("kind") not in (None, request.header.get("kind")):
                return Exists(stream)
            # Damage took its first run, which alone said what it is and that nobody owns it.
            begins = "kind" not in summary
        head = run.head if run is not None else stored.head if stored is not None else 0
        lines = event_prefix(stream, head) + request.tail
        append = Append(stream, OWNERLESS, head, lines, request.patch, request.key)
        known = self._known_key(append, run)
        if known is not None:
            return known
        fault = self._fault_of_post(request, append)
        if fault is not None:
            return fault
        if begins:
            append.patch = {**request.header, **(request.patch or {})}
        return self._extend(append, lines, head, 1, run)

    def _fault_of_post(self, request: Post, append: Append) -> StorageError | None:
        """Say why an event that isn't stored can't be posted; None if it can."""
        if request.author is not None:
            author, epoch = request.author
            run, stored = self.runs.get(author), self._stored.head(author)
            if run is None and stored is None:
                return NotFound(author)
            if self._epoch(run, stored) != epoch:
                return Fenced(author, self._present(author, run, "owner"))
        try:
            events = _count_lines(append.stream, append.first, append.lines)
        except StorageError as error:
            return error
        if events != 1 or not request.tail.startswith(b'"time":'):
            return InvalidLine(append.stream, append.first, "what is posted is one event from its time on")
        return None if request.patch is None else fault_of_patch(append)

    def _epoch(self, run: DraftRun | None, stored: StoredHead | None) -> int:
        return run.epoch if run is not None else stored.epoch if stored is not None else OWNERLESS

    # -- grants

    def _grant(self, request: Grant) -> Answer:
        """Give a stream to a new owner by the next epoch, unless a living one holds it."""
        stream = request.stream
        if stream in self.runs:
            raise BatchIsFull
        stored = self._stored.head(stream)
        if stored is None:
            return NotFound(stream)
        summary = self._stored.summary(stream)
        if stored.epoch == OWNERLESS:
            return WrongKind(stream, summary.get("kind", ""), "session")
        if summary.get("deleted"):
            return Deleted(stream)
        owner = summary.get("owner")
        same = owner is not None and owner.get("token") == request.owner.get("token")
        if owner is not None and not same and not request.takeover and not self._is_gone(owner):
            return SessionBusy(stream, owner)
        patch = patch_of_grant(summary, stored.head, request.owner)
        patch_bytes = len(encode_patch(patch))
        self._check_room(0, patch_bytes, None)
        run = self.runs[stream] = DraftRun(stream, stored.epoch + 1, stored.head)
        run.merge(patch)
        run.entry_bytes += patch_bytes
        self._header_bytes += run.entry_bytes
        return Granted(run.epoch, run.seq, {**summary, **patch})

    # -- patches by anyone

    def _patch(self, request: Patch) -> Answer:
        """Change a summary under the stream's own epoch, whoever owns it."""
        stream = request.stream
        run = self.runs.get(stream)
        stored = self._stored.head(stream)
        if run is None and stored is None:
            return NotFound(stream)
        wrong = sorted(request.patch.keys() - PATCHES_BY_ANYONE)
        if wrong:
            return InvalidLine(stream, 0, f"only its owner may change {', '.join(wrong)}")
        patch = dict(request.patch)
        if patch.get("deleted"):
            owner = self._present(stream, run, "owner")
            if owner is not None and not self._is_gone(owner):
                return SessionBusy(stream, owner)
        if patch.get("labels") is not None:
            labels = {**(self._present(stream, run, "labels") or {}), **patch["labels"]}
            patch["labels"] = {name: value for name, value in labels.items() if value is not None} or None
        head = run.head if run is not None else stored.head if stored is not None else 0
        append = Append(stream, self._epoch(run, stored), head, b"", patch)
        return self._extend(append, b"", head, 0, run)


def _count_lines(stream: str, first: int, lines: bytes) -> int:
    """Check each line's frame and count them. Raises InvalidLine, TooLarge."""
    if not lines:
        return 0
    if len(lines) <= LINE_BYTES_MAX and line_fault(stream, first, lines) is None:
        return 1
    seq = first
    for line in _split(lines):
        if len(line) > LINE_BYTES_MAX:
            raise TooLarge(f"event {seq} of {stream}", len(line), LINE_BYTES_MAX)
        why = line_fault(stream, seq, line)
        if why is not None:
            raise InvalidLine(stream, seq, why)
        seq += 1
    return seq - first


def _split(lines: bytes) -> list[bytes]:
    """Split at 0x0A alone, each piece with its newline; a rest without one is a piece too."""
    pieces = [piece + b"\n" for piece in lines.split(b"\n")]
    rest = pieces.pop()
    return pieces if rest == b"\n" else [*pieces, rest[:-1]]


def _without_number_and_time(line: bytes) -> bytes:
    return line[line.find(b',"type":') :]
