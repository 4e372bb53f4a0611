"""Made histories of chaos rounds: what a store without a fault would hold, and the notes that its users would have.

Nothing of the product is in here. A history is made step by step, by agents whose events are committed, or lost with
them where they were never acknowledged; then it is clean, and a test may break it. Runs can be changed at will: what
a store holds is computed from them, with positions and heads that fit, so that only the broken promise shows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from turnkeeper.benchmarks.chaos.checker.evidence import Evidence, Output, make_evidence
from turnkeeper.benchmarks.chaos.checker.judging import judge
from turnkeeper.benchmarks.chaos.checker.leftovers import Leftovers
from turnkeeper.benchmarks.chaos.checker.stored import Run, Stored, StoredEvent
from turnkeeper.benchmarks.chaos.notes import Note, Notebook
from turnkeeper.benchmarks.demonstration.oracle import digest
from turnkeeper.benchmarks.demonstration.task_oracle import output_digest

Line = tuple[int, str, dict[str, Any]]
"""Number, type and data of an event."""


class KeptNotebook(Notebook):
    """A notebook whose notes go into a list, and no file."""

    def __init__(self, file: str, notes: list[Note]) -> None:
        self.path = Path(file)
        self._notes = notes

    def _write(self, what: str, **members: Any) -> None:
        line = sum(note["file"] == str(self.path) for note in self._notes) + 1
        note = {"what": what, "at": float(len(self._notes)), **members, "file": str(self.path), "line": line}
        self._notes.append(json.loads(json.dumps(note)))


@dataclass
class MadeRun:
    """One stream's lines in a batch of their own."""

    stream: str
    epoch: int
    seq: int
    lines: list[Line] = field(default_factory=list)
    patch: dict[str, Any] = field(default_factory=dict)


@dataclass
class MadeRound:
    """A round without a fault, so far."""

    runs: list[MadeRun] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    witnesses: dict[str, list[str]] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    shims: dict[str, int] | None = field(default_factory=dict)
    leftovers: Leftovers = field(default_factory=Leftovers)
    tokens: int = 0

    def notebook(self, file: str) -> KeptNotebook:
        """Give a notebook of this round."""
        return KeptNotebook(file, self.notes)

    def head(self, stream: str) -> int:
        """Give the number of a stream's next event."""
        return max((run.seq + len(run.lines) for run in self.runs if run.stream == stream), default=0)

    def epoch(self, stream: str) -> int:
        """Give a stream's epoch."""
        return max((run.epoch for run in self.runs if run.stream == stream), default=0)

    def commit(
        self, stream: str, epoch: int, events: Iterable[tuple[str, dict[str, Any]]], patch: Mapping[str, Any] = {}
    ) -> int:
        """Store events behind a stream's head, in a batch of their own; give the first one's number."""
        head = self.head(stream)
        begin = patch.get("parent_seq") or head
        lines = [(begin + place, type, data) for place, (type, data) in enumerate(events)]
        self.runs.append(MadeRun(stream, epoch, begin, lines, dict(patch)))
        return begin

    def grant(self, stream: str, pid: int) -> int:
        """Give a stream to a new owner, and what that closes; return its epoch."""
        self.tokens += 1
        epoch = self.epoch(stream) + 1
        self.commit(stream, epoch, [], {"owner": {"pid": pid, "token": f"token-{self.tokens}"}})
        return epoch

    def stored(self) -> Stored:
        """Give what the store holds."""
        events: list[StoredEvent] = []
        runs: list[Run] = []
        for batch, run in enumerate(self.runs, 1):
            runs.append(Run(batch, run.stream, run.epoch, run.seq, len(run.lines), run.patch))
            for seq, type, data in run.lines:
                shown = json.dumps({"stream": run.stream, "seq": seq, "type": type, "data": data})
                mark = data.get("$altered") or digest(data)
                events.append(StoredEvent(len(events) + 1, run.stream, seq, type, mark, run.epoch, data, shown))
        return Stored.from_runs(events, runs)

    def evidence(self) -> Evidence:
        """Give all that is known of it."""
        return make_evidence(
            self.stored(),
            self.notes,
            witnesses=self.witnesses,
            outputs=self.outputs,
            shims=self.shims,
            leftovers=self.leftovers,
        )

    def broken(self) -> dict[str, int]:
        """Give how often each promise is broken."""
        return judge(self.evidence()).counts

    # -- Readers

    def read_all(self) -> None:
        """Read, list and follow everything, as a round does at its end."""
        stored, book = self.stored(), self.notebook("runner")
        for session in stored.sessions():
            if not stored.is_deleted(session):
                book.read(session, 0, stored.heads[session], _read(self.whole(session)))
        book.listed(session for session in stored.sessions() if not stored.is_deleted(session))

    def follow(self, follower: str, after: int = 0, streams: Iterable[str] = (), count: int | None = None) -> None:
        """Follow the journal behind a position; see so many events, or all."""
        book, streams = self.notebook(follower), list(streams)
        book.following(follower, after, streams)
        followed = set(streams) or set(self.stored().streams)
        due = [event for event in self.readable() if event.position > after and event.stream in followed]
        seen = due if count is None else due[:count]
        for start in range(0, len(seen), 3):
            book.followed(follower, seen[start : start + 3])
        if count is None:
            book.awaited(follower, len(self.stored().events))

    def whole(self, session: str) -> list[StoredEvent]:
        """Give a session's events with those of its parents."""
        return self.stored().whole(session)

    def readable(self) -> list[Any]:
        """Give all events as a program reads them."""
        return list(_read(self.stored().events))


def _read(events: Iterable[StoredEvent]) -> Iterator[Any]:
    return (SimpleNamespace(**event._asdict()) for event in events)


class MadeAgent:
    """An agent with one session open at a time, whose events wait until they are flushed or die with it."""

    def __init__(self, made: MadeRound, name: str, pid: int) -> None:
        self.made = made
        self.pid = pid
        self.book = made.notebook(name)
        self.name = name
        self.count = 0
        self._waiting: list[tuple[str, dict[str, Any]]] = []
        self.patch: dict[str, Any] = {}
        self._text = ""
        self.seqs: list[int] = []

    # -- Opening and leaving

    def create(self, session: str, header: Mapping[str, Any] = {}) -> MadeAgent:
        """Open a session that doesn't exist yet."""
        self.session, self.epoch, self.turn, self.accepted = session, 1, 0, 0
        self.in_turn = False
        self.made.tokens += 1
        owner = {"pid": self.pid, "token": f"token-{self.made.tokens}"}
        self.patch = {"id": session, "kind": "session", "owner": owner, **header}
        self._opened(int(header.get("parent_seq") or 0))
        return self

    def open(self, session: str) -> MadeAgent:
        """Open a session again, whatever its last owner has left; a turn that is open is closed."""
        self.session = session
        self.epoch = self.made.grant(session, self.pid)
        lines = [line for event in [self.made.whole(session)] for line in event]
        starts = [event.data["turn"] for event in lines if event.type == "turn/start"]
        ends = [event for event in lines if event.type == "turn/end"]
        self.turn = len(starts)
        self.accepted = sum("inbox" in event.data for event in self.made.stored().streams[session])
        if len(starts) > len(ends):
            end = {"turn": starts[-1], "reason": "interrupted"}
            self.made.commit(session, self.epoch, [("turn/end", end)])
        self.in_turn = False
        self._opened(self.made.head(session))
        return self

    def _opened(self, head: int) -> None:
        self._waiting.clear()
        self.seqs.clear()
        self._text = ""
        self.book.opened(self.session, self.epoch, head)
        self.made.notes[-1]["pid"] = self.pid

    def close(self) -> None:
        """Close the session in order."""
        if self.in_turn:
            self.end_turn()
        self.commit()
        self.made.commit(self.session, self.epoch, [], {"owner": None})
        self.book.closed(self.session)

    def die(self, stored: int) -> None:
        """Be killed, when the first `stored` of the waiting events had been stored."""
        self._waiting = self._waiting[:stored]
        self._text = ""
        if self._waiting:
            self.commit()

    # -- Events

    def send(self, type: str = "my/note", **data: Any) -> None:
        """Append an event whose data is like no other's."""
        self.count += 1
        data = {"by": self.name, "n": self.count, **data}
        self.book.sent(self.session, [(type, data)])
        self.append(type, data)
        self.seqs.append(self._next() - 1)

    def write(self, text: str) -> None:
        """Write text, which becomes a chunk before whatever comes next."""
        self.book.wrote(self.session, text)
        self._text += text

    def start_turn(self) -> None:
        """Begin a turn."""
        self.turn += 1
        self.in_turn = True
        self.append("turn/start", {"turn": self.turn})
        self.book.turn(self.session, self.turn, "start")

    def end_turn(self) -> None:
        """End the turn, and flush."""
        self.in_turn = False
        self.append("turn/end", {"turn": self.turn, "reason": "completed"})
        self.commit()
        self.book.turn(self.session, self.turn, "end", "completed")

    def flush(self) -> None:
        """Make all durable that was sent and written."""
        self.commit()
        self.book.acknowledged(self.session, self.made.head(self.session), self.seqs)
        self.seqs.clear()

    def accept(self) -> None:
        """Accept the next message of the inbox, durably."""
        message = self.accepted
        self.accepted += 1
        self.patch["inbox"] = {"next": self.accepted, "ahead": []}
        self.append("inbox/accepted", {"inbox": message})
        self.flush()
        self.book.accepted(self.session, message, self.made.head(self.session) - 1)

    def fork(self, child: str, at: int) -> None:
        """Make a session of the first `at` events of this one, and close it."""
        fork = MadeAgent(self.made, f"{self.name}-{child}", self.pid)
        fork.create(child, {"parent": self.session, "parent_seq": at})
        events: list[tuple[str, dict[str, Any]]] = [("session/forked", {"parent": self.session, "at": at})]
        before = self.made.whole(self.session)[:at]
        starts = [event.data["turn"] for event in before if event.type == "turn/start"]
        if len(starts) > sum(event.type == "turn/end" for event in before):
            events.append(("turn/end", {"turn": starts[-1], "reason": "interrupted"}))
        self.made.commit(child, 1, events, fork.patch)
        fork.patch = {}
        fork.book.forked(child, self.session, at)
        fork.send()
        fork.flush()
        fork.close()

    def append(self, type: str, data: dict[str, Any]) -> None:
        self._cut()
        self._waiting.append((type, data))

    def _cut(self) -> None:
        if self._text:
            self._waiting.append(("assistant/chunk", {"text": self._text}))
            self._text = ""

    def _next(self) -> int:
        begin = self.patch.get("parent_seq") or 0
        return max(self.made.head(self.session), int(begin)) + len(self._waiting)

    def commit(self) -> None:
        self._cut()
        self.made.commit(self.session, self.epoch, self._waiting, self.patch)
        self._waiting, self.patch = [], {}


def send_message(made: MadeRound, sender: KeptNotebook, to: str, key: str) -> None:
    """Put a message into a session's inbox, and be told so."""
    data = {"message": key}
    sender.sending(to, key, "my/message", data)
    inbox = f"inbox-{to}"
    patch = {} if made.head(inbox) else {"kind": "inbox"}
    seq = made.commit(inbox, 0, [("inbox/message", {"type": "my/message", "data": data, "sender": None})], patch)
    sender.delivered(to, key, seq)


def run_task(made: MadeRound, book: KeptNotebook, key: str, session: str | None, code: int = 0) -> None:
    """Start a task that ends with a code, and wait for it."""
    how, id, content = {"code": code}, f"task-{key}", f"{key} said\n".encode()
    output = output_digest(content)
    book.starting(key, ["sh"], session=session, policy="kill", how=how, by="itself", output=output, ends_itself=True)
    end = {"state": "ended", "by": "itself", "how": how, "output_bytes": len(content), "survivors": []}
    made.commit(id, 0, [("task/requested", {"command": ["sh"], "key": key})], {"kind": "task"})
    made.commit(id, 0, [("task/started", {"pid": 77, "shim": {"pid": 76}})])
    made.commit(id, 0, [("task/ended", end)])
    made.witnesses[key] = ["began", f"code {code}"]
    made.outputs[id] = Output(output, len(content))
    book.started(key, id)
    if session is not None:
        told = {"type": "task/ended", "data": {"task": id, **end}, "sender": id}
        made.commit(f"inbox-{session}", 0, [("inbox/message", told)], {"kind": "inbox"})
    book.ended(key, id, "ended", how, "itself")


def made_round(seed: int) -> MadeRound:
    """Make a random clean history: agents with all that they do, killed now and then, and readers of it all."""
    rng, made = random.Random(seed), MadeRound()
    sender = made.notebook("sender")
    for number in range(rng.randint(1, 3)):
        session = f"session-{number}"
        agent = MadeAgent(made, f"agent-{number}", 1000 + number).create(session)
        agent.start_turn()
        agent.send()
        agent.flush()
        for life in range(1, rng.randint(2, 4)):
            _live(agent, sender, rng, f"{number}-{life}")
            if rng.random() < 0.5:
                agent.close()
            else:
                agent.die(rng.randint(0, 4))
            agent = MadeAgent(made, f"agent-{number}-{life}", 2000 + 10 * number + life).open(session)
        agent.close()
        run_task(made, sender, f"job-{number}", session if rng.random() < 0.7 else None, rng.randint(0, 3))
    if rng.random() < 0.5:
        for word in rng.choice((("deleting", "deleted"), ("deleting", "deleted", "undeleting", "undeleted"))):
            getattr(sender, word)("session-0")
            if word in ("deleted", "undeleted"):
                for stream in ("session-0", "inbox-session-0")[: 1 + bool(made.head("inbox-session-0"))]:
                    made.commit(stream, made.epoch(stream), [], {"deleted": 1 if word == "deleted" else None})
    return made


def _live(agent: MadeAgent, sender: KeptNotebook, rng: random.Random, name: str) -> None:
    """Do some of what agents do."""
    for step in range(rng.randint(3, 12)):
        match rng.randint(0, 7):
            case 0 if not agent.in_turn:
                agent.start_turn()
            case 0:
                agent.end_turn()
            case 1 | 2:
                agent.send()
            case 3:
                agent.write(rng.choice(("a word ", "and another ", "")) + f"{name}.{step} ")
            case 4 | 5:
                agent.flush()
            case 6:
                send_message(agent.made, sender, agent.session, f"key-{name}-{step}")
                agent.accept()
            case 7 if not agent.in_turn:
                agent.flush()
                agent.fork(f"fork-{name}-{step}", rng.randint(1, agent.made.head(agent.session)))
