"""`turnkeeper task output`: what a task has printed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import click

from turnkeeper.actors.tasks.output import Output, read_output

from .commands import command
from .invocation import Invocation
from .printing import print_bytes, print_json, print_note, print_readable
from .task_names import complete_task, find_state, output_path
from .task_pieces import Printer


@command("output", example="turnkeeper task output task-brave-otter-1c9e77f0 --tail 20")
@click.argument("id", shell_complete=complete_task)
@click.option("--head", type=click.IntRange(min=0), metavar="N", help="The first N lines.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="The last N lines; with --head, both.")
@click.option("--from", "start", type=click.IntRange(min=0), default=0, metavar="OFFSET", help="From this byte on.")
@click.option("--raw", is_flag=True, help="The bytes as they are.")
def output(invocation: Invocation, id: str, head: int | None, tail: int | None, start: int, raw: bool) -> None:
    """Print what a task has printed until now, stdout and stderr together.

    It is shown as a terminal would leave it: of lines that were redrawn the last state, without colours and escapes.
    With --raw it is the bytes that were written. What became of the output's file, if it isn't as it should be, is said
    on stderr. With --json it is one piece of 1 MiB at most; --from its end gives the next one.
    """
    if raw and invocation.is_json:
        raise click.UsageError("--raw goes without --json, as JSON has no bytes")
    path = output_path(invocation.store, find_state(invocation.store, id).id)
    if invocation.is_json:
        _print_object(list(_ends(path, start, head, tail)))
    elif head is None and tail is None:
        printer = Printer(is_json=False, is_raw=raw)
        for piece in _all(path, start):
            printer.print(piece)
        printer.finish()
    else:
        _print_ends(list(_ends(path, start, head, tail)), is_raw=raw)


def _print_ends(pieces: list[Output], *, is_raw: bool) -> None:
    """Print one piece, or two and between them on stderr how much is left out."""
    for number, piece in enumerate(pieces):
        if number and piece.offset > pieces[0].end:
            print_note(_left_out(piece.offset - pieces[0].end))
        if piece.note is not None:
            print_note(piece.note)
        if is_raw:
            print_bytes(piece.data)
        elif text := piece.text:
            print_readable(text.removesuffix("\n") + "\n")


def _all(path: str, start: int) -> Iterator[Output]:
    """Read what is there now, piece by piece."""
    try:
        size = os.stat(path).st_size
    except OSError:
        size = 0  # the piece says why
    piece = read_output(path, start=start)
    yield piece
    while piece.truncated and piece.end < size:
        piece = read_output(path, start=piece.end)
        yield piece


def _ends(path: str, start: int, head: int | None, tail: int | None) -> Iterator[Output]:
    """Read the first lines, the last ones, or both; a line is in one of them only."""
    if head is not None or tail is None:
        piece = read_output(path, start=start, head=head)
        yield piece
        start = piece.end
    if tail is not None:
        yield read_output(path, start=start, last=tail)


def _print_object(pieces: list[Output]) -> None:
    """Print one piece, or two with a line between them that says how much is left out."""
    first, last = pieces[0], pieces[-1]
    left_out = last.offset - first.end
    text = "".join([piece.text for piece in pieces])
    if len(pieces) > 1 and left_out > 0:
        text = f"{first.text}… {_left_out(left_out)} …\n{last.text}"
    note = next((piece.note for piece in pieces if piece.note is not None), None)
    print_json({"text": text, "offset": first.offset, "end": last.end, "truncated": last.truncated, "note": note})


def _left_out(count: int) -> str:
    return f"{count:,} bytes left out"
