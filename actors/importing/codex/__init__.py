"""Codex's session files (rollouts): one JSON object a line, of which the first says whose session it is.

What becomes what:

* a `response_item` is the truth: a message is `user/message` or `assistant/message`, a call with its own output item
  `tool/started`, the output `tool/finished`; any other is kept whole as `codex/<type of the item>`;
* an `event_msg` says the same for the screen, or what no item says (tokens, names, reviews), and is kept whole as
  `codex/<type of the message>`; every other record as `codex/<type>`;
* an exchange begins and ends where `task_started`, `task_complete` and `turn_aborted` say so. In files without these
  it begins with a prompt that follows an answer, and ends where the next one begins.

Older files, whose items stand in no `payload`, are read as well. A fork's file begins with a copy of its parent's
records, the parent's `session_meta` among them: the first record names the session, and messages from before the fork
are marked by `replayed`. A record is known by its bytes and by how often they came, for there are no ids that all
have; an item that has one and comes again unchanged is a repetition.
"""

from __future__ import annotations

from pathlib import Path

from ..dialect import Json
from ..report import ImportReport
from .records import FORMAT, WRAPPED, item_of
from .survey import CodexSurvey


class Codex:
    """The format, as the reading of files uses it."""

    name = FORMAT

    def knows(self, value: Json) -> bool:
        item = item_of(value)
        if item.kind not in WRAPPED or item.payload is None:
            return False
        if item.payload is not value or item.kind == "session_meta":
            return True
        return item.word != "message" or (isinstance(value.get("role"), str) and isinstance(value.get("content"), list))

    def is_whole(self, value: Json) -> bool:
        # The replacement history of a compaction holds bare items, so these are not rescued.
        return all(name in value for name in ("timestamp", "type")) and isinstance(value.get("payload"), dict)

    def survey(self, path: Path, report: ImportReport) -> CodexSurvey:
        return CodexSurvey(path, report)
