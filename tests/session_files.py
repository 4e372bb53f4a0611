"""Session files of other programs, made for tests, and the simplest store that their import could go to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnkeeper.actors.importing import ImportedEvent, ImportReport, SessionHeader, read_sessions
from turnkeeper.storage.exact_json import encode_data

Json = dict[str, Any]

SESSION = "0b1d7a52-6a9e-4c55-9d6a-3f1f5a1c0001"
CODEX_SESSION = "0199aaaa-0000-7000-8000-000000000001"


def time_text(second: int) -> str:
    """Return a time some seconds after the beginning of the made sessions, as both programs write it."""
    return f"2026-03-04T09:{second // 60:02}:{second % 60:02}.000Z"


def claude(kind: str, number: int, **members: Any) -> Json:
    """Make a record of Claude Code; its parent is the record of the number before."""
    record = {
        "parentUuid": f"uuid-{number - 1}" if number else None,
        "isSidechain": False,
        "cwd": "/home/ines/harbour",
        "sessionId": SESSION,
        "version": "2.0.14",
        "gitBranch": "main",
        "type": kind,
        "uuid": f"uuid-{number}",
        "timestamp": time_text(number),
    }
    return record | members


def user(number: int, content: Any, **members: Any) -> Json:
    """Make a user record of Claude Code."""
    return claude("user", number, message={"role": "user", "content": content}, **members)


def assistant(number: int, *blocks: Any, id: str | None = None, usage: Json | None = None, **members: Any) -> Json:
    """Make an assistant record of Claude Code."""
    message: Json = {"id": id or f"msg-{number}", "type": "message", "role": "assistant", "model": "opus-x"}
    message |= {"content": list(blocks), "usage": usage or {"input_tokens": 10, "output_tokens": 5}}
    return claude("assistant", number, message=message, requestId=f"req-{number}", **members)


def text(said: str) -> Json:
    """Make a text block."""
    return {"type": "text", "text": said}


def call(id: str, command: str = "ls") -> Json:
    """Make a block that calls a tool."""
    return {"type": "tool_use", "id": id, "name": "Bash", "input": {"command": command}}


def result(id: str, output: Any = "done", **members: Any) -> Json:
    """Make a block that brings a tool's result."""
    return {"type": "tool_result", "tool_use_id": id, "content": output} | members


def conversation() -> list[Json]:
    """Make a short session: two exchanges, an answer in three records, two calls, a summary and progress."""
    usage = {"input_tokens": 7, "output_tokens": 90, "cache": {"read": 1000}}
    return [
        user(0, "List the boats."),
        assistant(1, {"type": "thinking", "thinking": "ls, then", "signature": "s"}, id="msg-a", usage=usage),
        assistant(2, text("I'll look."), id="msg-a", usage=usage),
        assistant(3, call("toolu-1"), id="msg-a", usage=usage),
        claude("progress", 4, data={"hook": "PostToolUse"}),
        user(5, [result("toolu-1", "anna\nbertha\n")], toolUseResult={"stdout": "anna\nbertha\n"}),
        assistant(6, text("Two: Anna and Bertha. ⛵")),
        user(7, [text("Which is older?")]),
        assistant(8, text("I'll ask the register."), call("toolu-2", "register anna bertha")),
        user(9, [result("toolu-2", [text("1911")], is_error=True)]),
        assistant(10, text("It doesn't say.")),
        {"type": "summary", "summary": "Boats in the harbour", "leafUuid": "uuid-10"},
    ]


def codex(kind: str, second: int, payload: Json) -> Json:
    """Make a record of Codex."""
    return {"timestamp": time_text(second), "type": kind, "payload": payload}


def meta(id: str = CODEX_SESSION, second: int = 0, **members: Any) -> Json:
    """Make the first record of a Codex session."""
    payload = {"id": id, "timestamp": time_text(second), "cwd": "/home/ines/harbour", "cli_version": "0.50.1"}
    return codex("session_meta", second, payload | members)


def item(second: int, kind: str, **members: Any) -> Json:
    """Make an item of a Codex session."""
    return codex("response_item", second, {"type": kind} | members)


def said(second: int, role: str, words: str, **members: Any) -> Json:
    """Make a message of a Codex session."""
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": words}], **members)


def shown(second: int, kind: str, **members: Any) -> Json:
    """Make a record of what Codex showed."""
    return codex("event_msg", second, {"type": kind} | members)


def rollout() -> list[Json]:
    """Make a short Codex session: a declared exchange with two calls, and a second one that was broken off."""
    return [
        meta(git={"branch": "main"}),
        said(1, "user", "<environment_context>\n  <cwd>/home/ines/harbour</cwd>\n</environment_context>"),
        codex("turn_context", 1, {"cwd": "/home/ines/harbour", "model": "gpt-x"}),
        shown(2, "user_message", message="List the boats."),
        shown(2, "task_started", turn_id="t1"),
        said(3, "user", "List the boats."),
        item(4, "reasoning", summary=[], encrypted_content="…"),
        item(5, "function_call", call_id="call-1", name="shell", arguments='{"command":["ls"],"timeout":3}'),
        item(6, "function_call_output", call_id="call-1", output="anna\nbertha\n"),
        item(7, "custom_tool_call", call_id="call-2", name="apply_patch", input="*** Begin Patch"),
        item(8, "custom_tool_call_output", call_id="call-2", output={"content": "no", "success": False}),
        shown(9, "token_count", info={"total_token_usage": {"output_tokens": 81}}),
        shown(9, "agent_message", message="Two."),
        said(9, "assistant", "Two.", id="msg-1"),
        shown(10, "task_complete", turn_id="t1"),
        shown(11, "task_started", turn_id="t2"),
        said(11, "user", "Which is older?"),
        item(12, "function_call", call_id="call-3", name="shell", arguments="not JSON"),
        shown(13, "turn_aborted", turn_id="t2", reason="interrupted"),
    ]


def encoded(records: Iterable[Json | bytes]) -> bytes:
    """Return the lines of a session file; bytes stand for themselves."""
    lines = [each if isinstance(each, bytes) else compact(each) for each in records]
    return b"".join(line + b"\n" for line in lines)


def compact(record: Any) -> bytes:
    """Return a record as the programs write it."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


@dataclass
class Imported:
    """What an import gave: each session's header and events by its key, and the report."""

    headers: dict[str, SessionHeader] = field(default_factory=dict)
    events: dict[str, list[ImportedEvent]] = field(default_factory=dict)
    report: ImportReport = field(default_factory=ImportReport)

    def only(self) -> list[ImportedEvent]:
        """Return the events of the one session."""
        (events,) = self.events.values()
        return events

    def types(self) -> list[str]:
        """Return the types of the one session's events."""
        return [event.type for event in self.only()]

    def of_type(self, type: str) -> list[Json]:
        """Return the data of the one session's events of a type."""
        return [event.data for event in self.only() if event.type == type]

    def problems(self) -> list[tuple[int, str]]:
        """Return line and reason of each problem."""
        return [(each.line, each.why) for each in self.report.problems]


def import_path(path: Path, format: str | None = None, **options: Any) -> Imported:
    """Import all sessions at a path, and check what holds for every import."""
    imported = Imported()
    for session in read_sessions(path, imported.report, format, **options):
        key = session.header.key
        imported.headers.setdefault(key, session.header)
        events = list(session.events())
        assert_sound(events)
        imported.events.setdefault(key, []).extend(events)
    return imported


def import_records(folder: Path, records: Iterable[Json | bytes], **options: Any) -> Imported:
    """Import a file of these records and raw lines."""
    return import_bytes(folder, encoded(records), **options)


def import_bytes(folder: Path, content: bytes, **options: Any) -> Imported:
    """Import a file of this content."""
    path = folder / "session.jsonl"
    path.write_bytes(content)
    return import_path(path, **options)


def assert_sound(events: list[ImportedEvent]) -> None:
    """Hold that keys are unique, data can be stored, calls have one result each and exchanges begin and end in turn."""
    assert len({event.key for event in events}) == len(events)
    for event in events:
        encode_data(event.type, event.data)
    assert_paired([(event.type, event.data) for event in events])


def assert_paired(log: Iterable[tuple[str, Json]]) -> None:
    """Hold that each call is started and then finished once, and each exchange begun and then ended."""
    started, finished, turns = set[str](), set[str](), list[int]()
    is_open = False
    for type, data in log:
        if type == "tool/started":
            assert data["id"] not in started
            started.add(data["id"])
        elif type == "tool/finished":
            assert data["id"] in started - finished
            finished.add(data["id"])
        elif type == "turn/start":
            assert not is_open
            is_open = True
            turns.append(data["turn"])
        elif type == "turn/end":
            assert is_open
            assert data["turn"] == turns[-1]
            is_open = False
    assert started == finished
    assert not is_open
    assert turns == sorted(set(turns))


class StoreModel:
    """Appends by key, as drafts say that it should be done, and keeps everything in the order of appending."""

    def __init__(self) -> None:
        self.logs: dict[str, list[ImportedEvent]] = {}
        self._stored: dict[tuple[str, str], tuple[str, Json]] = {}

    def take(self, path: Path) -> int:
        """Import a path; return how many events it added."""
        return sum(
            self._append(session.header.key, event)
            for session in read_sessions(path, ImportReport())
            for event in session.events()
        )

    def _append(self, session: str, event: ImportedEvent) -> int:
        stored = self._stored.setdefault((session, event.key), (event.type, event.data))
        if stored[1] is event.data:
            self.logs.setdefault(session, []).append(event)
            return 1
        if stored != (event.type, event.data) and event.otherwise is not None:
            return self._append(session, event.otherwise)
        return 0
