"""Contract of supervisors with real children, in the loop and in worker processes, on trio and on asyncio."""

from __future__ import annotations

import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper.runtime.actor_ref import ActorEnd
from turnkeeper.runtime.errors import (
    ActorError,
    ActorNotStarted,
    ActorUnknown,
    ChildNotReady,
    ChildStartError,
    TooManyRestarts,
)
from turnkeeper.runtime.processes import ProcessEnded
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child import Child
from turnkeeper.runtime.supervision.child_spec import ChildSpec, RestartKind, Strategy, Tree
from turnkeeper.runtime.supervision.supervisor import Supervisor

from ..actors_at_work import Clerk, Doorkeeper, Mishap
from ..marks import appears
from ..outcomes import collect
from ..supervised_children import AT_ONCE, NEVER_SOON, Recorder, phase_comes

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

DEADLINE_SECONDS = 30


# -- Starting and ending


async def test_children_start_in_order_and_end_in_reverse(group: TaskGroup) -> None:
    """Started means that all are ready; stopping ends one after another."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, *map(recorder.spec, "abc"))
    assert recorder.log == ["a begins", "b begins", "c begins"]
    assert [(child.name, child.phase, child.restarts) for child in supervisor.children()] == [
        (name, "up", 0) for name in "abc"
    ]
    assert await supervisor.stop() == ActorEnd("it was stopped", normal=True)
    assert recorder.log[3:] == ["c ends", "b ends", "a ends"]
    assert await supervisor.stop() == supervisor.end


async def test_a_failed_start_stops_what_had_started_in_reverse(group: TaskGroup) -> None:
    """The error says which child and why; its cause is the child's own. (A3)"""
    recorder = Recorder()
    with pytest.raises(ChildStartError, match=r"^child 'c' can't be started: Mishap: no luck$") as caught:
        await Supervisor.start(group, *map(recorder.spec, "ab"), recorder.spec("c", fails=Mishap("no luck")))
    assert isinstance(caught.value.__cause__, Mishap)
    assert recorder.log == ["a begins", "b begins", "b ends", "a ends"]


async def test_a_cancelled_start_leaves_nothing(group: TaskGroup) -> None:
    """What had started ends in reverse, whatever is not ready yet is given up."""
    recorder = Recorder()

    async def never_ready(*, started: Callable[[], None]) -> None:
        recorder.log.append("waits")
        await anyio.sleep_forever()

    async def start_and_cancel() -> None:
        async with anyio.create_task_group() as starters:
            specs = (*map(recorder.spec, "ab"), ChildSpec("c", never_ready))
            starters.start_soon(lambda: Supervisor.start(group, *specs))
            while "waits" not in recorder.log:  # noqa: ASYNC110
                await anyio.sleep(0.001)
            starters.cancel_scope.cancel()

    await start_and_cancel()
    assert recorder.log == ["a begins", "b begins", "waits", "b ends", "a ends"]


async def test_a_child_that_is_never_ready_is_given_up(group: TaskGroup, process: bool, tmp_path: Path) -> None:
    """After its time it is told as such, and nothing of it is left."""
    spec = ChildSpec("late", Doorkeeper, (str(tmp_path / "marks"), "never enters"), process=process, ready_seconds=1.0)
    with pytest.raises(ChildStartError, match=r"'late' can't be started: .*was not ready within 1 s"):
        await Supervisor.start(group, spec)


async def test_what_no_process_can_import_is_told_as_such(group: TaskGroup) -> None:
    """A local class, or a name of nothing, is an error of the start in one line, and is not tried again."""

    class Local:
        """A class that only this function knows."""

        async def idle(self) -> None:
            """Do nothing."""

    wrong: list[tuple[Any, str]] = [
        (Local, "can't be imported by module and name"),
        ("nowhere:Clerk", "No module named 'nowhere'"),
    ]
    for target, said in wrong:
        with pytest.raises(ChildStartError, match=rf"^child 'clerk' can't be started: .*{said}") as caught:
            await Supervisor.start(group, ChildSpec("clerk", target, process=True))
        assert "\n" not in str(caught.value)


async def test_a_function_that_returns_before_it_is_ready_did_not_start(group: TaskGroup) -> None:
    """Whoever forgets to call `started` is told so."""

    async def forgets(*, started: Callable[[], None]) -> None:
        del started

    with pytest.raises(ChildStartError, match=r"it returned before it called started\(\)"):
        await Supervisor.start(group, ChildSpec("forgets", forgets))


async def test_cancelling_the_task_group_ends_the_children_in_reverse() -> None:
    """One after another, although all are cancelled."""
    recorder = Recorder()
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            supervisor = await Supervisor.start(group, *map(recorder.spec, "abc"))
            group.cancel_scope.cancel()
    assert recorder.log[3:] == ["c ends", "b ends", "a ends"]
    assert supervisor.end == ActorEnd("it was cancelled")


async def test_an_error_of_a_cancelled_child_leaves_through_the_group(process: bool, tmp_path: Path) -> None:
    """A real error counts for more than the cancellation that it was raised in; all children are gone. (A8)"""
    marks = tmp_path / "marks"

    async def cancel_around_children() -> None:
        async with anyio.create_task_group() as group:
            arguments = (str(marks), "fails to leave")
            specs = [ChildSpec(name, Doorkeeper, arguments, process=process) for name in ("first", "second")]
            await Supervisor.start(group, *specs)
            group.cancel_scope.cancel()

    with anyio.fail_after(DEADLINE_SECONDS), pytest.raises(ExceptionGroup) as caught:
        await cancel_around_children()
    assert [type(error) for error in caught.value.exceptions] in ([Mishap], [ActorError])
    assert caught.value.exceptions[0].__notes__[-1] == "also: Mishap: on the way out" or not process
    assert len(marks.read_text().splitlines()) == 4


async def test_stopping_raises_what_children_raise_as_they_leave(group: TaskGroup, tmp_path: Path) -> None:
    """The first, with notes of the others; all have ended all the same."""
    arguments = (str(tmp_path / "marks"), "fails to leave")
    supervisor = await Supervisor.start(group, *(ChildSpec(name, Doorkeeper, arguments) for name in "ab"))
    with pytest.raises(ActorError, match=r"^Mishap: on the way out") as caught:
        await supervisor.stop()
    assert caught.value.__notes__[-1] == "also: Mishap: on the way out"
    assert await supervisor.stop() == ActorEnd("it was stopped", normal=True)


async def test_stopping_a_child_raises_what_it_raises_as_it_leaves(group: TaskGroup, tmp_path: Path) -> None:
    """Once: it has ended all the same."""
    spec = ChildSpec("keeper", Doorkeeper, (str(tmp_path / "marks"), "fails to leave"))
    supervisor = await Supervisor.start(group, spec)
    with pytest.raises(ActorError, match=r"^Mishap: on the way out"):
        await supervisor.stop_child("keeper")
    assert [child.phase for child in supervisor.children()] == ["stopped"]
    assert (await supervisor.stop()).normal


async def test_a_child_has_its_time_and_none_means_at_once(group: TaskGroup, process: bool, tmp_path: Path) -> None:
    """A child that takes longer is cancelled; one without a time is not even asked."""
    specs = [
        ChildSpec("slow", Clerk, process=process, shutdown_seconds=0.2),
        ChildSpec("killed", Clerk, process=process, shutdown_seconds=None),
    ]
    supervisor = await Supervisor.start(group, *specs)
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        for name in ("slow", "killed"):
            askers.start_soon(collect, results, supervisor.ref(name).ask, "hold", str(tmp_path / name))
            await appears(tmp_path / name)
        await supervisor.stop()
    assert [type(result) for result in results] == [ActorUnknown, ActorUnknown]
    slow, killed = (child.last_end.reason for child in supervisor.children() if child.last_end is not None)
    assert "SIGKILL" not in slow
    assert ("SIGKILL" in killed) is process


async def test_a_stop_with_a_time_kills_what_is_left_then(group: TaskGroup, process: bool, tmp_path: Path) -> None:
    """However long each child's own time is, and however many there are."""
    specs = [ChildSpec(name, Clerk, process=process, shutdown_seconds=600) for name in ("first", "second")]
    supervisor = await Supervisor.start(group, *specs)
    for name in ("first", "second"):
        await supervisor.ref(name).tell("hold", str(tmp_path / name))
        await appears(tmp_path / name)
    assert await supervisor.stop(0.05) == ActorEnd("it was stopped", normal=True)


async def test_a_kill_does_not_wait_for_a_stop_that_has_begun(group: TaskGroup, process: bool, tmp_path: Path) -> None:
    """Both are over then; cancelling the task group would do the same."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=process, shutdown_seconds=600))
    await supervisor.ref("clerk").tell("hold", str(tmp_path / "mark"))
    await appears(tmp_path / "mark")
    ends: list[Any] = []
    async with anyio.create_task_group() as stoppers:
        stoppers.start_soon(collect, ends, supervisor.stop)
        await phase_comes(supervisor, "clerk", "stopping")
        ends.append(await supervisor.kill())
    assert ends == [ActorEnd("it was stopped", normal=True)] * 2


async def test_a_time_that_a_stop_was_given_is_for_this_stop_alone(group: TaskGroup, tmp_path: Path) -> None:
    """The next incarnation has its own time again."""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, shutdown_seconds=600))
    await supervisor.ref("clerk").tell("hold", str(tmp_path / "first"))
    await appears(tmp_path / "first")
    await supervisor.stop_child("clerk", shutdown_seconds=0)
    await supervisor.restart_child("clerk")
    results: list[Any] = []
    async with anyio.create_task_group() as others:
        others.start_soon(collect, results, supervisor.ref("clerk").ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        others.start_soon(supervisor.stop_child, "clerk")
        await phase_comes(supervisor, "clerk", "stopping")
        await anyio.wait_all_tasks_blocked()
        (tmp_path / "mark").unlink()
    assert results == ["released"]


async def test_a_child_can_be_stopped_before_its_start_has_begun(group: TaskGroup) -> None:
    """Then it never begins."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"))
    results: list[Any] = []
    async with anyio.create_task_group() as both:
        both.start_soon(collect, results, supervisor.start_child, recorder.spec("b"))
        both.start_soon(supervisor.stop)
    assert [str(result) for result in results] == ["child 'b' can't be started: supervisor is ending"]
    assert recorder.log == ["a begins", "a ends"]


async def test_what_a_failed_start_leaves_is_cancelled(group: TaskGroup) -> None:
    """A start that is given up in its last moment may have left an actor that nobody has a reference to."""

    async def leave_and_fail(tasks: TaskGroup) -> Any:
        tasks.start_soon(anyio.sleep_forever)
        raise ChildNotReady("it was late")

    child = Child(ChildSpec("child", Clerk))
    child.prepare()
    end = await child.live(leave_and_fail, lambda: None)
    assert (end.reason, end.normal) == ("it was late", False)


# -- Restarting


@pytest.mark.parametrize("kind", ["permanent", "transient", "temporary"])
@pytest.mark.parametrize(
    ("how", "value", "normal"), [("exit", 0, True), ("exit", 3, False), ("signal", signal.SIGTERM, False)]
)
async def test_a_process_is_restarted_as_its_type_says(
    group: TaskGroup, kind: RestartKind, how: str, value: int, normal: bool
) -> None:
    """Exit code 0 is normal, any other and a signal from outside is not. (A1)"""
    supervisor = await Supervisor.start(group, ChildSpec("clerk", Clerk, process=True, restart=kind), policy=AT_ONCE)
    clerk = supervisor.ref("clerk")
    before = await clerk.ask("pid")
    await clerk.tell("end_process", how, value)
    await supervisor.monitor("clerk")
    if kind == "permanent" or (kind == "transient" and not normal):
        assert await clerk.ask("pid") != before
    else:
        with pytest.raises(ActorNotStarted):
            await clerk.ask("pid")
        assert [child.phase for child in supervisor.children()] == (["finished"] if kind == "transient" else [])


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("one_for_one", ["b ends", "b begins"]),
        ("one_for_all", ["b ends", "d ends", "c ends", "a ends", "a begins", "b begins", "c begins", "d begins"]),
        ("rest_for_one", ["b ends", "d ends", "c ends", "b begins", "c begins", "d begins"]),
    ],
)
async def test_a_strategy_restarts_exactly_whom_it_names(
    group: TaskGroup, strategy: Strategy, expected: list[str]
) -> None:
    """Stopped in reverse, started in order. (A3)"""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, *map(recorder.spec, "abcd"), strategy=strategy, policy=AT_ONCE)
    recorder.end("b", Mishap("tripped"))
    await recorder.begun(expected[-1][0], 2)
    await phase_comes(supervisor, expected[-1][0], "up")
    assert recorder.log[4:] == expected
    assert supervisor.children()[1].last_end is not None
    assert supervisor.children()[1].restarts == 1


async def test_one_restart_too_many_ends_the_supervisor(group: TaskGroup) -> None:
    """Its children are stopped in reverse; it says for whom and why, once; asks of all its children end so. (A2)"""
    recorder = Recorder()
    clerk = ChildSpec("clerk", Clerk)
    supervisor = await Supervisor.start(group, *map(recorder.spec, "abc"), clerk, policy=AT_ONCE)
    ref = supervisor.ref("clerk")
    for times in range(1, 5):
        await recorder.begun("b", times)
        await phase_comes(supervisor, "b", "up")
        assert supervisor.end is None
        recorder.end("b", Mishap("again"))
    end = await supervisor.wait_ended()
    assert recorder.log[-2:] == ["c ends", "a ends"]
    reason = "it failed: Mishap: again, and it ended again after 3 restarts within 60 s"
    assert str(end.error) == f"supervisor gave up child 'b': {reason}"
    assert isinstance(end.error, TooManyRestarts)
    with pytest.raises(ActorNotStarted, match="gave up child 'b'"):
        await ref.ask("notes")
    assert await supervisor.stop() == end


async def test_a_supervisor_that_gave_up_unheard_tells_who_stops_it(group: TaskGroup) -> None:
    """It never cancels its task group, and is not silent either."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"), policy=RestartPolicy(intensity=0))
    recorder.end("a")
    while supervisor.end is None:  # noqa: ASYNC110
        await anyio.sleep(0.001)
    with pytest.raises(TooManyRestarts, match="it returned, and it ended again after 0 restarts"):
        await supervisor.stop()
    assert (await supervisor.stop()).error is not None


async def test_a_stop_during_the_delay_ends_it(group: TaskGroup) -> None:
    """At once, and nothing is started again. (A4)"""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"), policy=NEVER_SOON)
    recorder.end("a", Mishap("tripped"))
    await phase_comes(supervisor, "a", "waiting")
    assert (await supervisor.stop()).normal
    assert recorder.log == ["a begins", "a ends"]


async def test_a_restart_that_fails_is_tried_again(group: TaskGroup) -> None:
    """As often as the policy allows, and the delay is kept to."""
    attempts: list[float] = []

    async def comes_up_at_third(*, started: Callable[[], None]) -> None:
        attempts.append(anyio.current_time())
        if len(attempts) in (2, 3):
            raise Mishap("not yet")
        started()
        if len(attempts) == 1:
            raise Mishap("first")
        await anyio.sleep_forever()

    policy = RestartPolicy(intensity=3, period_seconds=60, backoff_first=0.02, backoff_max=1, jitter=0)
    supervisor = await Supervisor.start(group, ChildSpec("child", comes_up_at_third), policy=policy)
    while len(attempts) < 4:  # noqa: ASYNC110
        await anyio.sleep(0.001)
    assert (await phase_comes(supervisor, "child", "up")).restarts == 3
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert [pause >= least for pause, least in zip(pauses, [0.02, 0.04, 0.08], strict=True)] == [True] * 3


async def test_a_killed_process_is_judged_by_a_policy_of_its_own(group: TaskGroup) -> None:
    """The function that lives by it says how it ended; the reason to give up is that, in its own words."""
    recorder = Recorder()
    at_once = RestartPolicy(intensity=2, period_seconds=60, backoff_first=0, backoff_max=0)
    supervisor = await Supervisor.start(group, recorder.spec("a"), policy=NEVER_SOON, killed_policy=at_once)
    for times, number in enumerate((signal.SIGKILL, signal.SIGTERM), start=1):
        recorder.end("a", ProcessEnded("the process", -number))
        await recorder.begun("a", times + 1)
    recorder.end("a", ProcessEnded("the process", 3))
    child = await phase_comes(supervisor, "a", "waiting")
    assert child.last_end is not None
    assert child.last_end.reason == "the process ended with exit code 3"
    await supervisor.restart_child("a")
    recorder.end("a", ProcessEnded("the process", -signal.SIGKILL))
    end = await supervisor.wait_ended()
    assert isinstance(end.error, TooManyRestarts)
    assert end.error.reason == "the process was killed by SIGKILL, and it ended again after 2 restarts within 60 s"


async def test_the_delay_jitters_by_chance(group: TaskGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children that died together needn't come back together: with full jitter a long delay may be next to none.

    It is over before anybody looks at the clock again, and is not missed for that. (A4)
    """
    monkeypatch.setattr("random.random", lambda: 1 - 1e-9)
    policy = RestartPolicy(period_seconds=600, backoff_first=300, backoff_max=300, jitter=1)
    recorder = Recorder()
    await Supervisor.start(group, recorder.spec("a"), policy=policy)
    recorder.end("a", Mishap("tripped"))
    await recorder.begun("a", 2)


# -- By request


async def test_children_are_added_restarted_and_stopped_by_name(group: TaskGroup) -> None:
    """The others aren't touched; what was stopped stays down; a forgotten name is free."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"), strategy="one_for_all")
    await supervisor.start_child(recorder.spec("b"))
    await supervisor.restart_child("b")
    assert recorder.log[1:] == ["b begins", "b ends", "b begins"]
    assert await supervisor.stop_child("b") == ActorEnd("it was stopped", normal=True)
    assert [child.phase for child in supervisor.children()] == ["up", "stopped"]
    await supervisor.restart_child("b")
    await supervisor.stop_child("b", forget=True)
    assert [child.name for child in supervisor.children()] == ["a"]
    await supervisor.start_child(recorder.spec("b"))
    with pytest.raises(ValueError, match=r"^supervisor has a child 'b' already"):
        await supervisor.start_child(recorder.spec("b"))
    for call in (supervisor.restart_child, supervisor.stop_child):
        with pytest.raises(LookupError, match="supervisor has no child 'c'; its children: a, b"):
            await call("c")


async def test_a_start_that_was_asked_for_and_fails_is_told(group: TaskGroup) -> None:
    """It is not repeated; a new child is none then, and nobody else notices."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"))
    with pytest.raises(ChildStartError, match="'b' can't be started: Mishap: no luck"):
        await supervisor.start_child(recorder.spec("b", fails=Mishap("no luck")))
    assert [(child.name, child.phase) for child in supervisor.children()] == [("a", "up")]


async def test_nothing_is_started_by_a_supervisor_that_ends(group: TaskGroup) -> None:
    """Whoever asks is told."""
    recorder = Recorder()
    supervisor = await Supervisor.start(group, recorder.spec("a"))
    await supervisor.stop()
    with pytest.raises(ChildStartError, match="'b' can't be started: supervisor is ending"):
        await supervisor.start_child(recorder.spec("b"))
    with pytest.raises(ChildStartError, match="'a' can't be started: supervisor is ending"):
        await supervisor.restart_child("a")


# -- Trees


async def test_a_tree_is_restarted_with_its_children(group: TaskGroup) -> None:
    """One restart too many ends the lower supervisor, which is a death to the upper one; references outlive both."""
    recorder = Recorder()
    policy = RestartPolicy(intensity=1, period_seconds=60, backoff_first=0, backoff_max=0)
    tree = Tree((recorder.spec("a"), ChildSpec("clerk", Clerk)), policy=policy)
    supervisor = await Supervisor.start(group, ChildSpec("tree", tree), recorder.spec("top"), policy=AT_ONCE)
    assert [child.name for child in supervisor.children()[0].children] == ["a", "clerk"]
    clerk = supervisor.ref("tree", "clerk")
    await clerk.tell("note", "one")
    for times in (1, 2):
        await recorder.begun("a", times)
        await anyio.wait_all_tasks_blocked()
        recorder.end("a", Mishap("again"))
    assert await clerk.ask("notes") in ([], ["one"])
    while supervisor.children()[0].restarts == 0:  # noqa: ASYNC110
        await anyio.sleep(0.001)
    assert await clerk.ask("notes") == []
    assert recorder.log.count("top begins") == 1
    last_end = supervisor.children()[0].last_end
    assert last_end is not None
    assert "supervisor/tree gave up child 'a': it failed: Mishap: again" in last_end.reason
    await supervisor.stop()
    with pytest.raises(ActorNotStarted, match="it was stopped"):
        await clerk.ask("notes")


async def test_an_ask_goes_on_waiting_when_its_tree_ends_and_is_restarted(group: TaskGroup) -> None:
    """It waited for the leaf's next incarnation, and gets that of the tree's next one."""
    recorder = Recorder()
    policy = RestartPolicy(intensity=1, period_seconds=600, backoff_first=300, backoff_max=300)
    tree = Tree((recorder.spec("a"), ChildSpec("clerk", Clerk)), policy=policy)
    supervisor = await Supervisor.start(group, ChildSpec("tree", tree), policy=AT_ONCE)
    clerk = supervisor.ref("tree", "clerk")
    await clerk.tell("fail")
    while clerk.takes_messages:  # noqa: ASYNC110
        await anyio.sleep(0.001)
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, clerk.ask, "notes")
        await anyio.wait_all_tasks_blocked()
        recorder.end("a")
    assert results == [[]]
    assert supervisor.children()[0].restarts == 1


async def test_stopping_a_leaf_whose_tree_is_being_restarted_stops_the_leaf_alone(group: TaskGroup) -> None:
    """It is stopped once it is there; its siblings and the tree aren't touched."""
    recorder = Recorder()
    tree = Tree((recorder.spec("a"), ChildSpec("clerk", Clerk)), policy=RestartPolicy(intensity=0))
    policy = RestartPolicy(backoff_first=0.05, backoff_max=0.05, jitter=0)
    supervisor = await Supervisor.start(group, ChildSpec("tree", tree), policy=policy)
    recorder.end("a", Mishap("again"))
    await phase_comes(supervisor, "tree", "waiting")
    assert (await supervisor.ref("tree", "clerk").stop()).normal
    (tree_now,) = supervisor.children()
    assert [(child.name, child.phase) for child in (tree_now, *tree_now.children)] == [
        ("tree", "up"),
        ("a", "up"),
        ("clerk", "stopped"),
    ]


async def test_a_tree_that_cannot_start_says_which_leaf(group: TaskGroup) -> None:
    """The error names the way down to it."""
    recorder = Recorder()
    tree = Tree((recorder.spec("a"), recorder.spec("b", fails=Mishap("no luck"))))
    with pytest.raises(ChildStartError) as caught:
        await Supervisor.start(group, ChildSpec("tree", tree))
    assert str(caught.value) == "child 'tree' can't be started: child 'b' can't be started: Mishap: no luck"
    assert recorder.log == ["a begins", "a ends"]
