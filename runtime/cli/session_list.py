"""`turnkeeper session list`: sessions, newest first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace

import click

from turnkeeper.actors.records import SessionInfo
from turnkeeper.storage.requests import StreamRow

from .commands import command
from .invocation import Invocation
from .printing import print_json, print_table
from .store_view import StoreView, look_at
from .values import label, moment

ROWS_A_LOOK = 256
"""How many streams one look takes while it searches for those that the filters let pass."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which sessions are listed. Children are those with a parent."""

    status: str | None
    cwd: str | None
    parent: str | None
    labels: Mapping[str, str]
    children: bool

    def fit(self, session: SessionInfo) -> bool:
        """Say whether the session is listed."""
        return (
            self.status in (None, session.status)
            and self.cwd in (None, session.cwd)
            and (session.parent == self.parent if self.parent else self.children or session.parent is None)
            and all(session.labels.get(name) == value for name, value in self.labels.items())
        )


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
@click.option("--cwd", type=click.Path(), help="Only those of this working directory.")
@click.option("--parent", metavar="ID", help="Only the children of this session.")
@click.option("--all", "children", is_flag=True, help="Children, too.")
def list_sessions(
    invocation: Invocation,
    limit: int,
    after: tuple[int, str] | None,
    labels: tuple[tuple[str, str], ...],
    status: str | None,
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
        filters = Filters(status, cwd, parent, dict(labels), children)
        sessions = []
        for session in _sessions(view, after):
            if filters.fit(session):
                sessions.append(session)
                if len(sessions) == limit:
                    break
        view.warn_of_damage()
    if invocation.is_json:
        for session in sessions:
            print_json({**asdict(session), "cursor": f"{session.position}:{session.id}"})
    else:
        _print_sessions(sessions)


def _sessions(view: StoreView, before: tuple[int, str] | None) -> Iterator[SessionInfo]:
    """Yield all sessions from a place in the list on."""
    damaged = view.damaged_streams()
    while True:
        place = before
        rows: list[StreamRow] = view.ask(lambda reader: reader.rows(ROWS_A_LOOK, place))  # noqa: B023 - asked at once
        for row in rows:
            session = SessionInfo.from_row(row)
            yield replace(session, damaged=True) if row.id in damaged else session
        if len(rows) < ROWS_A_LOOK:
            return
        before = (rows[-1].position, rows[-1].id)


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
