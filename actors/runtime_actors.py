"""What a runtime has running for its host: actors, supervisors and CPU work.

All is started in the runtime's background, named for other processes, and ended with it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from turnkeeper.runtime.actor_ref import SHUTDOWN_SECONDS, ActorRef
from turnkeeper.runtime.actors import spawn_in_loop
from turnkeeper.runtime.cpu_work import CpuWork
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.restart import RestartPolicy
from turnkeeper.runtime.supervision.child_spec import ChildSpec, Strategy
from turnkeeper.runtime.supervision.supervisor import Supervisor

from .background import Background
from .leaving import carry_out, carry_out_all
from .named_actors import NamedActors

if TYPE_CHECKING:
    from turnkeeper.runtime.worker_process import SpareWorker


class RuntimeActors:
    """All that lives in a runtime's background; `Runtime` says what its methods are for others."""

    def __init__(self, background: Background, path: str, check: Callable[[], None], cpu_jobs_max: int | None) -> None:
        """Begin with none, in a background that is open; `path` is the store's. Raises StoreMissing, StoreRefused."""
        self.cpu_work = CpuWork(background.tasks, cpu_jobs_max)
        self._background = background
        self._named = NamedActors(path, background.tasks, check)
        self._refs: list[ActorRef] = []
        self._supervisors: list[Supervisor] = []
        self._spare: SpareWorker | None = None

    async def spawn(
        self, actor: type, *args: Any, process: bool, name: str | None, blocked_seconds: float | None
    ) -> ActorRef:
        """Start an actor, as `Runtime.spawn` says."""
        spawn = partial(self._spawn, actor, *args, process=process, name=name, blocked_seconds=blocked_seconds)
        if name is None:
            ref = await spawn()
        else:
            with self._named.claim(name) as claim:
                ref = await spawn()
                self._named.serve(ref, claim)
        self._refs = [each for each in self._refs if each.end is None or each.end.error is not None]
        self._refs.append(ref)
        return ref

    async def supervise(
        self, *children: ChildSpec, strategy: Strategy, policy: RestartPolicy | None, name: str
    ) -> Supervisor:
        """Start a supervisor, as `Runtime.supervise` says."""
        supervisor = await Supervisor.start(
            self._background.tasks, *children, strategy=strategy, policy=policy, name=name, spare=self._spare_worker
        )
        self._supervisors = [each for each in self._supervisors if each.end is None or each.end.error is not None]
        self._supervisors.append(supervisor)
        return supervisor

    def named(self, name: str) -> ActorRef:
        """Give the reference of a named actor, as `Runtime.actor` says."""
        return self._named.ref(name)

    async def end(self) -> list[Exception]:
        """Stop them all, the supervisors' children within SHUTDOWN_SECONDS, and the background; give what failed.

        Nothing is raised but cancellation.
        """
        failures: list[Exception] = []
        supervised = [partial(supervisor.stop, SHUTDOWN_SECONDS) for supervisor in self._supervisors]
        await carry_out_all(failures, [*supervised, *(ref.stop for ref in self._refs)])
        await carry_out(failures, self.cpu_work.aclose)  # only now: who is at it may want something computed
        await carry_out(failures, self._named.aclose)
        await carry_out(failures, self._background.aclose)
        if self._spare is not None:
            await carry_out(failures, self._spare.aclose)
        return failures

    async def _spawn(
        self, actor: type, *args: Any, process: bool, name: str | None, blocked_seconds: float | None
    ) -> MailboxRef:
        if not process:
            return await spawn_in_loop(self._background.tasks, actor, *args, name=name)
        # A host without worker processes needn't import what they need.
        from turnkeeper.runtime.worker import spawn_in_process

        spawn = partial(spawn_in_process, self._background.tasks, actor, *args, name=name)
        return await spawn(blocked_seconds=blocked_seconds, spare=self._spare_worker())

    def _spare_worker(self) -> SpareWorker:
        """Give what keeps a process for the next worker; there is one once there was a worker."""
        if self._spare is None:
            from turnkeeper.runtime.worker_process import SpareWorker

            self._spare = SpareWorker(["turnkeeper.actors.runtime_opening"])
        return self._spare
