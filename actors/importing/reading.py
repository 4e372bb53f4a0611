"""Reading session files: every session found, as drafts for the store, whatever state the files are in.

Content decides which format a file has, never its name. No input makes an exception or a wait of it: what can't be
taken is a problem in the report, with file and line, and the rest is read on. Memory is bounded by the longest line and
by the number of records, not by the size of the file: each file is read twice, first for whose records it holds, then
for the events of each session.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from ..blob_references import EVENT_BYTES_MAX
from . import lines
from .claude_code import ClaudeCode
from .codex import Codex
from .dialect import Dialect, Json, Reader, Survey
from .drafts import ImportedEvent, ImportedSession
from .files import SUFFIX, SessionFile, find_files, open_session_file, reason
from .fitting import Fitting
from .lines import Line, read_lines
from .records import FILLING, LineContent, read_records
from .report import ImportReport

_DIALECTS: tuple[Dialect, ...] = (ClaudeCode(), Codex())
FORMATS = tuple(each.name for each in _DIALECTS)
"""The formats that can be imported."""

_STRANGERS_MAX = 256
_LOOKED_THROUGH_BYTES_MAX = 256 * 1024 * 1024
_GLANCE_BYTES_MAX = 1024 * 1024


class UnknownFormat(ValueError):
    """The asked format is none of FORMATS."""

    def __init__(self, format: str) -> None:
        super().__init__(f"{format!r} is no known format; there are {', '.join(FORMATS)}")


def read_sessions(
    path: str | os.PathLike[str],
    report: ImportReport,
    format: str | None = None,
    *,
    event_bytes_max: int = EVENT_BYTES_MAX,
) -> Iterator[ImportedSession]:
    """Yield the sessions of a file, or of all files below a folder, each when it is its turn to be read.

    Without a format each file's own is recognised; below a folder, files of other names than `*.jsonl` that are of no
    known format are none of ours and passed over. An event that would exceed `event_bytes_max`, wherever the store puts
    its data, is left out or shortened, and reported. Raises UnknownFormat at once.
    """
    dialects = tuple(each for each in _DIALECTS if format in (None, each.name))
    if not dialects:
        raise UnknownFormat(format or "")
    return _read_files(Path(path), dialects, event_bytes_max, report)


def _read_files(
    root: Path, dialects: tuple[Dialect, ...], event_bytes_max: int, report: ImportReport
) -> Iterator[ImportedSession]:
    for path in find_files(root, report):
        is_ours = path == root or path.suffix.lower() == SUFFIX
        try:
            with open_session_file(path) as file:
                limit = _LOOKED_THROUGH_BYTES_MAX if is_ours else _GLANCE_BYTES_MAX
                dialect, why = _recognise(file, dialects, limit)
                if dialect is not None:
                    yield from _FileReading(file, dialect, event_bytes_max, report).sessions()
                elif is_ours:
                    report.add_problem(path, 0, why)
        except OSError as error:
            report.add_problem(path, 0, f"can't be read: {reason(error)}")


def _recognise(file: SessionFile, dialects: tuple[Dialect, ...], bytes_max: int) -> tuple[Dialect | None, str]:
    """Find the format of the first record that one knows, or say why there is none."""
    strangers = 0
    is_filling = True

    def is_whole(value: Json) -> bool:
        return any(dialect.is_whole(value) for dialect in dialects)

    for line in read_lines(file.read_at, 0, min(file.size, bytes_max)):
        content = read_records(line.content, is_whole) if line.content is not None else None
        is_filling = is_filling and content is not None and not (line.content or b"").strip(FILLING)
        for record in content.records if content else ():
            for dialect in dialects:
                if dialect.knows(record.value):
                    return dialect, ""
            strangers += 1
        if strangers >= _STRANGERS_MAX:
            break
    if file.size == 0:
        return None, "an empty file"
    if is_filling:
        return None, f"nothing but filling: {file.size} NUL bytes or blanks"
    return None, f"no session file ({' or '.join(each.name for each in dialects)})"


class _Runs:
    """Where one session's lines lie in the file: stretches of (start, stop, number of the first line)."""

    def __init__(self) -> None:
        self._numbers = array("q")

    def add(self, line: Line) -> None:
        if self._numbers and self._numbers[-2] == line.start:
            self._numbers[-2] = line.stop
        else:
            self._numbers.extend((line.start, line.stop, line.number))

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for index in range(0, len(self._numbers), 3):
            start, stop, number = self._numbers[index : index + 3]
            yield start, stop, number


class _FileReading:
    """One file, while its sessions are read."""

    def __init__(self, file: SessionFile, dialect: Dialect, event_bytes_max: int, report: ImportReport) -> None:
        self._file = file
        self._dialect = dialect
        self._event_bytes_max = event_bytes_max
        self._report = report
        self._survey: Survey = dialect.survey(file.path, report)
        self._runs: list[_Runs] = []

    def sessions(self) -> Iterator[ImportedSession]:
        """Survey the file and yield its sessions. Raises OSError if it can't be read."""
        self._look_through()
        for number, header in enumerate(self._survey.headers()):
            yield ImportedSession(header, self._file.path, partial(self._events, number))

    def _look_through(self) -> None:
        """Place every record, note where each session's lines lie, and report what can't be read."""
        current = 0
        for line in read_lines(self._file.read_at, 0, self._file.size):
            content = self._read(line)
            placed = {self._survey.place(record, line.number) for record in content.records}
            for why in content.faults:
                self._report.add_problem(self._file.path, line.number, why)
            # Damage and blank lines belong to the stretch around them, so that one session is one stretch.
            for session in sorted(placed) or [current]:
                while session >= len(self._runs):
                    self._runs.append(_Runs())
                self._runs[session].add(line)
                current = session

    def _read(self, line: Line) -> LineContent:
        if line.content is None:
            why = f"line of {line.length} bytes is over the limit of {lines.LINE_BYTES_MAX // 1024**2} MiB"
            return LineContent([], [why])
        content = read_records(line.content, self._dialect.is_whole)
        if content.faults and not content.records and not line.ended and line.content.strip(FILLING):
            return LineContent([], [f"cut off by the end of the file: {content.faults[0]}"])
        return content

    def _events(self, session: int) -> Iterator[ImportedEvent]:
        reader = self._survey.reader(session)
        fitting = Fitting(self._file.path, self._event_bytes_max, self._report)
        try:
            for start, stop, number in self._runs[session]:
                for line in read_lines(self._file.read_at, start, stop, first_number=number):
                    yield from self._events_of(line, reader, fitting)
        except OSError as error:
            self._report.add_problem(self._file.path, 0, f"can't be read further: {reason(error)}")
        for event in reader.close():
            yield from fitting.fitted(event, 0)

    def _events_of(self, line: Line, reader: Reader, fitting: Fitting) -> Iterator[ImportedEvent]:
        for record in self._read(line).records:
            for event in reader.events(record, line.number):
                yield from fitting.fitted(event, len(record.raw))
