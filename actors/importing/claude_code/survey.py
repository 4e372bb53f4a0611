"""Which sessions a Claude Code file holds, and which of its records lack their parent."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from ..content import text_of
from ..dialect import Json, session_key, short, title_from, working_directory
from ..drafts import SessionHeader
from ..prints import Prints
from ..records import Record
from ..report import ImportReport, printable
from ..times import milliseconds
from .reader import ClaudeCodeReader
from .records import FORMAT, agent_of, content_of, is_prompt, session_of

_TITLES = {"ai-title": "aiTitle", "custom-title": "customTitle"}  # the later is the better one
_SUMMARIES_KEPT = 32
_PROMPT_CHARACTERS_MAX = 4096
_COMMAND = re.compile(
    r"(?s)^<command-.*?<command-name>(.*?)</command-name>(?:\s*<command-args>(.*?)</command-args>)?.*"
)


class _Found:
    """What the survey knows of one session; `session` is None until a record says it."""

    def __init__(self, session: str | None, agent: str | None) -> None:
        self.session = session
        self.agent = agent
        self.cwd: str | None = None
        self.created: int | None = None
        self.version = ""
        self.branch = ""
        self.forked_from = ""
        self.prompt = ""
        self.titles: dict[str, str] = {}
        self.summaries: deque[tuple[int, str]] = deque(maxlen=_SUMMARIES_KEPT)

    def note(self, value: Json) -> None:
        """Take what the record says about its session."""
        self.cwd = self.cwd or working_directory(value.get("cwd"))
        self.created = self.created or milliseconds(value.get("timestamp"))
        self.version = self.version or short(value.get("version"))
        self.branch = self.branch or short(value.get("gitBranch"))
        origin = value.get("forkedFrom")
        self.forked_from = self.forked_from or (short(origin.get("sessionId")) if isinstance(origin, dict) else "")
        kind = value.get("type")
        if kind == "summary":
            self.summaries.append((hash(short(value.get("leafUuid"))), short(value.get("summary"))))
        elif isinstance(kind, str) and kind in _TITLES:
            self.titles[kind] = short(value.get(_TITLES[kind]))
        elif kind == "user" and not self.prompt:
            content = content_of(value)
            if content is not None and is_prompt(value, content, is_child=self.agent is not None):
                said = text_of(content)[:_PROMPT_CHARACTERS_MAX]
                self.prompt = title_from(_COMMAND.sub(r"\1 \2", said, count=1))

    def header(self, stem: str, file: str, uuids: Prints) -> SessionHeader:
        """Put the header together; `uuids` are those of the file, as hashes."""
        session = self.session or stem
        # Summaries of earlier conversations stand in the file too; they name a record that doesn't.
        titles = [text for leaf, text in self.summaries if leaf in uuids]
        titles += [self.titles[kind] for kind in _TITLES if self.titles.get(kind)]
        parent = session if self.agent else self.forked_from
        return SessionHeader(
            key=session_key(FORMAT, f"{session}/{self.agent}" if self.agent else session),
            cwd=self.cwd,
            title=title_from(titles[-1] if titles else self.prompt),
            created=self.created,
            origin={"tool": FORMAT, "version": self.version, "file": file},
            labels={"imported": FORMAT} | ({"branch": self.branch} if self.branch else {}),
            parent_key=session_key(FORMAT, parent) if parent else None,
        )


class ClaudeCodeSurvey:
    """Sorts a file's records by session, and finds those whose parent is missing.

    A record without a session id belongs to the session of the record before it, at the beginning to the first one.
    """

    def __init__(self, path: Path, report: ImportReport) -> None:
        self._path = path
        self._report = report
        self._found: list[_Found] = []
        self._numbers: dict[tuple[str | None, str | None], int] = {}
        self._current = 0
        self._uuids = Prints()
        self._gaps: dict[int, str] = {}

    def place(self, record: Record, line: int) -> int:
        value = record.value
        self._current = self._number(value, line)
        self._found[self._current].note(value)
        self._look_for_gap(value, line)
        return self._current

    def _number(self, value: Json, line: int) -> int:
        identity = (session_of(value), agent_of(value))
        if identity[0] is None:
            if not self._found:
                self._found.append(_Found(None, None))
            return self._current
        if identity not in self._numbers:
            if self._found and self._found[0].session is None:
                self._found[0].session, self._found[0].agent = identity
                self._numbers[identity] = 0
            else:
                if self._found and identity[1] is None:
                    why = f"from here records of another session, {short(identity[0])!r}, kept as a session of its own"
                    self._report.add_problem(self._path, line, why)
                self._numbers[identity] = len(self._found)
                self._found.append(_Found(*identity))
        return self._numbers[identity]

    def _look_for_gap(self, value: Json, line: int) -> None:
        parent, uuid = value.get("parentUuid"), value.get("uuid")
        if isinstance(parent, str) and hash(parent) not in self._uuids:
            self._gaps[line] = parent
            self._report.add_problem(self._path, line, f"kept, but its parent record {short(parent)!r} is missing")
        if isinstance(uuid, str):
            self._uuids.add(hash(uuid))

    def headers(self) -> Sequence[SessionHeader]:
        stem, file = printable(Path(self._path.stem)), printable(Path(self._path.name))
        return [each.header(stem, file, self._uuids) for each in self._found]

    def reader(self, session: int) -> ClaudeCodeReader:
        found = self._found[session]
        return ClaudeCodeReader(found.session, found.agent, self._gaps, self._report)
