"""`turnkeeper session rewind`: go on from an earlier place."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text


@command("rewind", example="turnkeeper session rewind brave-otter-7f3a --to 12")
@click.argument("id", shell_complete=complete_session)
@click.option(
    "--to", required=True, type=click.IntRange(min=0), metavar="N", help="How many of its events still count."
)
def rewind(invocation: Invocation, id: str, to: int) -> None:
    """Let a session go on as it was when it had N events.

    A record says so, and nothing is destroyed: session show prints everything, and a later rewind may bring it back.
    The session must not be open anywhere.
    """
    describe(invocation.store)
    id, head = run_in_loop(partial(_rewind, invocation.store, id, to))
    if invocation.is_json:
        print_json({"id": id, "head": head})
    else:
        print_text(f"{id} goes on behind its first {to} events")


async def _rewind(store: str, id: str, to: int) -> tuple[str, int]:
    async with open_runtime(store) as runtime, await runtime.open_session(id) as session:
        if to > session.head:
            raise click.BadParameter(f"{session.id} has {session.head} events", param_hint="'--to'")
        await session.rewind(to)
        return session.id, session.head
