"""`turnkeeper journal rebuild`: make the index anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import anyio

from turnkeeper.actors.client.joining import join
from turnkeeper.storage.backend import require_journal
from turnkeeper.storage.store import INDEX_DIRECTORY

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .journal_stats import occupied_bytes
from .loop import run_in_loop
from .printing import places, print_figures, print_json
from .progress import byte_progress

LEAVE_SECONDS_MAX = 5.0


@command("rebuild", example="turnkeeper journal rebuild")
def rebuild(invocation: Invocation) -> None:
    """Build the index anew from the journal, which stays as it is.

    While the store is served its writer does it, and appends wait so long; else the store is served for this. The exit
    code is 5 if the journal turns out to be damaged; everything that is good can be read.
    """
    store = invocation.store
    require_journal(store)
    before, started = occupied_bytes(store, INDEX_DIRECTORY), time.monotonic()
    with byte_progress("rebuilding") as progress:
        report = run_in_loop(partial(_rebuild, store, progress or (lambda done, total: None)))
    findings = report["findings"]
    figures = {
        "batches": report["hopped_batches"],
        "index_bytes": {"before": before, "after": occupied_bytes(store, INDEX_DIRECTORY)},
        "torn_bytes": report["torn_bytes"],
        "quarantined": report["quarantined"] or None,
        "damaged": findings,
        "seconds": round(time.monotonic() - started, 3),
    }
    if invocation.is_json:
        print_json(figures)
    else:
        _print(figures)
    if findings:
        what = f"the journal is damaged in {places(len(findings))}"
        raise Failure("damaged", what, store, "turnkeeper journal verify shows where", told=True)


async def _rebuild(store: str, progress: Callable[[int, int], None]) -> dict[str, Any]:
    attachment = await join(store, create=False, name="turnkeeper journal rebuild")
    try:
        return await attachment.rebuild(progress)
    finally:
        with anyio.move_on_after(LEAVE_SECONDS_MAX, shield=True):
            await attachment.leave()


def _print(figures: dict[str, Any]) -> None:
    size = figures["index_bytes"]
    rows = [
        ("batches", f"{figures['batches']:,}"),
        ("index bytes", f"{size['before']:,} before, {size['after']:,} after"),
        (
            "torn tail",
            f"{figures['torn_bytes']:,} bytes moved to {figures['quarantined']}" if figures["torn_bytes"] else "none",
        ),
        ("seconds", f"{figures['seconds']:.3f}"),
    ]
    damaged = (f"{each['segment']} at byte {each['offset']}: {each['why']}" for each in figures["damaged"])
    print_figures([*rows, *(("damaged", each) for each in damaged)])
