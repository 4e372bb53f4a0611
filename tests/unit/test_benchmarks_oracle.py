"""Contract of the oracle: each promise, broken alone, is seen; and it knows the journal's form without the product."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.demonstration import oracle
from turnkeeper.benchmarks.demonstration.oracle import (
    Found,
    Notebook,
    NotedEvent,
    Verdict,
    digest,
    judge,
    read_journal,
    read_notes,
    read_plain,
    stored_event,
    worse,
)

EVENTS: list[tuple[int, str, dict[str, Any]]] = [
    (0, "turn/start", {"turn": 1}),
    (1, "user/message", {"text": "begin"}),
    (2, "turn/end", {"turn": 1, "reason": "completed"}),
]


def noted(events: list[tuple[int, str, dict[str, Any]]]) -> list[NotedEvent]:
    """Give notes of these events of the session `a`."""
    return [NotedEvent("a", seq, type, digest(data)) for seq, type, data in events]


def found(events: list[tuple[int, str, dict[str, Any]]]) -> Found:
    """Give a store that holds these events of the session `a`."""
    store = Found()
    store.sessions["a"] = [stored_event(*event) for event in events]
    return store


def test_a_store_that_kept_everything_is_clean() -> None:
    """All that was noted is found, and nothing is wrong."""
    verdict = judge(noted(EVENTS), found(EVENTS))
    assert verdict == Verdict(sessions=1, events=3, acknowledged=3, found=3)
    assert verdict.is_clean


@pytest.mark.parametrize(
    ("stored", "broken"),
    [
        pytest.param(EVENTS[:1] + EVENTS[2:], {"lost": 1, "holes": 1}, id="an event is missing"),
        pytest.param([EVENTS[0], (1, "user/message", {"text": "other"}), EVENTS[2]], {"lost": 1}, id="another content"),
        pytest.param([EVENTS[0], (1, "note", {"text": "begin"}), EVENTS[2]], {"lost": 1}, id="another type"),
        pytest.param([*EVENTS, EVENTS[2]], {"repeated": 1}, id="an event twice"),
        pytest.param([*EVENTS, (3, *EVENTS[1][1:])], {"repeated": 1}, id="an event again under another number"),
        pytest.param([*EVENTS, (2, "note", {})], {"repeated": 1}, id="a number given twice"),
        pytest.param([*EVENTS, (5, "note", {})], {"holes": 2}, id="numbers left out"),
        pytest.param([EVENTS[0], EVENTS[2], EVENTS[1]], {"disordered": 1}, id="out of order"),
        pytest.param([*EVENTS, (3, "turn/start", {"turn": 2})], {"open_turns": 1}, id="a turn without its end"),
        pytest.param([], {"lost": 3}, id="nothing is there"),
    ],
)
def test_each_broken_promise_is_counted(stored: list[tuple[int, str, dict[str, Any]]], broken: dict[str, int]) -> None:
    """What is wrong is counted where it belongs, described, and nothing else is."""
    verdict = judge(noted(EVENTS), found(stored))
    counted = {name: getattr(verdict, name) for name in ("lost", "repeated", "holes", "disordered", "open_turns")}
    assert {name: value for name, value in counted.items() if value} == broken
    assert not verdict.is_clean
    assert len(verdict.violations) == sum(broken.values())


def test_events_that_nobody_noted_are_no_fault() -> None:
    """An agent may die between the acknowledgement and its note."""
    assert judge(noted(EVENTS[:1]), found(EVENTS)).is_clean


def test_a_digest_is_of_the_value_and_not_of_its_spelling() -> None:
    """Order of members, escapes and blanks don't matter; every value does."""
    assert digest(json.loads('{"a": "\\u00e9", "b": [1.0]}')) == digest({"b": [1.0], "a": "é"})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_notes_come_back_and_an_unfinished_one_says_nothing(tmp_path: Path) -> None:
    """A note counts once its line is whole."""
    notebook = Notebook(tmp_path / "notes")
    notebook.note("a", EVENTS)
    notebook.close()
    with (tmp_path / "notes").open("ab") as file:
        file.write(b'{"session": "a", "even')
    assert list(read_notes([tmp_path / "notes"])) == noted(EVENTS)


def test_the_journal_is_read_as_lines_of_json(tmp_path: Path) -> None:
    """Lines with a stream are events; control lines and filling are passed over; anything else is unreadable."""
    (tmp_path / "journal").mkdir()
    lines = [json.dumps({"$segment": 1}), json.dumps({"$batch": 1})]
    lines += [json.dumps({"stream": "a", "seq": seq, "time": 1, "type": t, "data": data}) for seq, t, data in EVENTS]
    content = "\n".join(lines).encode()
    (tmp_path / "journal" / "00000001.jsonl").write_bytes(content + b"\n" * 100 + b"\0" * 100)
    assert judge(noted(EVENTS), read_journal(tmp_path)).is_clean
    (tmp_path / "journal" / "00000002.jsonl").write_bytes(b'{"stream":"a","se')
    assert judge(noted(EVENTS), read_journal(tmp_path)).unreadable == 1


def test_a_line_glued_to_a_stub_is_lost_to_a_reader_of_lines(tmp_path: Path) -> None:
    """What a torn line does to the next one in a plain file is counted as it is for every reader of lines."""
    lines = [json.dumps({"seq": seq, "time": 1, "type": t, "data": data}).encode() for seq, t, data in EVENTS]
    (tmp_path / "a.jsonl").write_bytes(lines[0] + b"\n" + lines[1][:20] + lines[1] + b"\n" + lines[2] + b"\n")
    verdict = judge(noted(EVENTS), read_plain(tmp_path))
    assert (verdict.unreadable, verdict.lost, verdict.holes, verdict.found) == (1, 1, 1, 2)


def test_the_worse_of_two_judgements_holds() -> None:
    """What one reading lost stays lost, whatever the other one found."""
    good, bad = judge(noted(EVENTS), found(EVENTS)), judge(noted(EVENTS), found(EVENTS[:2]))
    assert worse(good, bad) == worse(bad, good)
    assert (worse(good, bad).lost, worse(good, bad).found, worse(good, bad).open_turns) == (1, 2, 1)


def test_the_oracle_shares_no_code_with_the_product() -> None:
    """It imports nothing of ours, so no fault of ours can hide in it."""
    assert oracle.__file__ is not None
    tree = ast.parse(Path(oracle.__file__).read_text())
    imported = [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert not [name for name in imported if name.startswith((".", "turnkeeper"))]


def test_data_that_lies_in_a_file_of_its_own_is_read_from_there(tmp_path: Path) -> None:
    """A large event counts as it was appended; without its file, or with another content in it, it is unreadable."""
    content = b'{"text": "large"}'
    name = hashlib.blake2b(content, digest_size=32).hexdigest()
    (tmp_path / "journal").mkdir()
    record = {"stream": "a", "seq": 0, "time": 1, "type": "note", "data": {"$blob": name, "bytes": len(content)}}
    (tmp_path / "journal" / "00000001.jsonl").write_text(json.dumps(record) + "\n")
    assert read_journal(tmp_path).unreadable == 1
    blob = tmp_path / "blobs" / name[:2] / name
    blob.parent.mkdir(parents=True)
    blob.write_bytes(content)
    assert read_journal(tmp_path).sessions == {"a": [stored_event(0, "note", {"text": "large"})]}
    blob.write_bytes(b'{"text": "other"}')
    assert read_journal(tmp_path).unreadable == 1
