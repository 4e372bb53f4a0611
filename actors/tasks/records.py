"""What is written of a task: from facts to the posts of its stream, and to the notice for its session's inbox. Pure.

A task's stream is its id, of kind "task", owned by nobody and written by the node alone. Each record is stored once for
its key, which is its type (a stall's has the output's size behind it: once per silence); so what is sent again after a
crash changes nothing. What can be known without reading the stream stands in its summary, which is bounded whatever the
command's length and however many processes survive; what was cut ends with "…". Never holds a value of an environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from turnkeeper.storage.exact_json import decode_event, encode_data
from turnkeeper.storage.format import event_prefix
from turnkeeper.storage.limits import INTEGER_MAX, KIB
from turnkeeper.storage.requests import Post

from ..core_types import TASK_EMPTIED, TASK_ENDED, TASK_REQUESTED, TASK_STALLED, TASK_STARTED, TASK_STOPPING
from ..kinds import TASK
from ..tails import event_tail, message_tail

UNFINISHED: Final = "unfinished"
"""Summary key: true until the task has ended and its tree is empty; then it isn't there."""

CUT: Final = "…"
"""Stands where something was cut: as the end of a text, and as the last of a list."""

COMMAND_BYTES_MAX: Final = 64 * KIB
"""A command in the request's line, as JSON; of a longer one the line has a digest, too."""

SUMMARY_REQUEST_BYTES_MAX: Final = 2816
"""What a request puts into the summary, as JSON; the command gets what the rest leaves, ..."""

SUMMARY_COMMAND_BYTES_MAX: Final = 1 * KIB
"""... and at most this."""

SUMMARY_TEXT_BYTES_MAX: Final = 512
"""A directory in the summary, as JSON."""

SUMMARY_WORD_BYTES_MAX: Final = 192
"""A key, an error or a reason in the summary, as JSON."""

SUMMARY_SURVIVORS_MAX: Final = 12
SURVIVORS_MAX: Final = 1024
"""Surviving processes that are named: in the summary, and in the line."""

PROGRESS_BYTES_MAX: Final = 256
"""A last progress in the summary, as JSON; a larger one stands in the line alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRequest:
    """What is asked for: `timeout`, `grace` and `stall` in seconds, `limit` in bytes of output.

    Texts are as `os.fsdecode` gives them. `environment` are the names of the variables that whoever starts it sets or
    removes for this task, not of those that its own process has: they differ between two tries of the same request.
    `token` tells two requests without a key apart. `starter` is the runtime that asked: boot, pid, start, host, token.
    """

    id: str
    command: Sequence[str]
    cwd: str
    grace: float
    limit: int
    keep: bool
    starter: Mapping[str, Any]
    timeout: float | None = None
    stall: float | None = None
    key: str | None = None
    session: str | None = None
    group: str | None = None
    environment: Iterable[str] = ()
    token: str | None = None


class Notice(NamedTuple):
    """A message for the inbox of the session `to`, stored once for its key."""

    to: str
    tail: bytes
    key: str


def requested(request: TaskRequest, time: int) -> Post:
    """Begin a task's stream. `time`, here and below, is in milliseconds since 1970.

    The line is the same whenever and by whichever process the same is asked for.
    """
    command = [_readable(argument) for argument in request.command]
    members = {
        "key": request.key,
        "session": request.session,
        "group": request.group,
        "timeout": request.timeout,
        "stall": request.stall,
        "token": request.token,
    }
    data = {
        "command": _cut_texts(command, COMMAND_BYTES_MAX),
        "cwd": _readable(request.cwd),
        "grace": request.grace,
        "limit": request.limit,
        "on_owner_exit": "keep" if request.keep else "kill",
        **_present(members),
    }
    if data["command"] != command:
        data["command_digest"] = blake2b(orjson.dumps(command), digest_size=16).hexdigest()
    names = sorted(map(_readable, request.environment))
    if names:
        data["environment"] = _cut_texts(names, COMMAND_BYTES_MAX)
    return _post(request.id, TASK_REQUESTED, data, time, header=_header(request, command, time))


def started(task: str, time: int, *, pid: int, shim: Mapping[str, Any]) -> Post:
    """Say that the command runs, as process `pid` below `shim`, whose identity this is."""
    shim = {name: shim[name] for name in ("boot", "pid", "start")}
    patch = {"state": "running", "started": time, "pid": pid, "shim": shim}
    return _post(task, TASK_STARTED, {"pid": pid, "shim": shim}, time, patch)


def stopping(task: str, time: int, *, by: str, grace: float) -> Post:
    """Say that the task is being stopped, and who wanted it first."""
    return _post(task, TASK_STOPPING, {"by": by, "grace": grace}, time, {"state": "stopping"})


def stalled(task: str, time: int, *, silent_seconds: float, output_bytes: int) -> Post:
    """Say that the task has been silent for so long; once per silence, which the size of its output tells apart."""
    data = {"silent_seconds": silent_seconds, "output_bytes": output_bytes}
    return _post(task, TASK_STALLED, data, time, key=f"{TASK_STALLED}/{output_bytes}")


def ended(
    task: str, end: Mapping[str, Any], time: int, *, is_tree_empty: bool, progress: Mapping[str, Any] | None = None
) -> Post:
    """Write how a task ended: the one terminal record.

    `end` is what its exit.json says, or its leader.json; or `lost`, why nobody knows, beside which it may name
    survivors and output_bytes as well. As those files can be changed by anybody, what makes no sense there is left
    out. `is_tree_empty` is whether nothing that the task started lives.
    """
    patch = {"ended": time, **summary_of_end(end), UNFINISHED: None if is_tree_empty else True}
    if is_tree_empty:
        patch |= {"survivors": None, "survivors_more": None}
    end = _sensible(end)
    survivors = end.get("survivors", [])
    data = {**_outcome(end), "survivors": survivors[:SURVIVORS_MAX]}
    if len(survivors) > SURVIVORS_MAX:
        data["survivors_more"] = len(survivors) - SURVIVORS_MAX
    if progress is not None:
        content = encode_data(TASK_ENDED, progress, text="replace")
        data["progress"] = orjson.loads(content)
        if len(content) <= PROGRESS_BYTES_MAX:
            patch["progress"] = data["progress"]
    return _post(task, TASK_ENDED, data, time, patch)


def summary_of_end(end: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the summary says of such an end, beside whether the tree is empty."""
    end = _sensible(end)
    at = {"ended": end["ended"]} if "ended" in end else {}
    outcome: dict[str, Any] = _cut_words(_outcome(end), SUMMARY_WORD_BYTES_MAX)
    return {**outcome, **_summary_of_survivors(end.get("survivors", [])), **at}


def emptied(task: str, time: int) -> Post:
    """Say that the last survivor of a task that had ended is gone, too."""
    return _post(task, TASK_EMPTIED, {}, time, {UNFINISHED: None, "survivors": None, "survivors_more": None})


def notice_of(post: Post, session: str) -> Notice:
    """Make the message that tells a task's session what one of its records says: same type, data, and which task."""
    event = decode_event(event_prefix(post.stream, 0) + post.tail)
    tail = message_tail(event["type"], {"task": post.stream, **event["data"]}, post.stream, event["time"])
    return Notice(session, tail, f"{post.stream}/{post.key.removeprefix('task/')}")


# -- Posts


def _post(
    task: str,
    type: str,
    data: Mapping[str, Any],
    time: int,
    patch: Mapping[str, Any] | None = None,
    *,
    key: str | None = None,
    header: Mapping[str, Any] | None = None,
) -> Post:
    return Post(task, event_tail(type, data, time), key or type, header or {"kind": TASK}, patch)


def _header(request: TaskRequest, command: list[str], time: int) -> dict[str, Any]:
    """Make the summary that a task's stream begins with."""
    header = {
        "kind": TASK,
        "state": "queued",
        "cwd": _cut_text(_readable(request.cwd), SUMMARY_TEXT_BYTES_MAX),
        "keep": request.keep,
        "requested": time,
        "starter": dict(request.starter),
        UNFINISHED: True,
        **_present({"session": request.session, "group": request.group}),
    }
    if request.key is not None:
        header["task_key"] = _cut_text(request.key, SUMMARY_WORD_BYTES_MAX)
    left = SUMMARY_REQUEST_BYTES_MAX - len(orjson.dumps(header))
    return {**header, "command": _cut_texts(command, max(128, min(left, SUMMARY_COMMAND_BYTES_MAX)))}


def _sensible(end: Mapping[str, Any]) -> dict[str, Any]:
    """Read what a file says of a task's end: the members that are as they should be, with `why` for `lost`."""
    found = {name: end[name] for name in ("ended", "output_bytes") if _is_count(end.get(name))}
    found |= {name: _readable(end[name]) for name in ("by", "output") if isinstance(end.get(name), str)}
    if end.get("lost") is not None:
        found["why"] = _readable(str(end["lost"]))
    how = end.get("how")
    if isinstance(how, Mapping):
        found["how"] = {name: how[name] for name in ("code", "signal") if _is_count(how.get(name))}
        if isinstance(how.get("not_started"), str):
            found["how"]["not_started"] = _readable(how["not_started"])
    found = {name: _cut_words(value, COMMAND_BYTES_MAX) for name, value in found.items()}
    survivors = end.get("survivors")
    if isinstance(survivors, list):
        found["survivors"] = [_survivor(each) for each in survivors if isinstance(each, Mapping)]
    return found


def _outcome(end: Mapping[str, Any]) -> dict[str, Any]:
    outcome = {"state": "lost" if "why" in end else "ended", "by": end.get("by", "unknown")}
    return outcome | {name: end[name] for name in ("how", "output", "why", "output_bytes") if name in end}


def _survivor(survivor: Mapping[str, Any]) -> dict[str, Any]:
    command = survivor.get("command")
    named = {name: survivor[name] for name in ("pid", "start") if _is_count(survivor.get(name))}
    return {
        **named,
        "command": _cut_text(_readable(command), SUMMARY_TEXT_BYTES_MAX) if isinstance(command, str) else "",
    }


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= INTEGER_MAX


def _summary_of_survivors(survivors: list[dict[str, Any]]) -> dict[str, Any]:
    """Name the first survivors by pid and start, and count the others."""
    if not survivors:
        return {}
    named = [{name: each[name] for name in ("pid", "start") if name in each} for each in survivors]
    more = len(survivors) - SUMMARY_SURVIVORS_MAX
    return {"survivors": named[:SUMMARY_SURVIVORS_MAX], "survivors_more": more if more > 0 else None}


def _present(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


# -- Texts that fit


def _readable(text: str) -> str:
    """Give a text that UTF-8 can hold: bytes that were none are spelled out."""
    try:
        return os.fsencode(text).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half a character, which only JSON can have brought
        return text.encode("utf-8", "replace").decode()


def _cut_words(value: Any, bytes_max: int) -> Any:
    """Cut a text, or each text of a map."""
    if isinstance(value, str):
        return _cut_text(value, bytes_max)
    return {name: _cut_words(each, bytes_max) for name, each in value.items()} if isinstance(value, dict) else value


def _cut_text(text: str, bytes_max: int) -> str:
    """Cut a text to so many bytes of JSON, its quotes included; empty if not even a mark fits."""
    if len(orjson.dumps(text)) <= bytes_max:
        return text
    most = _most(len(text), lambda length: len(orjson.dumps(text[:length] + CUT)) <= bytes_max)
    return text[:most] + CUT if most else ""


def _cut_texts(texts: list[str], bytes_max: int) -> list[str]:
    """Cut a list of texts to so many bytes of JSON: the first one that doesn't fit, and all behind it."""
    if len(orjson.dumps(texts)) <= bytes_max:
        return texts
    left = bytes_max - len(orjson.dumps([CUT]))
    kept: list[str] = []
    for text in texts:
        size = len(orjson.dumps(text)) + len(",")
        if size > left:
            break
        kept.append(text)
        left -= size
    part = _cut_text(texts[len(kept)], left - len(","))
    behind = [CUT] if len(texts) > len(kept) + 1 else []
    return [*kept, part, *behind] if part else [*kept, CUT]


def _most(limit: int, fits: Callable[[int], bool]) -> int:
    """Give the greatest number up to `limit` that fits, where smaller ones fit as well."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low
