"""Contract of the oracle's own reading of a journal: all that was written, and a fault for any other byte."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos.checker.evidence import make_evidence, read_stored
from turnkeeper.benchmarks.chaos.checker.journal import read_journal
from turnkeeper.benchmarks.chaos.checker.numbering import frame_is_whole
from turnkeeper.benchmarks.demonstration.oracle import digest
from turnkeeper.storage import blobs
from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Append, Grant

from ..stores import StoreInTest, create, event, new_store, owner

SEGMENT_BYTES = 700


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A closed store of two segments without filling: two sessions, one of which has a second owner."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", SEGMENT_BYTES)
    with new_store(tmp_path / "store") as made:
        journal = made.open()
        journal.commit([create("a", event("a", 0) + event("a", 1)), create("b", event("b", 0))])
        journal.commit([Grant("a", owner("a-2"))])
        journal.between_commits()
        journal.commit([Append("a", 2, 2, event("a", 2)), Append("b", 1, 1, event("b", 1), {"owner": None})])
        made.close()
        for number in (1, 2):
            made.segment(number).write_bytes(made.content(number))
        yield made


def test_all_that_was_written_is_read_by_the_format_alone(store: StoreInTest) -> None:
    """Events with position, epoch and digest, heads, and what the headers say of each stream."""
    stored = read_stored(store.path)
    assert not stored.faults
    assert [(each.position, each.stream, each.seq, each.epoch) for each in stored.events] == [
        (1, "a", 0, 1),
        (2, "a", 1, 1),
        (3, "b", 0, 1),
        (4, "a", 2, 2),
        (5, "b", 1, 1),
    ]
    assert {each.digest for each in stored.events} == {digest({"text": "hello"})}
    assert stored.heads == {"a": 3, "b": 2}
    assert stored.summary("a")["owner"]["token"] == "a-2"
    assert "owner" not in stored.summary("b")
    assert stored.sessions() == ["a", "b"]


def test_any_byte_that_is_another_is_a_fault(store: StoreInTest) -> None:
    """Of segment lines, headers and events; and of filling, what isn't filling any more."""
    content = store.content(1)
    for place in range(len(content)):
        other = bytes([content[place] ^ 1 << place % 8])
        store.segment(1).write_bytes(content[:place] + other + content[place + 1 :])
        assert read_journal(store.path).faults, place
    store.segment(1).write_bytes(content + b"\n\n\0x\n")
    assert read_journal(store.path).faults
    store.segment(1).write_bytes(content)
    store.segment(2).write_bytes(store.content(2) + b"\n\0\n")
    assert not read_journal(store.path).faults


def test_filling_that_was_left_in_a_sealed_file_is_a_fault(store: StoreInTest) -> None:
    """Whoever rolls, or finds that somebody died behind a roll, cuts it off."""
    store.segment(1).write_bytes(store.content(1) + b"\n")
    (fault,) = read_journal(store.path).faults
    assert (fault.file, fault.offset) == ("00000001.jsonl", len(store.content(1)))
    assert len(list(frame_is_whole(make_evidence(read_journal(store.path), [])))) == 1


def test_of_data_that_lies_in_a_blob_the_message_that_it_accepts_is_known(store: StoreInTest) -> None:
    """A line says of it only what a fold needs; the digest is of the whole."""
    data = {"text": "x" * 10, "inbox": 4}
    content = json.dumps(data).encode()
    stub = {"$blob": blobs.put(str(store.path), content), "bytes": len(content)}
    journal = store.open()
    accepting = encode_event("a", 3, 1_700_000_000_000, "user/message", stub)
    journal.commit([Append("a", 2, 3, accepting, {"blobs": [stub["$blob"]]})])
    store.close()
    (last,) = [each for each in read_journal(store.path).events if (each.stream, each.seq) == ("a", 3)]
    assert (last.digest, last.data) == (digest(data), {**stub, "inbox": 4})


def batches(content: bytes) -> list[bytes]:
    """Take a segment apart: its first line, and its batches."""
    places = [place for place in range(len(content)) if content.startswith(b'{"$batch":', place)]
    return [content[begin:end] for begin, end in zip([0, *places], [*places, len(content)], strict=True)]


@pytest.mark.parametrize(
    "rearrange",
    [
        pytest.param(lambda first, *rest: [first, *rest[:-1]], id="the last one of a file that isn't the last"),
        pytest.param(lambda first, *rest: [first, *rest[1:]], id="the first one left out"),
        pytest.param(lambda first, *rest: [first, *rest, rest[-1]], id="one repeated"),
        pytest.param(lambda first, *rest: [first, *reversed(rest)], id="two swapped"),
        pytest.param(lambda first, *rest: rest, id="no first line"),
    ],
)
def test_batches_that_are_good_alone_and_stand_wrongly_are_a_fault(
    store: StoreInTest, rearrange: Callable[..., list[bytes]]
) -> None:
    """Left out, repeated, in another order."""
    store.segment(1).write_bytes(b"".join(rearrange(*batches(store.content(1)))))
    stored = read_journal(store.path)
    assert stored.faults
    assert list(frame_is_whole(make_evidence(stored, [])))


def test_a_missing_or_a_foreign_file_is_a_fault(store: StoreInTest) -> None:
    """Batches count over all files, which belong to one store."""
    content = store.segment(1).read_bytes()
    store.segment(1).unlink()
    assert read_journal(store.path).faults
    store.segment(1).write_bytes(content)
    description = json.loads((store.path / "store.json").read_bytes())
    (store.path / "store.json").write_text(json.dumps({**description, "store": "another"}))
    assert {fault.says for fault in read_journal(store.path).faults} == {"it belongs to another store"}
