"""End to end: children that a runtime supervises, on trio, on asyncio and in plain programs."""

from __future__ import annotations

import inspect
import os
import signal
import time
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.blocking import BlockingRef, BlockingSupervisor, connect
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.actor_ref import ActorEnd, ActorRef, Down
from turnkeeper.runtime.errors import ActorError, ChildStartError, TooManyRestarts
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Tree
from turnkeeper.runtime.supervision.supervisor import Supervisor

from ..actors_at_work import Clerk, Doorkeeper

pytestmark = pytest.mark.usefixtures("import_path")

LEAVING_SECONDS_MAX = 8
AT_ONCE = RestartPolicy(backoff_first=0, backoff_max=0)


def lives(pid: int) -> bool:
    """Whether there is such a process, if only to be reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.anyio
async def test_a_killed_worker_is_started_again_and_ends_with_the_runtime(store: Path) -> None:
    """Its reference reaches the next process; leaving the runtime ends and reaps that, in order. (A8)"""
    with anyio.fail_after(30):
        async with open_runtime(store) as runtime:
            tree = Tree((ChildSpec("clerk", Clerk, ("born",), process=True),), policy=AT_ONCE)
            supervisor = await runtime.supervise(ChildSpec("pool", tree), name="agents")
            clerk = supervisor.ref("pool", "clerk")
            first = await clerk.ask("pid")
            os.kill(first, signal.SIGKILL)
            assert (await supervisor.monitor("pool", "clerk")).reason.endswith("was killed by SIGKILL")
            second = await clerk.ask("pid")
            assert second != first
            assert await clerk.ask("notes") == ["born"]
    assert (lives(first), lives(second)) == (False, False)
    assert supervisor.end == ActorEnd("it was stopped", normal=True)


@pytest.mark.anyio
async def test_leaving_is_bounded_and_reaps_children_that_do_not_heed_it(store: Path, tmp_path: Path) -> None:
    """Several that block their loops take no longer than one: after some seconds they are killed. (A8)"""
    names = ["a", "b", "c"]
    async with open_runtime(store) as runtime:
        supervisor = await runtime.supervise(*(ChildSpec(name, Clerk, process=True) for name in names))
        pids = [await supervisor.ref(name).ask("pid") for name in names]
        for name in names:
            await supervisor.ref(name).tell("block", str(tmp_path / name))
            while not os.path.exists(tmp_path / name):  # noqa: ASYNC110, ASYNC240
                await anyio.sleep(0.005)
        began = time.monotonic()
    assert time.monotonic() - began < LEAVING_SECONDS_MAX
    assert [lives(pid) for pid in pids] == [False] * 3


@pytest.mark.anyio
@pytest.mark.parametrize("own", [None, RuntimeError("the body's own")], ids=["", "with an error of the body's"])
async def test_a_supervisor_that_gave_up_unheard_is_told_on_leaving(store: Path, own: Exception | None) -> None:
    """By itself, or as a note of the body's exception, which wins. (A8)"""

    async def leave_after_giving_up() -> None:
        async with open_runtime(store) as runtime:
            supervisor = await runtime.supervise(ChildSpec("clerk", Clerk), policy=RestartPolicy(intensity=0))
            await supervisor.ref("clerk").tell("fail")
            while supervisor.end is None:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            if own is not None:
                raise own

    with pytest.raises(TooManyRestarts if own is None else RuntimeError) as caught:
        await leave_after_giving_up()
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "supervisor gave up child 'clerk': it failed: Mishap: by mishap" in told


def test_a_plain_program_supervises_with_the_same_names(store: Path, tmp_path: Path) -> None:
    """Restarts, requests by name, monitors, and the errors are the same."""
    with connect(store) as runtime:
        supervisor = runtime.supervise(
            ChildSpec("here", Clerk), ChildSpec("there", Clerk, process=True), policy=AT_ONCE, name="agents"
        )
        here, there = supervisor.ref("here"), supervisor.ref("there")
        assert there.ask("pid") != here.ask("pid") == os.getpid()
        with pytest.raises(ActorError, match=r"^Mishap: tripped"):
            there.ask("fail", "tripped")
        there.tell("note", "one")
        assert there.ask("notes") == ["one"]
        assert [(child.name, child.phase, child.restarts) for child in supervisor.children()] == [
            ("here", "up", 0),
            ("there", "up", 1),
        ]
        supervisor.restart_child("here")
        assert supervisor.stop_child("here") == ActorEnd("it was stopped", normal=True)
        assert supervisor.monitor("here") == here.monitor() == Down("here", "it was stopped")
        supervisor.start_child(ChildSpec("late", Doorkeeper, (str(tmp_path / "marks"),)))
        with pytest.raises(ChildStartError, match="'never' can't be started: Mishap: at the door"):
            supervisor.start_child(ChildSpec("never", Doorkeeper, (str(tmp_path / "marks"), "fails to enter")))
        with pytest.raises(LookupError, match="agents has no child 'never'"):
            supervisor.ref("never")
        assert supervisor.ref("late").kill().normal
        assert (supervisor.name, supervisor.end, repr(supervisor)) == (
            "agents",
            None,
            "<Supervisor agents: here, there, late>",
        )
        assert supervisor.stop() == supervisor.kill() == supervisor.wait_ended() == supervisor.end


@pytest.mark.parametrize(("face", "blocking"), [(ActorRef, BlockingRef), (Supervisor, BlockingSupervisor)])
def test_the_blocking_face_has_every_public_name(face: type, blocking: type) -> None:
    """With the same parameters; what only the loop uses of a supervisor is not for others."""
    not_for_others = {"start", "present", "wait_present", "gone", "stop_below"}
    names = {name for name in dir(face) if not name.startswith("_")} - not_for_others
    assert names <= set(dir(blocking))
    for name in names:
        if inspect.isfunction(getattr(face, name)):
            parameters = [list(inspect.signature(getattr(each, name)).parameters) for each in (face, blocking)]
            assert parameters[0] == parameters[1], name
