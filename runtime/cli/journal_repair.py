"""`turnkeeper journal repair`: save what can be read of a damaged session."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from turnkeeper.actors.repairing import Repair
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_figures, print_json, print_text
from .progress import told_progress


@command("repair", example="turnkeeper journal repair brave-otter")
@click.argument("id", metavar="STREAM", shell_complete=complete_session)
def repair_session(invocation: Invocation, id: str) -> None:
    """Make a repaired copy of a damaged session: a new one, with every event that can still be read.

    Nobody can open a damaged session to append to it; the copy can be opened. Its events are numbered anew without
    holes, their data is the same byte for byte, and its first event, session/repaired, says which numbers are missing.
    The damaged session stays as it is, and readable. A second run finds the same copy, or finishes one that was
    interrupted; a session that isn't damaged gets none.
    """
    store = invocation.store
    describe(store)
    with told_progress() as tell:
        found = run_in_loop(partial(_repair, store, id, tell))
    if invocation.is_json:
        readable = found.readable
        missing = [list(part) for part in readable.missing]
        figures = {"from": readable.stream, "id": found.copy, "new": found.is_new}
        print_json({**figures, "head": readable.head, "events": readable.events, "missing": missing})
    else:
        _print(found)


async def _repair(store: str, id: str, tell: Callable[[str], None]) -> Repair:
    async with open_runtime(store) as runtime:
        return await runtime.repair_session(id, lambda done, total: tell(f"{done:,} of {total:,} events copied"))
    raise AssertionError


def _print(found: Repair) -> None:
    readable = found.readable
    if found.copy is None:
        print_text(f"{readable.stream} is not damaged")
        return
    numbers = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in readable.missing)
    print_figures(
        [
            ("damaged", readable.stream),
            ("copy", f"{found.copy}{'' if found.is_new else ', which was there already'}"),
            ("events", f"{readable.events:,} copied"),
            ("missing", numbers or "none"),
        ]
    )
