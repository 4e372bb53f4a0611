"""A task's output as people read it: what a terminal would show when all of it had been written there.

A program that draws for a terminal moves the cursor: back in the line to redraw a bar, up to redraw several. So the
bytes are put on a small screen: the last WINDOW_LINES lines can still be changed, whatever is above them is settled.
What comes out is text with newlines and tabs, and no other control character: neither an escape nor a NUL.

- Bytes are UTF-8, and what isn't becomes U+FFFD; characters and escapes may be cut anywhere between two pieces.
- Memory is bounded: a line is cut behind LINE_CHARACTERS_MAX characters and says how many are missing.
- Lines don't wrap, and every character takes one column, also those that a terminal draws wider.
- A cleared screen is settled and not lost, as in terminals that scroll it out: what stood there was output, too.
"""

from __future__ import annotations

import codecs
import re
from typing import Final

LINE_CHARACTERS_MAX: Final = 64 * 1024
"""Characters of a line that are kept."""

WINDOW_LINES: Final = 32
"""Lines that can still be changed."""

COLUMNS_MAX: Final = 256
"""How far to the right, of what is written there already, an escape can move the cursor."""

GOES_UP: Final = re.compile(rb"\x1b(?:\[[0-9;]*[AFHfd]|M)")
"""The escapes that go back to lines above."""

_TOKEN = re.compile(
    r"(?P<text>[^\x00-\x08\x0a-\x1f\x7f-\x9f]+)"
    r"|(?P<control>[\x08\x0a-\x0d])"
    r"|\x1b\[(?P<parameters>[0-?]{0,64})[ -/]{0,4}(?P<final>[@-~])"
    r"|\x1b(?P<string>[PX\]^_])"
    r"|\x1b[ -/]{0,4}(?P<escape>[0-OQ-WYZ\\`-~])"
)
_CUT_ESCAPE = re.compile(r"\x1b(?:\[[0-?]{0,64}[ -/]{0,4}|[ -/]{0,4})\Z")
_DROPPED = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f]+")
_MOVES = re.compile(r"[\x08\x0b-\x0d\x1b]")
_STRING_END = re.compile(r"[\x07\x0a\x18\x1a\x1b]")


def render(data: bytes) -> str:
    """Give the bytes as a terminal would leave them."""
    renderer = Renderer()
    return renderer.feed(data) + renderer.finish()


class Renderer:
    """Renders a stream of bytes: what its calls return, one after the other, is the text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._cut = ""
        self._is_in_string = False
        self._screen = _Screen()

    @property
    def goes_back(self) -> bool:
        """Say whether the cursor was ever moved up, so that ended lines are likely to be redrawn."""
        return self._screen.goes_back

    def feed(self, data: bytes) -> str:
        """Take the next bytes, and give the lines that nothing can change any more."""
        self._take(self._decoder.decode(data))
        return self._screen.taken()

    def settle(self) -> str:
        """Give the lines above the cursor as they are: for whoever can't wait until they leave the window."""
        self._screen.settle_above()
        return self._screen.taken()

    def finish(self) -> str:
        """Give the rest."""
        self._take(self._decoder.decode(b"", final=True))
        self._screen.settle_all()
        return self._screen.taken()

    def _take(self, text: str) -> None:
        text = self._cut + text
        self._cut = ""
        if self._is_in_string:
            text = self._behind_string(text)
        if not _MOVES.search(text):
            self._screen.write_plain(_DROPPED.sub("", text))
            return
        place = 0
        while place < len(text):
            token = _TOKEN.match(text, place)
            if token is None:
                if text[place] == "\x1b" and _CUT_ESCAPE.match(text, place):
                    self._cut = text[place:]
                    return
                place += 1  # a control character that means nothing here, or the escape of no sequence
            elif token["string"]:
                self._is_in_string = True
                text = self._behind_string(text[token.end() :])
                place = 0
            else:
                self._perform(token)
                place = token.end()

    def _behind_string(self, text: str) -> str:
        """Leave out a title, a link or whatever else an escape hands to a terminal; the end of the line ends it, too.

        The escape that ends it is performed like any other: the proper one does nothing.
        """
        end = _STRING_END.search(text)
        if end is None:
            return ""
        self._is_in_string = False
        return text[end.start() if end[0] in "\n\x1b" else end.end() :]

    def _perform(self, token: re.Match[str]) -> None:
        if run := token["text"]:
            self._screen.write(run)
        elif control := token["control"]:
            self._screen.control(control)
        elif final := token["final"]:
            self._screen.sequence(final, _numbers(token["parameters"]))
        else:
            self._screen.escape(token["escape"])


def _numbers(parameters: str) -> list[int]:
    """Read a sequence's numbers; private ones (`?25`) mean nothing here, and a missing one is 0, as in terminals."""
    if parameters[:1] in ("<", "=", ">", "?"):
        return []
    return [int(each) if each.isdigit() else 0 for each in parameters.split(";")]


class _Line:
    """A line of the screen; `extent` is how long it would be if nothing were cut."""

    __slots__ = ("cells", "extent", "is_redrawn")

    def __init__(self, text: str = "") -> None:
        self.cells = list(text[:LINE_CHARACTERS_MAX])
        self.extent = len(text)
        self.is_redrawn = False

    def write(self, column: int, run: str) -> None:
        end = column + len(run)
        if column < self.extent:
            self.is_redrawn = True
        if column < LINE_CHARACTERS_MAX:
            if column > len(self.cells):
                self.cells.extend(" " * (column - len(self.cells)))
            self.cells[column:end] = run[: LINE_CHARACTERS_MAX - column]
        self.extent = max(self.extent, end)

    def erase(self, start: int, end: int | None = None) -> None:
        """Erase from one column up to another, or all that is right of it."""
        self.is_redrawn = True
        if end is None or end >= self.extent:
            del self.cells[start:]
            self.extent = min(self.extent, start)
        else:
            self.cells[start:end] = " " * (min(end, len(self.cells)) - min(start, len(self.cells)))

    def text(self) -> str:
        # Spaces at the end of a line that was redrawn are what programs erase with.
        text = "".join(self.cells)
        return (text.rstrip(" ") if self.is_redrawn else text) + _cut_mark(self.extent)


def _cut_mark(extent: int) -> str:
    missing = extent - LINE_CHARACTERS_MAX
    return f" … [{missing:,} characters cut]" if missing > 0 else ""


class _Screen:
    """The lines that can still be changed, with a cursor on one of them, and the text of those that left.

    Absolute rows count from the first of these lines. What is saved of the cursor counts from the very first one.
    """

    def __init__(self) -> None:
        self._lines = [_Line()]
        self._row = 0
        self._column = 0
        self._gone = 0
        self._saved = (0, 0)
        self._settled: list[str] = []
        self.goes_back = False

    def taken(self) -> str:
        """Give the text of the lines that left since the last call."""
        text = "".join(self._settled)
        self._settled.clear()
        return text

    def settle_above(self) -> None:
        self._settle(self._row)

    def settle_all(self) -> None:
        self._settle(len(self._lines) - 1)
        self._settled.append(self._lines[0].text())
        self._lines = [_Line()]

    def write(self, run: str) -> None:
        if run:
            self._lines[self._row].write(self._column, run)
            self._column += len(run)

    def write_plain(self, text: str) -> None:
        """Write text in which nothing but newlines moves the cursor; many lines at once cost little."""
        first, *others = text.split("\n")
        is_last = self._row == len(self._lines) - 1
        if not is_last or len(others) <= WINDOW_LINES:
            self.write(first)
            for other in others:
                self._newline()
                self.write(other)
            return
        self.write(first)
        self._settle(len(self._lines))
        kept = len(others) - WINDOW_LINES
        self._settled.extend(f"{other[:LINE_CHARACTERS_MAX]}{_cut_mark(len(other))}\n" for other in others[:kept])
        self._gone += kept
        self._lines = [_Line(other) for other in others[kept:]]
        self._row = len(self._lines) - 1
        self._column = len(others[-1])

    def control(self, character: str) -> None:
        if character == "\r":
            self._column = 0
        elif character == "\b":
            self._column = max(0, self._column - 1)
        else:
            self._newline()

    def escape(self, final: str) -> None:
        match final:
            case "7":
                self._saved = (self._gone + self._row, self._column)
            case "8":
                self._restore()
            case "E":
                self._newline()
            case "M":
                self._row = max(0, self._row - 1)
            case "c":
                self._begin_anew()

    def sequence(self, final: str, numbers: list[int]) -> None:
        """Perform a control sequence; one that only colours, or that isn't known, does nothing."""
        if not numbers:
            return
        count = max(1, numbers[0])
        match final:
            case "A" | "F":
                self.goes_back = True
                self._row = max(0, self._row - count)
            case "B" | "E" | "e":
                self._row = min(len(self._lines) - 1, self._row + count)
            case "C" | "a":
                self._column = max(self._column, self._reachable(self._column + count))
            case "D":
                self._column = max(0, self._column - count)
            case "G" | "`":
                self._column = self._reachable(count - 1)
            case "H" | "f":
                self._go(count, max(1, numbers[1]) if len(numbers) > 1 else 1)
            case "d":
                self._go(count, self._column + 1)
            case "J":
                self._erase_screen(numbers[0])
            case "K":
                self._erase_line(numbers[0])
            case "X":
                self._lines[self._row].erase(self._column, self._column + count)
            case "s":
                self.escape("7")
            case "u":
                self._restore()
        if final in "EF":
            self._column = 0

    def _newline(self) -> None:
        self._row += 1
        self._column = 0
        if self._row == len(self._lines):
            self._lines.append(_Line())
            self._settle(len(self._lines) - WINDOW_LINES)

    def _settle(self, count: int) -> None:
        """Let the first lines go."""
        if count <= 0:
            return
        self._settled.extend(line.text() + "\n" for line in self._lines[:count])
        del self._lines[:count]
        self._gone += count
        self._row = max(0, self._row - count)

    def _reachable(self, column: int) -> int:
        """Bound a column: what is written can be long, but a few bytes of an escape shall not make a long line."""
        return min(column, max(COLUMNS_MAX, self._lines[self._row].extent))

    def _go(self, row: int, column: int) -> None:
        self.goes_back = True
        self._row = min(row, WINDOW_LINES) - 1
        while self._row >= len(self._lines):
            self._lines.append(_Line())
        self._column = self._reachable(column - 1)

    def _restore(self) -> None:
        line, self._column = self._saved
        self._row = min(max(0, line - self._gone), len(self._lines) - 1)

    def _erase_line(self, mode: int) -> None:
        line = self._lines[self._row]
        if mode == 0:
            line.erase(self._column)
        elif mode == 1:
            line.erase(0, self._column + 1)
        elif mode == 2:
            line.erase(0)

    def _erase_screen(self, mode: int) -> None:
        if mode == 0:
            self._erase_line(0)
            del self._lines[self._row + 1 :]
        elif mode == 1:
            self._erase_line(1)
            for line in self._lines[: self._row]:
                line.erase(0)
        elif mode == 2:
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Go on with an empty screen below everything that was written."""
        while self._lines and not self._lines[-1].extent:
            self._lines.pop()
        self._settle(len(self._lines))
        self._lines = [_Line()]
        self._row = self._column = 0
