"""Events as people read them: one line each, cut to the terminal's width only where there is one."""

from __future__ import annotations

import shutil
import sys

import orjson

from turnkeeper.actors.records import Event

from ..printable_text import printable
from .printing import is_coloured, is_terminal, print_text
from .values import full_moment

_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"


def print_event(event: Event, *, place: str) -> None:
    """Print an event behind its place: a number in its session, or a position and a session's id."""
    head, kind = f"{place}  {full_moment(event.time)}  ", printable(event.type)
    content = printable(orjson.dumps(event.data).decode())
    if not is_terminal(sys.stdout):
        print_text(f"{head}{kind}  {content}")
        return
    room = shutil.get_terminal_size().columns - len(head) - len(kind) - 2
    shown = content if len(content) <= room else f"{content[: max(0, room - 1)]}…"
    if is_coloured(sys.stdout):
        print_text(f"{_DIM}{head}{_PLAIN}{_BOLD}{kind}{_PLAIN}  {shown}")
    else:
        print_text(f"{head}{kind}  {shown}")
