"""End to end: supervised actors that other processes ask by name, over their restarts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import NameTaken
from turnkeeper.actors.runtime import Runtime
from turnkeeper.runtime.actor_ref import ActorEnd
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown, ChildStartError, TooManyRestarts
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Tree
from turnkeeper.runtime.supervision.supervisor import Supervisor

from ..actors_at_work import Clerk, Doorkeeper
from ..marks import appears, is_there
from ..outcomes import collect
from ..served import kill

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path", "deadline")]

AT_ONCE = RestartPolicy(backoff_first=0, backoff_max=0)
ONE_IS_TOO_MANY = RestartPolicy(intensity=0)
NEVER_SOON = RestartPolicy(backoff_first=300, backoff_max=300, jitter=0)
CLERK = ChildSpec("clerk", Clerk, registered=True)


def names_taken(store: Path) -> list[str]:
    """List what lies in the store for named actors."""
    return sorted(os.listdir(store / "actors"))


async def is_waiting(supervisor: Supervisor, name: str) -> None:
    """Wait until a child is between two incarnations."""
    while next(child.phase for child in supervisor.children() if child.name == name) != "waiting":  # noqa: ASYNC110
        await anyio.sleep(0.005)


async def test_a_name_outlives_the_incarnations_of_its_child(runtime: Runtime, other: Runtime) -> None:
    """Over one connection: a crash is told to its asker, and the next call is the next incarnation's."""
    await runtime.supervise(CLERK, policy=AT_ONCE)
    clerk = other.actor("clerk")
    assert await clerk.ask("note", "one") == 1
    connected = other.actor("clerk")._conversation  # type: ignore[attr-defined]
    with pytest.raises(ActorError, match="Mishap: tripped"):
        await clerk.ask("fail", "tripped")
    assert await clerk.ask("notes") == []
    await clerk.tell("note", "two")
    assert await clerk.ask("notes") == ["two"]
    assert other.actor("clerk")._conversation is connected  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="clerk has no handler 'missing'; its handlers: block, "):
        await clerk.ask("missing")


async def test_a_killed_process_of_a_registered_child_is_asked_again(runtime: Runtime, other: Runtime) -> None:
    """What it died over is unknown; the name goes to its next process, which may be in a tree."""
    tree = Tree((ChildSpec("clerk", Clerk, process=True, registered=True),), policy=AT_ONCE)
    await runtime.supervise(ChildSpec("pool", tree))
    clerk = other.actor("clerk")
    pid = await clerk.ask("pid")
    mark = Path(runtime._client.path).parent / "mark"
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, clerk.ask, "hold", str(mark))
        await appears(mark)
        askers.start_soon(collect, outcomes, clerk.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        kill(pid)
    assert {type(each) for each in outcomes} == {ActorUnknown, int}, "what waited went to the next one"
    assert await clerk.ask("pid") != pid
    assert await clerk.ask("notes") == ["behind"]


async def test_between_two_incarnations_others_wait_and_are_told_the_end(
    runtime: Runtime, other: Runtime, store: Path
) -> None:
    """An ask has its time, a tell waits; when the child is stopped all learn how it ended, and the name is free."""
    supervisor = await runtime.supervise(CLERK, policy=NEVER_SOON)
    clerk = other.actor("clerk")
    await clerk.tell("fail")
    await is_waiting(supervisor, "clerk")
    with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: no answer within 0.05 s"):
        await clerk.ask("note", "in time", timeout=0.05)
    outcomes: list[Any] = []
    async with anyio.create_task_group() as waiting:
        for call in (clerk.ask, clerk.tell):
            waiting.start_soon(collect, outcomes, call, "note", "later")
        waiting.start_soon(collect, outcomes, clerk.monitor)
        while clerk.statistics().messages < 2:  # noqa: ASYNC110
            await anyio.sleep(0.005)
        await supervisor.stop_child("clerk")
        assert names_taken(store) == []
    assert [str(each) for each in outcomes if isinstance(each, ActorNotStarted)] == [
        "clerk.note was not started: it failed: Mishap: by mishap"
    ] * 2
    assert [each.reason for each in outcomes if not isinstance(each, Exception)] == ["it failed: Mishap: by mishap"]


async def test_a_child_that_is_started_again_by_name_has_its_name_again(
    runtime: Runtime, other: Runtime, store: Path
) -> None:
    """Stopped, it was free for anybody; taken meanwhile, the child can't be started, and stays down."""
    supervisor = await runtime.supervise(CLERK)
    clerk = other.actor("clerk")
    assert await clerk.ask("note", "one") == 1
    assert await clerk.stop() == ActorEnd("it was stopped", normal=True)
    guest = await other.spawn(Clerk, "guest", name="clerk")
    with pytest.raises(ChildStartError, match=r"^child 'clerk' can't be started: .*an actor called clerk lives in"):
        await supervisor.restart_child("clerk")
    await guest.stop()
    await supervisor.restart_child("clerk")
    assert await clerk.ask("notes") == []
    assert runtime.actor("clerk") is not clerk
    assert await runtime.actor("clerk").ask("note", "at home") == 1
    assert await clerk.ask("notes") == ["at home"]


async def test_a_name_that_is_taken_stops_the_start(runtime: Runtime, other: Runtime, store: Path) -> None:
    """Before the actor is made; those before it are stopped, and their names are free."""
    await runtime.spawn(Clerk, "first", name="clerk")
    marks = store.parent / "marks"
    keeper = ChildSpec("keeper", Doorkeeper, (str(marks),), registered=True)
    with pytest.raises(ChildStartError, match=r"can't be started: .*an actor called clerk lives in process") as caught:
        await other.supervise(keeper, CLERK)
    assert isinstance(caught.value.__cause__, NameTaken)
    assert marks.read_text().splitlines() == ["entered", "left with nothing"]
    assert names_taken(store) == ["clerk.lock", "clerk.sock"]
    assert await other.actor("clerk").ask("notes") == ["first"]


async def test_a_name_goes_with_a_supervisor_that_gives_up(runtime: Runtime, other: Runtime, store: Path) -> None:
    """And with one that is stopped: whoever asks next is told, and nothing lies in the store."""
    supervisor = await runtime.supervise(CLERK, policy=ONE_IS_TOO_MANY)
    clerk = other.actor("clerk")
    with pytest.raises(ActorError):
        await clerk.ask("fail")
    assert (await clerk.monitor()).reason == "it failed: Mishap: by mishap"
    with pytest.raises(ActorNotStarted):
        await clerk.ask("note", "late")
    with pytest.raises(TooManyRestarts):
        await supervisor.stop()
    assert names_taken(store) == []
    second = await runtime.supervise(CLERK)
    assert await clerk.ask("note", "again") == 1
    await second.stop()
    assert names_taken(store) == []


async def test_a_child_that_is_added_and_forgotten_has_a_name_as_long(
    runtime: Runtime, other: Runtime, store: Path
) -> None:
    """It is free when `stop_child` returns."""
    supervisor = await runtime.supervise()
    await supervisor.start_child(CLERK)
    assert await other.actor("clerk").ask("note", "one") == 1
    await supervisor.stop_child("clerk", forget=True)
    assert names_taken(store) == []
    assert (await other.actor("clerk").monitor()).reason in ("it was stopped", "no actor of this name is there")


async def test_a_start_that_fails_or_is_cancelled_leaves_no_name(runtime: Runtime, store: Path) -> None:
    """Whenever that is."""
    for trouble, ready_seconds in [("fails to enter", 10.0), ("never enters", 0.05)]:
        spec = ChildSpec("keeper", Doorkeeper, (str(store.parent / "marks"), trouble), ready_seconds=ready_seconds)
        with pytest.raises(ChildStartError):
            await runtime.supervise(_registered(spec))
        assert names_taken(store) == []
    (store.parent / "marks").unlink()
    async with anyio.create_task_group() as tasks:
        late = ChildSpec("keeper", Doorkeeper, (str(store.parent / "marks"), "never enters"), registered=True)
        tasks.start_soon(runtime.supervise, late)
        await appears(store.parent / "marks")
        tasks.cancel_scope.cancel()
    assert names_taken(store) == []


async def test_a_child_that_cannot_have_a_name_is_refused_before_anything_starts(runtime: Runtime, store: Path) -> None:
    """What is no name, what can't be asked, and a supervisor that belongs to no store."""
    marks = store.parent / "marks"
    first = ChildSpec("first", Doorkeeper, (str(marks),))
    wrong = ChildSpec("No Name", Clerk, registered=True)
    for children in [(first, wrong), (first, ChildSpec("tree", Tree((wrong,))))]:
        with pytest.raises(ValueError, match=r"^an actor's name has 1 to 64 characters of a-z, 0-9 and -, unlike 'No"):
            await runtime.supervise(*children)
    assert not is_there(marks)
    supervisor = await runtime.supervise(first)
    with pytest.raises(ValueError, match="unlike 'No Name'"):
        await supervisor.start_child(wrong)
    assert [child.name for child in supervisor.children()] == ["first"]
    with pytest.raises(TypeError, match="child 'tree' can't be registered: only actors can be asked"):
        ChildSpec("tree", Tree(()), registered=True)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(TypeError, match="child 'clerk' can't be registered: only a runtime's supervisors"):
            await Supervisor.start(tasks, CLERK)


def _registered(spec: ChildSpec) -> ChildSpec:
    return ChildSpec(spec.name, spec.start, spec.arguments, ready_seconds=spec.ready_seconds, registered=True)
