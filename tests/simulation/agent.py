"""Simulated agents: what they do with sessions is drawn, and noted as the notes' rules want it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import anyio
import trio

from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.session.inbox import Inbox
from turnkeeper.actors.session.session import Session
from turnkeeper.actors.session.turns import Turn
from turnkeeper.storage.errors import Conflict, Fenced, StorageError

from .tasks import command

if TYPE_CHECKING:
    from .host import Common
    from .notebook import MemoryNotebook
    from .processes import Machine

KEYS = ("s0", "s1", "s2", "s3")
"""The sessions that all agents want."""

MORE_MAX = 5
"""What an agent does at most in one turn, beside the first thing."""

LISTEN_SECONDS = 0.3
WAIT_SECONDS = 1.0
"""How long is waited for a message, and for a task's end."""

_POLICIES: tuple[Literal["keep"], Literal["kill"]] = ("keep", "kill")


class Message(NamedTuple):
    """A message that an agent sends, until it was told that it is there."""

    to: str
    key: str
    data: dict[str, Any]


class Agent:
    """One agent of a host; it does one thing at a time, when it is its process's turn."""

    def __init__(self, machine: Machine, common: Common, runtime: Runtime, notes: MemoryNotebook) -> None:
        self._machine = machine
        self._rng = machine.rng
        self._common = common
        self._runtime = runtime
        self._notes = notes
        self._session: Session | None = None
        self._turn: Turn | None = None
        self._inbox: Inbox | None = None
        self._seqs: list[int | None] = []
        self._accepted: list[tuple[int, int]] = []
        self._unsent: Message | None = None

    async def work(self, is_leaving: trio.Event) -> None:
        """Do one thing after another until the host leaves."""
        while True:
            wish, does = self._draw()
            await self._machine.turn(wish)
            if is_leaving.is_set():
                return
            await self._do(wish, does)
            for _ in range(self._rng.randrange(MORE_MAX)):
                wish, does = self._draw()
                self._machine.tell(f"    … {wish}")
                await self._do(wish, does)

    async def _do(self, wish: str, does: Callable[[], Awaitable[None]]) -> None:
        try:
            await does()
        except (StorageError, ValueError) as error:
            self._notes.failed(wish, error, None if self._session is None else self._session.id)
            await self._look_at_ownership()

    def _draw(self) -> tuple[str, Callable[[], Awaitable[None]]]:
        """Draw what to do next."""
        if self._session is None:
            choices = [
                (6, "opens", self._open),
                (1, "sends", self._send),
                (1, "reads", self._read),
                (2, "starts a task", self._start_task),
                (2, "looks after a task", self._look_after_task),
            ]
        else:
            choices = [
                (6, "appends", self._append),
                (5, "flushes", self._flush),
                (2, "appends a row", self._append_row),
                (2, "appends by key", self._append_once),
                (3, "writes text", self._write),
                (3, "turns", self._change_turn),
                (2, "calls a tool", self._call),
                (1, "closes", self._close),
                (2, "sends", self._send),
                (2, "sends in its name", self._send),
                (2, "listens", self._listen),
                (1, "forks", self._fork),
                (1, "rewinds", self._rewind),
                (1, "reads", self._read),
                (3, "starts a task", self._start_task),
            ]
        (chosen,) = self._rng.choices(choices, [weight for weight, _, _ in choices])
        where = "" if self._session is None else f" in {self._session.id}"
        return f"agent {self._notes.name[-1]} {chosen[1]}{where}", chosen[2]

    @property
    def _own(self) -> Session:
        assert self._session is not None
        return self._session

    @property
    def _head_with_text(self) -> int:
        """The next event's number: what was written before takes one, also if the event is refused then."""
        return self._own.head + self._own._stream.has_text

    def _data(self) -> dict[str, Any]:
        """Make data that no other event has."""
        self._common.counter += 1
        size = self._rng.choice((1, 10, 100, 1000, 1000, 5000))
        return {"text": f"{self._common.counter} {'x' * self._rng.randrange(size)}"}

    # -- Openings

    async def _open(self) -> None:
        key = self._rng.choice(KEYS)
        session = await self._runtime.open_session(key, create=True, takeover=self._rng.random() < 0.5)
        self._begin(session)

    def _begin(self, session: Session) -> None:
        self._session, self._turn, self._inbox = session, None, None
        self._seqs, self._accepted = [], []
        self._notes.opened(session.id, session._stream.epoch, session.head)

    async def _close(self) -> None:
        session, self._session = self._own, None
        try:
            await session.aclose()
        except StorageError:
            self._note_fence(session)
            raise
        self._notes.closed(session.id)
        if session._stream.reservation is None:
            self._common.known[session.id] = None

    async def _look_at_ownership(self) -> None:
        """Let go of a session that somebody else has now."""
        session = self._session
        if session is not None and session._stream.refusal is not None:
            self._session = None
            self._note_fence(session)
            try:
                await session.aclose()
            except StorageError as error:
                self._notes.failed("closing", error, session.id)

    def _note_fence(self, session: Session) -> None:
        refusal = session._stream.refusal
        if isinstance(refusal, Fenced):
            self._notes.fenced(session.id, session.not_stored)
        elif isinstance(refusal, Conflict) and self._notes.counts:
            self._machine.errors.append(f"{self._notes.name}, who follows the rules, met a conflict: {refusal}")

    # -- Events

    async def _append(self) -> None:
        await self._append_event(self._rng.choice(("user/message", "app/note")), self._data())

    async def _append_event(self, type: str, data: dict[str, Any]) -> None:
        session = self._own
        self._notes.sent(session.id, [(type, data)])
        head = self._head_with_text
        try:
            self._seqs.append(await session.append(type, data))
        except Exception:
            if session.head <= head:
                self._notes.refused(session.id, [(type, data)])
            else:
                self._seqs.append(None)
            raise

    async def _append_row(self) -> None:
        for _ in range(self._rng.randrange(2, 8)):
            await self._append()

    async def _append_once(self) -> None:
        session = self._own
        if session._stream.barred:
            return  # one that failed before is tried again, and which of both failed couldn't be told
        key = f"key {self._rng.randrange(3)} of {session.id}"
        data = {"text": key}
        self._notes.sent_once(session.id, key, "app/once", data)
        try:
            self._seqs.append(await session.append("app/once", data, key=key))
        except Exception:
            stream = session._stream
            if stream.barred or stream.refusal is not None:
                self._seqs.append(None)  # it is tried again, or nobody can say
            else:
                self._notes.refused(session.id, [("app/once", data)])
            raise

    async def _write(self) -> None:
        session = self._own
        for _ in range(self._rng.randrange(1, 5)):
            session._stream.take_failure()
            self._common.counter += 1
            text = f"token {self._common.counter} "
            self._notes.wrote(session.id, text)
            session.write(text)

    async def _flush(self) -> None:
        await self._own.flush()
        self._acknowledge()

    def _acknowledge(self) -> None:
        session = self._own
        self._notes.acknowledged(session.id, session.head, self._seqs)
        self._seqs = []
        for message, seq in self._accepted:
            self._notes.accepted(session.id, message, seq)
        self._accepted = []
        if session._stream.reservation is None:
            self._common.known[session.id] = None

    async def _change_turn(self) -> None:
        """Begin a turn, or end the one that is open."""
        session = self._own
        if self._turn is None:
            turn = session.turn()
            await turn.__aenter__()
            self._turn = turn
            self._notes.turn(session.id, session._state.turns, "start")
        else:
            turn, self._turn = self._turn, None
            number = session._state.turns
            await turn.__aexit__(None, None, None)
            self._acknowledge()
            self._notes.turn(session.id, number, "end", "completed")

    async def _call(self) -> None:
        """Begin a tool call, and mostly give its result."""
        session = self._own
        if self._turn is None:
            return
        self._common.counter += 1
        id = f"call-{self._common.counter}"
        started = {"id": id, "name": "bash", "arguments": {}, "effect": "once"}
        self._notes.sent(session.id, [("tool/started", started)])
        head = self._head_with_text
        try:
            await session.tool_started(id, "bash", {})
        except Exception:
            if session.head <= head:
                self._notes.refused(session.id, [("tool/started", started)])
            else:
                self._seqs.append(None)
            raise
        self._seqs.append(None)
        self._acknowledge()
        if self._rng.random() < 0.7:
            finished = {"id": id, "output": f"done {id}"}
            self._notes.sent(session.id, [("tool/finished", finished)])
            head = self._head_with_text
            try:
                await session.tool_finished(id, finished["output"])
            except Exception:
                if session.head <= head:
                    self._notes.refused(session.id, [("tool/finished", finished)])
                    raise
                self._seqs.append(None)
                raise
            self._seqs.append(None)

    # -- Others

    async def _send(self) -> None:
        """Send a message, or again the one that may not have gone."""
        message = self._unsent
        if message is None:
            if not self._common.known:
                return
            data = self._data()
            message = Message(self._rng.choice(list(self._common.known)), f"{data['text'].split()[0]}", data)
        self._unsent = message
        self._notes.sending(message.to, message.key, "app/message", message.data)
        sender = self._session if self._session is not None and self._rng.random() < 0.5 else self._runtime
        seq = await sender.send(message.to, "app/message", message.data, key=message.key)
        self._notes.delivered(message.to, message.key, seq)
        self._unsent = None

    async def _listen(self) -> None:
        """Wait a moment for a message, and accept it."""
        session = self._own
        if self._inbox is None:
            self._inbox = session.inbox()
        with anyio.move_on_after(LISTEN_SECONDS):
            message = await anext(self._inbox)
            seq = await message.accept() if self._rng.random() < 0.5 else await message.accept("user/message")
            self._accepted.append((message.seq, seq))

    async def _fork(self) -> None:
        session = self._own
        await session.flush()
        self._acknowledge()
        at = self._rng.choice((session.head, self._rng.randint(0, session.head)))
        forked = await session.fork(at=at)
        self._notes.forked(forked.id, session.id, at)
        self._notes.opened(forked.id, forked._stream.epoch, forked.head)
        await forked.aclose()
        self._notes.closed(forked.id)
        self._common.known[forked.id] = None
        if self._rng.random() < 0.3:
            await self._delete(forked.id)

    async def _delete(self, id: str) -> None:
        """Delete a session that nobody else opens, and maybe bring it back."""
        self._notes.deleting(id)
        await self._runtime.delete(id)
        self._notes.deleted(id)
        if self._rng.random() < 0.5:
            self._notes.undeleting(id)
            await self._runtime.undelete(id)
            self._notes.undeleted(id)

    async def _rewind(self) -> None:
        session = self._own
        if self._turn is not None:
            return
        to = self._rng.randint(0, session.head)
        await session.rewind(to)
        self._acknowledge()
        self._notes.rewound(session.id, to)

    async def _read(self) -> None:
        if not self._common.known:
            return
        id = self._rng.choice(list(self._common.known))
        first = self._rng.choice((0, 0, 3))
        page = await self._runtime.read(id, start=first, limit=100_000)
        # Of a turn whose owner is gone the end is shown as well, though nobody has stored it yet.
        self._notes.read(id, first, page.head, [event for event in page if event.position])

    # -- Tasks

    async def _start_task(self) -> None:
        """Start a task, whose session is to be told of its end."""
        self._common.counter += 1
        key, code = f"task {self._common.counter}", self._rng.choice((0, 0, 3))
        argv = command(key, code)
        policy = self._rng.choice(_POLICIES)
        session = self._session
        self._notes.starting(
            key,
            argv,
            session=None if session is None else session.id,
            policy=policy,
            how={"code": code},
            by="itself",
            output=None,
            ends_itself=True,
        )
        task = await self._runtime.start_task(argv, key=key, session=session, on_owner_exit=policy)
        self._notes.started(key, task.id)
        if self._notes.counts:
            self._common.tasks[key] = task.id

    async def _look_after_task(self) -> None:
        """Wait a while for a task, or stop it; whoever started it."""
        if not self._common.tasks:
            return
        key = self._rng.choice(list(self._common.tasks))
        task = self._runtime.task(self._common.tasks[key])
        if self._rng.random() < 0.3:
            self._notes.stopping(key)
            await task.stop(grace=1.0)
        state = await task.wait(timeout=WAIT_SECONDS)
        if state.is_over:
            self._notes.ended(key, task.id, state.state, state.how, state.by)
