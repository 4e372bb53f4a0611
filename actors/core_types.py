"""The core types: the words that turnkeeper itself writes or goes by, and the shape of each one's data. Pure.

Everything under a core prefix is turnkeeper's, so that a later version can add words without meeting a program's own.
A task's records stand in a stream of its own and are the node's alone to write; two of them come to a session, too, as
notices in its inbox, and may be logged there when they are accepted.
"""

from __future__ import annotations

from typing import Final, get_args

from .folding import (
    ASSISTANT_MESSAGE,
    INBOX_MESSAGE,
    REWOUND,
    TOOL_FINISHED,
    TOOL_LATE_RESULT,
    TOOL_STARTED,
    TURN_END,
    TURN_START,
    Effect,
    Reason,
)
from .shapes import ANYTHING, COUNT, LIST, NAME, OBJECT, TEXT, ListOf, OneOf, OrNull, Shape

STEP_START: Final = "step/start"
STEP_END: Final = "step/end"
USER_MESSAGE: Final = "user/message"
ASSISTANT_CHUNK: Final = "assistant/chunk"
SESSION_CREATED: Final = "session/created"
SESSION_REPAIRED: Final = "session/repaired"
SESSION_FORKED: Final = "session/forked"
INBOX_ACCEPTED: Final = "inbox/accepted"
SNAPSHOT: Final = "snapshot"
TASK_REQUESTED: Final = "task/requested"
TASK_STARTED: Final = "task/started"
TASK_STOPPING: Final = "task/stopping"
TASK_STALLED: Final = "task/stalled"
TASK_ENDED: Final = "task/ended"
TASK_EMPTIED: Final = "task/emptied"

TEXT_CHANNEL: Final = "text"
"""The channel of what isn't given another one; chunks of it don't name it."""

IMPORT_KEY: Final = "import_key"
"""Member of an imported event's data: which record it was made from, the same at every import."""

CORE_PREFIXES: Final = frozenset(("turn", "step", "user", "assistant", "tool", "session", "task", "inbox", SNAPSHOT))

_CALL: Final = Shape({"id": NAME, "name": TEXT}, {"arguments": ANYTHING})
_RESULT: Final = Shape({"id": NAME}, {"output": ANYTHING, "error": OrNull(TEXT)})

_PROCESSES: Final = ListOf("a list of processes", Shape({}, {"pid": COUNT, "start": COUNT, "command": TEXT}))

TASK_TYPES: Final[dict[str, Shape]] = {
    TASK_REQUESTED: Shape(
        {"command": LIST, "cwd": TEXT, "grace": ANYTHING, "limit": COUNT, "on_owner_exit": OneOf("kill", "keep")},
        {
            "key": NAME,
            "session": NAME,
            "group": NAME,
            "timeout": ANYTHING,
            "stall": ANYTHING,
            "environment": LIST,
            "command_digest": NAME,
            "token": NAME,
        },
    ),
    TASK_STARTED: Shape({"pid": COUNT, "shim": OBJECT}),
    TASK_STOPPING: Shape({"by": NAME, "grace": ANYTHING}),
    TASK_STALLED: Shape({"silent_seconds": ANYTHING, "output_bytes": COUNT}, {"task": NAME}),
    TASK_ENDED: Shape(
        {"state": OneOf("ended", "lost"), "by": TEXT, "survivors": _PROCESSES},
        {
            "task": NAME,
            "how": OBJECT,
            "output_bytes": COUNT,
            "output": TEXT,
            "why": TEXT,
            "survivors_more": COUNT,
            "progress": OBJECT,
        },
    ),
    TASK_EMPTIED: Shape(),
}
"""Each type of a task's own stream, and the shape of its data; in a notice `task` says which task it is of."""

CORE_TYPES: Final[dict[str, Shape]] = {
    TURN_START: Shape({}, {"turn": COUNT}),
    TURN_END: Shape({"reason": OneOf(*get_args(Reason))}, {"turn": COUNT, "error": OBJECT}),
    STEP_START: Shape({}, {"step": COUNT}),
    STEP_END: Shape({}, {"step": COUNT}),
    USER_MESSAGE: Shape({"text": TEXT}, {"content": LIST}),
    ASSISTANT_MESSAGE: Shape(
        {"text": TEXT},
        {
            "content": LIST,
            "tool_calls": ListOf("a list of calls", _CALL),
            "message_id": TEXT,
            "model": TEXT,
            "usage": OBJECT,
        },
    ),
    ASSISTANT_CHUNK: Shape({"text": TEXT}, {"channel": TEXT}),
    TOOL_STARTED: Shape({"id": NAME, "name": TEXT}, {"arguments": ANYTHING, "effect": OneOf(*get_args(Effect))}),
    TOOL_FINISHED: _RESULT,
    TOOL_LATE_RESULT: _RESULT,
    SESSION_CREATED: Shape(),
    SESSION_REPAIRED: Shape({"from": NAME, "first": COUNT, "head": COUNT, "missing": LIST, "events": COUNT}),
    SESSION_FORKED: Shape({"parent": NAME, "at": COUNT}),
    REWOUND: Shape({"to": COUNT}, {"previous": OrNull(COUNT)}),
    INBOX_MESSAGE: Shape({"type": NAME, "data": OBJECT}, {"sender": OrNull(TEXT)}),
    INBOX_ACCEPTED: Shape({"inbox": COUNT}),
    SNAPSHOT: Shape({"state": ANYTHING}),
    **{type: TASK_TYPES[type] for type in (TASK_STALLED, TASK_ENDED)},
}
"""Each core type that stands in sessions and inboxes, and the shape of its data."""
