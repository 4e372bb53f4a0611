"""Contract of the notes of a chaos round: whole or not at all, on disk at once, and plain values when read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.chaos.notes import Notebook, read_notebooks
from turnkeeper.benchmarks.demonstration.oracle import digest


def said(note: dict[str, Any]) -> dict[str, Any]:
    """Give what a note says, without when and where."""
    return {name: value for name, value in note.items() if name not in ("at", "file", "line")}


def test_a_note_says_what_and_when_and_is_found_where_it_stands(tmp_path: Path) -> None:
    """Values come back as they were, data as its digest; file and line tell where to look."""
    with Notebook(tmp_path / "agent-1") as notebook:
        notebook.opened("a", 3, 7)
        notebook.sent("a", [("note", {"text": "é"}), ("note", {"text": "b"})])
        notebook.acknowledged("a", 9, [7, 8])
    opened, sent, acknowledged = read_notebooks([tmp_path / "agent-1"])
    assert said(opened) == {"what": "opened", "session": "a", "epoch": 3, "head": 7, "pid": os.getpid()}
    assert sent["events"] == [["note", digest({"text": "é"})], ["note", digest({"text": "b"})]]
    assert said(acknowledged) == {"what": "acknowledged", "session": "a", "head": 9, "seqs": [7, 8]}
    assert [note["line"] for note in (opened, sent, acknowledged)] == [1, 2, 3]
    assert {note["file"] for note in (opened, sent, acknowledged)} == {"agent-1"}
    assert opened["at"] <= sent["at"] <= acknowledged["at"]


def test_a_note_is_one_line_on_disk_before_the_method_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One write a note, then a sync of it, so that who is killed after it has noted it."""
    calls: list[str] = []
    write, sync = os.write, os.fdatasync

    def note_write(file: int, content: bytes) -> int:
        calls.append(content.decode())
        return write(file, content)

    def note_sync(file: int) -> None:
        calls.append("sync")
        sync(file)

    monkeypatch.setattr(os, "write", note_write)
    monkeypatch.setattr(os, "fdatasync", note_sync)
    with Notebook(tmp_path / "agent") as notebook:
        notebook.wrote("a", "two\nlines")
    line, synced = calls
    assert synced == "sync"
    assert line.endswith("\n")
    assert json.loads(line)["text"] == "two\nlines"
    assert (tmp_path / "agent").read_text() == line


def test_what_was_sent_is_known_by_its_content_in_every_note_of_it(tmp_path: Path) -> None:
    """Sent, sent under a key and refused: each names an event by type and digest, so that they can be put together."""
    with Notebook(tmp_path / "agent") as notebook:
        notebook.sent("a", [("my/note", {"n": 1})])
        notebook.sent_once("a", "key", "my/note", {"n": 2})
        notebook.refused("a", [("my/note", {"n": 1})])
    sent, sent_once, refused = map(said, read_notebooks([tmp_path / "agent"]))
    assert sent["events"] == refused["events"] == [["my/note", digest({"n": 1})]]
    assert sent_once == {"what": "sent", "session": "a", "events": [["my/note", digest({"n": 2})]], "key": "key"}


def test_an_unfinished_last_line_is_nothing(tmp_path: Path) -> None:
    """Whoever was killed in the write has noted nothing with it, and other notebooks are whole."""
    for name in ("agent-1", "agent-2"):
        with Notebook(tmp_path / name) as notebook:
            notebook.closed(name)
    with (tmp_path / "agent-1").open("ab") as file:
        file.write(b'{"what":"opened","ses')
    assert [note["session"] for note in read_notebooks(tmp_path.iterdir())] == ["agent-1", "agent-2"]


def test_a_note_that_the_disk_did_not_take_whole_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent must not go on as if it had noted what is only there in part."""
    with Notebook(tmp_path / "agent") as notebook:
        monkeypatch.setattr(os, "write", lambda file, content: len(content) - 1)
        with pytest.raises(OSError, match=r"agent: .* bytes were written; is the disk full"):
            notebook.closed("a")
