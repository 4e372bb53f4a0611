"""`turnkeeper session list`: sessions, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from itertools import islice

import click

from turnkeeper.actors.reading.listing import Filters, Place, look, rows_to_take
from turnkeeper.actors.records import SessionInfo, Status

from .commands import command
from .invocation import Invocation
from .printing import print_json, print_table
from .store_view import StoreView, look_at
from .values import label, moment


def cursor(text: str) -> tuple[int, str]:
    """Read a place in the list, as `--json` gives it with each row: a position and an id."""
    position, _, id = text.partition(":")
    if not (position.isascii() and position.isdigit() and id):
        raise click.BadParameter(f"{text!r} is no place in the list; take a row's cursor")
    return int(position), id


@command("list", example="turnkeeper session list --label project=web --status crashed")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@click.option("--after", type=cursor, metavar="CURSOR", help="Go on behind this row: its cursor, as --json gives it.")
@click.option("--label", "labels", type=label, multiple=True, metavar="K=V", help="Only those with this label.")
@click.option("--status", type=click.Choice(["active", "closed", "crashed"]), help="Only those of this status.")
@click.option("--cwd", type=click.Path(), help="Only those of this directory, however it is spelled.")
@click.option("--parent", metavar="ID", help="Only the children of this session.")
@click.option("--all", "children", is_flag=True, help="Children, too.")
def list_sessions(
    invocation: Invocation,
    limit: int,
    after: tuple[int, str] | None,
    labels: tuple[tuple[str, str], ...],
    status: Status | None,
    cwd: str | None,
    parent: str | None,
    children: bool,
) -> None:
    """List sessions, those with the newest events first.

    Status is active (a living process has it open), closed, or crashed (its process is gone without closing it).
    Looking changes nothing, starts nothing, and needs nobody to serve the store.
    """
    with look_at(invocation.store) as view:
        if parent is not None:
            wanted = parent
            parent = view.ask(lambda reader: reader.resolve(wanted))
        given = {name: value for name, value in (("cwd", cwd), ("parent", parent)) if value is not None}
        filters = replace(Filters.of(status, given, children=children), labels=dict(labels))
        sessions = list(islice(_sessions(view, filters, after, limit), limit))
        view.warn_of_damage()
    if invocation.is_json:
        for session in sessions:
            print_json({**asdict(session), "cursor": f"{session.position}:{session.id}"})
    else:
        _print_sessions(sessions)


def _sessions(view: StoreView, filters: Filters, place: Place | None, limit: int) -> Iterator[SessionInfo]:
    """Yield the sessions that fit, from a place in the list on; `limit` are wanted."""
    damaged = view.damaged_streams()
    is_first = True
    while is_first or place is not None:
        take = partial(look, filters=filters, before=place, rows=rows_to_take(limit, is_first))
        sessions, place = view.ask(take)
        yield from (replace(each, damaged=True) if each.id in damaged else each for each in sessions)
        is_first = False


def _print_sessions(sessions: list[SessionInfo]) -> None:
    now = time.time()
    rows = [
        (
            session.id,
            "damaged" if session.damaged else f"{session.status}, in a turn" if session.open_turn else session.status,
            f"{session.events:,}",
            moment(session.last_active, now),
            session.title or session.key or "",
            session.cwd or "",
        )
        for session in sessions
    ]
    columns = ("id", "status", "events", "last active", "title", "directory")
    print_table(columns, rows, right=("events",), cut=("title", "directory"))
