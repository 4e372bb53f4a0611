"""The options of `turnkeeper bench flush` by which somebody asks for a load of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import click

SESSIONS_MAX: Final = 10_000
EVENTS_MAX: Final = 10_000
RATE_MAX: Final = 1_000_000
SECONDS_MIN: Final = 0.01
SECONDS_MAX: Final = 60.0
WORKERS_MAX: Final = 64

_STORED = click.option(
    "--stored",
    type=click.IntRange(min=0),
    metavar="N",
    help="Events in the stores before.  [default: 10,000,000; 200,000 with --quick, and with your own load]",
)

_LOAD = (
    click.option("--sessions", type=click.IntRange(1, SESSIONS_MAX), metavar="N", help="Sessions that flush at once."),
    click.option(
        "--event-bytes",
        metavar="N|N-M|agent",
        help="How large an event is: N bytes, N to M (each octave as often), or as agents' events are.",
    ),
    click.option("--events", type=click.IntRange(1, EVENTS_MAX), metavar="N", help="Events a flush."),
    click.option(
        "--rate",
        type=click.IntRange(1, RATE_MAX),
        metavar="R",
        help="Flushes a second over all sessions, by a timetable; latencies are from the planned moment.",
    ),
    click.option(
        "--seconds",
        type=click.FloatRange(SECONDS_MIN, SECONDS_MAX),
        metavar="S",
        help="How long each subject's turn is.  [default: 1; 0.1 with --quick]",
    ),
    click.option(
        "--where", type=click.Choice(["loop", "worker"]), help="Sessions in the host's loop or in worker processes."
    ),
    click.option(
        "--workers",
        type=click.IntRange(1, WORKERS_MAX),
        metavar="N",
        help="Worker processes, with --where worker.  [default: a core each]",
    ),
    click.option("--loop", type=click.Choice(["trio", "asyncio"]), help="What the host runs on.  [default: trio]"),
    click.option(
        "--durability",
        type=click.Choice(["fsync", "os"]),
        help="What flushed events outlive: the machine's death, or only that of processes.  [default: fsync]",
    ),
    click.option(
        "--against",
        multiple=True,
        metavar="NAME…",
        help="Who takes turns with it: append, append-grouped, append-unsynced, filled, sqlite, sqlite-grouped, "
        "sqlite-normal, files, files-threads, files-unsynced, turnkeeper-sqlite, agents, langgraph, langgraph-100, "
        "dbos; several with commas.  [default: some that keep as much]",
    ),
)
_ASKED: Final = (
    "sessions",
    "event_bytes",
    "events",
    "rate",
    "seconds",
    "where",
    "workers",
    "loop",
    "durability",
    "against",
)


def flush_options(run: Callable[..., None]) -> Callable[..., None]:
    """Add the options to a command: it gets `stored`, and what else was given as `asked`."""

    @wraps(run)
    def with_asked(*arguments: Any, stored: int | None, **given: Any) -> None:
        said = {name: given.pop(name) for name in _ASKED}
        asked = {name: value for name, value in said.items() if value not in (None, ())}
        run(*arguments, stored=stored, asked=asked, **given)

    for option in reversed((*_LOAD, _STORED)):
        with_asked = option(with_asked)
    return with_asked
