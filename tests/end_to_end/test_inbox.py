"""End to end: what a session gets from its inbox, accepts, and is woken by."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import AlreadyAccepted, Corrupt, Fenced, InvalidValue, SessionClosed, TooFarAhead
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.acceptance import AHEAD_RANGES_MAX
from turnkeeper.actors.session.inbox import Inbox, Message

from ..served import LOOPS_AND_STORES, SECONDS_MAX, end_all, kill, node_of, read_line, start_python, writer_of
from .suspensions import Once, Suspensions

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]


async def send(runtime: Runtime, *words: str, to: str = "owner") -> None:
    """Send a message for each word."""
    for word in words:
        await runtime.send(to, "user/message", {"text": word})


async def taken(inbox: Inbox, count: int) -> list[Message]:
    """Take so many messages from an inbox."""
    with anyio.fail_after(SECONDS_MAX):
        return [await anext(inbox) for _ in range(count)]


def texts(messages: list[Message]) -> list[str]:
    """Give the texts of messages."""
    return [message.data["text"] for message in messages]


def told(events: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Give type and data of events."""
    return [(event.type, event.data) for event in events]


async def is_idle(inbox: Inbox) -> bool:
    """Say whether an inbox gives nothing although everybody else has had time to act."""
    with anyio.move_on_after(0.1):
        await anext(inbox)
        return False
    return True


# -- Accepting


async def test_accepting_is_one_record_that_says_which_message_it_took(runtime: Runtime) -> None:
    """As `inbox/accepted`, or under a type, with the message's data or other; then it doesn't come again."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, "one", "two", "three", "four")
        messages = await taken(session.inbox(), 4)
        assert [(each.seq, each.type, each.sender) for each in messages] == [
            (seq, "user/message", None) for seq in range(4)
        ]
        assert messages[0].time > 1_700_000_000_000
        numbers = [await messages[0].accept(), await messages[1].accept("user/message")]
        numbers.append(await messages[2].accept("note/taken", {"inbox": "mine", "why": "so"}))
        assert told(await session.read(start=numbers[0])) == [
            ("inbox/accepted", {"inbox": 0}),
            ("user/message", {"text": "two", "inbox": 1}),
            ("note/taken", {"why": "so", "inbox": 2}),
        ]
        await session.flush()
    async with await runtime.open_session("owner") as again:
        assert texts(await taken(again.inbox(), 1)) == ["four"]


async def test_what_isnt_accepted_comes_again_and_in_order(runtime: Runtime) -> None:
    """In another iteration and to the next opening, also where messages behind it were accepted."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, *"abcde")
        for message in (await taken(session.inbox(), 5))[1::2]:
            await message.accept()
        assert texts(await taken(session.inbox(), 3)) == ["a", "c", "e"]
    async with await runtime.open_session("owner") as again:
        first, *_ = messages = await taken(again.inbox(), 3)
        assert texts(messages) == ["a", "c", "e"]
        await first.accept()
        await send(runtime, "f")
        assert texts(await taken(again.inbox(), 3)) == ["c", "e", "f"]


async def test_a_message_is_accepted_once(runtime: Runtime) -> None:
    """Every other time is refused alike and appends nothing: by the same object, another iteration's, another task."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, "a", "b")
        first, second = await taken(session.inbox(), 2)
        (same,) = await taken(session.inbox(), 1)
        await first.accept("user/message")
        head = session.head
        for _ in range(2):
            for message in (first, same):
                with pytest.raises(AlreadyAccepted) as caught:
                    await message.accept()
                assert (caught.value.session, caught.value.seq) == (session.id, 0)
        refused: list[int] = []

        async def accept() -> None:
            try:
                await second.accept("note/large", {"text": "x" * 300_000})  # which waits for its blob
            except AlreadyAccepted as error:
                refused.append(error.seq)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(accept)
        assert (refused, session.head) == ([1, 1], head + 1)
        await session.flush()
    async with await runtime.open_session("owner") as again:
        assert await is_idle(again.inbox())


async def test_a_refused_acceptance_leaves_the_message_in_the_inbox(runtime: Runtime) -> None:
    """Data that can't be stored, data without a type, a second turn: nothing is appended, and it can be taken after."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, "a")
        (message,) = await taken(session.inbox(), 1)
        head = session.head
        with pytest.raises(InvalidValue, match=r"\$\.x"):
            await message.accept("note/taken", {"x": {1}})
        wrong: Any = [1]
        for type, data in (("note/taken", wrong), ("", {}), ("unnamed", {}), ("user/message", {"text": 1})):
            with pytest.raises(InvalidValue):
                await message.accept(type, data)
        with pytest.raises(ValueError, match="data needs a type"):
            await message.accept(data={"x": 1})
        assert session.head == head
        assert texts(await taken(session.inbox(), 1)) == ["a"]
        assert await message.accept() == head


async def test_how_many_messages_may_be_passed_over_is_bounded(runtime: Runtime) -> None:
    """Accepted in any order, but with so many gaps only; the refusal says which message is to be accepted first."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, *(str(number) for number in range(2 * AHEAD_RANGES_MAX + 2)))
        messages = await taken(session.inbox(), 2 * AHEAD_RANGES_MAX + 2)
        for message in messages[1:-1:2]:
            await message.accept()
        with pytest.raises(TooFarAhead) as caught:
            await messages[-1].accept()
        assert (caught.value.seq, caught.value.first) == (2 * AHEAD_RANGES_MAX + 1, 0)
        await messages[0].accept()
        await messages[-1].accept()
        await session.flush()
    async with await runtime.open_session("owner") as again:
        assert [each.seq for each in await taken(again.inbox(), AHEAD_RANGES_MAX)] == list(
            range(2, 2 * AHEAD_RANGES_MAX + 1, 2)
        )


async def test_what_an_owner_accepted_and_never_stored_goes_to_the_next(runtime: Runtime, store: Path) -> None:
    """It was taken over before its record was durable: that one is never stored, and the message isn't lost with it."""
    async with open_runtime(store) as other:
        session = await runtime.open_session("owner", create=True)
        await send(runtime, "a")
        (message,) = await taken(session.inbox(), 1)
        async with await other.open_session("owner", takeover=True) as new:
            await message.accept("user/message")
            with pytest.raises(Fenced):
                await session.flush()
            assert texts(await taken(new.inbox(), 1)) == ["a"]
            with pytest.raises(Fenced):
                await message.accept()
        await session.aclose()


# -- Waiting


async def test_a_message_wakes_an_owner_in_another_process(runtime: Runtime, store: Path) -> None:
    """It comes while the owner waits, and is accepted durably; also when writer or node were killed meanwhile."""
    program = """
import sys, anyio
from turnkeeper.actors.runtime_opening import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as runtime, await runtime.open_session("owner", create=True) as session:
        await session.append("note/ready", {})
        await session.flush()
        print(session.id, flush=True)
        async for message in session.inbox():
            number = await message.accept("user/message")
            await session.flush()
            print(number, flush=True)

anyio.run(main)
"""
    owner = start_python(program, str(store))
    try:
        id = read_line(owner)
        for number, victim in enumerate((None, writer_of, node_of), 1):
            if victim is not None:
                kill(victim(store))
            assert await runtime.send(id, "user/message", {"text": str(number)}) == number - 1
            assert read_line(owner) == str(number)
            assert told(await runtime.read(id, last=1)) == [
                ("user/message", {"text": str(number), "inbox": number - 1})
            ]
    finally:
        end_all([owner])


async def test_many_messages_come_in_order_whenever_they_were_sent(runtime: Runtime) -> None:
    """Before and while they are taken, by several senders at once; each sender's keep their order."""

    async def send_all(name: str) -> None:
        for number in range(30):
            await runtime.send("owner", "my/n", {"by": name, "n": number})

    async with await runtime.open_session("owner", create=True) as session:
        await send_all("before")
        async with anyio.create_task_group() as tasks:
            for name in "abc":
                tasks.start_soon(send_all, name)
            messages = await taken(session.inbox(), 120)
        assert [message.seq for message in messages] == list(range(120))
        for name in ("before", *"abc"):
            assert [each.data["n"] for each in messages if each.data["by"] == name] == list(range(30))


async def test_an_owner_that_only_waits_learns_that_it_was_taken_over(runtime: Runtime, store: Path) -> None:
    """At once, and every later call says so too; the new owner gets the messages, and the old one sends none."""
    async with open_runtime(store) as other:
        session = await runtime.open_session("owner", create=True)
        caught: list[Fenced] = []

        async def wait() -> None:
            try:
                await anext(session.inbox())
            except Fenced as error:
                caught.append(error)

        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anext(other.follow("*", after=0))  # the wait has begun, and stored the session
                new = await other.open_session(session.id, takeover=True)
        assert caught[0].stream == session.id
        assert caught[0].owner is not None
        for call in (session.append("note/x", {}), session.flush(), session.send(new.id, "note/x", {})):
            with pytest.raises(Fenced):
                await call
        with pytest.raises(Fenced):
            await anext(session.inbox())
        await send(runtime, "a", to=new.id)
        assert texts(await taken(new.inbox(), 1)) == ["a"]
        await new.aclose()
        await session.aclose()


async def test_a_session_that_is_closed_ends_the_wait(runtime: Runtime) -> None:
    """By another task, or with the runtime; it says that you closed it, and no message is lost by that."""
    session = await runtime.open_session("owner", create=True)
    inbox = session.inbox()
    ended: list[str] = []

    async def wait() -> None:
        try:
            await anext(inbox)
        except SessionClosed as error:
            ended.append(error.session)

    with anyio.fail_after(SECONDS_MAX):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anext(runtime.follow("*", after=0))
            await session.aclose()
    with pytest.raises(SessionClosed):
        await anext(inbox)
    assert ended == [session.id]
    await send(runtime, "a")
    async with await runtime.open_session("owner") as again:
        assert texts(await taken(again.inbox(), 1)) == ["a"]


async def test_nobody_listens_for_a_session_that_was_closed(runtime: Runtime) -> None:
    """A host that opens and closes thousands keeps nothing of them, here and in the writer."""
    for _ in range(2):
        async with await runtime.open_session("owner", create=True) as session:
            assert await is_idle(session.inbox())
    await send(runtime, "a")
    assert len(runtime._client.link._requests) == 0
    async with await runtime.open_session("owner") as again:
        assert texts(await taken(again.inbox(), 1)) == ["a"]


async def test_a_wait_that_is_cancelled_takes_no_message(runtime: Runtime) -> None:
    """However often: the next one that comes goes to whoever asks next, of the same iteration or another."""
    async with await runtime.open_session("owner", create=True) as session:
        inbox = session.inbox()
        for each in (inbox, inbox, session.inbox(), session.inbox()):
            assert await is_idle(each)
        await send(runtime, "a")
        assert texts(await taken(inbox, 1)) == texts(await taken(session.inbox(), 1)) == ["a"]
        assert len(runtime._client.link._requests) == 0, "nobody listens any more"


# -- The wake budget


async def test_sessions_wake_an_owner_only_so_often_in_a_row(runtime: Runtime) -> None:
    """Then theirs are held back until somebody else's comes, and all go on, in order; and the count begins anew."""
    async with (
        await runtime.open_session("owner", create=True) as session,
        await runtime.open_session("chatty", create=True) as chatty,
    ):
        inbox = session.inbox(wakes_max=2)
        await chatty.send("owner", "user/message", {"text": "there before"})
        assert texts(await taken(inbox, 1)) == ["there before"]
        for word in ("first wake", "second wake"):
            await chatty.send("owner", "user/message", {"text": word})
            assert texts(await taken(inbox, 1)) == [word]
        large = "held, and too large for a line" * 10_000
        for word in ("held", large):
            await chatty.send("owner", "user/message", {"text": word})
            assert await is_idle(inbox)
        await send(runtime, "a person's")
        assert texts(await taken(inbox, 3)) == ["held", large, "a person's"]
        for word in ("first again", "second again"):
            await chatty.send("owner", "user/message", {"text": word})
            assert texts(await taken(inbox, 1)) == [word]
        await chatty.send("owner", "user/message", {"text": "held again"})
        assert await is_idle(inbox)
        assert texts(await taken(session.inbox(), 1)) == ["there before"], "another iteration counts for itself"


async def test_messages_that_come_together_are_one_wake(runtime: Runtime) -> None:
    """However many pages they are; and more of them may be held back than are kept in memory."""
    async with (
        await runtime.open_session("owner", create=True) as session,
        await runtime.open_session("chatty", create=True) as chatty,
    ):
        inbox = session.inbox(wakes_max=1)
        assert await is_idle(inbox)
        for number in range(70):
            await chatty.send("owner", "user/message", {"text": str(number)})
        assert texts(await taken(inbox, 70)) == [str(number) for number in range(70)]
        for number in range(70):
            await chatty.send("owner", "user/message", {"text": f"held {number}"})
        assert await is_idle(inbox)
        await send(runtime, "at last")
        assert texts(await taken(inbox, 71)) == [*(f"held {number}" for number in range(70)), "at last"]


async def test_a_budget_that_is_none_is_refused_at_the_call(runtime: Runtime) -> None:
    """And not when the owner waits."""
    async with await runtime.open_session("owner", create=True) as session:
        with pytest.raises(ValueError, match="wakes_max"):
            session.inbox(wakes_max=-1)


# -- Cut short


async def receive(runtime: Runtime, key: str, done: list[int]) -> None:
    """Open a session, take two messages of which one is large, and store what was taken."""
    async with await runtime.open_session(key) as session:
        async for message in session.inbox():
            await message.accept(message.type)
            await session.flush()
            done.append(message.seq)
            if len(done) == 2:
                break


async def test_a_cancellation_at_any_suspension_loses_and_repeats_no_message(runtime: Runtime) -> None:
    """From the opening to the close: what was stored as taken is taken once, and the rest comes again."""
    at, is_cut = 0, True
    while is_cut:
        at += 1
        key = f"owner-{at}"
        async with await runtime.open_session(key, create=True) as session:
            await session.append("note/made", {})
        await runtime.send(key, "user/message", {"text": "small"})
        await runtime.send(key, "user/message", {"text": "x" * 300_000})
        done: list[int] = []
        with anyio.fail_after(SECONDS_MAX), anyio.CancelScope() as scope:
            cut = Once(at, scope.cancel)
            await Suspensions(receive(runtime, key, done), cut)
        is_cut = cut.has_acted
        async with await runtime.open_session(key) as session:
            while len(taken_by(await session.read())) < 2:
                (message,) = await taken(session.inbox(), 1)
                await message.accept(message.type)
            assert taken_by(await session.read()) == [0, 1]
            assert await is_idle(session.inbox()) if at % 10 == 1 else True
    assert at > 12


def taken_by(events: list[Any]) -> list[int]:
    """Give the numbers of the messages that a log has accepted."""
    return [event.data["inbox"] for event in events if "inbox" in event.data]


# -- Damage


async def test_a_message_that_cant_be_read_is_told_once_and_hides_no_other(runtime: Runtime, store: Path) -> None:
    """The next step goes on behind it, and who accepts what is behind it isn't told again."""
    async with await runtime.open_session("owner", create=True) as session:
        await send(runtime, "a", "x" * 300_000, "c", "d")
        shutil.rmtree(store / "blobs")
        inbox = session.inbox()
        assert texts(await taken(inbox, 1)) == ["a"]
        with pytest.raises(Corrupt) as caught:
            await anext(inbox)
        assert (caught.value.stream, caught.value.missing) == (f"inbox-{session.id}", [(1, 1)])
        (behind,) = await taken(inbox, 1)
        assert texts([behind]) == ["c"]
    async with await runtime.open_session("owner") as again:
        inbox = again.inbox()
        (first,) = await taken(inbox, 1)
        with pytest.raises(Corrupt):
            await anext(inbox)
        (behind,) = await taken(inbox, 1)
        await first.accept()
        await behind.accept()
        await again.flush()
    async with await runtime.open_session("owner") as last:
        assert texts(await taken(last.inbox(), 1)) == ["d"]
