"""References and supervisors for plain programs: the same names without `await`, from any thread."""

from __future__ import annotations

from typing import Any

from turnkeeper.runtime.actor_ref import ActorEnd, ActorRef, Down
from turnkeeper.runtime.mailbox import MailboxStatistics
from turnkeeper.runtime.supervision.child import ChildStatistics
from turnkeeper.runtime.supervision.child_spec import ChildSpec
from turnkeeper.runtime.supervision.supervisor import Supervisor

from .loop import Loop


class BlockingRef:
    """`ActorRef`, blocking."""

    def __init__(self, loop: Loop, ref: ActorRef) -> None:
        self._loop = loop
        self._ref = ref

    def ask(self, method: str, /, *arguments: Any, timeout: float | None = None, **keywords: Any) -> Any:
        """Do as `ActorRef.ask`."""
        return self._loop.call(self._ref.ask, method, *arguments, timeout=timeout, **keywords)

    def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        """Do as `ActorRef.tell`."""
        self._loop.call(self._ref.tell, method, *arguments, **keywords)

    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        """Do as `ActorRef.tell_nowait`."""
        self._loop.run(self._ref.tell_nowait, method, *arguments, **keywords)

    def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        """Do as `ActorRef.stop`."""
        return self._loop.call(self._ref.stop, shutdown_seconds)

    def wait_ended(self) -> ActorEnd:
        """Do as `ActorRef.wait_ended`."""
        return self._loop.call(self._ref.wait_ended)

    def kill(self) -> ActorEnd:
        """Do as `ActorRef.kill`."""
        return self._loop.call(self._ref.kill)

    def monitor(self) -> Down:
        """Do as `ActorRef.monitor`."""
        return self._loop.call(self._ref.monitor)

    @property
    def takes_messages(self) -> bool:
        """Whether it has not ended, and isn't known to be ending."""
        return self._ref.takes_messages

    @property
    def name(self) -> str:
        """What errors call the actor."""
        return self._ref.name

    @property
    def end(self) -> ActorEnd | None:
        """How the actor ended; None while it lives."""
        return self._ref.end

    def statistics(self) -> MailboxStatistics:
        """Do as `ActorRef.statistics`."""
        return self._loop.run(self._ref.statistics)


class BlockingSupervisor:
    """`Supervisor`, blocking."""

    def __init__(self, loop: Loop, supervisor: Supervisor) -> None:
        self._loop = loop
        self._supervisor = supervisor

    def ref(self, name: str, *below: str) -> BlockingRef:
        """Do as `Supervisor.ref`."""
        return BlockingRef(self._loop, self._loop.run(self._supervisor.ref, name, *below))

    def monitor(self, name: str, *below: str) -> Down:
        """Do as `Supervisor.monitor`."""
        return self._loop.call(self._supervisor.monitor, name, *below)

    def children(self) -> list[ChildStatistics]:
        """Do as `Supervisor.children`."""
        return self._loop.run(self._supervisor.children)

    def start_child(self, spec: ChildSpec) -> None:
        """Do as `Supervisor.start_child`."""
        self._loop.call(self._supervisor.start_child, spec)

    def restart_child(self, name: str) -> None:
        """Do as `Supervisor.restart_child`."""
        self._loop.call(self._supervisor.restart_child, name)

    def stop_child(self, name: str, *, shutdown_seconds: float | None = None, forget: bool = False) -> ActorEnd | None:
        """Do as `Supervisor.stop_child`."""
        return self._loop.call(self._supervisor.stop_child, name, shutdown_seconds=shutdown_seconds, forget=forget)

    def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        """Do as `Supervisor.stop`."""
        return self._loop.call(self._supervisor.stop, shutdown_seconds)

    def kill(self) -> ActorEnd:
        """Do as `Supervisor.kill`."""
        return self._loop.call(self._supervisor.kill)

    def wait_ended(self) -> ActorEnd:
        """Do as `Supervisor.wait_ended`."""
        return self._loop.call(self._supervisor.wait_ended)

    @property
    def name(self) -> str:
        """What errors call the supervisor."""
        return self._supervisor.name

    @property
    def end(self) -> ActorEnd | None:
        """How it ended; None while it lives."""
        return self._supervisor.end

    def __repr__(self) -> str:
        return repr(self._supervisor)
