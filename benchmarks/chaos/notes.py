"""Notes of a round, outside the store: what its programs sent, saw acknowledged, followed, started and struck.

Each writer has a file of its own, a *notebook*, to which it only appends. A note is a line of JSON, `{"what": …,
"at": wall seconds, …}`, that one write puts there and that is on disk when the method returns; so whatever was killed
when, a note is there whole or not at all, and a last line without its end is nothing. The words are the methods of
`Notebook`, one each, and stand nowhere else; who judges reads them back as plain values, with `read_notebooks`.

Two rules make them worth something. What is about to be done is noted *before* it (sent, wrote, sending, deleting,
undeleting, starting, stopping, leaving, strike): nothing may be found that nobody was about to do. What was promised is
noted *after* the promise (all others): it must be found. Values are noted as digests, so each event's data must be
unlike any other's of its session: two equal ones can't be told apart. Who works on one session in several tasks notes
in the order of the calls, and holds the others up from a flush's call to its note.

Not noted are events that the product makes itself: ends of turns that nobody ended, results of calls that nobody
answered, `session/forked`, `session/rewound`, and the acceptance of a message as it is. Starts and ends of turns may
be, as everything else.

Knows nothing of the product, and waits for a disk: in an event loop, call it in a thread, or take the pause.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol

from ..demonstration.oracle import digest

Note = dict[str, Any]
"""A note as it was read: what stands in its line, and `file` and `line` (from 1), where it stands."""


OFFSET = "TURNKEEPER_CHAOS_OFFSET"
"""The variable that tells the programs of a round what to add to the machine's monotonic clock for the time of day."""


def wall_seconds() -> float:
    """Give the time of day, in seconds since 1970, also in a process whose own clock was set back."""
    offset = os.environ.get(OFFSET)
    return time.time() if offset is None else time.monotonic() + float(offset)


class ReadEvent(Protocol):
    """An event as a program reads or follows it."""

    @property
    def position(self) -> int:
        """Its number in the whole store."""

    @property
    def stream(self) -> str:
        """The stream that it belongs to."""

    @property
    def seq(self) -> int:
        """Its number in the stream."""

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def data(self) -> Mapping[str, Any]:
        """Its data."""


class Notebook:
    """One writer's file of notes; a note is on disk when its method returns. For one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def __enter__(self) -> Notebook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, what: str, **members: Any) -> None:
        note = {"what": what, "at": round(wall_seconds(), 6), **members}
        line = json.dumps(note, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
        written = os.write(self._file, line)
        if written < len(line):
            raise OSError(f"{self.path}: {written} of a note's {len(line)} bytes were written; is the disk full?")
        os.fdatasync(self._file)

    # -- An opening of a session

    def opened(self, session: str, epoch: int, head: int) -> None:
        """It is open here, under this epoch, its next event having the number `head`. All below speaks of it."""
        self._write("opened", session=session, epoch=epoch, head=head, pid=os.getpid())

    def sent(self, session: str, events: Iterable[tuple[str, Any]]) -> None:
        """Type and data of the events that are appended next, in this order. Before the first of them is."""
        self._write("sent", session=session, events=[[type, digest(data)] for type, data in events])

    def sent_once(self, session: str, key: str, type: str, data: Any) -> None:
        """Type and data of one event that is appended next under a key, so that it is stored once. Before it is."""
        self._write("sent", session=session, events=[[type, digest(data)]], key=key)

    def refused(self, session: str, events: Iterable[tuple[str, Any]]) -> None:
        """Type and data of events noted as sent whose `append` raised: the product says that they are not stored."""
        self._write("refused", session=session, events=[[type, digest(data)] for type, data in events])

    def wrote(self, session: str, text: str, *, channel: str = "text") -> None:
        """The text, of one token or more, that is written next. Before it is."""
        self._write("wrote", session=session, channel=channel, text=text)

    def acknowledged(
        self, session: str, head: int, seqs: Sequence[int | None] = (), seconds: float | None = None
    ) -> None:
        """A flush has returned: all that this opening sent and wrote before is durable, and has numbers below `head`.

        `seqs` are the numbers that `append` returned for the events sent, and not refused, since those that an earlier
        acknowledgement told: in their order, None where none was returned; all of them, or none in any. `seconds` is
        how long the flush took, of one that had something to wait for.
        """
        took = {} if seconds is None else {"seconds": round(seconds, 6)}
        self._write("acknowledged", session=session, head=head, seqs=list(seqs), **took)

    def turn(self, session: str, turn: int, phase: Literal["start", "end"], reason: str | None = None) -> None:
        """Turn number `turn` has begun (durable with the next acknowledgement), or ended, durably, for this reason."""
        self._write("turn", session=session, turn=turn, phase=phase, reason=reason)

    def accepted(self, session: str, inbox_seq: int, seq: int | None = None) -> None:
        """A message of its inbox was accepted, durably, by the event of this number."""
        self._write("accepted", session=session, inbox_seq=inbox_seq, seq=seq)

    def rewound(self, session: str, to: int) -> None:
        """It goes on as it was with its first `to` events, durably."""
        self._write("rewound", session=session, to=to)

    def fenced(self, session: str, not_stored: range) -> None:
        """Somebody else has it, or its numbers don't fit any more: of what was appended here these are not stored."""
        self._write("fenced", session=session, not_stored=[not_stored.start, not_stored.stop])

    def closed(self, session: str) -> None:
        """It was closed in order: all that was sent and written is durable, no turn is open, nobody owns it."""
        self._write("closed", session=session)

    def failed(self, action: str, error: BaseException, session: str | None = None) -> None:
        """Something that was asked for raised. It promises nothing, and is shown beside what is wrong."""
        self._write("failed", action=action, error=f"{type(error).__name__}: {error}", session=session)

    # -- Messages and sessions

    def sending(self, to: str, key: str, type: str, data: Any) -> None:
        """This message is sent to a session next, under this key. Before it is."""
        self._write("sending", to=to, key=key, type=type, digest=digest(data))

    def delivered(self, to: str, key: str, seq: int) -> None:
        """The message of this key is in the inbox, durably, under this number."""
        self._write("delivered", to=to, key=key, seq=seq)

    def forked(self, session: str, parent: str, at: int | None, least: int = 0) -> None:
        """`session` was made, durably, of the first `at` events of `parent`; None: of all, `least` or more."""
        self._write("forked", session=session, parent=parent, parent_seq=at, least=least)

    def deleting(self, session: str) -> None:
        """It is deleted next. Before it is."""
        self._write("deleting", session=session)

    def deleted(self, session: str) -> None:
        """It was deleted, durably."""
        self._write("deleted", session=session)

    def undeleting(self, session: str) -> None:
        """It is undeleted next. Before it is."""
        self._write("undeleting", session=session)

    def undeleted(self, session: str) -> None:
        """It was undeleted, durably."""
        self._write("undeleted", session=session)

    # -- What readers saw

    def following(self, follower: str, after: int, streams: Sequence[str] = (), types: Sequence[str] = ()) -> None:
        """A follower begins, or goes on, behind a position. Without streams it follows all, likewise the types.

        One that is told that it lost its position says it again, with the one that it goes on from.
        """
        self._write("following", follower=follower, after=after, streams=list(streams), types=list(types))

    def followed(self, follower: str, events: Iterable[ReadEvent]) -> None:
        """What a follower was given, in this order."""
        seen = [[event.position, event.stream, event.seq, event.type, digest(event.data)] for event in events]
        self._write("followed", follower=follower, events=seen)

    def told_missing(
        self, follower: str, stream: str | None, missing: Sequence[Sequence[int]], positions: Sequence[int]
    ) -> None:
        """What a follower was told, at this point, that it isn't given: (first, count) of numbers and of positions.

        Without a stream it was told that nobody knows whose events these were.
        """
        members = {"stream": stream, "missing": [list(each) for each in missing], "positions": list(positions)}
        self._write("told_missing", follower=follower, **members)

    def awaited(self, follower: str, position: int) -> None:
        """It was waited for until the follower must have been given all that it follows up to this position."""
        self._write("awaited", follower=follower, position=position)

    def read(self, session: str, first: int, head: int, events: Iterable[ReadEvent]) -> None:
        """What a reading of a session's events from number `first` up to its head gave, with its parent's, in order."""
        seen = [[event.seq, event.type, digest(event.data)] for event in events]
        self._write("read", session=session, first=first, head=head, events=seen)

    def listed(self, sessions: Iterable[str]) -> None:
        """All sessions that a list, without any filter, gave. When nobody makes, deletes or undeletes any."""
        self._write("listed", sessions=sorted(sessions))

    # -- Tasks

    def starting(
        self,
        task: str,
        argv: Sequence[str],
        *,
        session: str | None,
        policy: Literal["keep", "kill"],
        how: Mapping[str, Any] | None,
        by: str | None,
        output: str | None,
        ends_itself: bool,
    ) -> None:
        """A task of this key is started next. Before it is.

        `session` is to be told of its end. If nobody interferes it ends as `how` and `by` say, as the product's records
        have it (`how` None: it never does), and prints what has the digest `output` (task_oracle.output_digest; None:
        that isn't judged). `ends_itself`: its command says in its witness how it ends, behind that it began.
        """
        expect = {"how": how, "by": by, "output": output, "ends_itself": ends_itself}
        members = {"argv": list(argv), "session": session, "policy": policy, "expect": expect, "pid": os.getpid()}
        self._write("starting", task=task, **members)

    def started(self, task: str, id: str) -> None:
        """Its start was acknowledged."""
        self._write("started", task=task, id=id)

    def stopping(self, task: str) -> None:
        """Somebody asks for its stop next. Before it is asked for."""
        self._write("stopping", task=task)

    def ended(self, task: str, id: str, state: str, how: Mapping[str, Any] | None, by: str | None) -> None:
        """Who waited for it was told how it ended."""
        self._write("ended", task=task, id=id, state=state, how=how, by=by)

    # -- What the runner does and sees

    def leaving(self) -> None:
        """This process leaves the store next, and what it started under the policy `kill` may be ended."""
        self._write("leaving", pid=os.getpid())

    def strike(self, kind: str, target: str, pids: Sequence[int] = (), **members: Any) -> None:
        """Something is done to somebody next: `kind` is kill, stop, continue or a fault's name, `target` a role."""
        self._write("strike", kind=kind, target=target, pids=list(pids), **members)

    def life(self, number: int) -> None:
        """The store's next life begins; who was killed, and whatever was waited for, in the one before is over."""
        self._write("life", number=number)

    def died(self, pids: Sequence[int]) -> None:
        """These processes, which were struck, are dead: what is asked for from now on others answer."""
        self._write("died", pids=list(pids))

    def process(self, role: str, pid: int, descriptors: int, pss_bytes: int, **members: Any) -> None:
        """What a process was seen to hold: open descriptors, and memory (proportional set size)."""
        self._write("process", role=role, pid=pid, descriptors=descriptors, pss_bytes=pss_bytes, **members)


def read_notebooks(paths: Iterable[Path]) -> list[Note]:
    """Read all notes, those of a file in their order. A last line without its end was never finished: it is nothing."""
    notes: list[Note] = []
    for path in sorted(paths):
        lines = path.read_bytes().split(b"\n")[:-1]
        notes += [{**json.loads(line), "file": path.name, "line": number} for number, line in enumerate(lines, 1)]
    return notes
