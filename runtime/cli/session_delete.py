"""`turnkeeper session delete` and `session undelete`: out of the lists and back, without destroying anything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import click

from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from .commands import command
from .completing import complete_session
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text
from .store_view import find_session


@command("delete", example="turnkeeper session delete brave-otter-7f3a")
@click.argument("id", shell_complete=complete_session)
def delete(invocation: Invocation, id: str) -> None:
    """Delete a session, with its inbox: it isn't listed any more, and can't be opened, sent to or forked.

    Nothing is destroyed: session undelete brings it back, and forks of it keep what they have of it. A session that a
    living process has open isn't deleted.
    """
    _change(invocation, id, Runtime.delete)


@command("undelete", example="turnkeeper session undelete brave-otter-7f3a")
@click.argument("id")
def undelete(invocation: Invocation, id: str) -> None:
    """Bring a deleted session back, by its id, a beginning of it, or its key."""
    _change(invocation, id, Runtime.undelete)


def _change(invocation: Invocation, id: str, change: Callable[[Runtime, str], Awaitable[None]]) -> None:
    row = find_session(invocation.store, id)
    run_in_loop(partial(_carry_out, invocation.store, row.id, change))
    if invocation.is_json:
        print_json({"id": row.id, "head": row.head})
    else:
        print_text(row.id)


async def _carry_out(store: str, id: str, change: Callable[[Runtime, str], Awaitable[None]]) -> None:
    async with open_runtime(store) as runtime:
        await change(runtime, id)
