"""Where output goes: results to stdout, everything else to stderr, one line at a time.

Text that comes out of a store can hold anything; what would steer a terminal is shown as an escape and never sent. A
table is drawn on a terminal only, and colour only where `NO_COLOR` doesn't forbid it; in a pipe everything is plain
and nothing is cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import orjson

from ..printable_text import printable

_GAP_CELLS = 3
_CUT_CELLS_MIN = 8


class OutputError(Exception):
    """Standard output takes nothing any more, for this reason; `is_closed` if whoever read it has seen enough."""

    def __init__(self, reason: str, *, is_closed: bool = False) -> None:
        super().__init__(reason)
        self.is_closed = is_closed


def print_json(value: Any) -> None:
    """Print one JSON value as a line on stdout."""
    print_line(orjson.dumps(value, default=str))


def print_line(line: bytes) -> None:
    """Print a line of bytes, given without its newline, as it is. Raises OutputError."""
    print_bytes(line + b"\n")


def print_bytes(content: bytes) -> None:
    """Print bytes as they are. Raises OutputError."""
    with _output_errors():
        sys.stdout.buffer.write(content)


def print_text(line: str) -> None:
    """Print a line for people on stdout."""
    print_readable(line + "\n")


def print_readable(text: str) -> None:
    """Print text for people on stdout, its newlines included."""
    print_bytes(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def print_note(line: str) -> None:
    """Print a line for people on stderr, behind what went to stdout. One that nobody can read is no failure."""
    with suppress(OutputError):  # it comes again with the next line, or at the end
        flush_output()
    text = f"turnkeeper: {printable(line)}\n"
    with suppress(OSError):
        sys.stderr.buffer.write(text.encode(sys.stderr.encoding or "utf-8", "backslashreplace"))
        sys.stderr.flush()


def flush_output() -> None:
    """Hand over what was printed. Raises OutputError."""
    with _output_errors():
        sys.stdout.flush()


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(reason, is_closed=isinstance(error, BrokenPipeError)) from None


def abandon_output() -> None:
    """Forget what nobody takes any more, so that the interpreter's end doesn't try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def is_terminal(stream: TextIO) -> bool:
    """Say whether a person looks at the stream, on a terminal that can do more than print lines."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def is_coloured(stream: TextIO) -> bool:
    """Say whether colour may be used on the stream."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[str] = (), cut: Iterable[str] = ()
) -> None:
    """Print rows of texts under their columns' names; the columns in `right` hold numbers.

    On a terminal the cells of the columns in `cut` are cut so that each row is one line, and without such columns cells
    are wrapped. Elsewhere everything stands on one line and is whole.
    """
    cells = [[printable(cell) for cell in row] for row in rows]
    aligned = frozenset(right)
    if is_terminal(sys.stdout):
        _draw_table(columns, cells, aligned, frozenset(cut))
        return
    widths = [max(len(row[place]) for row in [columns, *cells]) for place in range(len(columns))]
    for row in [[column.upper() for column in columns], *cells]:
        parts = (
            cell.rjust(width) if column in aligned else cell.ljust(width)
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print_text("  ".join(parts).rstrip())


def _draw_table(columns: Sequence[str], rows: list[list[str]], right: frozenset[str], cut: frozenset[str]) -> None:
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    widths = {column: max(cell_len(row[place]) for row in [columns, *rows]) for place, column in enumerate(columns)}
    _narrow(widths, cut, console.width - _GAP_CELLS * (len(columns) - 1))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(
            column,
            justify="right" if column in right else "left",
            no_wrap=bool(cut),
            overflow="ellipsis",
            width=widths[column] if cut else None,
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    flush_output()
    console.print(table)


def _narrow(widths: dict[str, int], cut: frozenset[str], room: int) -> None:
    """Take from the widest of the columns that may be cut until all fit, but leave each some cells."""
    while sum(widths.values()) > room:
        widest = max((column for column in widths if column in cut), key=widths.__getitem__, default=None)
        if widest is None or widths[widest] <= _CUT_CELLS_MIN:
            return
        widths[widest] -= 1


def print_figures(figures: Iterable[tuple[str, str]]) -> None:
    """Print names and their values, one a line, in two columns."""
    pairs = list(figures)
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        print_text(f"{name.ljust(width)}  {printable(value)}")


def places(count: int) -> str:
    """Say how many places."""
    return f"{count:,} place{'' if count == 1 else 's'}"
