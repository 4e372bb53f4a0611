"""How far a task is, read from what it prints, and how often that is told.

A task may report: a line `TURNKEEPER_PROGRESS {"percent": 42, "phase": "link"}`, with any of the members percent,
current, total, unit, phase and message. From its first report on nothing else counts. Until then progress is guessed
from the forms that programs print for people (`progress_forms`). Either is advice: it is read from whatever a program
writes, so nothing but a display may rest on it.

- A percentage lies between 0 and 100. Where the total isn't known, or makes no sense, there is none: that is not 0.
- A line's name is its phase; where a figure falls back under the same name, phases are counted: "2", "unpack (2)".
- Of bars below each other, redrawn by moving the cursor up, the uppermost counts: the others are parts of it.
- Pieces may be cut anywhere. Of one longer than SEARCHED_BYTES_MAX only the end is searched, and the last report
  before it: so a look costs some milliseconds at most, whatever was printed. No more than LINE_BYTES_MAX are kept.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, Generic, NamedTuple, TypeVar

from .progress_forms import NAME_CHARACTERS_MAX, Figure, guess, percentage

MARKER: Final = b"TURNKEEPER_PROGRESS "

LINE_BYTES_MAX: Final = 4096
"""A longer line says nothing of progress."""

SEARCHED_BYTES_MAX: Final = 16 * 1024
"""Of one piece of output."""

UNIT_CHARACTERS_MAX: Final = 20
MESSAGE_CHARACTERS_MAX: Final = 200
NUMBER_MAX: Final = 2**53

TOLD_PER_SECOND_MAX: Final = 5.0

_FALL_POINTS: Final = 10
_ESCAPE_BYTES_MAX: Final = 24

_NEWLINES: Final = (b"\n", b"\r\n")
_SEPARATOR = re.compile(rb"\r\n|[\r\n\x08]|\x1b\[([0-9;]{0,16})([ABEFGHdf])")
_CANDIDATE = re.compile(
    rb"[0-9] ?%|[0-9][ A-Za-z]{0,4}/ ?[0-9]|[0-9][ A-Za-z]{0,4} of [0-9]|[A-Za-z] \[[0-9]"
    rb"|TURNKEEPER_P|\x1b\[[0-9;]*[AEF]"
)
_UNSEEN = re.compile(rb"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b(?:\[[0-?]*[ -/]*)?[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


class ProgressReader:
    """Reads one task's output piece by piece and knows the latest progress; see `value`."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_overlong = False
        self._is_redrawn = False
        self._rows = _Rows()
        self._latest: _Progress | None = None

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the output, cut anywhere."""
        text = self._rest + piece
        # What follows a carriage return says whether it redraws the line.
        stop = len(text) - text.endswith(b"\r")
        begin = 0
        if self._is_overlong:
            found = _SEPARATOR.search(text, 0, stop)
            if found is None:
                self._rest = text[-_ESCAPE_BYTES_MAX:]
                return
            self._is_overlong = False
            begin = found.start()
        self._rest = text[self._read(text, begin, stop) :]
        if len(self._rest) > LINE_BYTES_MAX + _ESCAPE_BYTES_MAX:
            self._rest = self._rest[-_ESCAPE_BYTES_MAX:]
            self._is_overlong = True

    def skip(self) -> None:
        """Take note that bytes were passed over: what comes next may be the rest of a line."""
        self._rest = b""
        self._is_overlong = True
        self._rows = _Rows()

    def value(self, *, ended: bool = False) -> dict[str, Any] | None:
        """Give {percent?, current?, total?, unit?, phase?, message?, reported}, None if nothing told of progress.

        `ended` says that nothing will come any more, so that the last line is whole.
        """
        latest = self._latest
        if not self._is_overlong:
            figure = self._figure(self._rest, is_redrawn=self._is_redrawn, is_whole=ended)
            latest = latest if figure is None else _following(latest, figure)
        return None if latest is None else latest.as_map()

    def _read(self, text: bytes, begin: int, stop: int) -> int:
        """Read the lines between two places, and say where the one begins that isn't ended."""
        searched = stop - SEARCHED_BYTES_MAX
        if begin < searched:
            report = text.rfind(MARKER, begin, searched)
            if report >= 0:
                begin = self._pass_over(text, begin, report)
                end = _SEPARATOR.search(text, report, stop)
                begin = self._read_lines(text, begin, end.end() if end is not None else begin)
            begin = self._pass_over(text, begin, max(begin, searched))
        if self._may_tell(text, begin, stop):
            return self._read_lines(text, begin, stop)
        return self._pass_over(text, begin, stop)

    def _read_lines(self, text: bytes, begin: int, stop: int) -> int:
        for separator in _SEPARATOR.finditer(text, begin, stop):
            is_newline = separator[0] in _NEWLINES
            figure = self._figure(
                text[begin : separator.start()], is_redrawn=self._is_redrawn or not is_newline, is_whole=True
            )
            if figure is not None:
                self._latest = _following(self._latest, figure)
                self._rows.draw()
            self._is_redrawn = not is_newline
            self._rows.move(separator)
            begin = separator.end()
        return begin

    def _pass_over(self, text: bytes, begin: int, stop: int) -> int:
        """Go over lines as `_read_lines` does, but look at none of them."""
        self._rows.move_down(text.count(b"\n", begin, stop))
        tail = max(begin, stop - LINE_BYTES_MAX - _ESCAPE_BYTES_MAX)
        separators = list(_SEPARATOR.finditer(text, tail, stop))
        if not separators:
            return begin
        self._is_redrawn = separators[-1][0] not in _NEWLINES
        return separators[-1].end()

    def _may_tell(self, text: bytes, begin: int, end: int) -> bool:
        """Say whether anything between two places can tell of progress; quickly, as most output doesn't."""
        if self._latest is not None and self._latest.figure.is_reported:
            return text.find(MARKER, begin, end) >= 0
        return _CANDIDATE.search(text, begin, end) is not None

    def _figure(self, line: bytes, *, is_redrawn: bool, is_whole: bool) -> Figure | None:
        """Read a line that tells of progress and counts; None for any other."""
        if len(line) > LINE_BYTES_MAX or not self._may_tell(line, 0, len(line)):
            return None
        line = _UNSEEN.sub(b"", line)
        if line.lstrip().startswith(MARKER):
            return _report(line.lstrip()[len(MARKER) :])
        if self._rows.is_inner or (self._latest is not None and self._latest.figure.is_reported):
            return None
        return guess(line.decode("utf-8", "replace"), is_redrawn=is_redrawn, is_whole=is_whole)


class _Rows:
    """Where the cursor stands among bars that are drawn below each other, as far as moving up again tells of them.

    Between the uppermost and the lowest row that the cursor was seen in, the uppermost figure is the outer one. A
    newline in the lowest row ends that.
    """

    def __init__(self) -> None:
        self._row = 0
        self._lowest: int | None = None
        self._outer: int | None = None

    @property
    def is_inner(self) -> bool:
        """Say whether what is drawn here is below the outer figure."""
        return self._outer is not None and self._row > self._outer

    def draw(self) -> None:
        """Take note that a figure stands here."""
        if self._lowest is not None:
            self._outer = self._row

    def move(self, separator: re.Match[bytes]) -> None:
        """Follow the cursor over what separates two lines."""
        if separator[0] in _NEWLINES:
            self.move_down(1)
        elif separator[2] in (b"A", b"F"):
            self._lowest = self._row if self._lowest is None else self._lowest
            self._row -= _count(separator[1])
        elif separator[2] in (b"B", b"E"):
            self.move_down(_count(separator[1]))

    def move_down(self, rows: int) -> None:
        """Go down by newlines."""
        self._row += rows
        if self._lowest is not None and self._row > self._lowest:
            self._lowest = self._outer = None


def _count(parameters: bytes) -> int:
    """Read how many rows a sequence moves; nonsense moves one, as none does."""
    return int(parameters) if parameters.isdigit() and int(parameters) else 1


class _Progress(NamedTuple):
    """A figure in its phase: the n-th of this name."""

    figure: Figure
    number: int = 1

    def as_map(self) -> dict[str, Any]:
        figure, number = self
        phase = figure.name
        if number > 1:
            phase = f"{number}" if phase is None else f"{phase} ({number})"
        members = {
            "percent": figure.percent,
            "current": figure.current,
            "total": figure.total,
            "unit": figure.unit,
            "phase": phase,
            "message": figure.message,
        }
        return {
            **{name: value for name, value in members.items() if value is not None},
            "reported": figure.is_reported,
        }


def _following(latest: _Progress | None, figure: Figure) -> _Progress:
    """Put a figure into its phase."""
    if latest is None or latest.figure.is_reported != figure.is_reported or latest.figure.name != figure.name:
        return _Progress(figure)
    return _Progress(figure, latest.number + _falls_back(latest.figure, figure))


def _falls_back(before: Figure, figure: Figure) -> bool:
    """Say whether a figure is so much less than the one before that something must have begun anew."""
    if before.percent is not None and figure.percent is not None:
        return figure.percent <= before.percent - _FALL_POINTS or 0 == figure.percent < before.percent
    if before.percent is None and before.current is not None and figure.current is not None:
        return figure.current < before.current
    return False


def _report(content: bytes) -> Figure | None:
    """Read what a program reports; None if it is no JSON object, or if any member of it makes no sense."""
    try:
        members = json.loads(content.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(members, dict):
        return None
    try:
        percent = _reported_number(members.get("percent"), 100)
        current = _reported_number(members.get("current"), NUMBER_MAX)
        total = _reported_number(members.get("total"), NUMBER_MAX) or None
        if total is not None and current is not None:
            if current > total:
                return None
            percent = percentage(current, total) if percent is None else percent
        return Figure(
            percent,
            current,
            total,
            _reported_text(members.get("unit"), UNIT_CHARACTERS_MAX),
            _reported_text(members.get("phase"), NAME_CHARACTERS_MAX),
            _reported_text(members.get("message"), MESSAGE_CHARACTERS_MAX),
            is_reported=True,
        )
    except ValueError:
        return None


def _reported_number(value: Any, most: int) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise ValueError("no number, or none between its bounds")
    return value


def _reported_text(value: Any, characters_max: int) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError("no text")
    # Half a character, which JSON can spell, would be refused wherever this goes.
    text = "".join(each if each.isprintable() else " " for each in value[: 2 * characters_max])
    return " ".join(text.split())[:characters_max] or None


Value = TypeVar("Value")


class Pace(Generic[Value]):
    """Spaces a changing value: the newest is given out at most so often, and the last one always."""

    def __init__(self, per_second: float = TOLD_PER_SECOND_MAX) -> None:
        self._seconds = 1 / per_second
        self._given: float | None = None
        self._waiting: list[Value] = []

    def put(self, value: Value) -> None:
        """Take the newest value in place of one that still waits."""
        self._waiting = [value]

    def due(self, now: float) -> float | None:
        """Say when `take` will give something, on the clock of `now`; None if nothing waits."""
        if not self._waiting:
            return None
        return now if self._given is None else max(now, self._given + self._seconds)

    def take(self, now: float, *, is_last: bool = False) -> Value | None:
        """Give the newest value if one waits and its time has come, or if it is the last one; else None."""
        due = self.due(now)
        if due is None or (due > now and not is_last):
            return None
        self._given = now
        return self._waiting.pop()
