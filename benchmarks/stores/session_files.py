"""Session files as Claude Code leaves them, written of the shipped transcripts: one of any size, or a folder of many.

A record a line, about 870 bytes of it, with what such records have beside the message. A transcript that is written
again in the same session gets other ids for its calls, so nothing of it repeats.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from pathlib import Path
from typing import IO, Any
from uuid import UUID

import orjson

from .transcripts import Step, Transcript, shipped

_NAMES = UUID("6f1c2f0e-6d0b-4b54-9d1a-52a2d4a1c0de")  # any fixed one: the same files every time
_SECONDS_A_DAY = 86_400


@dataclass(slots=True)
class _Session:
    """A session as far as it is written."""

    id: str
    records: Iterator[int] = field(default_factory=count)
    parent: str | None = None

    def line(self, step: Step, repetition: int) -> bytes:
        """Make the record of a step."""
        number = next(self.records)
        name = f"{number:08x}{self.id[8:]}"
        second = number % _SECONDS_A_DAY
        record = {
            "parentUuid": self.parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/home/ines/harbour",
            "sessionId": self.id,
            "version": "2.0.14",
            "gitBranch": "main",
            **_message(step, number, repetition),
            "uuid": name,
            "timestamp": f"2026-03-04T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.000Z",
        }
        self.parent = name
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _message(step: Step, number: int, repetition: int) -> dict[str, Any]:
    data = step.data
    match step.type:
        case "user/message":
            content: Any = data.get("text") or data["content"]
        case "tool/finished":
            content = [{"type": "tool_result", "tool_use_id": f"{data['id']}-{repetition}", "content": data["output"]}]
        case "tool/started":
            used = {"id": f"{data['id']}-{repetition}", "name": data["name"], "input": data["arguments"]}
            content = [{"type": "tool_use", **used}]
        case _:
            content = [{"type": "text", "text": data.get("text", "")}]
    if step.type in ("user/message", "tool/finished"):
        return {"type": "user", "message": {"role": "user", "content": content}}
    usage = data.get("usage") or {"input_tokens": 10, "output_tokens": 5}
    message = {"id": f"msg-{number}", "type": "message", "role": "assistant", "model": "scripted", "content": content}
    return {"type": "assistant", "message": {**message, "usage": usage}, "requestId": f"req-{number}"}


def _session(number: int) -> _Session:
    return _Session(str(uuid.uuid5(_NAMES, str(number))))


def _write(file: IO[bytes], session: _Session, transcript: Transcript, repetition: int) -> int:
    return file.write(b"".join(session.line(step, repetition) for turn in transcript.turns for step in turn))


def write_large(path: Path, size: int) -> int:
    """Write one session of at least so many bytes; give how many there are."""
    written, session = 0, _session(0)
    with path.open("wb") as file:
        for repetition, transcript in enumerate(cycle(shipped())):
            written += _write(file, session, transcript, repetition)
            if written >= size:
                return written
    raise AssertionError


def write_many(folder: Path, files: int) -> int:
    """Write so many sessions of one transcript each into a folder; give how many bytes there are."""
    folder.mkdir()
    written = 0
    for number, transcript in zip(range(files), cycle(shipped()), strict=False):
        with (folder / f"{number:06}.jsonl").open("wb") as file:
            written += _write(file, _session(number), transcript, 0)
    return written
