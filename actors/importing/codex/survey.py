"""Whose session a Codex file is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..content import text_of
from ..dialect import Json, session_key, short, title_from, working_directory
from ..drafts import SessionHeader
from ..records import Record
from ..report import ImportReport, printable
from ..times import milliseconds
from .reader import CodexReader
from .records import FORMAT, is_prompt, item_of, parent_of

_ROLLOUT = re.compile(r"rollout-.*([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")


class CodexSurvey:
    """Finds out whose session the file is: all of it is one session."""

    def __init__(self, path: Path, report: ImportReport) -> None:
        self._path = path
        self._report = report
        self._first: int | None = None
        self._meta: Json | None = None
        self._created: int | None = None
        self._cwd: str | None = None
        self._name = ""
        self._prompt = ""

    def place(self, record: Record, line: int) -> int:
        item = item_of(record.value)
        payload = item.payload or {}
        self._first = self._first or line
        self._created = self._created or milliseconds(record.value.get("timestamp"))
        if item.kind == "session_meta" and self._is_own_meta(payload, line):
            self._meta = payload
        elif item.kind == "turn_context":
            self._cwd = self._cwd or working_directory(payload.get("cwd"))
        elif item.word == "thread_name_updated":
            self._name = short(payload.get("thread_name")) or self._name
        elif not self._prompt and is_prompt(item):
            self._prompt = title_from(text_of(payload.get("content")))
        return 0

    def _is_own_meta(self, payload: Json, line: int) -> bool:
        """Say whether this is the session's own: it is the file's first line, or the name of the file agrees with it.

        Were the first line damaged, the next such record might be the parent's, copied.
        """
        if self._meta is not None or not isinstance(payload.get("id"), str) or not payload["id"]:
            return False
        return line == 1 or self._named() in (None, payload["id"])

    def _named(self) -> str | None:
        match = _ROLLOUT.fullmatch(self._path.stem)
        return match[1] if match else None

    def headers(self) -> Sequence[SessionHeader]:
        if self._first is None:
            return []
        meta = self._meta or {}
        parent = parent_of(meta)
        git = meta.get("git")
        branch = short(git.get("branch")) if isinstance(git, dict) else ""
        return [
            SessionHeader(
                key=session_key(FORMAT, meta.get("id") or self._named() or printable(Path(self._path.stem))),
                cwd=working_directory(meta.get("cwd")) or self._cwd,
                title=title_from(self._name or self._prompt),
                created=milliseconds(meta.get("timestamp")) or self._created,
                origin={
                    "tool": FORMAT,
                    "version": short(meta.get("cli_version")),
                    "file": printable(Path(self._path.name)),
                },
                labels={"imported": FORMAT} | ({"branch": branch} if branch else {}),
                parent_key=session_key(FORMAT, parent) if parent else None,
            )
        ]

    def reader(self, session: int) -> CodexReader:
        is_fork = self._meta is not None and short(self._meta.get("forked_from_id")) != ""
        forked = milliseconds((self._meta or {}).get("timestamp")) if is_fork else None
        return CodexReader(forked, self._report)
