"""A supervisor: carries out what deciding.py decides, with real children, in the host's loop.

Whatever happens is given to `decide` at once, and what that says is begun at once; so nothing is decided here, and
nothing waits for a child that takes its time. Each incarnation of a child lives in its own task group, and its end is
told when that was left: a child is never started while something of it is left.

It ends when it is stopped, when its task group is cancelled, or when there were too many restarts; always with all of
its children, in reverse, and shielded until they have left. Its end never cancels its task group: `stop` raises why it
gave up, unless `wait_ended` told that before. Only what children raise while the task group is being cancelled leaves
through the group.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup, TaskStatus
from anyio.lowlevel import checkpoint_if_cancelled

from ..actor_ref import ActorEnd, ActorRef, Down
from ..errors import ChildStartError, TooManyRestarts
from ..interrupts import without_interrupts
from ..mailbox_ref import MailboxRef
from ..placement import Spare
from ..processes import ProcessEnded
from ..restart import RestartPolicy
from .child import NEVER_STARTED, Child, ChildStatistics, reason_of
from .child_spec import ChildSpec, Strategy, Tree
from .deciding import (
    Action,
    Add,
    ChildState,
    EndAll,
    Ended,
    Event,
    Look,
    Ready,
    RestartOne,
    Start,
    Stop,
    StopOne,
    Verdict,
    begin,
    decide,
)
from .incarnation import Incarnation, start_actor, start_function
from .registry import Registry, check_registered
from .supervised_ref import Gone, SupervisedRef


class Supervisor:
    """Children that are kept alive together. Make one with `Supervisor.start`; any task of its loop may use it."""

    def __init__(
        self,
        name: str,
        tree: Tree,
        spare: Spare | None,
        registry: Registry | None,
        killed_policy: RestartPolicy | None,
    ) -> None:
        self.name = name
        self._spare = spare
        self._registry = registry
        self._children = {spec.name: Child(spec) for spec in tree.children}
        kinds = [(spec.name, spec.restart) for spec in tree.children]
        self._state = begin(tree.strategy, tree.policy, kinds, killed_policy)
        self._decided_at = -math.inf
        self._news = anyio.Event()
        self._noticing = anyio.CancelScope()
        self._tasks: TaskGroup | None = None
        self._was_running = False
        self._way_to_stop: Callable[[Child], None] = Child.stop
        self._untold: list[Exception] = []
        self._end: ActorEnd | None = None
        self._end_known = anyio.Event()

    def __repr__(self) -> str:
        return f"<Supervisor {self.name}: {self._end.reason if self._end else ', '.join(self._children)}>"

    @classmethod
    async def start(
        cls,
        task_group: TaskGroup,
        *children: ChildSpec,
        strategy: Strategy = "one_for_one",
        policy: RestartPolicy | None = None,
        killed_policy: RestartPolicy | None = None,
        name: str = "supervisor",
        spare: Spare | None = None,
        registry: Registry | None = None,
    ) -> Supervisor:
        """Start the children, one after another, and return once all are ready. They live in the task group.

        `policy` is for all of them together, or, with a `killed_policy`, for all but those whose process somebody else
        killed, which that one is for: functions say so by ProcessEnded. `spare` gives what keeps a process for the next
        worker, `registry` the names of those that are registered. Cancelled, or failing, nothing is left.

        Raises:
            ChildStartError: A child could not be started; those before it were stopped, in reverse.
            TooManyRestarts: They died more often than the policy allows before all were ready.
            TypeError, ValueError: The children make no sense together.
        """
        tree = Tree(children, strategy=strategy, policy=policy or RestartPolicy())
        check_registered(children, registry)
        supervisor = cls(name, tree, spare, registry, killed_policy)
        await task_group.start(without_interrupts(supervisor._live), name=name)
        return supervisor

    # -- For others

    def ref(self, name: str, *below: str) -> ActorRef:
        """Give a reference to a child that is an actor, or with more names to one further down the tree.

        It goes to whatever incarnation is up when it is used: supervised_ref.py says what that means for messages.

        Raises:
            LookupError: There is no such child. TypeError: It is no actor.
        """
        child = self._known(name)
        if below and not isinstance(child.spec.start, Tree):
            raise TypeError(f"child {name!r} of {self.name} is no tree")
        if not below and not child.spec.is_actor:
            raise TypeError(f"child {name!r} of {self.name} is no actor")
        return SupervisedRef(self, (name, *below))

    async def monitor(self, name: str, *below: str) -> Down:
        """Wait until a child's present incarnation has ended and tell it: once for each call, also if it is gone.

        Between two incarnations that is the last one's end. More names go down the tree. Cancelling only ends the wait.
        """
        last = (name, *below)[-1]
        while (child := self._children.get(name)) is not None:
            if below and isinstance(child.incarnation, Supervisor):
                return await child.incarnation.monitor(*below)
            if child.incarnation is not None or child.last_end is not None:
                end = child.last_end if child.incarnation is None else await child.incarnation.wait_ended()
                assert end is not None
                return Down(last, end.reason, end.error)
            await self._news.wait()
        return Down(last, f"{self.name} has no child {name!r}")

    def children(self) -> list[ChildStatistics]:
        """Return what the children are now, in start order, and down the tree."""
        return [self._statistics(self._children[state.name], state) for state in self._state.children]

    async def start_child(self, spec: ChildSpec) -> None:
        """Add a child behind the others, and return once it is ready. Cancelled, only the wait ends.

        Raises:
            ChildStartError: It could not be started, and is no child. ValueError: The name is another child's.
        """
        if spec.name in self._children:
            raise ValueError(f"{self.name} has a child {spec.name!r} already")
        check_registered([spec], self._registry)
        child = Child(spec)
        if self._is_open:
            self._children[spec.name] = child
        await self._come_up(child, Add(anyio.current_time(), spec.name, spec.restart))

    async def restart_child(self, name: str) -> None:
        """Start a child, after stopping it if it is up, and return once it is ready. The others aren't touched.

        It doesn't count as a restart of the policy's. Cancelled, only the wait ends.

        Raises:
            ChildStartError: It could not be started, and stays down. LookupError: There is no such child.
        """
        await self._come_up(self._known(name), RestartOne(anyio.current_time(), name))

    async def stop_child(
        self, name: str, *, shutdown_seconds: float | None = None, forget: bool = False
    ) -> ActorEnd | None:
        """Stop a child and return how it ended, None if it was never up. It stays down until it is restarted by name.

        With `forget`, and if it is temporary, it is no child any more. `shutdown_seconds` stand for its own. The others
        aren't touched. Cancelled, only the wait ends.

        Raises:
            LookupError: There is no such child. Exception: What it raised while it left.
        """
        child = self._known(name)
        if shutdown_seconds is not None:
            child.shutdown_seconds = shutdown_seconds
        self._happens(StopOne(anyio.current_time(), name, forget))
        while (state := self._state.child(name)) is not None and state.status != "down" and state.goal != "again":
            await self._news.wait()
        _raise_first(child.take_untold())
        return child.last_end

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        """End all children, in reverse, each within its time, and return how this ended. Shielded from cancellation.

        After `shutdown_seconds`, if given, those that are left are killed. A child that calls this waits for itself.

        Raises:
            TooManyRestarts: It gave up before, and nobody was told.
            Exception: What a child raised while it left; of several the first, with notes of the others.
        """
        self._happens(EndAll(anyio.current_time()))
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(shutdown_seconds):
                await self._end_known.wait()
            if self._end is None:
                self._end_all(Child.kill)
            await self._end_known.wait()
        untold, self._untold = self._untold, []
        _raise_first(untold)
        return await self.wait_ended()

    async def kill(self) -> ActorEnd:
        """Kill all children, in reverse; otherwise as `stop`."""
        return await self.stop(0)

    async def wait_ended(self) -> ActorEnd:
        """Wait until it has ended, with all of its children, and return how. Cancelling only ends the wait."""
        await self._end_known.wait()
        assert self._end is not None
        self._untold = [error for error in self._untold if error is not self._end.error]
        return self._end

    @property
    def end(self) -> ActorEnd | None:
        """How it ended; None while it lives."""
        return self._end

    # -- For references to its children

    def present(self, path: tuple[str, ...]) -> MailboxRef | None:
        """Give the incarnation that an actor of the tree has now."""
        child = self._children.get(path[0])
        incarnation = None if child is None else child.incarnation
        if len(path) > 1:
            return incarnation.present(path[1:]) if isinstance(incarnation, Supervisor) else None
        return incarnation if isinstance(incarnation, MailboxRef) else None

    async def wait_present(self, path: tuple[str, ...], but_not: ActorRef | None) -> MailboxRef:
        """Wait for an incarnation of an actor of the tree, for another one than `but_not`.

        Raises:
            Gone: There will be none, unless somebody asks for it; or it is no actor.
        """
        name, below = path[0], path[1:]
        lost: Incarnation | None = None if below else but_not
        while True:
            incarnation = await self._wait_incarnation(name, lost)
            if below and isinstance(incarnation, Supervisor):
                try:
                    return await incarnation.wait_present(below, but_not)
                except Gone:
                    if incarnation._is_open:
                        raise
                    lost = incarnation
            elif not below and isinstance(incarnation, MailboxRef):
                return incarnation
            else:
                raise Gone(ActorEnd(f"child {name!r} of {self.name} is no {'tree' if below else 'actor'}"))

    def gone(self, path: tuple[str, ...]) -> ActorEnd | None:
        """Say how the last incarnation of a child of the tree ended, if there will be no other."""
        name, below = path[0], path[1:]
        child, state = self._children.get(name), self._state.child(name)
        if child is None or state is None:
            return self._end or ActorEnd(f"{self.name} has no child {name!r}")
        nested = child.incarnation
        if below and isinstance(nested, Supervisor) and nested._is_open:
            return nested.gone(below)
        if child.incarnation is not None or self._is_wanted(state):
            return None
        return self._end or child.last_end or NEVER_STARTED

    async def stop_below(self, path: tuple[str, ...], shutdown_seconds: float | None) -> ActorEnd:
        """Stop a child of the tree; return how its last incarnation ended."""
        name, below = path[0], path[1:]
        end = self.gone(path)
        with anyio.CancelScope(shield=True):
            if end is None and not below:
                end = await self.stop_child(name, shutdown_seconds=shutdown_seconds)
            elif end is None:
                try:
                    nested = await self._wait_incarnation(name, None)
                except Gone as gone:
                    return gone.end
                assert isinstance(nested, Supervisor)
                end = await nested.stop_below(below, shutdown_seconds)
        return end or NEVER_STARTED

    async def _wait_incarnation(self, name: str, lost: Incarnation | None) -> Incarnation:
        while True:
            child, state = self._children.get(name), self._state.child(name)
            if child is None or state is None or not self._is_wanted(state):
                raise Gone(self.gone((name,)) or ActorEnd("it is ending"))
            if child.incarnation is not None and child.incarnation is not lost:
                return child.incarnation
            await self._news.wait()

    def _statistics(self, child: Child, state: ChildState) -> ChildStatistics:
        nested = child.incarnation
        return child.statistics(state, tuple(nested.children()) if isinstance(nested, Supervisor) else ())

    def _known(self, name: str) -> Child:
        if name not in self._children:
            raise LookupError(f"{self.name} has no child {name!r}; its children: {', '.join(self._children) or 'none'}")
        return self._children[name]

    async def _come_up(self, child: Child, wish: Event) -> None:
        """Have a child started, and wait until an incarnation of it was ready."""
        name, times_ready = child.spec.name, child.times_ready
        self._happens(wish)
        while child.times_ready == times_ready:
            state = self._state.child(name)
            is_wanted = state is not None and state.goal in ("up", "again") and self._children.get(name) is child
            if not is_wanted or not self._is_open:
                error = child.start_error
                reason = f"{self.name} is ending" if not self._is_open else "it was stopped meanwhile"
                raise ChildStartError(name, reason if error is None else reason_of(error)) from error
            await self._news.wait()

    # -- Its life

    @property
    def _is_open(self) -> bool:
        return self._state.phase in ("starting", "running")

    def _is_wanted(self, state: ChildState) -> bool:
        """Whether a child is to be up, now or after a delay."""
        return self._is_open and state.goal in ("up", "again")

    async def _live(self, *, task_status: TaskStatus[None]) -> None:
        try:
            async with anyio.create_task_group() as outside:
                outside.start_soon(without_interrupts(self._notice_cancellation))
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as self._tasks:
                        await self._keep(task_status)
                await checkpoint_if_cancelled()
                self._noticing.cancel()
        except BaseException:
            # What the children raised counts for more than the cancellation that they raised it in.
            self._finish(ActorEnd("it was cancelled"))
            untold, self._untold = self._untold, []
            _raise_first(untold)
            raise
        self._finish(ActorEnd("it was stopped", normal=True))
        if not self._was_running and self._end is not None and self._end.error is not None:
            raise self._end.error

    async def _keep(self, task_status: TaskStatus[None]) -> None:
        """Be there until all is over."""
        self._happens(Look(anyio.current_time()))
        while self._state.phase != "ended":
            if self._state.phase == "running" and not self._was_running:
                self._was_running = True
                task_status.started()
            # What came due since the last decision must not be missed; what was due then waits for something else.
            news, due = self._news, self._state.next_due(self._decided_at)
            with anyio.CancelScope(deadline=due):
                await news.wait()
            if anyio.current_time() >= due:
                self._happens(Look(anyio.current_time()))

    async def _notice_cancellation(self) -> None:
        """Begin the end when somebody cancels what this lives in; the shield keeps that from the children."""
        with self._noticing:
            try:
                await anyio.sleep_forever()
            finally:
                self._end_all(Child.cancel)

    def _end_all(self, way: Callable[[Child], None]) -> None:
        """End all children this way from now on, also the one whose stop has begun."""
        self._way_to_stop = way
        for child in self._children.values():
            if child.is_stopping:
                way(child)
        self._happens(EndAll(anyio.current_time()))

    def _finish(self, end: ActorEnd) -> None:
        """Say how it ended, and gather what nobody was told of."""
        for child in reversed(self._children.values()):
            self._untold += child.take_untold()
        verdict = self._state.verdict
        if verdict is not None:
            error = self._judged(verdict)
            end = ActorEnd(f"it failed: {error}", error)
            self._untold.insert(0, error)
        self._end = end
        self._end_known.set()
        self._announce()

    def _judged(self, verdict: Verdict) -> Exception:
        if not verdict.is_failed_start:
            return TooManyRestarts(self.name, verdict.child, verdict.reason)
        error = ChildStartError(verdict.child, verdict.reason)
        error.__cause__ = self._children[verdict.child].start_error
        return error

    # -- Carrying out

    def _happens(self, event: Event) -> None:
        """Have it decided what follows from an event, and begin with that."""
        self._state, actions = decide(self._state, event)
        self._decided_at = event.now
        for name, child in list(self._children.items()):
            state = self._state.child(name)
            if state is None or (state.status == "down" and not self._is_wanted(state)):
                child.unregister()
            if state is None:
                del self._children[name]
        for action in actions:
            self._carry_out(action)
        self._announce()

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(name):
                assert self._tasks is not None
                child = self._children[name]
                child.prepare()
                self._tasks.start_soon(without_interrupts(self._have_live), child, name=name)
            case Stop(name):
                self._way_to_stop(self._children[name])

    async def _have_live(self, child: Child) -> None:
        name = child.spec.name
        end = await child.live(lambda group: self._start(group, child), lambda: self._note_ready(child))
        killed = isinstance(end.error, ProcessEnded) and end.error.was_killed
        self._happens(Ended(anyio.current_time(), name, end.reason, end.normal, random.random(), killed))

    def _note_ready(self, child: Child) -> None:
        if child.registration is not None:
            child.registration.serve(SupervisedRef(self, (child.spec.name,)))
        self._happens(Ready(anyio.current_time(), child.spec.name))

    async def _start(self, group: TaskGroup, child: Child) -> Incarnation:
        spec = child.spec
        if isinstance(spec.start, Tree):
            return await Supervisor.start(
                group,
                *spec.start.children,
                strategy=spec.start.strategy,
                policy=spec.start.policy,
                name=f"{self.name}/{spec.name}",
                spare=self._spare,
                registry=self._registry,
            )
        if spec.is_function:
            return await start_function(group, spec)
        if spec.registered and child.registration is None:
            assert self._registry is not None
            child.registration = self._registry.register(spec.name)
        return await start_actor(group, spec, self._spare)

    def _announce(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


def _raise_first(errors: list[Exception]) -> None:
    """Raise the first of them, if there are any, with notes of the others."""
    for error in errors[1:]:
        errors[0].add_note(f"also: {error}")
    if errors:
        raise errors[0]
