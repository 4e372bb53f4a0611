"""End to end: actors that a runtime spawns, their bounds, and what can't be one."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors import runtime_actors
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.errors import ActorError, MessageTooLarge, WorkerStartError
from turnkeeper.runtime.frames import FRAME_BYTES_MAX
from turnkeeper.runtime.mailbox import MailboxFull

from ..actors_at_work import Clerk, Doorkeeper
from ..marks import appears, lines

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path", "deadline"), pytest.mark.shared_store]


class Deaf:
    """Has no handler."""

    def hear(self) -> None:
        """Not async."""

    async def _listen(self) -> None:
        """Not public."""


@pytest.fixture(params=[False, True], ids=["in the loop", "in a process"])
def process(request: pytest.FixtureRequest) -> bool:
    """Where the actor lives."""
    is_process: bool = request.param
    return is_process


async def test_a_spawned_actors_mailbox_has_the_bounds_that_it_is_given(
    runtime: Runtime, process: bool, tmp_path: Path
) -> None:
    """In messages and in bytes; each of them, and no other."""
    mark = tmp_path / "mark"
    few = await runtime.spawn(Clerk, process=process, messages_max=1)
    small = await runtime.spawn(Clerk, process=process, bytes_max=1_000)
    for clerk in (few, small):
        await clerk.tell("hold", str(mark))
        await appears(mark)
        await anyio.wait_all_tasks_blocked()
        clerk.tell_nowait("note", "x" * 500)
        with pytest.raises(MailboxFull):
            clerk.tell_nowait("note", "x" * 500)
        mark.unlink()
        assert await clerk.ask("note", "after") == 2
    with pytest.raises(MessageTooLarge, match="is over its mailbox's limit of 1,000: see bytes_max"):
        await small.ask("note", "x" * 1_000)


async def test_a_spawned_actor_has_the_time_that_it_is_given_to_end(
    runtime: Runtime, process: bool, tmp_path: Path
) -> None:
    """Then it is cancelled and leaves; without any it is killed, and a process doesn't get to that."""
    for shutdown_seconds, marks in [(0.05, tmp_path / "soon"), (None, tmp_path / "now")]:
        keeper = await runtime.spawn(Doorkeeper, str(marks), process=process, shutdown_seconds=shutdown_seconds)
        await keeper.tell("hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        end = await keeper.stop()
        assert end.normal
        assert end.reason.startswith("it was stopped")
        (tmp_path / "mark").unlink()
        has_left = len(lines(marks)) > 1
        assert has_left == (shutdown_seconds is not None or not process)


async def test_leaving_waits_for_no_actor_longer_than_for_another(
    store: Path, tmp_path: Path, process: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its own time is."""
    monkeypatch.setattr(runtime_actors, "SHUTDOWN_SECONDS", 0.1)
    async with open_runtime(store) as runtime:
        clerk = await runtime.spawn(Clerk, process=process, shutdown_seconds=600)
        await clerk.tell("hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
    assert clerk.end is not None


async def test_a_spawned_actor_that_is_never_ready_is_given_up(runtime: Runtime, process: bool, tmp_path: Path) -> None:
    """With an error that says who and how long; nothing of it is left, and its name is free."""
    marks = tmp_path / "marks"
    # On a busy machine a process may not even get that far.
    errors = (TimeoutError, WorkerStartError) if process else TimeoutError
    with pytest.raises(errors, match=r"(keeper|Doorkeeper) was not ready within 1 s$"):
        await runtime.spawn(Doorkeeper, str(marks), "never enters", process=process, name="keeper", ready_seconds=1)
    keeper = await runtime.spawn(Doorkeeper, str(marks), process=process, name="keeper")
    assert await keeper.ask("notes") == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"messages_max": 0}, "a mailbox needs room for one message"),
        ({"bytes_max": -1}, "a mailbox needs room for one message"),
        ({"shutdown_seconds": -1}, "Clerk needs shutdown_seconds from 0 on, or None, and ready_seconds"),
        ({"shutdown_seconds": float("nan")}, "Clerk needs shutdown_seconds from 0 on"),
        ({"ready_seconds": 0}, "Clerk needs shutdown_seconds from 0 on, or None, and ready_seconds"),
        ({"blocked_seconds": 0, "process": True}, "a loop is blocked after some seconds, not 0"),
        ({"name": "No Name"}, "an actor's name has 1 to 64 characters of a-z, 0-9 and -, unlike 'No Name'"),
    ],
)
async def test_bounds_that_make_no_sense_are_refused(runtime: Runtime, options: dict[str, Any], said: str) -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match=said):
        await runtime.spawn(Clerk, **options)


async def test_a_class_that_nobody_could_ask_is_refused(runtime: Runtime) -> None:
    """By its name, wherever it was to live; one that a process finds by name is its error."""
    for process in (False, True):
        with pytest.raises(TypeError, match=r"^Deaf is no actor's class: it has no handler, a public async method$"):
            await runtime.spawn(Deaf, process=process)
    makes_one: Any = lambda: Deaf()  # noqa: E731
    with pytest.raises(TypeError, match=r"^Deaf is no actor's class"):
        await runtime.spawn(makes_one)
    by_name: Any = f"{__name__}:Deaf"
    with pytest.raises((ActorError, WorkerStartError), match="Deaf is no actor's class"):
        await runtime.spawn(by_name, process=True)


async def test_what_makes_no_actor_is_refused(runtime: Runtime) -> None:
    """A lambda for a process, a class that no process can find, and what can't be called."""

    class Local:
        """A class that only this function knows."""

        async def idle(self) -> None:
            """Do nothing."""

    wrong: list[tuple[Any, bool, type[Exception], str]] = [
        (lambda: Clerk(), True, TypeError, r"an actor in a process is made by a class or its .*, and not by"),
        (Local, True, WorkerStartError, r"Local can't be started: it can't be imported by module and name"),
        (5, False, TypeError, "an actor is made by a class, or by a function that returns one, and not by 5"),
        (Clerk().pid, False, TypeError, "an actor is made by a class, or by a function that returns one, and not by"),
    ]
    for actor, process, error, said in wrong:
        with pytest.raises(error, match=said):
            await runtime.spawn(actor, process=process)
    local = await runtime.spawn(Local)
    assert await local.ask("idle") is None


async def test_a_message_that_is_too_large_is_refused_where_it_is_sent(runtime: Runtime, store: Path) -> None:
    """To a worker process, to another process of the store, asked or told; nobody notices, and nothing is lost."""
    worker = await runtime.spawn(Clerk, process=True, bytes_max=10 * FRAME_BYTES_MAX)
    served = await runtime.spawn(Clerk, name="clerk", bytes_max=10 * FRAME_BYTES_MAX)
    text = "x" * FRAME_BYTES_MAX
    async with open_runtime(store) as other:
        for clerk in (worker, other.actor("clerk")):
            for call in (clerk.ask, clerk.tell):
                with pytest.raises(MessageTooLarge, match="is over the limit of 16,777,216 between processes: put its"):
                    await call("note", text)
            with pytest.raises(MessageTooLarge):
                clerk.tell_nowait("note", text)
            assert await clerk.ask("note", "small") == 1
    assert await served.ask("note", text) == 2, "in the loop the mailbox alone is the limit"


async def test_a_mailbox_elsewhere_says_its_limit_too(runtime: Runtime, store: Path) -> None:
    """The sender in another process is told as one at home; the actor didn't notice."""
    await runtime.spawn(Clerk, name="clerk", bytes_max=1_000)
    async with open_runtime(store) as other:
        for call in (other.actor("clerk").ask, other.actor("clerk").tell):
            with pytest.raises(MessageTooLarge, match="is over its mailbox's limit of 1,000: see bytes_max"):
                await call("note", "x" * 1_000)
        assert await other.actor("clerk").ask("notes") == []


async def test_a_reply_that_is_too_large_is_told_as_such(runtime: Runtime, store: Path) -> None:
    """A worker's actor has failed by it; one in a loop, to which it is no mistake, lives on."""
    text = "x" * (FRAME_BYTES_MAX // 2)
    worker = await runtime.spawn(Clerk, process=True)
    with pytest.raises(ActorError, match=r"^MessageTooLarge: a message of 16,777,\d{3} bytes is over the limit of"):
        await worker.ask("twice", text)
    served = await runtime.spawn(Clerk, name="clerk")
    async with open_runtime(store) as other:
        with pytest.raises(ActorError, match=r"^MessageTooLarge: a message of 16,777,\d{3} bytes is over the limit of"):
            await other.actor("clerk").ask("twice", text)
        assert await other.actor("clerk").ask("note", "small") == 1
    assert await served.ask("twice", text) == [text, text]


async def test_a_plain_program_spawns_with_the_same_bounds(store: Path) -> None:
    """Each option is there, and does what it does elsewhere."""

    def work() -> None:
        with connect(store) as runtime:
            options: Any = {"shutdown_seconds": None, "ready_seconds": 20, "blocked_seconds": None}
            clerk = runtime.spawn(Clerk, "born", messages_max=1, bytes_max=1_000, **options)
            with pytest.raises(MessageTooLarge):
                clerk.tell("note", "x" * 1_000)
            assert clerk.ask("pid") == os.getpid()
            assert clerk.stop().normal
        options = inspect.signature(Runtime.spawn).parameters
        assert inspect.signature(type(runtime).spawn).parameters == options

    await anyio.to_thread.run_sync(work)
