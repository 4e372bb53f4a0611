"""Serve a store in the foreground: a node of one's own, kept alive without a client until it is told to end.

The process that calls this is the node's parent and one of its visitors, so a service manager that kills it takes the
node's reason to live. Clients that are attached when the node ends come back by the opening loop, and start another.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import anyio

from turnkeeper.runtime.processes import ChildProcess, describe_exit, died_by_signal
from turnkeeper.storage.errors import StoreRefused
from turnkeeper.storage.store import BackendName, Durability

from .client.joining import Attachment, join
from .errors import AlreadyServed


async def serve(
    path: str,
    *,
    create: bool = True,
    durability: Durability | None = None,
    backend: BackendName | None = None,
    ready: Callable[[dict[str, Any]], None],
) -> signal.Signals | None:
    """Be the node's keeper for the store at `path` until INT, TERM or `stop` ends it in order; run it in a main thread.

    `ready` is called with the node's hello when the store is served. Returns the signal that ended it, None for `stop`.
    Cancelling ends the node in order too.

    Raises:
        AlreadyServed: Another process serves the store.
        StoreRefused: The node was killed. Otherwise as `join`.
    """
    wanted: dict[str, Any] = {"create": create, "durability": durability, "backend": backend}
    attachment = await join(path, **wanted, name="turnkeeper serve", serves=True)
    node, attachment.child = attachment.child, None
    try:
        if node is None:
            raise AlreadyServed(path, attachment.hello["pid"])
        ready(attachment.hello)
        obeyed = await _keep(attachment, node)
    finally:
        attachment.close()
        if node is not None:
            node.send_signal(signal.SIGTERM)
            with anyio.CancelScope(shield=True):
                await node.wait()
            node.close()
    if died_by_signal(node.returncode) is not None:
        raise StoreRefused(path, f"its node {describe_exit(node.returncode)}; start it again")
    return obeyed


async def _keep(attachment: Attachment, node: ChildProcess) -> signal.Signals | None:
    """Wait until the node has ended; have it end when a signal asks for that, and return the first such signal."""
    obeyed: signal.Signals | None = None
    async with anyio.create_task_group() as tasks:

        async def obey_signals() -> None:
            nonlocal obeyed
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                async for number in signals:
                    obeyed = obeyed or number
                    node.send_signal(signal.SIGTERM)

        tasks.start_soon(obey_signals)
        while await attachment.receive() is not None:
            pass
        tasks.cancel_scope.cancel()
    return obeyed
