"""The named actors of one runtime: those that it serves to other processes, and those of others that it asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskGroup

from turnkeeper.runtime.actor_ref import ActorEnd, ActorRef
from turnkeeper.runtime.interrupts import without_interrupts
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.remote.protocol import FAREWELL_SECONDS
from turnkeeper.runtime.remote.ref import RemoteRef
from turnkeeper.runtime.remote.serving import ActorServer
from turnkeeper.runtime.supervision.supervised_ref import SupervisedRef

from .actor_names import ActorNames, Claim, check_name
from .protocol import VERSION


class NamedActors:
    """The names that one runtime has to do with; servers and connections live in the task group."""

    def __init__(self, path: str, task_group: TaskGroup, check: Callable[[], None]) -> None:
        """Open the store at `path`. Raises StoreMissing or StoreRefused."""
        self._names = ActorNames(path)
        self._tasks = task_group
        self._check = check
        self._registrations: dict[str, Registration] = {}
        self._remote: dict[str, RemoteRef] = {}

    def check_name(self, name: str) -> None:
        """Raise TypeError or ValueError for what can't be an actor's name."""
        check_name(name)

    def register(self, name: str) -> Registration:
        """Take a name for an actor that is about to be made; callers wait from now on. Raises as `ActorNames.claim`."""
        return Registration(self._names.claim(name), self._begin)

    def ref(self, name: str) -> ActorRef:
        """Give the reference of a name: this runtime's own, or one that goes to whatever process serves it."""
        check_name(name)
        own = self._registrations.get(name)
        if own is not None and own.ref is not None and own.server is not None and own.server.end is None:
            return own.ref
        if name not in self._remote:
            self._remote[name] = RemoteRef(name, self._tasks, partial(self._names.connect, name), VERSION, self._check)
        return self._remote[name]

    async def aclose(self) -> None:
        """Wait until callers were told of the ends of actors that have ended, and give up the store."""
        with anyio.move_on_after(FAREWELL_SECONDS):
            for registration in list(self._registrations.values()):
                assert registration.server is not None
                await registration.server.gone.wait()
        self._names.close()

    def _begin(self, registration: Registration) -> None:
        name = registration.claim.name
        self._registrations[name] = registration
        self._tasks.start_soon(without_interrupts(self._serve), name, registration, name=f"server of {name}")

    async def _serve(self, name: str, registration: Registration) -> None:
        assert registration.server is not None
        try:
            await registration.server.serve()
        finally:
            if self._registrations.get(name) is registration:
                del self._registrations[name]


class Registration:
    """A name that an actor has in this runtime. A `with` gives it back if its body fails."""

    def __init__(self, claim: Claim, begin: Callable[[Registration], None]) -> None:
        self.claim = claim
        self.ref: ActorRef | None = None
        self.server: ActorServer[Any] | None = None
        self._begin = begin

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        if kind is not None:
            self.claim.release()

    def serve(self, ref: MailboxRef | SupervisedRef) -> None:
        """Let others ask the actor of this reference, until its end; again is nothing."""
        if self.server is None:
            self.ref = ref
            self.server = ActorServer[Any](ref, self.claim.listener, VERSION, self.claim.release)
            self._begin(self)

    def end(self, end: ActorEnd) -> None:
        """Give the name back, and tell those who ask how the actor has ended."""
        if self.server is None:
            self.claim.release()
        else:
            self.server.finish(end)
