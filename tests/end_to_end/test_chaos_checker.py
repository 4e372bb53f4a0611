"""End to end: the oracle of chaos finds nothing wrong with a store that the product wrote with all that it can do."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import Fenced
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.benchmarks.chaos.checker.evidence import read_evidence
from turnkeeper.benchmarks.chaos.checker.judging import Judgement, judge
from turnkeeper.benchmarks.chaos.checker.leftovers import look_for_leftovers
from turnkeeper.benchmarks.chaos.notes import Notebook
from turnkeeper.benchmarks.demonstration.task_oracle import output_digest

from ..served import LOOPS_AND_STORES, kill, node_of, writer_of

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

LARGE_CHARACTERS = 300_000
LEFT_SECONDS = 5.0


class Agent:
    """Works in an opening of a session as agents do, and notes all of it."""

    def __init__(self, session: Session, book: Notebook) -> None:
        self.session = session
        self.id = session.id
        self.book = book
        self.seqs: list[int | None] = []
        book.opened(session.id, session._stream.epoch, session.head)

    async def send(self, type: str, data: dict[str, Any]) -> None:
        """Append an event."""
        self.book.sent(self.id, [(type, data)])
        self.seqs.append(await self.session.append(type, data))

    async def send_once(self, key: str, data: dict[str, Any]) -> None:
        """Append an event under a key."""
        self.book.sent_once(self.id, key, "my/once", data)
        self.seqs.append(await self.session.append("my/once", data, key=key))

    def write(self, text: str, channel: str = "text") -> None:
        """Write text."""
        self.book.wrote(self.id, text, channel=channel)
        self.session.write(text, channel=channel)

    async def flush(self) -> None:
        """Make durable what was appended."""
        await self.session.flush()
        self.book.acknowledged(self.id, self.session.head, self.seqs)
        self.seqs.clear()

    async def work(self, turn: int) -> None:
        """Work for a turn, with text of two channels and calls, one of which is left to the turn's end."""
        async with self.session.turn():
            self.book.turn(self.id, turn, "start")
            await self.send("user/message", {"text": f"begin {turn}"})
            for text, channel in (("I am ", "text"), ("thinking", "thoughts"), (f"on {turn}", "text")):
                self.write(text, channel)
            for id in (f"answered-{turn}", f"left-{turn}"):
                call = {"id": id, "name": "bash", "arguments": {"n": turn}, "effect": "once"}
                self.book.sent(self.id, [("tool/started", call)])
                await self.session.tool_started(id, "bash", {"n": turn})
                self.seqs.append(None)
            self.write("running")
            self.book.sent(self.id, [("tool/finished", {"id": f"answered-{turn}", "output": f"done {turn}"})])
            await self.session.tool_finished(f"answered-{turn}", f"done {turn}")
            self.seqs.append(None)
        self.book.turn(self.id, turn, "end", "completed")
        await self.flush()

    async def accept(self, type: str | None = None) -> None:
        """Accept the next message, as it is or as an event of a type."""
        message = await anext(self.session.inbox())
        seq = await message.accept(type)
        await self.flush()
        self.book.accepted(self.id, message.seq, seq)

    async def fork(self, at: int) -> Agent:
        """Fork the session."""
        forked = await self.session.fork(at=at)
        self.book.forked(forked.id, self.id, at)
        return Agent(forked, self.book)

    async def close(self) -> None:
        """Close the session in order."""
        await self.session.aclose()
        self.book.closed(self.id)


class Round:
    """A store, and the notes about it."""

    def __init__(self, store: Path, place: Path) -> None:
        self.store = store
        self.witnesses = place / "witnesses"
        self.witnesses.mkdir()
        self.notebooks = place / "notebooks"
        self.notebooks.mkdir()

    def book(self, name: str) -> Notebook:
        """Give a new notebook."""
        return Notebook(self.notebooks / name)

    async def send(self, runtime: Runtime, book: Notebook, to: str, key: str) -> None:
        """Send a message, twice, as one does whose answer was lost."""
        for _ in range(2):
            book.sending(to, key, "my/message", {"message": key})
            book.delivered(to, key, await runtime.send(to, "my/message", {"message": key}, key=key))

    async def run_task(self, runtime: Runtime, book: Notebook, key: str, session: Session) -> None:
        """Run a task that witnesses itself, to its end."""
        witness = shlex.quote(str(self.witnesses / key))
        argv = ["sh", "-c", f"echo began >>{witness}; echo said; echo code 3 >>{witness}; exit 3"]
        output = output_digest(b"said\n")
        how = {"code": 3}
        members: dict[str, Any] = {"how": how, "by": "itself", "output": output, "ends_itself": True}
        book.starting(key, argv, session=session.id, policy="kill", **members)
        task = await runtime.start_task(argv, key=key, session=session)
        book.started(key, task.id)
        end = await task.wait()
        book.ended(key, task.id, end.state, end.how, end.by)

    async def follow(self, name: str, after: int, upto: int, *ids: str) -> None:
        """Follow the journal from a runtime of its own."""
        with self.book(name) as book:
            book.following(name, after, ids)
            async with open_runtime(self.store) as runtime:
                async for event in runtime.follow(*ids, after=after):
                    book.followed(name, [event])
                    if event.position >= upto:
                        break
            book.awaited(name, upto)

    async def look(self) -> None:
        """Open each session once more, and read and list all, as the runner does at the end."""
        with self.book("runner") as book:
            async with open_runtime(self.store) as runtime:
                listed = [info.id for info in await runtime.sessions(limit=100)]
                for id in listed:
                    async with await runtime.open_session(id):
                        pass
                    page = await runtime.read(id, limit=1000)
                    book.read(id, 0, page.head, page)
                book.listed(listed)

    def judge(self) -> Judgement:
        """Judge it."""
        left = look_for_leftovers(self.store, f"TURNKEEPER_NOBODY={self.store}", patience=LEFT_SECONDS)
        return judge(read_evidence(self.store, self.notebooks.iterdir(), self.witnesses, left))


@pytest.fixture
def made(store: Path, tmp_path: Path) -> Round:
    """A round that has only begun."""
    return Round(store, tmp_path)


async def test_a_store_written_with_all_features_is_clean(made: Round) -> None:
    """Turns, calls, text, large data, keys, forks, rewinds, inboxes, deletes, tasks, followers, and two kills."""
    with made.book("agent") as book:
        async with open_runtime(made.store) as runtime:
            agent = Agent(await runtime.create_session(title="an agent"), book)
            await agent.work(1)
            await agent.send("my/large", {"text": "x" * LARGE_CHARACTERS})
            await agent.send_once("once", {"n": 1})
            kill(writer_of(made.store))
            await agent.send_once("once", {"n": 1})
            for key in ("first", "second"):
                await made.send(runtime, book, agent.id, key)
            await agent.accept()
            await agent.accept("my/heard")
            forks = [await agent.fork(at) for at in (2, agent.session.head)]
            for fork in forks:
                await fork.work(2)
                await fork.close()
            kill(node_of(made.store))
            await agent.session.rewind(5)
            book.rewound(agent.id, 5)
            await made.run_task(runtime, book, "a-task", agent.session)
            await agent.accept()
            await agent.work(2)
            await agent.close()
            for id, words in ((forks[0].id, ("delet",)), (forks[1].id, ("delet", "undelet"))):
                for word in words:
                    getattr(book, f"{word}ing")(id)
                    await getattr(runtime, f"{word}e")(id)
                    getattr(book, f"{word}ed")(id)
            upto = (await runtime.sessions(limit=100))[0].position
        book.leaving()
    await made.follow("all", 0, upto)
    await made.follow("one", 3, (upto - 1), agent.id)
    await made.look()
    judgement = made.judge()
    assert not judgement.violations, "\n".join(map(str, judgement.violations))
    assert judgement.found == judgement.acknowledged > 20
    assert (judgement.sessions, judgement.tasks, judgement.messages) == (3, 1, 4)


async def test_an_overtaken_owner_and_an_abandoned_one_are_no_violation(made: Round) -> None:
    """What a fenced owner is told not to be stored isn't, and the turn that was left open is closed by the next."""
    with made.book("first") as first, made.book("second") as second:
        async with open_runtime(made.store) as runtime, open_runtime(made.store) as other:
            agent = Agent(await runtime.create_session(), first)
            await agent.session.append("turn/start", {"turn": 1})
            await agent.send("my/note", {"n": 1})
            await agent.flush()
            taker = Agent(await other.open_session(agent.id, takeover=True), second)
            await agent.send("my/note", {"n": 2})
            with pytest.raises(Fenced):
                await agent.session.flush()
            first.fenced(agent.id, agent.session.not_stored)
            await agent.session.aclose()
            await taker.work(2)
            await taker.close()
    await made.look()
    judgement = made.judge()
    assert not judgement.violations, "\n".join(map(str, judgement.violations))


async def test_what_the_product_did_not_do_is_found(made: Round) -> None:
    """Notes of an event, a message and a deletion that never were, beside a store that is in order."""
    with made.book("agent") as book:
        async with open_runtime(made.store) as runtime:
            agent = Agent(await runtime.create_session(), book)
            await agent.send("my/note", {"n": 1})
            await agent.flush()
            book.sent(agent.id, [("my/note", {"n": 2})])
            book.acknowledged(agent.id, agent.session.head)
            book.sending(agent.id, "key", "my/message", {})
            book.delivered(agent.id, "key", 0)
            book.deleting(agent.id)
            book.deleted(agent.id)
            await agent.close()
    await made.look()
    assert made.judge().counts == {"acknowledged is found": 1, "delivered": 1, "deletion": 1}
