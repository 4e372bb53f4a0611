"""`turnkeeper task run`: a command in the foreground, of which nothing is lost or left."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import click

from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.tasks.state import TaskState

from .commands import command
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_note
from .task_options import starting_options
from .task_pieces import Printer
from .task_rows import as_row, ending

TIMED_OUT: Final = 124
LOST: Final = 125
NOT_STARTED: Final = 126
OVER_LIMIT: Final = 153
SIGNALED: Final = 128
"""Exit codes for what is no exit code of the command's: as `timeout`, `env` and shells have them; 153 is SIGXFSZ's."""


@command("run", example="turnkeeper task run --timeout 10m -- make test", takes_command=True)
@starting_options
def run(invocation: Invocation, argv: tuple[str, ...], **options: Any) -> None:
    """Run a command, print what it prints, and end with its exit code.

    If a signal ends it, the code is 128 and the signal's number; 124 after its timeout, 153 over its limit, 126 if it
    couldn't be run, 125 if nobody knows how it ended. Ctrl-C stops it, with everything that it started, and so does
    the end of this command by any other means. With --json the output comes in pieces, as `task follow` has them, and
    the task's row behind it.
    """
    printer = Printer(is_json=invocation.is_json, is_raw=not invocation.is_json)
    state = run_in_loop(partial(_run, invocation.given_store, argv, options, printer))
    if invocation.is_json:
        print_json(as_row(state))
    if state.code is None or state.by != "itself" or state.survivors:
        print_note(f"{state.id}: {ending(state)}")
    click.get_current_context().exit(exit_code(state))


def exit_code(state: TaskState) -> int:
    """Give the code that tells how a task ended."""
    if state.by == "timeout":
        return TIMED_OUT
    if state.by == "output limit":
        return OVER_LIMIT
    match state.how or {}:
        case {"code": int(code)}:
            return code
        case {"signal": int(number)}:
            return SIGNALED + number
        case {"not_started": _}:
            return NOT_STARTED
    return LOST


async def _run(store: str | None, argv: tuple[str, ...], options: dict[str, Any], printer: Printer) -> TaskState:
    async with open_runtime(store) as runtime:
        task = await runtime.start_task(argv, on_owner_exit="kill", **options)
        async for piece in task.follow():
            printer.print(piece)
        printer.finish()
        return await task.wait()
