"""`turnkeeper follow`: events as they become durable."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import open_runtime
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .event_text import print_event
from .invocation import Invocation
from .loop import run_in_loop
from .printing import flush_output, print_json


@command("follow", example="turnkeeper follow --after 0 --type 'turn/*'")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_session)
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; * stands for anything.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="First those stored behind this position; 0 means all.  [default: only what comes]",
)
def follow(invocation: Invocation, ids: tuple[str, ...], types: tuple[str, ...], after: int | None) -> None:
    """Print events of all sessions, or of those named, with their positions, until Ctrl-C.

    In ids * stands for anything. To go on later without a gap, give the last position that was printed to --after.
    """
    describe(invocation.store)
    run_in_loop(partial(_follow, invocation, ids, types, after))


async def _follow(invocation: Invocation, ids: tuple[str, ...], types: tuple[str, ...], after: int | None) -> None:
    async with open_runtime(invocation.store) as runtime:
        async for event in runtime.follow(*ids, after=after, types=types):
            _print(event, is_json=invocation.is_json)


def _print(event: Event, *, is_json: bool) -> None:
    if is_json:
        fields = ("position", "stream", "seq", "time", "type", "data")
        print_json({name: getattr(event, name) for name in fields})
    else:
        print_event(event, place=f"{event.position}  {event.stream} {event.seq}")
    flush_output()
