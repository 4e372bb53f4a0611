"""`turnkeeper session stop`: end the work on a session and on its children."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.runtime_opening import open_runtime

from .commands import command
from .completing import complete_session
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text
from .store_view import find_session


@command("stop", example="turnkeeper session stop brave-otter-7f3a")
@click.argument("id", shell_complete=complete_session)
def stop(invocation: Invocation, id: str) -> None:
    """Take a session, its children and theirs from whoever has them open, and end their turns as aborted.

    Their owners can't append any more, and learn it with their next call. The sessions stay, and can be opened again.
    """
    row = find_session(invocation.store, id)
    stopped, head = run_in_loop(partial(_stop, invocation.store, row.id))
    if invocation.is_json:
        print_json({"id": row.id, "head": head, "stopped": stopped})
    else:
        print_text("\n".join(stopped) if stopped else f"nobody has {row.id} open, nor a child of it")


async def _stop(store: str, id: str) -> tuple[list[str], int]:
    async with open_runtime(store) as runtime:
        stopped = await runtime.stop_session(id)
        return stopped, (await runtime.read(id, limit=0)).head
