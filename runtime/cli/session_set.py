"""`turnkeeper session set`: a session's title and labels."""

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
from .values import label


@command("set", example="turnkeeper session set brave-otter-7f3a --title 'Fixed' --label state=done")
@click.argument("id", shell_complete=complete_session)
@click.option("--title", help="Another title; an empty one for none.")
@click.option("--label", "labels", type=label, multiple=True, metavar="K=V", help="Set a label; may be repeated.")
@click.option("--remove-label", "removed", multiple=True, metavar="K", help="Remove a label; may be repeated.")
def set_session(
    invocation: Invocation,
    id: str,
    title: str | None,
    labels: tuple[tuple[str, str], ...],
    removed: tuple[str, ...],
) -> None:
    """Give a session another title, set or remove labels of it, whoever has it open. Other labels stay as they are."""
    if title is None and not labels and not removed:
        raise click.UsageError("nothing to set; give --title, --label or --remove-label")
    row = find_session(invocation.store, id)
    changes = {**dict.fromkeys(removed), **dict(labels)}
    run_in_loop(partial(_set, invocation.store, row.id, title, changes))
    if invocation.is_json:
        print_json({"id": row.id, "head": row.head})
    else:
        print_text(row.id)


async def _set(store: str, id: str, title: str | None, labels: dict[str, str | None]) -> None:
    async with open_runtime(store) as runtime:
        await runtime.set_session(id, title=title, labels=labels)
