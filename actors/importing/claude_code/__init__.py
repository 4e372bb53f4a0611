"""Claude Code's session files: one JSON object a line, each with the id of its session.

What becomes what:

* a user record's text is `user/message`, each tool result in it `tool/finished`;
* an assistant record is `assistant/message`, each tool call in it also `tool/started`. An answer is written in several
  records with the same message id; each becomes an event with its own blocks. All of them report the answer's usage so
  far, so an event's `usage` is what earlier ones of the same answer had not counted: the sum is right, and mostly the
  first event has all of it;
* every other record is kept whole as `claude-code/<type>`, and so is one that isn't formed as expected;
* an exchange begins with a prompt and ends where the next one begins (`completed`; `interrupted` if a call was open),
  or where the user broke it off (`aborted`).

Whatever an event has no place for stays in its `source`, so nothing of a record is lost. A resumed session's file
may repeat earlier records with new ids: answers are recognised by message id and block, the others by all they say but
the id. A record whose parent did not come before it is marked by `gap`. Sub-agents in the main file are part of the
session, marked by `sidechain`; in a file of their own, where records carry an agent's id, they are a child session.
"""

from __future__ import annotations

from pathlib import Path

from ..dialect import Json
from ..report import ImportReport
from .records import FORMAT
from .survey import ClaudeCodeSurvey


class ClaudeCode:
    """The format, as the reading of files uses it."""

    name = FORMAT

    def knows(self, value: Json) -> bool:
        kind = value.get("type")
        if not isinstance(kind, str):
            return False
        by_kind = {"summary": "leafUuid", "file-history-snapshot": "messageId"}.get(kind, "sessionId")
        return isinstance(value.get("sessionId"), str) or isinstance(value.get(by_kind), str)

    def is_whole(self, value: Json) -> bool:
        # Progress records hold whole messages of sub-agents, which have no session id of their own.
        return self.knows(value) and (
            value.get("type") == "summary" or all(isinstance(value.get(name), str) for name in ("sessionId", "uuid"))
        )

    def survey(self, path: Path, report: ImportReport) -> ClaudeCodeSurvey:
        return ClaudeCodeSurvey(path, report)
