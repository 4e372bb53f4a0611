"""An agent of a round: it owns a session and works in it by its habits, step by step, whatever happens to the store.

What it does next is drawn by its own seed, so another run of the same plan has the same agents; how far each comes is
not planned. It knows the public face alone. That processes of the store die it sees as a flush that takes longer; an
error of the product's, which chaos may well cause, makes it leave the session and open it again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random

import anyio

from turnkeeper import Conflict, Fenced, InvalidFork, NotFound, Runtime, Session, SessionBusy, TurnkeeperError

from .agent_tasks import AgentTasks
from .noted_session import Effect, Maker, NotedSession, noted
from .notes import Notebook
from .plan import AgentPlan, Habit

AGAIN_SECONDS = 0.1
"""So soon an agent tries again what it was refused."""

ACCEPT_SECONDS = 0.02
"""How long it waits for a message, if it accepts any."""

WATCH_SECONDS_MAX = 2.0
"""How long it may do nothing in a session that it has taken over."""

SENDS_MAX = 10
"""How often it tries to send a message, whose key makes that one message."""

FORK_EVENTS = 3

_WORDS = ("turn", "orbit", "lantern", "gravel", "willow", "anchor", "meadow", "copper", "Ω-mega", "日本", "🦦", "naïve")
_EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "once")


class Agent:
    """An agent and its session, whose key is the agent's name; `peers` are the names of those whom it sends to.

    `maker` names this run of it, and `bench` is where its tasks have what they need. It works until `leaving` is set,
    and leaves in the middle of nothing.
    """

    def __init__(
        self,
        runtime: Runtime,
        plan: AgentPlan,
        notebook: Notebook,
        maker: Maker,
        peers: Sequence[str],
        bench: Path,
        leaving: anyio.Event,
        draw: int,
    ) -> None:
        self._runtime = runtime
        self._plan = plan
        self._notebook = notebook
        self._maker = maker
        self._peers = [peer for peer in peers if peer != plan.name]
        self._leaving = leaving
        self._random = Random(f"{plan.seed} {draw}")
        self._tasks = AgentTasks(runtime, bench, notebook, self._random)
        self._forks: list[str] = []
        self._deleted: list[str] = []
        self._ids: dict[str, str] = {}

    async def work(self, *, takeover: bool = False) -> None:
        """Work until it is to leave, or somebody else has the session."""
        while not self._leaving.is_set():
            try:
                session = await self._runtime.open_session(self._plan.name, create=True, takeover=takeover)
            except SessionBusy:
                await anyio.sleep(AGAIN_SECONDS)
                continue
            except TurnkeeperError as error:
                await self._fail("open", error)
                continue
            try:
                async with noted(session, self._notebook, self._maker) as log:
                    if takeover:
                        await self._watch_first()
                    await self._work_in(log)
            except Fenced:
                self._notebook.fenced(session.id, session.not_stored)
                return
            except Conflict as error:
                self._notebook.fenced(session.id, session.not_stored)
                await self._fail("work", error, session.id)
            except TurnkeeperError as error:
                await self._fail("work", error, session.id)
            takeover = False

    async def _watch_first(self) -> None:
        """Do nothing for a while, so that whoever had the session before has the time to do what he may not."""
        with anyio.move_on_after(self._random.random() * WATCH_SECONDS_MAX):
            await self._leaving.wait()

    async def _fail(self, action: str, error: TurnkeeperError, session: str | None = None) -> None:
        self._notebook.failed(action, error, session)
        await anyio.sleep(AGAIN_SECONDS)

    async def _work_in(self, log: NotedSession) -> None:
        """Take steps, each of another kind."""
        habits: Mapping[Habit, Callable[[NotedSession], Awaitable[None]]] = {
            "sends": self._send,
            "accepts": self._accept,
            "forks": self._fork,
            "deletes": self._delete,
            "rewinds": self._rewind,
            "tasks": self._start_task,
        }
        steps = [self._turn, self._turn, self._loose, *[step for habit, step in habits.items() if self._has(habit)]]
        if self._has("tasks"):
            steps.append(self._start_task)  # most are over soon, and what is done to those who run them is to be seen
        while not self._leaving.is_set():
            await self._random.choice(steps)(log)
            await anyio.sleep(self._plan.pace_ms / 1000)

    def _has(self, habit: Habit) -> bool:
        return habit in self._plan.habits

    # -- Logging

    async def _loose(self, log: NotedSession) -> None:
        """Append some events outside of any turn, and wait for them or not."""
        for _ in range(self._random.randint(1, 5)):
            await log.append("chaos/step", text=self._text())
        if self._random.random() < 0.7:
            await log.flush()

    async def _turn(self, log: NotedSession) -> None:
        """Go through a turn."""
        async with log.turn():
            await log.append("user/message", text=self._text())
            if self._random.random() < 0.5:
                await log.flush()
            for _ in range(self._random.randint(0, 4)):
                await self._step(log)
            await log.append("assistant/message", text=self._text())

    async def _step(self, log: NotedSession) -> None:
        if self._has("tokens") and self._random.random() < 0.5:
            for _ in range(self._random.randint(1, 40)):
                log.write(f"{self._random.choice(_WORDS)} ")
        elif self._has("tools") and self._random.random() < 0.5:
            async with log.call(self._random.choice(_EFFECTS), {"say": self._text()}, self._text()):
                await anyio.sleep(self._random.random() * 0.02)
        else:
            await log.append("chaos/step", text=self._text())
        if self._random.random() < 0.2:
            await log.flush()

    def _text(self) -> str:
        """Make a text: mostly short, some long, and now and then one that is too large for a line."""
        draw = self._random.random()
        if self._has("blobs") and draw < 0.02:
            size = self._random.randint(260_000, 1_500_000)
        elif draw < 0.05:
            size = self._random.randint(20_000, 200_000)
        else:
            size = self._random.randint(1, 600)
        word = self._random.choice(_WORDS)
        return (word * (size // len(word) + 1))[:size]

    # -- Messages

    async def _send(self, log: NotedSession) -> None:
        """Send a message, in the session's name or nobody's, again until it is delivered."""
        to = await self._id_of(self._random.choice(self._peers)) if self._peers else None
        if to is None:
            return
        key, data = self._maker.unique(), {"which": self._maker.unique(), "text": self._text()}
        sender: Session | Runtime = log.session if self._random.random() < 0.5 else self._runtime
        self._notebook.sending(to, key, "chaos/message", data)
        for attempt in range(SENDS_MAX):
            try:
                seq = await sender.send(to, "chaos/message", data, key=key)
            except Fenced:
                raise
            except TurnkeeperError as error:
                self._notebook.failed("send", error)
                if attempt == SENDS_MAX - 1 or self._leaving.is_set():
                    return
                await anyio.sleep(AGAIN_SECONDS)
            else:
                self._notebook.delivered(to, key, seq)
                return

    async def _id_of(self, key: str) -> str | None:
        if key not in self._ids:
            for row in await self._runtime.sessions(key=key, limit=1):
                self._ids[key] = row.id
        return self._ids.get(key)

    async def _accept(self, log: NotedSession) -> None:
        """Accept some of the messages that are there."""
        inbox = log.session.inbox()
        try:
            for _ in range(self._random.randint(1, 6)):
                message = None
                with anyio.move_on_after(ACCEPT_SECONDS):
                    message = await anext(inbox)
                if message is None:
                    return
                if self._random.random() < 0.8:
                    seq = await message.accept()
                    await log.flush()
                    self._notebook.accepted(log.id, message.seq, seq)
        finally:
            await inbox.aclose()

    async def _start_task(self, log: NotedSession) -> None:
        """Start a task of the session."""
        await log.flush()
        await self._tasks.start(self._maker.unique().replace(":", "-"), log.id)

    # -- Forks, deletions, rewinds

    async def _fork(self, log: NotedSession) -> None:
        """Fork the session at some place, and log a little in the fork."""
        at = self._random.randint(0, log.session.head) if self._random.random() < 0.7 else None
        await log.flush()
        head = log.session.head
        try:
            fork = await log.session.fork(at=at)
        except InvalidFork:  # that place was in a call, say
            return
        self._notebook.forked(fork.id, log.id, at, head)
        async with noted(fork, self._notebook, self._maker) as child:
            for _ in range(self._random.randint(0, FORK_EVENTS)):
                await child.append("chaos/step", text=self._text())
            await child.flush()
        self._forks.append(fork.id)

    async def _delete(self, log: NotedSession) -> None:
        """Delete one of its forks, or bring one back."""
        if self._deleted and self._random.random() < 0.5:
            id = self._deleted.pop()
            self._notebook.undeleting(id)
            await self._runtime.undelete(id)
            self._notebook.undeleted(id)
            self._forks.append(id)
        elif self._forks:
            id = self._forks.pop(self._random.randrange(len(self._forks)))
            self._notebook.deleting(id)
            try:
                await self._runtime.delete(id)
            except (SessionBusy, NotFound) as error:
                self._notebook.failed("delete", error, id)
            else:
                self._notebook.deleted(id)
                self._deleted.append(id)

    async def _rewind(self, log: NotedSession) -> None:
        """Go back a little, now and then."""
        if self._random.random() < 0.2:
            await log.rewind(self._random.randint(max(0, log.session.head - 30), log.session.head))
