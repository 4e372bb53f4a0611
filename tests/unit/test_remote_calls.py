"""An actor asked over a socket: how calls end that can't be answered, what waits, and what a connection may cost."""

from __future__ import annotations

import os
import random
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from turnkeeper.runtime.actor_ref import ActorEnd
from turnkeeper.runtime.actors import spawn_in_loop
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown
from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError, encode_frame
from turnkeeper.runtime.mailbox import MailboxFull
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.remote import protocol
from turnkeeper.runtime.remote.ref import RemoteRef
from turnkeeper.runtime.remote.serving import ActorServer

from ..actors_at_work import Clerk
from ..marks import appears, release
from ..outcomes import collect

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 20
VERSION = "1.0"


class Place:
    """A socket in a directory, who listens there, and who calls."""

    def __init__(self, path: Path, tasks: TaskGroup) -> None:
        self.path = path
        self.tasks = tasks
        self._listeners: list[socket.socket] = []

    def listen(self) -> socket.socket:
        """Listen there, in place of whoever did."""
        self.path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        listener.bind(str(self.path))
        listener.listen()
        self._listeners.append(listener)
        return listener

    async def serve(self, **options: Any) -> MailboxRef:
        """Make a clerk in this loop, and serve it."""
        ref = await spawn_in_loop(self.tasks, Clerk, name="clerk", **options)
        listener = self.listen()
        server = ActorServer(ref, listener, VERSION, partial(self.release, listener))
        ref.call_at_end(server.finish)
        self.tasks.start_soon(server.serve)
        return ref

    def release(self, listener: socket.socket) -> None:
        """Listen no more."""
        listener.close()
        self.path.unlink(missing_ok=True)

    def ref(self) -> RemoteRef:
        """Make a caller's reference."""
        return RemoteRef("clerk", self.tasks, self.connect, VERSION, lambda: None)

    def connect(self) -> socket.socket:
        """Connect to who listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            connection.connect(str(self.path))
        except OSError:
            connection.close()
            raise
        return connection

    async def accept(self, listener: socket.socket) -> FrameSocket:
        """Take the next caller as a server would that is none of ours, and take its greeting."""
        await anyio.wait_readable(listener)
        frames = FrameSocket(listener.accept()[0], anyio)
        assert (await frames.receive())["protocol"] == protocol.PROTOCOL
        return frames

    def close(self) -> None:
        """Close what listens."""
        for listener in self._listeners:
            listener.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A socket's place; all that is around it ends with the test, within the deadline."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            place = Place(tmp_path / "clerk.sock", tasks)
            yield place
            tasks.cancel_scope.cancel()
    place.close()


class RawCaller:
    """A caller that says what it likes."""

    def __init__(self, place: Place) -> None:
        self.connection = place.connect()
        self.frames = FrameSocket(self.connection, anyio)

    async def greet(self) -> None:
        """Greet as a caller does."""
        await self.frames.send(protocol.hello(os.getpid(), VERSION))
        assert (await self.frames.receive())["handlers"]

    async def say(self, content: bytes) -> None:
        """Send bytes; a server that has closed the connection hears none of them."""
        try:
            if not self.frames.send_nowait(content):
                await self.frames.drain()
        except OSError:
            pass

    async def hear_goodbye(self) -> str:
        """Hear the reason for which the connection ends, and see it end."""
        reason = ""
        try:
            while (message := await self.frames.receive()) is not None:
                if isinstance(message, dict) and "goodbye" in message:
                    reason = message["goodbye"]
        except ConnectionResetError:
            pass
        self.frames.close()
        return reason


@pytest.fixture
def callers(place: Place) -> Iterator[Any]:
    """Make callers, which are closed afterwards."""
    made: list[RawCaller] = []

    def call() -> RawCaller:
        made.append(RawCaller(place))
        return made[-1]

    yield call
    for each in made:
        each.connection.close()


# -- How calls end that aren't answered


async def test_an_ask_that_nobody_can_hear_was_not_started(place: Place) -> None:
    """No socket, and a socket that a dead process left. (A6)"""
    for call in (place.ref().ask, place.ref().tell):
        with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: no actor of this name is there$"):
            await call("note", 1)
    place.listen().close()
    with pytest.raises(ActorNotStarted, match="the process of the last one has ended"):
        await place.ref().ask("note", 1)
    with pytest.raises(ActorNotStarted, match="no actor of this name is there"):
        place.ref().tell_nowait("note", 1)
    assert (await place.ref().wait_ended()).reason.startswith("no actor of this name is there")
    assert (await place.ref().stop()).reason.startswith("no actor of this name is there")


async def test_a_connection_that_ends_leaves_unknown_what_was_sent(place: Place) -> None:
    """Asks and tells that wait are told so, what comes later is not started, and nothing is sent twice. (A6)"""
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note", 1)
        server = await place.accept(listener)
        await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
        assert await server.receive() == ["ask", 0, "note", [1], {}]
        server.close()
        listener.close()
    assert [(type(each), each.reason) for each in outcomes] == [
        (ActorUnknown, f"its process {os.getpid()} ended, or the connection to it, without a word")
    ]
    with pytest.raises(ActorNotStarted):
        await ref.ask("note", 2)


async def test_a_goodbye_with_an_end_says_that_what_is_unanswered_was_not_begun(place: Place) -> None:
    """The server answers all that it reads before that. (A6)"""
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note", 1)
        server = await place.accept(listener)
        await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
        await server.receive()
        await server.send({"goodbye": "it was stopped", "ended": ["it was stopped", None, True]})
        server.close()
    assert [str(each) for each in outcomes] == ["clerk.note was not started: it was stopped"]
    assert ref.end == ActorEnd("it was stopped", normal=True)


async def test_nothing_is_sent_behind_a_goodbye(place: Place) -> None:
    """From the moment in which it is heard, calls go to who serves the name now. (A6)"""
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note", 1)
        server = await place.accept(listener)
        await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
        await server.receive()
        await place.serve()
        await server.send({"goodbye": "it was stopped", "ended": ["it was stopped", None, True]})
        while ref.end is None:
            await checkpoint()
        assert await ref.ask("note", 2) == 1
        server.close()


async def test_the_next_ask_finds_who_serves_the_name_now(place: Place) -> None:
    """After the end of one actor, and when the connection to one breaks; the reference stays the same."""
    ref = place.ref()
    for number in range(3):
        served = await place.serve()
        assert await ref.ask("note", number) == 1
        await served.stop()
        assert await ref.wait_ended() == ActorEnd("it was stopped", normal=True)
    served = await place.serve()
    assert await ref.ask("pid") == os.getpid()
    assert ref._conversation is not None
    ref._conversation._frames._socket.shutdown(socket.SHUT_RDWR)
    assert await ref.ask("note", "again") == 1


async def test_an_ask_out_of_time_knows_whether_it_was_in_the_mailbox(place: Place, mark: Path) -> None:
    """In it, or with the actor, it may be done; before it, it was called back and will not be. (A6)"""
    await place.serve(messages_max=1)
    ref = place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        for method, argument in (("hold", str(mark)), ("note", "in"), ("note", "out")):
            askers.start_soon(partial(collect, outcomes, ref.ask, method, argument, timeout=0.3))
            await anyio.wait_all_tasks_blocked()
            await appears(mark)
    assert sorted(type(each).__name__ for each in outcomes) == ["ActorNotStarted", "ActorUnknown", "ActorUnknown"]
    release(mark)
    assert await ref.ask("notes") == ["in"]


async def test_an_ask_to_a_silent_process_ends_with_its_time(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes no caller was asked nothing; one that took the call may have done it. (A6)"""
    monkeypatch.setattr("turnkeeper.runtime.remote.ref.CERTAINTY_SECONDS", 0.05)
    listener, ref = place.listen(), place.ref()
    with pytest.raises(ActorNotStarted, match=r"no answer within 0.05 s, not sent yet"):
        await ref.ask("note", timeout=0.05)
    server = await place.accept(listener)
    await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
    with pytest.raises(ActorUnknown, match=r"no answer within 0.05 s"):
        await ref.ask("note", timeout=0.05)
    assert await server.receive() == ["ask", 1, "note", [], {}]
    assert await server.receive() == ["call back", 1]
    server.close()


async def test_a_process_that_never_greets_is_given_up(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what it does instead."""
    monkeypatch.setattr(protocol, "GREETING_SECONDS", 0.05)
    place.listen()
    with pytest.raises(ActorNotStarted, match=rf"its process {os.getpid()} doesn't answer \(running\)"):
        await place.ref().ask("note")


async def test_a_reply_that_cannot_cross_is_an_error_of_the_ask_alone(place: Place) -> None:
    """It was handled, and the actor, which knows nothing of sockets, lives on."""
    served = await place.serve()
    ref = place.ref()
    with pytest.raises(ActorError, match=r"^TypeError: .*set is not a plain value"):
        await ref.ask("unplain")
    with pytest.raises(TypeError, match="set is not a plain value"):
        await ref.ask("echo", {1, 2})
    assert await ref.ask("notes") == []
    assert served.end is None


async def test_the_end_of_the_owners_task_ends_conversations_in_order(place: Place) -> None:
    """Who waits in a task group that is cancelled is cancelled, and who waits elsewhere is told."""
    await place.serve()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers, anyio.create_task_group() as connections:
        ref = RemoteRef("clerk", connections, place.connect, VERSION, lambda: None)
        askers.start_soon(collect, outcomes, ref.ask, "hold", str(place.path.with_name("mark")))
        await appears(place.path.with_name("mark"))
        connections.cancel_scope.cancel()
    assert [str(each) for each in outcomes] == [
        "whether clerk.hold was done is unknown: this side ended the connection"
    ]
    release(place.path.with_name("mark"))


async def test_who_waits_is_answered_before_the_end_is_told(place: Place, mark: Path) -> None:
    """So a call that the actor was at is never taken for one that it wasn't asked. (A6)"""
    for _ in range(8):
        served = await place.serve()
        outcomes: list[Any] = []
        async with anyio.create_task_group() as askers:
            askers.start_soon(collect, outcomes, place.ref().ask, "hold", str(mark))
            await appears(mark)
            await served.kill()
            release(mark)
        assert [type(each) for each in outcomes] == [ActorUnknown]


async def test_the_failure_that_no_asker_hears_any_more_is_told_to_the_owner(place: Place, mark: Path) -> None:
    """An asker in another process that gave up waiting was not told, so the owner's stop is."""
    served, ref = await place.serve(), place.ref()
    async with anyio.create_task_group() as askers:
        askers.start_soon(ref.ask, "hold", str(mark))
        await appears(mark)
        askers.start_soon(ref.ask, "fail")
        while served.statistics().messages == 0:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        askers.cancel_scope.cancel()
    while ref.statistics().messages:  # noqa: ASYNC110
        await anyio.sleep(0.005)
    release(mark)
    await served.wait_ended()
    with pytest.raises(ActorError, match="Mishap: by mishap"):
        await served.stop()


async def test_who_waits_for_room_at_a_connection_that_ends_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its call was never sent, and is sent to who serves the name now. (A6)"""
    monkeypatch.setattr(protocol, "CALLS_MAX", 1)
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note", "sent")
        server = await place.accept(listener)
        await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
        await server.receive()
        askers.start_soon(collect, outcomes, ref.ask, "note", "waits")
        await anyio.wait_all_tasks_blocked()
        await place.serve()
        server.close()
    assert 1 in outcomes
    assert sorted(type(each).__name__ for each in outcomes) == ["ActorUnknown", "int"]


# -- What waits


async def test_calls_that_wait_keep_their_order(place: Place, callers: Any, mark: Path) -> None:
    """Those of one connection come into the mailbox as they were sent, however many wait for room."""
    for _ in range(4):
        served = await place.serve(messages_max=1)
        caller = callers()
        await caller.greet()
        tells = [encode_frame(["tell", number, "note", [number], {}]) for number in range(1, 20)]
        await caller.say(encode_frame(["tell", 0, "hold", [str(mark)], {}]) + b"".join(tells))
        await appears(mark)
        release(mark)
        while len(await served.ask("notes")) < len(tells):  # noqa: ASYNC110
            await anyio.sleep(0.005)
        assert await served.ask("notes") == list(range(1, 20))
        await served.stop()


async def test_a_full_mailbox_makes_the_teller_in_another_process_wait(place: Place, mark: Path) -> None:
    """Of many tells only so many are in the mailbox; the others wait, and all arrive in order. (A7)"""
    served = await place.serve(messages_max=2)
    ref = place.ref()
    await ref.tell("hold", str(mark))
    await appears(mark)
    told: list[int] = []

    async def tell_all() -> None:
        for number in range(10):
            await ref.tell("note", str(number))
            told.append(number)

    async with anyio.create_task_group() as tellers:
        tellers.start_soon(tell_all)
        while ref.statistics().senders_waiting == 0:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        assert (told, served.statistics().messages, served.statistics().senders_waiting) == ([0, 1], 2, 1)
        with pytest.raises(MailboxFull):
            ref.tell_nowait("note", "no room")
        release(mark)
    assert await ref.ask("notes") == [str(number) for number in range(10)]


async def test_calls_on_their_way_are_bounded(place: Place, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many unanswered calls of a caller the next waits at home, and tell_nowait is refused. (A7)"""
    monkeypatch.setattr(protocol, "CALLS_MAX", 3)
    served = await place.serve()
    ref = place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        for number in range(5):
            askers.start_soon(collect, outcomes, ref.ask, *(("note", str(number)) if number else ("hold", str(mark))))
            await anyio.wait_all_tasks_blocked()
        await appears(mark)
        await anyio.wait_all_tasks_blocked()
        assert (ref.statistics().messages, ref.statistics().senders_waiting) == (3, 2)
        assert served.statistics().messages == 2
        with pytest.raises(MailboxFull):
            ref.tell_nowait("note", "no room")
        release(mark)
    assert sorted(outcomes, key=str) == [1, 2, 3, 4, "released"]
    assert await ref.ask("notes") == ["1", "2", "3", "4"]


async def test_a_stop_waits_for_no_room(place: Place, mark: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has all its calls on their way to a stuck actor, and others in wait, can stop it."""
    monkeypatch.setattr(protocol, "CALLS_MAX", 2)
    await place.serve()
    ref = place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "hold", str(mark))
        await appears(mark)
        for _ in range(3):
            askers.start_soon(collect, outcomes, ref.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        assert await ref.stop(0.05) == ActorEnd("it was stopped", normal=True)
    assert sorted(type(each).__name__ for each in outcomes) == ["ActorNotStarted"] * 3 + ["ActorUnknown"]


async def test_a_cancelled_tell_that_waits_is_called_back(place: Place, mark: Path) -> None:
    """It isn't handled, and who waits behind it goes on."""
    await place.serve(messages_max=1)
    ref = place.ref()
    await ref.tell("hold", str(mark))
    await appears(mark)
    await ref.tell("note", "in")
    async with anyio.create_task_group() as tellers:
        tellers.start_soon(ref.tell, "note", "called back")
        while ref.statistics().senders_waiting == 0:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        tellers.cancel_scope.cancel()
    async with anyio.create_task_group() as tellers:
        tellers.start_soon(ref.tell, "note", "behind")
        release(mark)
    assert await ref.ask("notes") == ["in", "behind"]


async def test_what_a_caller_has_in_the_mailbox_is_handled_without_it(place: Place, mark: Path) -> None:
    """A caller that goes away takes back only what waits for room."""
    await place.serve(messages_max=1)
    async with anyio.create_task_group() as connections:
        ref = RemoteRef("clerk", connections, place.connect, VERSION, lambda: None)
        await ref.tell("hold", str(mark))
        await appears(mark)
        await ref.tell("note", "in")
        ref.tell_nowait("note", "waits")
        while ref.statistics().senders_waiting == 0:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        connections.cancel_scope.cancel()
    other = place.ref()
    async with anyio.create_task_group() as tellers:
        tellers.start_soon(other.tell, "note", "other")
        await anyio.wait_all_tasks_blocked()
        release(mark)
    assert await other.ask("notes") == ["in", "other"]


async def test_a_caller_that_does_not_read_is_read_no_more(
    place: Place, callers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its answers hold is bounded, and others don't notice. (A10)"""
    monkeypatch.setattr(protocol, "CALLS_MAX", 100_000)
    await place.serve()
    greedy = callers()
    await greedy.greet()
    sent = 0

    async def flood() -> None:
        nonlocal sent
        for number in range(2_000):
            content = encode_frame(["ask", number, "echo", ["x" * 10_000], {}])
            await greedy.say(content)
            sent += len(content)

    async with anyio.create_task_group() as floods:
        floods.start_soon(flood)
        before = -1
        while before < sent < 20_000_000:
            before = sent
            await anyio.sleep(0.1)
        assert sent < 4_000_000
        assert await place.ref().ask("note", "unharmed") == 1
        floods.cancel_scope.cancel()


async def test_a_caller_whose_calls_are_large_is_read_no_more(
    place: Place, callers: Any, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many bytes of it wait for the actor, and when they are handled the next ones are read. (A7)"""
    monkeypatch.setattr(protocol, "HELD_BYTES_MAX", 100_000)
    served = await place.serve()
    ref = place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "hold", str(mark))
        await appears(mark)
        for _ in range(30):
            askers.start_soon(collect, outcomes, ref.ask, "note", "x" * 40_000)
        while served.statistics().messages < 3:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        await anyio.wait_all_tasks_blocked()
        assert served.statistics().messages == 3
        release(mark)
    assert sorted(outcomes, key=str) == sorted([*range(1, 31), "released"], key=str)


# -- What is no conversation


async def refused_with(caller: RawCaller, content: bytes) -> str:
    """Say something after the greeting, and hear why that ends the connection."""
    await caller.greet()
    await caller.say(content)
    return await caller.hear_goodbye()


HUGE = (0xFFFFFFFF).to_bytes(4, "big")
_TOWER = b"\x95\xa3ask\x01\xa4note\x91" + b"\x91" * 1000 + b"\x01\x80"
TOWER = len(_TOWER).to_bytes(4, "big") + _TOWER

BAD_CONTENT = {
    "garbage": (b"\x00\x00\x00\x03\xc1\xc1\xc1", "is no message"),
    "huge": (HUGE, "is over the limit"),
    "an extension": (b"\x00\x00\x00\x03\xd4\x05\x00", "is no message"),
    "no request": (encode_frame(["shout", 1]), "no request of a caller"),
    "a string": (encode_frame("ask"), "no request of a caller"),
    "a tower of lists": (TOWER, "nested too deep"),
    "a second greeting": (encode_frame(protocol.hello(1, VERSION)), "no request of a caller"),
}


@pytest.mark.parametrize("name", BAD_CONTENT)
async def test_what_is_no_request_ends_that_connection_with_a_reason(place: Place, callers: Any, name: str) -> None:
    """Another caller, the actor and its process don't notice. (A10)"""
    await place.serve()
    ref = place.ref()
    assert await ref.ask("note", "before") == 1
    content, reason = BAD_CONTENT[name]
    assert reason in await refused_with(callers(), content)
    assert await ref.ask("note", "after") == 2


async def test_calls_that_break_the_rules_end_that_connection_with_a_reason(
    place: Place, callers: Any, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A number twice, and more calls than there may be; what such a caller had in the mailbox is handled. (A10)"""
    await place.serve()
    held = encode_frame(["ask", 1, "hold", [str(mark)], {}])
    assert await refused_with(callers(), held * 2) == "call 1 is there already"
    monkeypatch.setattr(protocol, "CALLS_MAX", 3)
    many = b"".join(
        encode_frame(["tell" if number > 2 else "ask", number, "note", [number], {}]) for number in range(5)
    )
    assert await refused_with(callers(), many) == "there are more than 3 calls at once"
    await appears(mark)
    release(mark)
    assert await place.ref().ask("notes") == [0, 1, 2]


async def test_a_call_of_no_handler_is_answered(place: Place, callers: Any) -> None:
    """Also where the caller didn't look at the greeting; it is no reason to end the connection."""
    await place.serve()
    caller = callers()
    await caller.greet()
    await caller.say(encode_frame(["ask", 1, "_hidden", [], {}]) + encode_frame(["ask", 2, "notes", [], {}]))
    answers = [await caller.frames.receive() for _ in range(2)]
    assert sorted(answer[:2] for answer in answers) == [["not started", 1], ["reply", 2]]


async def test_a_truncated_frame_is_the_end_of_that_connection(place: Place, callers: Any) -> None:
    """At every byte of a call: nothing of it is done, and nobody else notices. (A10)"""
    served = await place.serve()
    call = encode_frame(["ask", 1, "note", ["cut"], {}])
    for length in range(len(call)):
        caller = callers()
        await caller.greet()
        await caller.say(call[:length])
        caller.frames.close()
    assert await place.ref().ask("notes") == []
    assert served.end is None


async def test_another_version_is_told_so_on_both_sides(place: Place, callers: Any) -> None:
    """The caller of another version gets a reason, and asking a server of another one was not started. (A10)"""
    await place.serve()
    caller = callers()
    await caller.frames.send({**protocol.hello(7, "9.9"), "protocol": 99})
    assert await caller.hear_goodbye() == (
        "process 7 is turnkeeper 9.9 (actor protocol 99), "
        f"and this is turnkeeper 1.0 (actor protocol {protocol.PROTOCOL}); use one version"
    )
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note")
        server = await place.accept(listener)
        await server.send({**protocol.hello(7, "9.9"), "protocol": 99})
        assert "use one version" in (await server.receive())["goodbye"]
        server.close()
    assert [type(each) for each in outcomes] == [ActorNotStarted]
    assert "process 7 is turnkeeper 9.9 (actor protocol 99)" in str(outcomes[0])


async def test_a_caller_that_does_not_greet_is_sent_away(
    place: Place, callers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It doesn't keep its place for ever."""
    monkeypatch.setattr(protocol, "GREETING_SECONDS", 0.05)
    await place.serve()
    assert await callers().hear_goodbye() == "no greeting came within 0.05 s"


@pytest.mark.parametrize(
    "answer",
    [
        ["reply", 5, "nobody asked"],
        ["reply", 0],
        ["error", 0, {"type": "KeyError"}],
        ["error", 0, {"type": "E", "message": "m", "traceback": "", "class": [[], {}]}],
        "reply",
        {"goodbye": None},
    ],
)
async def test_what_is_no_answer_ends_the_connection_and_leaves_unknown_what_was_sent(
    place: Place, answer: Any
) -> None:
    """The server is told why. (A10)"""
    listener, ref = place.listen(), place.ref()
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, ref.ask, "note")
        server = await place.accept(listener)
        await server.send(protocol.hello(7, VERSION, frozenset({"note"})))
        await server.receive()
        await server.send(answer)
        assert (await server.receive())["goodbye"]
        server.close()
    assert [type(each) for each in outcomes] == [ActorUnknown]


async def test_another_user_is_refused_on_both_sides(
    place: Place, callers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever connects, and whoever listens, has to be this user. (A10)"""
    await place.serve()
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert await callers().hear_goodbye() == f"this actor is user {own + 1}'s, and you are user {own}"
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    place.listen()
    with pytest.raises(ActorNotStarted, match=f"it is served by user {own}, and this is user {own + 1}"):
        await place.ref().ask("note")


@pytest.mark.root
async def test_another_users_process_is_refused(place: Place) -> None:
    """The kernel says who it is, whatever it says itself. (A10)"""
    await place.serve()
    place.path.chmod(0o666)
    place.path.parent.chmod(0o711)
    program = (
        "import os, socket, sys; place = os.open(sys.argv[1], os.O_RDONLY); os.setuid(65534); "
        "s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(f'/proc/self/fd/{place}/clerk.sock'); "
        "sys.stdout.buffer.write(s.makefile('rb').read())"
    )
    command = [sys.executable, "-I", "-c", program, str(place.path.parent)]
    done = await anyio.run_process(command, stderr=None)
    assert b"this actor is user 0's, and you are user 65534" in done.stdout
    assert await place.ref().ask("note", 1) == 1


@pytest.mark.parametrize("seed", range(8))
async def test_any_bytes_of_a_caller_harm_nobody_else(place: Place, callers: Any, seed: int) -> None:
    """Calls whose bytes were changed, cut, doubled or made up; the seed repeats them. (A10)"""
    served = await place.serve()
    ref = place.ref()
    chance = random.Random(seed)
    for _ in range(30):
        caller = callers()
        await caller.say(spoiled(chance))
        caller.frames.close()
        with pytest.raises((anyio.ClosedResourceError, OSError, FrameError)):
            await caller.frames.receive()
    assert await ref.ask("echo", "unharmed") == [["unharmed"], {}]
    assert served.end is None


def spoiled(chance: random.Random) -> bytes:
    """Make what a caller could say, and spoil it, mostly."""
    said = bytearray(encode_frame(protocol.hello(1, VERSION)))
    for number in range(chance.randrange(5)):
        call: list[Any] = chance.choice(
            [
                ["ask", number, "echo", ["x" * chance.randrange(100)], {}],
                ["tell", number, "note", [number], {}],
                ["call back", chance.randrange(5)],
                ["ask", number, "missing", [], {}],
            ]
        )
        said += encode_frame(call)
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(said))
        kind = chance.randrange(4)
        if kind == 0:
            said[place] = chance.randrange(256)
        elif kind == 1:
            del said[place : place + chance.randrange(20)]
        elif kind == 2:
            said[place:place] = said[: chance.randrange(40)]
        else:
            said[place:place] = chance.randbytes(chance.randrange(20))
        if not said:
            break
    return bytes(said)
