"""Pieces of a task's output on their way to standard output: as they are, readable, or for scripts."""

from __future__ import annotations

from turnkeeper.actors.tasks.output import Output
from turnkeeper.actors.tasks.rendering import Renderer

from .printing import flush_output, print_bytes, print_json, print_note, print_readable


class Printer:
    """Prints pieces in their order: raw bytes, JSON objects with readable text, or that text alone."""

    def __init__(self, *, is_json: bool, is_raw: bool) -> None:
        self._is_json = is_json
        self._is_raw = is_raw
        self._renderer = Renderer()
        self._place = 0

    def print(self, piece: Output) -> None:
        """Print a piece, and what became of the output, if anything did. Raises OutputError."""
        text = "" if self._is_raw else self._readable(piece)
        if self._is_json:
            self._print_object(text, piece.offset, piece.end, truncated=piece.truncated, note=piece.note)
        else:
            if piece.note is not None:
                print_note(piece.note)
            print_bytes(piece.data) if self._is_raw else print_readable(text)
        flush_output()
        self._place = piece.end

    def finish(self) -> None:
        """Print what may still have changed until now. Raises OutputError."""
        text = self._renderer.finish()
        if self._is_json and text:
            self._print_object(text, self._place, self._place, truncated=False, note=None)
        elif not self._is_raw and text:
            print_readable(text if text.endswith("\n") else text + "\n")
        flush_output()

    def _readable(self, piece: Output) -> str:
        """Render a piece. Lines are shown when they are ended, unless the program has gone back to lines above."""
        text = self._renderer.feed(piece.data)
        return text if self._renderer.goes_back or piece.truncated else text + self._renderer.settle()

    @staticmethod
    def _print_object(text: str, offset: int, end: int, *, truncated: bool, note: str | None) -> None:
        print_json({"text": text, "offset": offset, "end": end, "truncated": truncated, "note": note})
