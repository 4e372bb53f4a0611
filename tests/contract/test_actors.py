"""Contract of actors, the same in the loop, in a worker process and elsewhere, for hosts on trio and on asyncio."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
import trio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from turnkeeper.actors.named_actors import NamedActors
from turnkeeper.runtime.actor_ref import ActorEnd, ActorRef
from turnkeeper.runtime.actors import spawn_in_loop
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown, MessageTooLarge
from turnkeeper.runtime.mailbox import MailboxFull, MailboxStatistics
from turnkeeper.runtime.workers.worker import spawn_in_process

from ..actor_host import ActorHost
from ..actors_at_work import Clerk, Doorkeeper, Mishap, Refusal
from ..marks import appears, is_there, lines, release
from ..outcomes import collect

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

DEADLINE_SECONDS = 20


class Spawn(Protocol):
    """How a test makes an actor."""

    async def __call__(self, group: TaskGroup, actor: type, *arguments: Any, **options: Any) -> ActorRef: ...


class SpawnElsewhere:
    """Make an actor in another process, on the other loop, and reach it by its name."""

    def __init__(self, host: ActorHost, connections: TaskGroup) -> None:
        self._host = host
        self._connections = connections

    async def __call__(self, group: TaskGroup, actor: type, *arguments: Any, name: str, **options: Any) -> ActorRef:
        await anyio.to_thread.run_sync(partial(self._host.spawn, name, actor, *arguments, **options))
        ref = NamedActors(str(self._host.store), self._connections, lambda: None).ref(name)
        group.start_soon(self._end_with_group, ref)
        return ref

    async def _end_with_group(self, ref: ActorRef) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._host.cancel, ref.name)
                await ref.wait_ended()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ActorHost]]:
    """Processes that others ask, by the loop of who asks."""
    loops = {"trio": "asyncio", "asyncio": "trio"}
    started = {asker: ActorHost(tmp_path_factory.mktemp(loop) / "store", loop) for asker, loop in loops.items()}
    yield started
    for host in started.values():
        host.end()


@pytest.fixture(params=[spawn_in_loop, spawn_in_process], ids=["in the loop", "in a process"])
def spawn_here(request: pytest.FixtureRequest) -> Spawn:
    """Either way to make an actor whose mailbox is here."""
    return partial(_spawn_by_class, request.param)


@pytest.fixture(
    params=[spawn_in_loop, spawn_in_process, SpawnElsewhere], ids=["in the loop", "in a process", "elsewhere"]
)
async def spawn(
    request: pytest.FixtureRequest,
    anyio_backend_name: str,
    hosts: dict[str, ActorHost],
) -> AsyncIterator[Spawn]:
    """Each way to make an actor, one that another process makes and serves among them."""
    async with anyio.create_task_group() as connections:
        way = request.param
        if way is SpawnElsewhere:
            way = SpawnElsewhere(hosts[anyio_backend_name], connections)
        yield partial(_spawn_by_class, way)
        connections.cancel_scope.cancel()


async def _spawn_by_class(way: Any, group: TaskGroup, actor: type, *arguments: Any, **options: Any) -> ActorRef:
    """Make an actor that is called as its class."""
    ref: ActorRef = await way(group, actor, *arguments, name=actor.__name__.lower(), **options)
    return ref


# -- Asking and telling


async def test_an_ask_returns_the_handlers_reply(spawn: Spawn, group: TaskGroup) -> None:
    """Arguments and keywords reach the handler, and what it returns comes back."""
    clerk = await spawn(group, Clerk, "born")
    assert await clerk.ask("note", "one") == 2
    assert await clerk.ask("echo", 1, b"\xff", None, text="ü", nested={"list": [1.5, True]}) == [
        [1, b"\xff", None],
        {"text": "ü", "nested": {"list": [1.5, True]}},
    ]


async def test_what_was_told_is_done_before_what_is_asked_later(spawn: Spawn, group: TaskGroup) -> None:
    """Messages of one sender are handled in order, whichever way they were sent."""
    clerk = await spawn(group, Clerk)
    await clerk.tell("note", "first")
    clerk.tell_nowait("note", "second")
    assert await clerk.ask("notes") == ["first", "second"]


async def test_quick_messages_are_done_once_and_in_order(spawn: Spawn, group: TaskGroup) -> None:
    """Several at once to an idle actor, and one in each turn of the loop to one that is getting at those before."""
    clerk = await spawn(group, Clerk)
    words = [str(number) for number in range(100)]
    for word in words[:10]:
        clerk.tell_nowait("note", word)
    assert await clerk.ask("notes") == words[:10]
    for word in words[10:]:
        clerk.tell_nowait("note", word)
        await checkpoint()
    assert await clerk.ask("notes") == words
    assert await clerk.ask("note", "last") == len(words) + 1


async def test_one_message_is_handled_at_a_time(spawn: Spawn, group: TaskGroup) -> None:
    """A handler that waits is not interrupted by the next message."""
    clerk = await spawn(group, Clerk)
    async with anyio.create_task_group() as askers:
        for name in "abc":
            askers.start_soon(clerk.ask, "note_slowly", name)
            await anyio.wait_all_tasks_blocked()
    assert await clerk.ask("notes") == [f"{name} {what}" for name in "abc" for what in ("begins", "ends")]


async def test_only_public_coroutine_methods_can_be_asked(spawn: Spawn, group: TaskGroup) -> None:
    """Anything else is the caller's mistake, said at once with what there is; the actor doesn't notice."""
    clerk = await spawn(group, Clerk)
    for name in ("missing", "_hidden", "plain", "__init__"):
        for call in (clerk.ask, clerk.tell):
            with pytest.raises(AttributeError, match=rf"clerk has no handler '{name}'; its handlers: .*\bnote, "):
                await call(name)
    assert await clerk.ask("notes") == []


# -- Errors


async def test_a_failure_is_told_to_who_asked_and_ends_the_actor(spawn: Spawn, group: TaskGroup) -> None:
    """The ask gets the exception's type, message and traceback; later messages learn how the actor ended."""
    clerk = await spawn(group, Clerk)
    with pytest.raises(ActorError, match=r"^Mishap: tripped") as caught:
        await clerk.ask("fail", "tripped")
    assert caught.value.type_name == "Mishap"
    assert "in fail" in caught.value.traceback_text
    assert caught.value.traceback_text.rstrip() in caught.value.__notes__[0]
    end = await clerk.wait_ended()
    assert (end.reason, str(end.error)) == ("it failed: Mishap: tripped", "Mishap: tripped")
    for call in (clerk.ask, clerk.tell):
        with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: it failed: Mishap: tripped"):
            await call("note", "late")
    with pytest.raises(ActorNotStarted):
        clerk.tell_nowait("note", "late")


async def test_a_registered_error_is_an_answer(spawn: Spawn, group: TaskGroup) -> None:
    """It arrives as its own class with its fields, and the actor lives on."""
    clerk = await spawn(group, Clerk)
    with pytest.raises(Refusal, match=r"^no chair, 3 left") as caught:
        await clerk.ask("refuse", "chair", 3)
    assert (caught.value.wanted, caught.value.left) == ("chair", 3)
    assert await clerk.ask("note", "still here") == 1


async def test_messages_behind_a_failure_were_not_started(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """A failure consumes its own message alone: those behind it are safe to send again, and say why."""
    clerk = await spawn(group, Clerk)
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        await clerk.tell("hold", str(mark))
        await appears(mark)
        askers.start_soon(collect, results, clerk.ask, "fail")
        await anyio.wait_all_tasks_blocked()
        askers.start_soon(collect, results, clerk.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        release(mark)
    assert {type(result): str(result) for result in results} == {
        ActorError: "Mishap: by mishap",
        ActorNotStarted: "clerk.note was not started: it failed: Mishap: by mishap",
    }


async def test_the_failure_of_a_tell_is_told_by_stop_once(spawn_here: Spawn, group: TaskGroup) -> None:
    """Nobody waits for a tell: its error is kept until the actor is stopped, and never cancels the task group."""
    clerk = await spawn_here(group, Clerk)
    await clerk.tell("fail", "unseen")
    assert (await clerk.wait_ended()).reason == "it failed: Mishap: unseen"
    with pytest.raises(ActorError, match=r"^Mishap: unseen"):
        await clerk.stop()
    assert (await clerk.stop()).reason == "it failed: Mishap: unseen"


# -- Times and cancellation


async def test_an_ask_out_of_time_may_have_been_done(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """While the actor is at it nobody knows; while it waits for room in the mailbox it certainly was not started."""
    clerk = await spawn(group, Clerk, messages_max=1)
    with pytest.raises(ActorUnknown, match=r"^whether clerk.hold was done is unknown: no answer within 0.2 s"):
        await clerk.ask("hold", str(mark), timeout=0.2)
    await clerk.tell("note", "fills the mailbox")
    with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: no answer within 0.01 s, mailbox full"):
        await clerk.ask("note", "no room", timeout=0.01)


async def test_a_late_reply_reaches_nobody(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """Who gave up waiting isn't told any more, and the next one who asks gets the reply to what it asked. (A5)"""
    clerk = await spawn(group, Clerk)
    late: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(partial(collect, late, clerk.ask, "hold", str(mark), timeout=0.2))
        await appears(mark)
        with anyio.move_on_after(0.05):
            await clerk.ask("echo", "cancelled")
    release(mark)
    assert [await clerk.ask("note", word) for word in "ab"] == [1, 2]
    assert await clerk.ask("notes") == ["a", "b"]
    assert [str(outcome) for outcome in late] == ["whether clerk.hold was done is unknown: no answer within 0.2 s"]


async def test_a_cancelled_ask_ends_the_wait_and_not_the_work(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """What the actor is at goes on, and what is in the mailbox stays there and is handled."""
    clerk = await spawn(group, Clerk)
    async with anyio.create_task_group() as askers:
        askers.start_soon(clerk.ask, "hold", str(mark))
        await appears(mark)
        askers.start_soon(clerk.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        askers.cancel_scope.cancel()
    release(mark)
    assert await clerk.ask("notes") == ["behind"]


async def test_an_error_that_a_cancelled_ask_no_longer_hears_is_told_by_stop(
    spawn_here: Spawn, group: TaskGroup, mark: Path
) -> None:
    """Whoever gave up waiting was not told, so the failure is kept as that of a tell."""
    clerk = await spawn_here(group, Clerk)
    async with anyio.create_task_group() as askers:
        await clerk.tell("hold", str(mark))
        await appears(mark)
        askers.start_soon(clerk.ask, "fail")
        await anyio.wait_all_tasks_blocked()
        askers.cancel_scope.cancel()
    release(mark)
    await clerk.wait_ended()
    with pytest.raises(ActorError, match=r"^Mishap: by mishap"):
        await clerk.stop()


# -- The mailbox


async def test_a_full_mailbox_makes_the_teller_wait(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """Beyond its room a tell waits and a tell_nowait is refused; nothing is dropped."""
    clerk = await spawn(group, Clerk, messages_max=2)
    await clerk.tell("hold", str(mark))
    await appears(mark)
    await anyio.wait_all_tasks_blocked()  # a worker may be at a letter that is just being taken out of the mailbox here
    async with anyio.create_task_group() as tellers:
        for number in range(2):
            clerk.tell_nowait("note", str(number))
        tellers.start_soon(clerk.tell, "note", "2")
        while clerk.statistics().senders_waiting == 0:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        with pytest.raises(MailboxFull):
            clerk.tell_nowait("note", "3")
        release(mark)
    assert await clerk.ask("notes") == ["0", "1", "2"]


async def test_a_mailbox_counts_bytes_too(spawn_here: Spawn, group: TaskGroup, mark: Path) -> None:
    """Text and bytes in messages fill it, and what could never fit is refused at once."""
    clerk = await spawn_here(group, Clerk, bytes_max=1000)
    await clerk.tell("hold", str(mark))
    await appears(mark)
    await anyio.wait_all_tasks_blocked()  # a worker may be at a letter that is just being taken out of the mailbox here
    clerk.tell_nowait("echo", b"x" * 600)
    with pytest.raises(MailboxFull):
        clerk.tell_nowait("echo", {"deep": ["y" * 600]})
    with pytest.raises(MessageTooLarge, match="over its mailbox's limit of 1,000"):
        await clerk.ask("echo", "z" * 1000)
    statistics = clerk.statistics()
    assert statistics == MailboxStatistics(messages=1, bytes=statistics.bytes, senders_waiting=0)
    assert 600 <= statistics.bytes <= 800


# -- Ending


async def test_stopping_handles_what_is_there_and_takes_no_more(spawn: Spawn, group: TaskGroup, tmp_path: Path) -> None:
    """Messages sent before the stop are handled, later ones are refused, and the actor leaves in order."""
    keeper = await spawn(group, Doorkeeper, str(tmp_path / "marks"))
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, keeper.ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        askers.start_soon(collect, results, keeper.ask, "note", "before")
        await anyio.wait_all_tasks_blocked()
        askers.start_soon(keeper.stop)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(ActorNotStarted, match=r"^doorkeeper.note was not started: it is ending"):
            await keeper.tell("note", "after")
        release(tmp_path / "mark")
    assert results == ["released", 1]
    assert keeper.end == ActorEnd("it was stopped", normal=True)
    assert lines(tmp_path / "marks") == ["entered", "left with nothing"]
    assert await keeper.stop() == ActorEnd("it was stopped", normal=True)
    with pytest.raises(ActorNotStarted, match="it was stopped"):
        await keeper.ask("notes")


async def test_a_stop_that_takes_too_long_cancels_the_work(spawn: Spawn, group: TaskGroup, tmp_path: Path) -> None:
    """After its time the handler is cancelled: that message may have been done, those behind it were not started."""
    keeper = await spawn(group, Doorkeeper, str(tmp_path / "marks"))
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, keeper.ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        askers.start_soon(collect, results, keeper.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        end = await keeper.stop(shutdown_seconds=0.05)
    assert end.reason.startswith("it was stopped")
    assert sorted(type(result).__name__ for result in results) == ["ActorNotStarted", "ActorUnknown"]
    assert lines(tmp_path / "marks")[0] == "entered"


async def test_stopping_goes_on_when_cancelled(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """A cancelled stop is still over only when the actor has left."""
    keeper = await spawn(group, Doorkeeper, str(mark))
    with anyio.CancelScope() as scope:
        scope.cancel()
        await keeper.stop()
    assert keeper.end == ActorEnd("it was stopped", normal=True)
    assert lines(mark) == ["entered", "left with nothing"]


async def test_cancelling_the_task_group_ends_the_actor_and_answers_everybody(spawn: Spawn, tmp_path: Path) -> None:
    """The handler is cancelled now and not when its time is over, the actor leaves, and nobody waits for ever."""
    results: list[Any] = []
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as askers, anyio.create_task_group() as group:
            keeper = await spawn(group, Doorkeeper, str(tmp_path / "marks"), shutdown_seconds=2 * DEADLINE_SECONDS)
            askers.start_soon(collect, results, keeper.ask, "hold", str(tmp_path / "mark"))
            await appears(tmp_path / "mark")
            askers.start_soon(collect, results, keeper.ask, "note", "behind")
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
    assert {str(result) for result in results} == {
        "whether doorkeeper.hold was done is unknown: it was cancelled",
        "doorkeeper.note was not started: it was cancelled",
    }
    assert keeper.end == ActorEnd("it was cancelled")
    assert len(lines(tmp_path / "marks")) == 2


async def test_killing_ends_it_at_once(spawn: Spawn, group: TaskGroup, tmp_path: Path) -> None:
    """What it was at may have been done, what was behind that was not started, and nothing is waited for."""
    keeper = await spawn(group, Doorkeeper, str(tmp_path / "marks"))
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, keeper.ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        askers.start_soon(collect, results, keeper.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        end = await keeper.kill()
    assert end.normal
    assert sorted(type(result).__name__ for result in results) == ["ActorNotStarted", "ActorUnknown"]
    assert not keeper.takes_messages


async def test_killing_does_not_wait_for_a_stop_that_takes_its_time(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """Whoever stops it gets to know the same end, long before the time that he gave it."""
    clerk = await spawn(group, Clerk)
    await clerk.tell("hold", str(mark))
    await appears(mark)
    ends: list[Any] = []
    async with anyio.create_task_group() as stoppers:
        stoppers.start_soon(collect, ends, clerk.stop, 600)
        await anyio.wait_all_tasks_blocked()
        ends.append(await clerk.kill())
    assert ends[0] == ends[1]
    assert ends[0].normal


async def test_a_monitor_tells_the_end_once(spawn: Spawn, group: TaskGroup) -> None:
    """Each gets exactly one Down, those who come when the actor is gone, too. (A5)"""
    clerk = await spawn(group, Clerk)
    downs: list[Any] = []
    async with anyio.create_task_group() as monitors:
        for _ in range(2):
            monitors.start_soon(collect, downs, clerk.monitor)
        await anyio.wait_all_tasks_blocked()
        await clerk.tell("fail")
    downs.append(await clerk.monitor())
    assert [(down.name, down.reason, str(down.error)) for down in downs] == [
        ("clerk", "it failed: Mishap: by mishap", "Mishap: by mishap")
    ] * 3


@pytest.mark.parametrize(
    ("how", "value", "normal"), [("exit", 0, True), ("exit", 3, False), ("signal", signal.SIGTERM, False)]
)
async def test_only_exit_code_0_is_a_normal_end_of_a_process(
    group: TaskGroup, how: str, value: int, normal: bool
) -> None:
    """Any other code, and a signal that we didn't send, is not. (A1)"""
    clerk = await spawn_in_process(group, Clerk)
    await clerk.tell("end_process", how, value)
    assert (await clerk.wait_ended()).normal is normal


# -- The bracket of its life


async def test_an_actor_is_ready_when_it_has_entered_and_leaves_with_its_failure(
    spawn: Spawn, group: TaskGroup, mark: Path
) -> None:
    """Started means ready; __aexit__ sees the very exception that ended the actor."""
    keeper = await spawn(group, Doorkeeper, str(mark))
    assert lines(mark) == ["entered"]
    with pytest.raises(ActorError):
        await keeper.ask("fail")
    await keeper.wait_ended()
    assert lines(mark) == ["entered", "left with Mishap"]


@pytest.mark.parametrize(("trouble", "known"), [("fails to enter", False), ("refuses to enter", True)])
async def test_an_actor_that_cannot_enter_is_not_started(
    spawn: Spawn, group: TaskGroup, mark: Path, trouble: str, known: bool
) -> None:
    """The error of its entering is raised where it was to be made, and cancels nothing."""
    with pytest.raises(Refusal if known else (Mishap, ActorError), match="no seat, 0 left" if known else "at the door"):
        await spawn(group, Doorkeeper, str(mark), trouble)
    assert not is_there(mark)


@pytest.mark.parametrize("maker", [Clerk(), Clerk().pid, 5], ids=["an actor itself", "an async function", "a number"])
@pytest.mark.parametrize("way", [spawn_in_loop, spawn_in_process], ids=["in the loop", "in a process"])
async def test_what_makes_no_actor_is_refused(way: Any, maker: Any, group: TaskGroup) -> None:
    """With what it is, before anything is called or started."""
    with pytest.raises(TypeError, match=r"an actor (in a process )?is made by a class.* and not by .+"):
        await way(group, maker)


async def test_an_error_on_the_way_out_is_told_by_stop(spawn: Spawn, group: TaskGroup, mark: Path) -> None:
    """Stopping raises what the actor's leaving raised, and the actor has ended all the same."""
    keeper = await spawn(group, Doorkeeper, str(mark), "fails to leave")
    with pytest.raises(ActorError, match=r"^Mishap: on the way out"):
        await keeper.stop()
    assert keeper.end is not None
    assert keeper.end.reason == "it failed: Mishap: on the way out"


async def test_an_error_on_the_way_out_of_a_cancelled_group_leaves_through_it(spawn: Spawn, mark: Path) -> None:
    """Nobody stops the actor, so the task group is the only one who can tell."""

    async def cancel_around_an_actor() -> None:
        async with anyio.create_task_group() as group:
            await spawn(group, Doorkeeper, str(mark), "fails to leave")
            group.cancel_scope.cancel()

    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ExceptionGroup) as caught:
        await cancel_around_an_actor()
    assert [type(error) for error in caught.value.exceptions] in ([Mishap], [ActorError])


# -- Interrupts


class Watcher:
    """Tells whether trio would raise KeyboardInterrupt right here."""

    async def interruptible(self) -> bool:
        """Ask trio."""
        return not trio.lowlevel.currently_ki_protected()


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_no_interrupt_is_raised_inside_an_actor(group: TaskGroup) -> None:
    """Under trio Ctrl-C is raised in the main task, where the program's own blocks end its actors in order."""
    watcher = await spawn_in_loop(group, Watcher)
    assert await watcher.ask("interruptible") is False
