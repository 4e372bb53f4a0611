"""End to end: messages sent to sessions: durable when sent, once for their key, and what can't be sent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.client.blobs import Blobs
from turnkeeper.actors.errors import (
    Ambiguous,
    BlobMissing,
    Conflict,
    Deleted,
    Fenced,
    InvalidValue,
    NotFound,
    SessionClosed,
    StoreFull,
    TooLarge,
    WrongKind,
)
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.inbox import Inbox, Message
from turnkeeper.actors.session.session import Session

from ..served import LOOPS_AND_STORES, SECONDS_MAX, finish, kill, node_of, start_python, writer_of
from .suspensions import Once, Suspensions

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]


async def make(runtime: Runtime, key: str, **header: Any) -> str:
    """Make a session that is stored and closed; give its id."""
    async with await runtime.create_session(key=key, **header) as session:
        await session.append("note/made", {})
        return session.id


async def inbox_of(runtime: Runtime, id: str) -> list[dict[str, Any]]:
    """Read what lies in a session's inbox; nothing if nothing was ever sent."""
    try:
        return [event.data for event in await runtime.read(f"inbox-{id}")]
    except NotFound:
        return []


async def next_of(inbox: Inbox) -> Message:
    """Take the next message of an inbox."""
    with anyio.fail_after(SECONDS_MAX):
        return await anext(inbox)


async def test_a_message_is_durable_when_send_returns(store: Path) -> None:
    """Whatever is killed then; it lies in the receiver's inbox, as it was sent, though nobody has opened that."""
    async with open_runtime(store) as runtime:
        id = await make(runtime, "owner")
        assert await runtime.send(id, "my/type", {"n": [1, None, "ü"]}) == 0
        writer, node = writer_of(store), node_of(store)
        kill(node)
        kill(writer)
        (event,) = await runtime.read(f"inbox-{id}")
        assert event.type == "inbox/message"
        assert event.data == {"type": "my/type", "data": {"n": [1, None, "ü"]}, "sender": None}


async def test_a_message_is_sent_once_for_its_key(runtime: Runtime, store: Path) -> None:
    """Again, also over the death of what serves the store: the first one's number. Another message under it conflicts.

    A key is its receiver's; without one each message is a new one.
    """
    ids = [await make(runtime, key) for key in ("owner", "other")]
    assert await runtime.send("owner", "my/n", {"n": 1}, key="ci-17") == 0
    assert await runtime.send("owner", "my/n", {"n": 2}) == 1
    kill(writer_of(store))
    assert await runtime.send("owner", "my/n", {"n": 1}, key="ci-17") == 0
    kill(node_of(store))
    assert await runtime.send("owner", "my/n", {"n": 1}, key="ci-17") == 0
    with pytest.raises(Conflict, match="the key 'ci-17' has another event already"):
        await runtime.send("owner", "my/n", {"n": 3}, key="ci-17")
    assert await runtime.send("other", "my/n", {"n": 3}, key="ci-17") == 0
    assert await runtime.send("owner", "my/n", {"n": 2}) == 2
    assert [each["data"]["n"] for each in await inbox_of(runtime, ids[0])] == [1, 2, 2]


async def test_a_session_is_sent_to_by_id_beginning_and_key_and_can_answer(runtime: Runtime) -> None:
    """The message names the session in whose name it was sent, which is stored then, though it has appended nothing."""
    async with (
        await runtime.open_session("asks", create=True) as asks,
        await runtime.open_session("answers", create=True) as answers,
    ):
        for to in (answers.id, "answers", answers.id[:-1]):
            await asks.send(to, "my/question", {"to": to})
        inbox = answers.inbox()
        for number in range(3):
            message = await next_of(inbox)
            assert (message.seq, message.sender) == (number, asks.id)
            await answers.send(message.sender or "", "my/answer", message.data)
        assert [each["sender"] for each in await inbox_of(runtime, asks.id)] == [answers.id] * 3
        assert [event.type for event in await asks.read()] == ["session/created"]


async def test_who_waits_for_messages_is_known_to_other_processes(runtime: Runtime, store: Path) -> None:
    """A session of which nothing is stored can be sent to from elsewhere as soon as it waits, and not before."""
    program = """
import sys
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import NotFound

with connect(sys.argv[1]) as runtime:
    try:
        print(runtime.send("owner", "my/n", {}))
    except NotFound:
        print("not found")
"""
    async with await runtime.open_session("owner", create=True) as session:
        assert finish(start_python(program, str(store))) == "not found\n"
        taken: list[str] = []

        async def take_one() -> None:
            taken.append((await anext(session.inbox())).type)

        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_one)
                await anext(runtime.follow("owner", after=0))
                assert finish(start_python(program, str(store))) == "0\n"
        assert taken == ["my/n"]


async def test_an_inbox_is_no_session(runtime: Runtime) -> None:
    """It isn't listed, can't be opened or sent to, and takes no beginning of an id from a session."""
    id = await make(runtime, "owner")
    await runtime.send(id, "my/n", {})
    assert [each.id for each in await runtime.sessions()] == [id]
    for call in (
        runtime.open_session(f"inbox-{id}"),
        runtime.open_session(f"inbox-{id}", create=True, takeover=True),
        runtime.send(f"inbox-{id}", "my/n", {}),
    ):
        with pytest.raises(WrongKind, match=f"inbox-{id} is no session but of the kind 'inbox'"):
            await call
    with pytest.raises(NotFound):
        await runtime.open_session("inbox")


async def test_a_deleted_session_takes_no_message_and_keeps_those_it_had(runtime: Runtime) -> None:
    """By whatever name; who sends is told that it is deleted. Undeleted it has its messages, and takes more."""
    id = await make(runtime, "owner")
    await runtime.send(id, "my/n", {"n": 0})
    await runtime.delete(id)
    for to in (id, "owner"):
        with pytest.raises(Deleted, match=f"{id} is deleted"):
            await runtime.send(to, "my/n", {"n": 1})
    await runtime.undelete(id)
    assert await runtime.send(id, "my/n", {"n": 1}) == 1
    async with await runtime.open_session(id) as session:
        inbox = session.inbox()
        assert [(await next_of(inbox)).data["n"] for _ in range(2)] == [0, 1]


async def test_what_cant_be_sent_is_refused_and_stores_nothing(runtime: Runtime) -> None:
    """Unknown, ambiguous and impossible receivers; data, types and keys that can't be kept; and each says why."""
    id = await make(runtime, "owner")
    others = [await make(runtime, f"other {number}") for number in range(40)]
    shared = next(each[0] for each in others if sum(other[0] == each[0] for other in [*others, id]) > 1)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (NotFound, "'nobody'", {"to": "nobody"}),
        (NotFound, "''", {"to": ""}),
        (NotFound, "no session", {"to": "x" * 5000}),
        (NotFound, "no session", {"to": "\ud800"}),
        (Ambiguous, "give more of it", {"to": shared}),
        (InvalidValue, r"\$\.x", {"data": {"x": {1, 2}}}),
        (InvalidValue, r"\$\.x", {"data": {"x": float("nan")}}),
        (InvalidValue, "mapping", {"data": [1]}),
        (InvalidValue, r"\$\.text", {"type": "user/message", "data": {"text": 1}}),
        (InvalidValue, "type", {"type": "inbox/other"}),
        (InvalidValue, "type", {"type": "unnamed"}),
        (InvalidValue, "type", {"type": ""}),
        (InvalidValue, "type", {"type": "\ud800"}),
        (InvalidValue, "1 to 256 characters", {"key": ""}),
        (InvalidValue, "1 to 256 characters", {"key": "k" * 257}),
        (InvalidValue, "a lone surrogate", {"key": "\ud800"}),
        (TooLarge, "over the limit", {"data": {"x": "y" * 2**26}}),
        (BlobMissing, "0000", {"data": {"x": {"blob": "0" * 64, "bytes": 3, "media_type": "image/png"}}}),
    ]
    for kind, why, arguments in wrong:
        with pytest.raises(kind, match=why) as caught:
            await runtime.send(**({"to": id, "type": "my/n", "data": {}} | arguments))
        assert "\n" not in str(caught.value)
    assert await inbox_of(runtime, id) == []
    assert await runtime.send(id, "my/n", {}) == 0, "and what follows can be sent"


async def test_only_its_owner_sends_in_a_sessions_name(runtime: Runtime, store: Path) -> None:
    """Not after it was closed, nor after it was taken over, although the former owner hasn't heard of that yet."""
    id = await make(runtime, "receiver")
    async with open_runtime(store) as other:
        former = await runtime.open_session("owner", create=True)
        await former.append("note/made", {})
        await former.flush()
        new = await other.open_session("owner", takeover=True)
        assert former._stream.refusal is None
        with pytest.raises(Fenced) as caught:
            await former.send(id, "my/n", {})
        assert caught.value.stream == former.id
        assert await new.send(id, "my/n", {}) == 0
        await new.aclose()
        with pytest.raises(SessionClosed):
            await new.send(id, "my/n", {})
        former.give_up()
    assert len(await inbox_of(runtime, id)) == 1


async def test_a_session_sends_only_what_its_log_knows(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it appended and wrote before is durable when the message is; where that can't be stored, nothing is sent."""
    receiver = await make(runtime, "receiver")
    async with await runtime.create_session() as sender:
        await sender.append("note/n", {"n": 1})
        sender.write("and so on")
        await sender.send(receiver, "my/n", {"n": 1})
        assert [event.type for event in await runtime.read(sender.id)] == ["note/n", "assistant/chunk"]
        await sender.append("note/n", {"n": 2})

        async def fail(session: Session) -> int:
            raise StoreFull(1, 2)

        with monkeypatch.context() as patched:
            patched.setattr(Session, "flush", fail)
            with pytest.raises(StoreFull):
                await sender.send(receiver, "my/n", {"n": 2})
        assert len(await inbox_of(runtime, receiver)) == 1


async def test_large_data_and_blobs_come_with_a_message(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is too large for a line comes whole; a blob that is gone before the message is stored is put once more."""
    large = {"text": "x" * 400_000}
    place = Blobs.place

    async def place_and_lose(self: Blobs, *arguments: Any) -> Any:
        placed = await place(self, *arguments)
        shutil.rmtree(store / "blobs")
        return placed

    async with await runtime.open_session("owner", create=True) as session:
        monkeypatch.setattr(Blobs, "place", place_and_lose)
        await runtime.send("owner", "my/large", large)
        monkeypatch.setattr(Blobs, "place", place)
        picture = await runtime.put_blob(b"picture", media_type="image/png")
        await runtime.send("owner", "my/picture", {"picture": picture})
        inbox = session.inbox()
        first, second = await next_of(inbox), await next_of(inbox)
        assert (first.type, first.data) == ("my/large", large)
        assert await runtime.get_blob(second.data["picture"]) == b"picture"
        await first.accept(first.type)
        await session.flush()
        assert (await runtime.read("owner", last=1))[0].data == {**large, "inbox": 0}


async def test_a_send_that_is_cancelled_at_any_suspension_is_sent_once_with_its_key(runtime: Runtime) -> None:
    """Sent again it is there once, whether it had been sent or not."""
    async with await runtime.open_session("sender", create=True) as session:
        at, is_cut = 0, True
        while is_cut:
            at += 1
            async with await runtime.open_session(f"owner-{at}", create=True) as owner:
                message: Any = (owner.key, "my/large", {"text": "x" * 300_000})
                with anyio.fail_after(SECONDS_MAX), anyio.CancelScope() as scope:
                    cut = Once(at, scope.cancel)
                    await Suspensions(session.send(*message, key="k"), cut)
                is_cut = cut.has_acted
                assert await session.send(*message, key="k") == 0
                assert len(await inbox_of(runtime, owner.id)) == 1
        assert at > 2
