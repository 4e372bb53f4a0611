"""What a runtime has running for its host: actors, supervisors and CPU work.

All is started in the runtime's background, named for other processes, and ended with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from turnkeeper.runtime.actor_ref import SHUTDOWN_SECONDS, ActorRef
from turnkeeper.runtime.cpu.work import CpuWork
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.placement import place_actor
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Strategy, check_times
from turnkeeper.runtime.supervision.supervisor import Supervisor

from .background import Background
from .leaving import carry_out, carry_out_all
from .named_actors import NamedActors

if TYPE_CHECKING:
    from turnkeeper.runtime.workers.worker_process import SpareWorker


class RuntimeActors:
    """All that lives in a runtime's background; `Runtime` says what its methods are for others."""

    def __init__(self, background: Background, path: str, check: Callable[[], None], cpu_jobs_max: int | None) -> None:
        """Begin with none, in a background that is open; `path` is the store's. Raises StoreMissing, StoreRefused."""
        self.cpu_work = CpuWork(background.tasks, cpu_jobs_max)
        self._background = background
        self._named = NamedActors(path, background.tasks, check)
        self._spawned: list[_Spawned] = []
        self._supervisors: list[Supervisor] = []
        self._spare: SpareWorker | None = None

    async def spawn(
        self,
        actor: Callable[..., Any],
        *args: Any,
        name: str | None,
        shutdown_seconds: float | None,
        ready_seconds: float,
        **options: Any,
    ) -> ActorRef:
        """Start an actor, as `Runtime.spawn` says, whose other options these are."""
        who = name or str(getattr(actor, "__name__", actor))
        check_times(who, shutdown_seconds, ready_seconds)
        options |= {"shutdown_seconds": shutdown_seconds, "ready_seconds": ready_seconds}
        place = partial(self._place, actor, args, who, **options)
        if name is None:
            ref = await place()
        else:
            with self._named.register(name) as registration:
                ref = await place(name=name)
                registration.serve(ref)
                ref.call_at_end(registration.end)
        self._spawned = [each for each in self._spawned if _may_have_more_to_say(each.ref)]
        self._spawned.append(_Spawned(ref, shutdown_seconds))
        return ref

    async def supervise(
        self, *children: ChildSpec, strategy: Strategy, policy: RestartPolicy | None, name: str
    ) -> Supervisor:
        """Start a supervisor, as `Runtime.supervise` says."""
        supervisor = await Supervisor.start(
            self._background.tasks,
            *children,
            strategy=strategy,
            policy=policy,
            name=name,
            spare=self._spare_worker,
            registry=self._named,
        )
        self._supervisors = [each for each in self._supervisors if _may_have_more_to_say(each)]
        self._supervisors.append(supervisor)
        return supervisor

    def named(self, name: str) -> ActorRef:
        """Give the reference of a named actor, as `Runtime.actor` says."""
        return self._named.ref(name)

    async def end(self) -> list[Exception]:
        """Stop them all, within SHUTDOWN_SECONDS whatever is theirs, and the background; give what failed.

        Nothing is raised but cancellation.
        """
        failures: list[Exception] = []
        supervised = [partial(supervisor.stop, SHUTDOWN_SECONDS) for supervisor in self._supervisors]
        await carry_out_all(failures, [*supervised, *(each.stop for each in self._spawned)])
        await carry_out(failures, self.cpu_work.aclose)  # only now: who is at it may want something computed
        await carry_out(failures, self._named.aclose)
        await carry_out(failures, self._background.aclose)
        if self._spare is not None:
            await carry_out(failures, self._spare.aclose)
        return failures

    async def _place(
        self, actor: Callable[..., Any], arguments: tuple[Any, ...], who: str, *, ready_seconds: float, **options: Any
    ) -> MailboxRef:
        group, spare = self._background.tasks, self._spare_worker
        ref = await place_actor(group, actor, arguments, spare=spare, ready_seconds=ready_seconds, **options)
        if ref is None:
            raise TimeoutError(f"{who} was not ready within {ready_seconds:g} s")
        return ref

    def _spare_worker(self) -> SpareWorker:
        """Give what keeps a process for the next worker; there is one once there was a worker."""
        if self._spare is None:
            from turnkeeper.runtime.workers.worker_process import SpareWorker

            self._spare = SpareWorker(["turnkeeper.actors.runtime_opening"])
        return self._spare


class _Spawned(NamedTuple):
    """An actor, and how long it may take to end."""

    ref: ActorRef
    shutdown_seconds: float | None

    async def stop(self) -> None:
        """Stop it: leaving is bounded."""
        seconds = self.shutdown_seconds
        await self.ref.stop(None if seconds is None else min(seconds, SHUTDOWN_SECONDS))


def _may_have_more_to_say(ended: ActorRef | Supervisor) -> bool:
    """Whether it lives, or has an error that its stop may raise."""
    return ended.end is None or ended.end.error is not None
