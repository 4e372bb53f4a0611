"""`turnkeeper session fork`: a session that begins with a part of another."""

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
from .values import label


@command("fork", example="turnkeeper session fork brave-otter-7f3a --at 12 --title 'The other way'")
@click.argument("id", shell_complete=complete_session)
@click.option("--at", type=click.IntRange(min=0), metavar="N", help="Begin with its first N events.  [default: all]")
@click.option("--key", help="Your own name for the fork; unique in the store.")
@click.option("--title", help="A title.  [default: its parent's]")
@click.option("--label", "labels", type=label, multiple=True, metavar="K=V", help="A label in place of its parent's.")
def fork(
    invocation: Invocation,
    id: str,
    at: int | None,
    key: str | None,
    title: str | None,
    labels: tuple[tuple[str, str], ...],
) -> None:
    """Make a session that begins with the events of another, or its first N, and print its id.

    Nothing is copied, and the other one stays as it is, whoever has it open. It can't be forked inside an open turn. A
    fork is a child of its parent: session list shows it with --all.
    """
    describe(invocation.store)
    make = partial(_fork, invocation.store, id, at=at, key=key, title=title, labels=dict(labels) or None)
    made, head = run_in_loop(make)
    if invocation.is_json:
        print_json({"id": made, "head": head})
    else:
        print_text(made)


async def _fork(
    store: str, id: str, *, at: int | None, key: str | None, title: str | None, labels: dict[str, str] | None
) -> tuple[str, int]:
    async with (
        open_runtime(store) as runtime,
        await runtime.fork_session(id, at=at, key=key, title=title, labels=labels) as session,
    ):
        return session.id, session.head
