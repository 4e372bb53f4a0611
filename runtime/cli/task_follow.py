"""`turnkeeper task follow`: what a task prints, as it prints it."""

from __future__ import annotations

import time
from functools import partial

import anyio
import click

from turnkeeper.actors.tasks.listing import state_of
from turnkeeper.actors.tasks.output import output_limit
from turnkeeper.actors.tasks.output_following import OutputFollowing
from turnkeeper.actors.tasks.state import TaskState

from .commands import command
from .invocation import Invocation
from .loop import run_in_loop
from .store_view import StoreView, look_at
from .task_names import complete_task, naming_tasks, output_path
from .task_pieces import Printer

LOOK_SECONDS = 0.25
"""How often it is looked whether the task has ended."""


@command("follow", example="turnkeeper task follow task-brave-otter-1c9e77f0")
@click.argument("id", shell_complete=complete_task)
@click.option("--from", "start", type=click.IntRange(min=0), default=0, metavar="OFFSET", help="From this byte on.")
@click.option("--raw", is_flag=True, help="The bytes as they are.")
def follow(invocation: Invocation, id: str, start: int, raw: bool) -> None:
    """Print what a task has printed, and what it prints from now on until it has ended.

    Without --raw it is shown as a terminal would leave it, each line when it is ended. If the task empties its output's
    file, moves it or removes it, that is said on stderr, and following goes on. With --json it is one object a piece.
    Needs nobody to serve the store, and starts nothing.
    """
    if raw and invocation.is_json:
        raise click.UsageError("--raw goes without --json, as JSON has no bytes")
    printer = Printer(is_json=invocation.is_json, is_raw=raw)
    store = invocation.store
    with look_at(store) as view:
        with naming_tasks(store, id):
            state = view.ask(lambda reader: state_of(reader, store, id))
        run_in_loop(partial(_follow, view, state, start, printer))


async def _follow(view: StoreView, state: TaskState, start: int, printer: Printer) -> None:
    end = _End(view, state)
    path = output_path(view.path, state.id)
    pieces = OutputFollowing(path, end.wait, start=start, limit=output_limit(path))
    try:
        async for piece in pieces:
            printer.print(piece)
        printer.finish()
    finally:
        await pieces.aclose()


class _End:
    """Looks whether a task has ended, as often as is worth it."""

    def __init__(self, view: StoreView, state: TaskState) -> None:
        self._view = view
        self._state = state
        self._looked = time.monotonic()

    async def wait(self, seconds: float) -> bool:
        if not self._state.is_over:
            await anyio.sleep(seconds)
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                id = self._state.id
                self._state = self._view.ask(lambda reader: state_of(reader, self._view.path, id))
                self._looked = time.monotonic()
        return self._state.is_over
