"""End to end: session files damaged in every way that was seen, imported, resumed, and shown to a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.importing import ImportReport, read_sessions
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.runtime.cli.import_storing import ImportedSessions

from ..closed_logs import assert_closed
from ..served import LOOPS_AND_STORES, SECONDS_MAX
from ..session_files import CODEX_SESSION, SESSION, Json, compact, conversation, rollout

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

Lines = list[bytes]


def _glued(lines: Lines) -> bytes:
    return joined([*lines[:4], lines[4][:40] + lines[5], *lines[6:]])


def _in_two_writers(lines: Lines) -> bytes:
    return joined([each for pair in zip(lines, lines, strict=True) for each in pair])


def _nested(lines: Lines) -> bytes:
    return joined([*lines[:6], lines[6][:-1] + b',"deep":' + b"[" * 20_000 + b"]" * 20_000 + b"}", *lines[7:]])


def _without_results(lines: Lines) -> bytes:
    return joined([each for each in lines if b"tool_result" not in each and b"_call_output" not in each])


def _without_calls(lines: Lines) -> bytes:
    return joined([each for each in lines if b'"tool_use"' not in each and b'_call",' not in each])


def _with_results_twice(lines: Lines) -> bytes:
    again = (each.replace(b'"uuid":"', b'"uuid":"again-') for each in lines if b"tool_result" in each)
    return joined([*lines, *again, *(each for each in lines if b"_call_output" in each)])


def joined(lines: Lines) -> bytes:
    """Give a file's content of whole lines."""
    return b"".join(line + b"\n" for line in lines)


DAMAGES: dict[str, Callable[[Lines], bytes]] = {
    "none": joined,
    "cut in the middle of the last line": lambda lines: joined(lines)[: -len(lines[-1]) // 2],
    "a line cut in the middle": lambda lines: joined([*lines[:5], lines[5][: len(lines[5]) // 2], *lines[6:]]),
    "a stub glued to the next line": _glued,
    "every line twice": _in_two_writers,
    "a newline in a text": lambda lines: joined(lines).replace(b"boats", b"bo\nats", 1),
    "NUL bytes behind the end": lambda lines: joined(lines) + b"\0" * 512,
    "the end of an older file": lambda lines: joined(lines) + lines[-1][-7:] + b"\n",
    "a byte that is no text": lambda lines: joined(lines).replace(b"boats", b"bo\xffats", 1),
    "half a surrogate": lambda lines: joined(lines).replace(b"boats", rb"bo\ud83dats", 1),
    "separators of other kinds": lambda lines: joined(lines).replace(b"boats", "bo\u2028a\u0085ts".encode()),
    "NaN": lambda lines: joined([*lines[:5], lines[5][:-1] + b',"n":[NaN,1e999,' + b"9" * 5000 + b"]}", *lines[6:]]),
    "too deep": _nested,
    "no records": lambda lines: joined([*lines[:5], b"null", b"42", b'"text"', b"[]", b"{}", *lines[5:]]),
    "a record of tomorrow": lambda lines: joined(
        [*lines[:5], b'{"type":"zz-tomorrow","payload":{"a":[1]}}', *lines[5:]]
    ),
    "times that go back": lambda lines: joined(lines).replace(b"T09:00:05", b"T08:00:05"),
    "no results": _without_results,
    "no calls": _without_calls,
    "results twice": _with_results_twice,
}


def damaged_files(folder: Path) -> dict[str, list[Path]]:
    """Make a file of each format with each damage, as sessions of their own."""
    files: dict[str, list[Path]] = {}
    for number, (damage, make) in enumerate(DAMAGES.items()):
        for records, id in ((conversation(), SESSION), (rollout(), CODEX_SESSION)):
            path = folder / f"{number}-{id}.jsonl"
            lines = [compact(each).replace(id.encode(), f"{id[:-4]}{number:04}".encode()) for each in records]
            path.write_bytes(make(lines))
            files.setdefault(damage, []).append(path)
    return files


async def import_file(runtime: Runtime, store: Path, path: Path) -> tuple[ImportReport, list[str]]:
    """Import a file; give the report and the keys of its sessions."""
    report, keys = ImportReport(), []
    sessions = ImportedSessions(str(store), runtime, report, lambda: None)
    for session in read_sessions(path, report):
        keys.append(session.header.key)
        await sessions.store(session)
    return report, keys


async def test_a_damaged_session_is_listed_resumed_and_shown_and_an_agent_can_go_on(
    runtime: Runtime, store: Path, tmp_path: Path
) -> None:
    """Of each damage: everything else is there, every call has one result, and importing it again adds nothing."""
    folder = tmp_path / "files"
    folder.mkdir()
    with anyio.fail_after(2 * SECONDS_MAX):
        for damage, paths in damaged_files(folder).items():
            for path in paths:
                report, keys = await import_file(runtime, store, path)
                assert len(keys) == 1, damage
                log = await resume(runtime, keys[0])
                assert len(log) == report.events
                assert_closed(log)
                well_formed([message async for message in runtime.messages(keys[0])])
                again, _ = await import_file(runtime, store, path)
                assert again.events == 0, damage
                await go_on(runtime, keys[0], len(log))
        listed = await runtime.sessions(limit=1000)
        assert len(listed) == 2 * len(DAMAGES)
        assert {each.status for each in listed} == {"closed"}


async def resume(runtime: Runtime, key: str) -> list[Event]:
    """Open a session as an agent does, and give its log."""
    async with await runtime.open_session(key) as session:
        assert session.interrupted is None
        log = list(await session.read())
    for event in log:
        json.dumps(event.data).encode()
    return log


async def go_on(runtime: Runtime, key: str, head: int) -> None:
    """Take the next turn."""
    async with await runtime.open_session(key) as session, session.turn():
        assert await session.append("user/message", {"text": "Go on."}) == head + 1


def well_formed(messages: list[Json]) -> None:
    """Hold that behind a message stands exactly one result for each of its calls, and no other."""
    waiting: list[Any] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["id"] in waiting
            waiting.remove(message["id"])
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting
    assert any(message["role"] == "user" for message in messages)
