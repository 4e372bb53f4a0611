"""`turnkeeper follow`: events as they become durable."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.errors import Corrupt
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .event_text import print_event
from .invocation import Invocation
from .loop import run_in_loop
from .printing import flush_output, print_json, print_note


@command("follow", example="turnkeeper follow --after 0 --type 'turn/*'")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_session)
@click.option("--type", "types", multiple=True, metavar="T", help="Only events of this type; * stands for anything.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="POSITION",
    help="First those stored behind this position; 0 means all.  [default: only what comes]",
)
@click.option("--ephemeral", is_flag=True, help="Also text while it is written, before it is stored: the latest only.")
def follow(
    invocation: Invocation, ids: tuple[str, ...], types: tuple[str, ...], after: int | None, ephemeral: bool
) -> None:
    """Print events of all sessions, or of those named, with their positions, until Ctrl-C.

    In ids * stands for anything. To go on later without a gap, give the last position that was printed to --after.
    What is printed without a position isn't stored yet, and comes again, grown, until it is. What is damaged is named
    on stderr where it would have come.
    """
    describe(invocation.store)
    run_in_loop(partial(_follow, invocation, ids, types, after, ephemeral))


async def _follow(
    invocation: Invocation, ids: tuple[str, ...], types: tuple[str, ...], after: int | None, ephemeral: bool
) -> None:
    async with open_runtime(invocation.store) as runtime:
        following = runtime.follow(*ids, after=after, types=types, ephemeral=ephemeral)
        while True:
            try:
                event = await anext(following)
            except Corrupt as error:
                if not error.positions[1]:
                    raise  # it isn't about events, behind which following goes on
                print_note(str(error))
            else:
                _print(event, is_json=invocation.is_json)


def _print(event: Event, *, is_json: bool) -> None:
    position = event.position or None
    if is_json:
        fields = ("stream", "seq", "time", "type", "data")
        print_json({"position": position, **{name: getattr(event, name) for name in fields}})
    else:
        print_event(event, place=f"{position or '-'}  {event.stream} {event.seq}")
    flush_output()
