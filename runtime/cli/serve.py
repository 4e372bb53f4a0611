"""`turnkeeper serve`: serve a store in the foreground, as a service manager wants it."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any

import anyio

from turnkeeper.actors import serving
from turnkeeper.actors.places import make_parents_of_default

from .commands import command
from .invocation import Invocation
from .printing import flush_output, print_json, print_text


@command("serve", example="turnkeeper --store /var/lib/agents serve")
def serve(invocation: Invocation) -> None:
    """Serve the store in the foreground until Ctrl-C or TERM; made if it is missing.

    Programs that use the store needn't have it served so: the first one starts what serves it, and the last one's exit
    ends it. This keeps it served between them.
    """
    store, backend = invocation.place
    make_parents_of_default(store)

    def tell(hello: dict[str, Any]) -> None:
        if invocation.is_json:
            print_json({"pids": {"node": hello["pid"], "writer": hello["writer"]}, "store": store})
        else:
            print_text(f"serving {store}: node {hello['pid']}, writer {hello['writer']}")
        flush_output()

    ended_by = anyio.run(partial(serving.serve, store, backend=backend, ready=tell), backend="asyncio")
    if ended_by == signal.SIGINT:
        raise KeyboardInterrupt
