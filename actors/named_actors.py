"""The named actors of one runtime: those that it serves to other processes, and those of others that it asks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import anyio
from anyio.abc import TaskGroup

from turnkeeper.runtime.actor_ref import ActorRef
from turnkeeper.runtime.interrupts import without_interrupts
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.remote.protocol import FAREWELL_SECONDS
from turnkeeper.runtime.remote.ref import RemoteRef
from turnkeeper.runtime.remote.serving import ActorServer

from .actor_names import ActorNames, Claim, check_name
from .protocol import VERSION


class NamedActors:
    """The names that one runtime has to do with; servers and connections live in the task group."""

    def __init__(self, path: str, task_group: TaskGroup, check: Callable[[], None]) -> None:
        """Open the store at `path`. Raises StoreMissing or StoreRefused."""
        self._names = ActorNames(path)
        self._tasks = task_group
        self._check = check
        self._servers: dict[str, ActorServer] = {}
        self._remote: dict[str, RemoteRef] = {}

    def claim(self, name: str) -> Claim:
        """Take a name for an actor that is about to be made; see `ActorNames.claim`."""
        return self._names.claim(name)

    def serve(self, ref: MailboxRef, claim: Claim) -> None:
        """Serve an actor under a name for as long as it lives, and give the name back."""
        server = self._servers[claim.name] = ActorServer(ref, claim.listener, VERSION, claim.release)
        self._tasks.start_soon(without_interrupts(self._serve), claim.name, server, name=f"server of {claim.name}")

    def ref(self, name: str) -> ActorRef:
        """Give the reference of a name: this runtime's own, or one that goes to whatever process serves it."""
        check_name(name)
        server = self._servers.get(name)
        if server is not None and server.ref.end is None:
            return server.ref
        if name not in self._remote:
            self._remote[name] = RemoteRef(name, self._tasks, partial(self._names.connect, name), VERSION, self._check)
        return self._remote[name]

    async def aclose(self) -> None:
        """Wait until callers were told of the ends of actors that have ended, and give up the store."""
        with anyio.move_on_after(FAREWELL_SECONDS):
            for server in list(self._servers.values()):
                await server.gone.wait()
        self._names.close()

    async def _serve(self, name: str, server: ActorServer) -> None:
        try:
            await server.serve()
        finally:
            if self._servers.get(name) is server:
                del self._servers[name]
