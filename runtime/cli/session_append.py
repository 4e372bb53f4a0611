"""`turnkeeper session append`: events from standard input."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import click

from turnkeeper.actors.errors import BlobMissing, InvalidValue, TooLarge, TurnkeeperError, TurnOpen
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .event_input import INPUT_BYTES_MAX, BadInput, parse_event
from .failures import Failure, failure_of
from .input_lines import input_lines
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_note, print_text
from .store_view import look_at


@dataclass(slots=True)
class Appending:
    """What has become of the input so far: `count` events, the first one's number being `first`."""

    id: str = ""
    first: int = 0
    count: int = 0
    lines: int = 0
    bad: str = ""

    @property
    def last(self) -> int | None:
        """The last event's number; None if there is none."""
        return self.first + self.count - 1 if self.count else None


@command(
    "append", example="""echo '{"type": "note/seen", "data": {"page": 3}}' | turnkeeper session append brave-otter"""
)
@click.argument("id", shell_complete=complete_session)
def append(invocation: Invocation, id: str) -> None:
    """Append events to a session: one a line on standard input, {"type": …, "data": {…}}.

    They are stored as they come, and all of them durably before the command ends; then the first and last one's numbers
    are printed. A line that is no event ends it with exit code 2: what stood before it is stored, and the message says
    how much that is. A turn that the input leaves open ends as aborted.
    """
    if sys.stdin is None:
        raise click.UsageError("standard input is closed, and the events come from there")
    store = invocation.store
    describe(store)
    appending = Appending()
    try:
        run_in_loop(partial(_append, store, id, sys.stdin.fileno(), appending))
    except BaseException as error:
        raise _with_what_is_stored(error, appending, store) from None
    if appending.bad:
        raise _bad_line(appending)
    if invocation.is_json:
        print_json({"first": appending.first if appending.count else None, "last": appending.last})
    else:
        print_text(f"{appending.first}-{appending.last}" if appending.count else "nothing to append")


async def _append(store: str, id: str, descriptor: int, appending: Appending) -> None:
    async with open_runtime(store) as runtime, await runtime.open_session(id) as session:
        appending.id, appending.first = session.id, session.head
        async for line in input_lines(descriptor, INPUT_BYTES_MAX):
            appending.lines += 1
            if line.isspace():
                continue
            appending.bad = await _append_line(session, line)
            if appending.bad:
                break
            appending.count += 1
        await session.flush()


async def _append_line(session: Session, line: bytes) -> str:
    """Append one event, or say why the line is none."""
    try:
        await session.append(*parse_event(line))
    except BadInput as error:
        return str(error)
    except InvalidValue as error:
        return f"{error.type} at {error.path}: {error.why}"
    except (BlobMissing, TooLarge, TurnOpen) as error:
        return error.message()
    return ""


def _bad_line(appending: Appending) -> Failure:
    return Failure(
        "invalid_line",
        f"line {appending.lines}: {appending.bad}",
        "standard input",
        f"{_stored(appending.first, appending.count)}; mend this line and send it with those behind it",
        line=appending.lines,
        first=appending.first if appending.count else None,
        last=appending.last,
    )


def _with_what_is_stored(error: BaseException, appending: Appending, store: str) -> BaseException:
    """Look up how much of the input is stored, say so, and give the error to raise."""
    if not appending.count:
        return error
    try:
        with look_at(store) as view:
            head = view.ask(lambda reader: reader.row(appending.id)).head
    except (TurnkeeperError, OSError):
        print_note("how much of the input is stored can't be looked up now")
        return error
    count = max(0, min(head - appending.first, appending.count))
    print_note(_stored(appending.first, count))
    if not isinstance(error, Exception):
        return error
    failure = failure_of(error, store)
    failure.fields |= {
        "first": appending.first if count else None,
        "last": appending.first + count - 1 if count else None,
    }
    return failure


def _stored(first: int, count: int) -> str:
    """Say which events of the input are stored."""
    if not count:
        return "nothing of the input is stored"
    if count == 1:
        return f"one event of the input is stored, number {first}"
    return f"{count} events of the input are stored, numbers {first} to {first + count - 1}"
