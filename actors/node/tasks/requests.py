"""Read what clients ask of a node about tasks, checking every field: a frame's map in, a request or a FrameError out.

What a caller may get wrong is refused on his side, before anything is sent (a missing program, a timeout of nothing);
here each field only gets the type and the bounds that the node, the task's files and its shim rely on. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.tasks.directory import as_text
from turnkeeper.storage.format import is_id
from turnkeeper.storage.limits import INTEGER_MAX

from ... import protocol
from ...ids import is_task_id
from ...names import is_name
from ...tasks.records import TaskRequest

SECONDS_MAX: Final = 10**9
"""The longest time that a task may be given, some thirty years; what is longer means no limit."""

IDS_MAX: Final = 100_000
"""Ids in one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A wish that a task runs; texts are as the task's files have them. `environment` are names of variables."""

    task: str
    key: str | None
    token: str | None
    argv: list[str]
    program: str
    cwd: str
    umask: int
    env: dict[bytes, bytes]
    environment: list[str]
    timeout: float | None
    grace: float
    limit: int
    keep: bool
    session: str | None
    group: str | None
    stall: float | None

    def as_record(self, starter: Mapping[str, Any]) -> TaskRequest:
        """Give what is recorded of it; `starter` is the runtime that asks."""
        return TaskRequest(
            id=self.task,
            command=self.argv,
            cwd=self.cwd,
            grace=self.grace,
            limit=self.limit,
            keep=self.keep,
            starter=starter,
            timeout=self.timeout,
            stall=self.stall,
            key=self.key,
            session=self.session,
            group=self.group,
            environment=self.environment,
            token=self.token,
        )

    def as_spec(self, owner: Mapping[str, Any] | None) -> dict[str, Any]:
        """Give what the task's directory says of it; `owner` is the process with which the task has to end."""
        return {
            "id": self.task,
            "argv": self.argv,
            "program": self.program,
            "cwd": self.cwd,
            "umask": self.umask,
            "timeout": self.timeout,
            "grace": self.grace,
            "limit": self.limit,
            "owner": owner,
            "stall": self.stall,
        }


@dataclass(frozen=True, slots=True)
class Stop:
    """A wish that tasks, and the unfinished ones of sessions, be stopped, with `grace` seconds until KILL."""

    tasks: list[str]
    sessions: list[str]
    grace: float


@dataclass(frozen=True, slots=True)
class Wait:
    """A wish to hear of a task's end, and with `tree` of the end of all that it started."""

    task: str
    tree: bool


@dataclass(frozen=True, slots=True)
class List:
    """A wish to hear of the unfinished tasks, of those of a session if it is named."""

    session: str | None


@dataclass(frozen=True, slots=True)
class EndOwned:
    """A wish that the tasks of the runtime that asks be stopped, except for those that outlive it."""


Request: TypeAlias = Start | Stop | Wait | List | EndOwned


def request_from_wire(message: Mapping[str, Any]) -> Request:
    """Read what a client asks. Raises FrameError for what is no request."""
    match message:
        case {"op": protocol.START_TASK}:
            return start_from_wire(message)
        case {"op": protocol.STOP_TASKS}:
            return stop_from_wire(message)
        case {"op": protocol.WAIT_TASK}:
            return wait_from_wire(message)
        case {"op": protocol.LIVE_TASKS}:
            return List(message.get("session"))
        case {"op": protocol.END_TASKS}:
            return EndOwned()
    raise FrameError(f"what was sent is no request to a node: {message!r:.100}")


def start_from_wire(message: Mapping[str, Any]) -> Start:
    """Read the wish to start a task. Raises FrameError."""
    task, argv, env = message.get("task"), message.get("argv"), message.get("env")
    limit, keep, umask = message.get("limit"), message.get("keep"), message.get("umask")
    if not isinstance(task, str) or not is_id(task) or not is_task_id(task):
        raise FrameError(f"this is no task's id: {task!r:.100}")
    if not isinstance(env, dict) or not all(_is_bytes(name) and _is_bytes(value) for name, value in env.items()):
        raise FrameError("a task's environment is a map of bytes")
    if limit.__class__ is not int or not 0 < limit <= INTEGER_MAX:
        raise FrameError("a task's limit is a number of bytes")
    if umask.__class__ is not int or not 0 <= umask <= 0o777:
        raise FrameError("a task's umask is a number from 0 to 0o777")
    if keep.__class__ is not bool:
        raise FrameError("a task is kept or not")
    return Start(
        task=task,
        key=_text(message, "key"),
        token=_text(message, "token"),
        argv=_texts(argv, "arguments"),
        program=_path(message.get("program")),
        cwd=_path(message.get("cwd")),
        umask=umask,
        env=env,
        environment=_names(message.get("environment")),
        timeout=_seconds(message.get("timeout"), none=True),
        grace=_seconds(message.get("grace")) or 0.0,
        limit=limit,
        keep=keep,
        session=_text(message, "session"),
        group=_text(message, "group"),
        stall=_seconds(message.get("stall"), none=True),
    )


def stop_from_wire(message: Mapping[str, Any]) -> Stop:
    """Read the wish to stop tasks. Raises FrameError."""
    grace = _seconds(message.get("grace")) or 0.0
    return Stop(_ids(message.get("tasks")), _ids(message.get("sessions", [])), grace)


def wait_from_wire(message: Mapping[str, Any]) -> Wait:
    """Read the wish to wait for a task. Raises FrameError."""
    task, tree = message.get("task"), message.get("tree", False)
    if not is_name(task) or tree.__class__ is not bool:
        raise FrameError("who waits names a task, and tree is true or false")
    return Wait(str(task), tree)


def _text(message: Mapping[str, Any], name: str) -> str | None:
    value = message.get(name)
    if value is None or is_name(value):
        return value
    raise FrameError(f"a task's {name} is a short text")


def _texts(found: Any, what: str) -> list[str]:
    if not isinstance(found, list) or not found or not all(_is_bytes(each) for each in found):
        raise FrameError(f"a task's {what} are a list of bytes without NUL")
    return [as_text(each) for each in found]


def _names(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise FrameError("the variables that a task's caller sets are a list of names")
    return found


def _path(found: Any) -> str:
    if not _is_bytes(found) or not found.startswith(b"/"):
        raise FrameError(f"this is no absolute path: {found!r:.100}")
    return as_text(found)


def _seconds(found: Any, *, none: bool = False) -> float | None:
    if none and found is None:
        return None
    if found.__class__ not in (int, float) or not math.isfinite(found) or found < 0:
        raise FrameError("a task's times are seconds from 0 on")
    return None if none and found > SECONDS_MAX else min(float(found), float(SECONDS_MAX))


def _ids(found: Any) -> list[str]:
    if not isinstance(found, list) or len(found) > IDS_MAX or not all(is_name(each) for each in found):
        raise FrameError("what is to be stopped is named by a list of ids")
    return list(dict.fromkeys(found))


def _is_bytes(value: Any) -> bool:
    return value.__class__ is bytes and b"\0" not in value
