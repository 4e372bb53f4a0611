"""`turnkeeper session new`: make a session."""

from __future__ import annotations

import os
from functools import partial

import click

from turnkeeper.actors.runtime_opening import open_runtime

from .commands import command
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text
from .values import label

SESSION_CREATED = "session/created"


@command("new", example="turnkeeper session new --title 'Fix the login page' --label project=web")
@click.option("--key", help="Your own name for it; unique in the store.")
@click.option("--cwd", type=click.Path(), help="Its working directory.  [default: the present one]")
@click.option("--title", default="", help="A title for lists.")
@click.option("--label", "labels", type=label, multiple=True, metavar="K=V", help="A label; may be repeated.")
def new(
    invocation: Invocation, key: str | None, cwd: str | None, title: str, labels: tuple[tuple[str, str], ...]
) -> None:
    """Make a session, write its first event, and print its id.

    A missing store is made, too.
    """
    directory = os.path.abspath(cwd) if cwd is not None else os.getcwd()
    make = partial(_make, invocation.given_store, key=key, cwd=directory, title=title, labels=dict(labels))
    id = run_in_loop(make)
    if invocation.is_json:
        print_json({"id": id})
    else:
        print_text(id)


async def _make(store: str | None, *, key: str | None, cwd: str, title: str, labels: dict[str, str]) -> str:
    async with (
        open_runtime(store) as runtime,
        await runtime.create_session(key=key, cwd=cwd, title=title, labels=labels) as session,
    ):
        await session.append(SESSION_CREATED, {})
        await session.flush()
        return session.id
