"""Contract of references to supervised children, and of monitors, on trio and on asyncio."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper.runtime.actor_ref import ActorEnd, Down
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown
from turnkeeper.runtime.mailbox import MailboxFull, MailboxStatistics
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Tree
from turnkeeper.runtime.supervision.supervisor import Supervisor

from ..actors_at_work import Clerk
from ..marks import appears
from ..outcomes import collect
from ..supervised_children import AT_ONCE, NEVER_SOON, Recorder, phase_comes

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]


# -- References


async def test_a_reference_goes_to_the_present_incarnation(group: TaskGroup, process: bool) -> None:
    """After a crash the same reference reaches the next one, which begins anew; the crash's message is not repeated."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, ("born",), process=process), policy=AT_ONCE)
    clerk = supervisor.ref("clerk")
    await clerk.tell("note", "one")
    assert await clerk.ask("notes") == ["born", "one"]
    with pytest.raises(ActorError, match=r"^Mishap: tripped"):
        await clerk.ask("fail", "tripped")
    assert await clerk.ask("notes") == ["born"]
    assert supervisor.children()[0].restarts == 1


async def test_what_was_not_begun_is_asked_of_the_next_incarnation(
    group: TaskGroup, process: bool, tmp_path: Path
) -> None:
    """The message that crashed the actor is its asker's; those behind it are handled once, by the next one. (A6)"""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=process), policy=AT_ONCE)
    clerk = supervisor.ref("clerk")
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        await clerk.tell("hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        for call in (("fail", "tripped"), ("note", "behind")):
            askers.start_soon(collect, results, clerk.ask, *call)
            await anyio.wait_all_tasks_blocked()
        (tmp_path / "mark").unlink()
    assert {type(result): str(result) for result in results} == {ActorError: "Mishap: tripped", int: "1"}
    assert await clerk.ask("notes") == ["behind"]


async def test_what_was_begun_is_never_delivered_again(group: TaskGroup, tmp_path: Path) -> None:
    """An ask that the process died in ends as unknown, and the next incarnation knows nothing of it. (A6)"""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=True), policy=AT_ONCE)
    clerk = supervisor.ref("clerk")
    pid = await clerk.ask("pid")
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, clerk.ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        os.kill(pid, signal.SIGKILL)
    assert [type(result) for result in results] == [ActorUnknown]
    (tmp_path / "mark").unlink()
    assert await clerk.ask("pid") != pid
    assert not (tmp_path / "mark").exists()


async def test_an_ask_during_a_restart_by_name_goes_to_the_next_incarnation(group: TaskGroup, tmp_path: Path) -> None:
    """The one that is being stopped takes no more, and the loop isn't kept busy until it is gone."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, shutdown_seconds=600))
    clerk = supervisor.ref("clerk")
    await clerk.tell("note", "the first one's")
    await clerk.tell("hold", str(tmp_path / "mark"))
    await appears(tmp_path / "mark")
    results: list[Any] = []
    async with anyio.create_task_group() as others:
        others.start_soon(supervisor.restart_child, "clerk")
        await phase_comes(supervisor, "clerk", "stopping")
        await anyio.wait_all_tasks_blocked()
        others.start_soon(collect, results, clerk.ask, "notes")
        await anyio.wait_all_tasks_blocked()
        (tmp_path / "mark").unlink()
    assert results == [[]]


async def test_between_two_incarnations_an_ask_waits_within_its_time(group: TaskGroup) -> None:
    """Then it certainly was not started; what doesn't wait says so at once; stopping the child ends the waits."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk), policy=NEVER_SOON)
    clerk = supervisor.ref("clerk")
    await clerk.tell("fail")
    await phase_comes(supervisor, "clerk", "waiting")
    assert clerk.end is None
    assert not clerk.takes_messages
    assert clerk.statistics() == MailboxStatistics(0, 0, 0)
    with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: no incarnation of it was up within"):
        await clerk.ask("note", "one", timeout=0.01)
    with pytest.raises(ActorNotStarted, match="it is not up now"):
        clerk.tell_nowait("note", "two")
    results: list[Any] = []
    async with anyio.create_task_group() as waiters:
        for call in (clerk.ask, clerk.tell):
            waiters.start_soon(collect, results, call, "note", "three")
        await anyio.wait_all_tasks_blocked()
        await supervisor.stop_child("clerk")
    assert [str(result) for result in results] == ["clerk.note was not started: it failed: Mishap: by mishap"] * 2


async def test_a_reference_tells_a_full_mailbox(group: TaskGroup, tmp_path: Path) -> None:
    """As any reference: one waits, or is refused, and an ask that is out of time there was not started. (A7)"""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, messages_max=1))
    clerk = supervisor.ref("clerk")
    await clerk.tell("hold", str(tmp_path / "mark"))
    await appears(tmp_path / "mark")
    clerk.tell_nowait("note", "one")
    with pytest.raises(MailboxFull):
        clerk.tell_nowait("note", "two")
    with pytest.raises(ActorNotStarted, match=r"no answer within 0.01 s, mailbox full"):
        await clerk.ask("note", "three", timeout=0.01)
    assert clerk.statistics().messages == 1
    (tmp_path / "mark").unlink()
    assert await clerk.ask("notes") == ["one"]


async def test_stopping_a_reference_stops_the_child_for_good(group: TaskGroup, process: bool) -> None:
    """It is not started again, and whoever waits for its end is told."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=process), policy=AT_ONCE)
    clerk = supervisor.ref("clerk")
    await clerk.tell("fail")
    ends: list[Any] = []
    async with anyio.create_task_group() as waiters:
        waiters.start_soon(collect, ends, clerk.wait_ended)
        await phase_comes(supervisor, "clerk", "up")
        assert await clerk.ask("notes") == []
        ends.append(await clerk.stop())
    assert ends == [ActorEnd("it was stopped", normal=True)] * 2
    assert clerk.end == ends[0]
    assert await clerk.kill() == ends[0]


async def test_only_actors_can_be_referred_to(group: TaskGroup) -> None:
    """A mistake shows where the reference is made."""
    recorder = Recorder()
    tree = ChildSpec("tree", Tree((ChildSpec("leaf", Clerk), recorder.spec("function"))))
    supervisor = await Supervisor.start(group, recorder.spec("function"), tree)
    for path, error, said in [
        (("function",), TypeError, "child 'function' of supervisor is no actor"),
        (("tree",), TypeError, "child 'tree' of supervisor is no actor"),
        (("function", "below"), TypeError, "child 'function' of supervisor is no tree"),
        (("none",), LookupError, "supervisor has no child 'none'; its children: function, tree"),
    ]:
        with pytest.raises(error, match=said):
            supervisor.ref(*path)
    for name, said in [("none", "supervisor/tree has no child 'none'"), ("function", "is no actor")]:
        with pytest.raises(ActorNotStarted, match=said):
            await supervisor.ref("tree", name).ask("notes")


# -- Monitors


async def test_a_monitor_tells_each_end_once(group: TaskGroup, process: bool) -> None:
    """Of the incarnation that is up, also of one that is gone, and of a child that never was. (A5)"""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=process), policy=NEVER_SOON)
    clerk = supervisor.ref("clerk")
    downs: list[Any] = []
    async with anyio.create_task_group() as monitors:
        monitors.start_soon(collect, downs, clerk.monitor)
        monitors.start_soon(collect, downs, supervisor.monitor, "clerk")
        await anyio.wait_all_tasks_blocked()
        assert downs == []
        await clerk.tell("fail")
    await phase_comes(supervisor, "clerk", "waiting")
    downs.append(await clerk.monitor())
    assert [(down.name, down.reason, str(down.error)) for down in downs] == [
        ("clerk", "it failed: Mishap: by mishap", "Mishap: by mishap")
    ] * 3
    assert await supervisor.monitor("nobody") == Down("nobody", "supervisor has no child 'nobody'")


async def test_a_monitor_goes_down_the_tree(group: TaskGroup) -> None:
    """It tells the end of a child of a lower supervisor, whose end is one, too."""
    supervisor = await Supervisor.start(group, ChildSpec("tree", Tree((ChildSpec("leaf", Clerk),))))
    downs: list[Any] = []
    async with anyio.create_task_group() as monitors:
        monitors.start_soon(collect, downs, supervisor.monitor, "tree", "leaf")
        await anyio.wait_all_tasks_blocked()
        await supervisor.stop()
    assert downs == [Down("leaf", "it was stopped")]
