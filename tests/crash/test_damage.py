"""Damage to bytes that were acknowledged: always reported, never hiding what is good beside it."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.contract import post
from turnkeeper.storage.errors import Exists
from turnkeeper.storage.format import parse_event_prefix
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Appended, StreamRow
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, appended, commit_one, create, event, lines, new_store
from .damaged_stores import STREAMS, is_reported, read_all


@pytest.fixture
def three_segments(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A cleanly closed store of three segments, some ten batches, three streams."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 2500)
    with new_store(memory_path / "store") as store:
        journal = store.open()
        journal.commit([create(stream, lines(stream, 0, 2)) for stream in STREAMS])
        step = in_third = 0
        while in_third < 3:
            step += 1
            in_third += journal.statistics()["segment"] == 3
            some = [stream for number, stream in enumerate(STREAMS) if (step + number) % 3]
            heads = {stream: journal.row(stream).head for stream in some}
            journal.commit([Append(stream, 1, head, lines(stream, head, 2)) for stream, head in heads.items()])
            journal.between_commits()
        store.close()
        for number in (1, 2, 3):
            store.segment(number).write_bytes(store.content(number))  # a sealed file is only its batches
        assert not store.segment(4).exists()
        yield store


def _damaged_copies(
    store: StoreInTest, tmp: Path, damage: Callable[[bytes, random.Random], bytes], rounds: int, seed: int
) -> Iterator[tuple[StoreInTest, int]]:
    rng = random.Random(seed)
    for number in range(rounds):
        copy = store.copy_to(tmp / f"copy-{number}")
        segment = rng.choice((1, 2, 3))
        copy.segment(segment).write_bytes(damage(copy.segment(segment).read_bytes(), rng))
        try:
            yield copy, segment
        finally:
            copy.end()
            shutil.rmtree(copy.path)


def _flip(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + bytes([content[place] ^ (1 << rng.randrange(8))]) + content[place + 1 :]


def _drop(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + content[place + rng.randrange(1, 400) :]


def _zero(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content)) // 512 * 512
    return content[:place] + bytes(min(512, len(content) - place)) + content[place + 512 :]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    begin, end = sorted(rng.randrange(len(content)) for _ in range(2))
    return content[:end] + content[begin:end] + content[end:]


def _insert(content: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(content))
    return content[:place] + rng.randbytes(rng.randrange(1, 40)) + content[place:]


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def _swap(content: bytes, rng: random.Random) -> bytes:
    """Swap two whole batches."""
    begins = [match.start() for match in re.finditer(rb'\{"\$batch"', content)]
    one, other = sorted(rng.sample(range(len(begins)), 2))
    ends = [*begins[1:], len(content)]
    between = content[ends[one] : begins[other]]
    first, second = content[begins[one] : ends[one]], content[begins[other] : ends[other]]
    return content[: begins[one]] + second + between + first + content[ends[other] :]


def _double(content: bytes, rng: random.Random) -> bytes:
    """Put a whole batch there once more, behind itself or a later one."""
    begins = [match.start() for match in re.finditer(rb'\{"\$batch"', content)]
    ends = [*begins[1:], len(content)]
    one, other = sorted(rng.choices(range(len(begins)), k=2))
    return content[: ends[other]] + content[begins[one] : ends[one]] + content[ends[other] :]


@pytest.mark.parametrize("damage", [_flip, _drop, _zero, _repeat, _insert, _cut, _swap, _double])
def test_damage_anywhere_is_reported_and_hides_nothing_else(
    three_segments: StoreInTest, memory_path: Path, damage: Callable[[bytes, random.Random], bytes]
) -> None:
    """Each answer is the same as before or reported: every event given is the true one, every missing one is said."""
    whole = read_all(three_segments.path)
    events = sum(map(len, whole.values()))
    for copy, _ in _damaged_copies(three_segments, memory_path, damage, 60, seed=7):
        verification = verify(str(copy.path))
        assert is_reported(verification) or damage not in (_flip, _swap, _double)
        for index in ("kept", "deleted"):
            if index == "deleted":
                copy.delete_index()
            found = read_all(copy.path)
            for stream, by_seq in found.items():
                assert all(whole[stream].get(seq) == line for seq, line in by_seq.items())
            lost = events - sum(map(len, found.values()))
            assert lost == 0 or is_reported(verification), (damage.__name__, lost)
            if damage is _flip:
                assert lost <= 6, "one flipped bit costs one batch at most"


def test_verify_names_segment_offset_streams_and_numbers(three_segments: StoreInTest) -> None:
    """A flipped byte in an event damages that stream's run alone, and verify says where and what."""
    content = three_segments.segment(2).read_bytes()
    line = next(part for part in content.split(b"\n") if part.startswith(b'{"stream":"b"'))
    place = content.index(line)
    three_segments.segment(2).write_bytes(content[: place + 60] + b"#" + content[place + 61 :])
    (finding,) = verify(str(three_segments.path)).damaged
    assert (finding.kind, finding.segment) == ("damaged events", "00000002.jsonl")
    assert finding.offset <= place < finding.offset + finding.length
    seq = int(line.split(b",")[1].removeprefix(b'"seq":'))
    assert finding.streams == {"b": [(seq, 2)]}
    found = read_all(three_segments.path)
    assert len(found["b"]) == max(found["b"]) + 1 - 2


@pytest.mark.parametrize("change", ["fewer bytes", "more bytes", "bad header"])
def test_only_the_damaged_batch_is_lost_and_what_follows_keeps_its_numbers(
    three_segments: StoreInTest, change: str
) -> None:
    """Bytes cut from or put into a batch's events, or a bad header, cost that batch alone: the next one is found."""
    whole = read_all(three_segments.path)
    content = three_segments.segment(2).read_bytes()
    begin, end = [match.start() for match in re.finditer(rb'\{"\$batch"', content)][1:3]
    text = content.index(b"hello", begin)
    spoiled = {
        "fewer bytes": content[:text] + content[text + 3 :],
        "more bytes": content[:text] + b"more" + content[text:],
        "bad header": content[: begin + 15] + b"#" + content[begin + 16 :],
    }[change]
    three_segments.segment(2).write_bytes(spoiled)
    three_segments.delete_index()
    batch = {parse_event_prefix(line) for line in content[begin:end].split(b"\n")} - {None}
    found = read_all(three_segments.path)
    present = {(stream, seq) for stream, by_seq in found.items() for seq in by_seq}
    assert present >= {(stream, seq) for stream, by_seq in whole.items() for seq in by_seq} - batch
    three_segments.open()
    assert {stream: list(map(len, lines)) for stream, lines in three_segments.events().items()} == {
        stream: [len(line) for _, line in sorted(by_seq.items())] for stream, by_seq in found.items()
    }


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda store: store.segment(2).unlink(), "missing batches"),
        (lambda store: store.segment(2).write_bytes(b""), "segment line"),
        (
            lambda store: store.segment(2).write_bytes(
                store.segment(2).read_bytes().replace(store.description.store.encode(), b"0" * 36)
            ),
            "segment line",
        ),
        (lambda store: store.segment(2).write_bytes(store.segment(2).read_bytes()[:-40]), "lost end"),
        (lambda store: shutil.copy(store.segment(1), store.segment(4)), "repeated batch"),
        (
            lambda store: store.segment(2).write_bytes(
                store.segment(2).read_bytes().replace(b'}}\n{"$batch"', b'}}{"$batch"', 1)
            ),
            "damaged batch",
        ),
    ],
)
def test_each_kind_of_damage_has_its_own_finding(
    three_segments: StoreInTest, spoil: Callable[[StoreInTest], object], kind: str
) -> None:
    """A missing, emptied, relabelled, cut or repeated segment, and two records glued on a line, are told apart."""
    spoil(three_segments)
    assert kind in {finding.kind for finding in verify(str(three_segments.path)).damaged}


def test_a_foreign_segment_is_reported_and_left_alone(three_segments: StoreInTest, memory_path: Path) -> None:
    """Another store's file among ours: its batches aren't served, its number isn't reused, its bytes aren't touched."""
    with new_store(memory_path / "other") as other:
        appended(other.open(), create("z", event("z", 0)))
        other.close()
        shutil.copy(other.segment(1), three_segments.segment(7))
    foreign = three_segments.segment(7).read_bytes()
    journal = three_segments.open()
    assert "foreign segment" in {finding.kind for finding in journal.report.findings}
    assert journal.statistics()["segment"] == 8
    appended(journal, Append("a", 1, journal.row("a").head, event("a", journal.row("a").head)))
    assert "z" not in three_segments.events()
    three_segments.close()
    assert three_segments.segment(7).read_bytes() == foreign
    journal = three_segments.open()
    assert journal.statistics()["segment"] == 8


def test_heads_survive_damage_and_a_later_loss_of_the_index(three_segments: StoreInTest) -> None:
    """The last batch, which the index saw, is destroyed: its numbers are never given again, with or without index."""
    heads = {row.id: row.head for row in _rows(three_segments)}
    content = three_segments.content(3)
    last = content.rindex(b'{"$batch"')
    three_segments.segment(3).write_bytes(content[:last] + b"#" * (len(content) - last))
    journal = three_segments.open()
    assert any(finding.kind == "damaged batch" for finding in journal.report.findings)
    assert {stream: journal.row(stream).head for stream in STREAMS} == heads
    appended(journal, Append("a", 1, heads["a"], event("a", heads["a"])))
    three_segments.kill()
    three_segments.delete_index()
    journal = three_segments.open()
    assert journal.row("a").head == heads["a"] + 1


@pytest.mark.parametrize("headers", [1, -1], ids=["the first one", "all"])
def test_lines_in_a_file_whose_beginning_is_damaged_are_named(three_segments: StoreInTest, headers: int) -> None:
    """A file's first line and its first header, or all, are gone: the lines behind them still say whose they are.

    So verify names them, and their numbers are never given again, though the index is gone, too.
    """
    heads = {row.id: row.head for row in _rows(three_segments)}
    content = three_segments.content(3)
    first = content[: content.index(b'{"$batch"', content.index(b'{"$batch"') + 1)] if headers == 1 else content
    lost = {found for line in first.split(b"\n") if (found := parse_event_prefix(line)) is not None}
    spoiled = content.replace(b'{"$segment"', b'#"$segment"').replace(b'{"$batch"', b'#"$batch"', headers)
    three_segments.segment(3).write_bytes(spoiled)
    three_segments.delete_index()
    findings = [finding for finding in verify(str(three_segments.path)).damaged if finding.kind == "damaged batch"]
    ranges = [(stream, each) for finding in findings for stream, parts in finding.streams.items() for each in parts]
    assert {(stream, seq) for stream, (begin, events) in ranges for seq in range(begin, begin + events)} == lost
    journal = three_segments.open()
    assert {stream: journal.row(stream).head for stream in STREAMS} == heads


def test_half_a_header_behind_a_damaged_beginning_is_told(three_segments: StoreInTest) -> None:
    """What stands behind the last good batch names no event, and is no torn tail: it may have been acknowledged."""
    content = three_segments.content(3)
    last = content.rindex(b'{"$batch"')
    three_segments.segment(3).write_bytes(content[: last + 20].replace(b'{"$segment"', b'#"$segment"'))
    three_segments.delete_index()
    verification = verify(str(three_segments.path))
    places = [(each.segment, each.offset, each.length) for each in verification.damaged if each.kind == "damaged batch"]
    assert places == [("00000003.jsonl", last, 20)]


def test_damage_found_at_opening_is_declared_in_the_journal(three_segments: StoreInTest) -> None:
    """A stream with missing events is marked so by a batch, and what is missing is named by number."""
    content = three_segments.segment(2).read_bytes()
    header = content.index(b'{"$batch"')
    three_segments.segment(2).write_bytes(content[: header + 30] + b"#" + content[header + 31 :])
    three_segments.delete_index()
    journal = three_segments.open()
    damaged = [stream for stream in STREAMS if journal.row(stream).summary.get("damaged")]
    assert damaged
    for stream in damaged:
        assert journal.missing(stream)
    three_segments.kill()
    three_segments.delete_index()
    batches = three_segments.content(3).count(b'{"$batch"')
    journal = three_segments.open()
    assert [stream for stream in STREAMS if journal.row(stream).summary.get("damaged")] == damaged
    assert three_segments.content(3).count(b'{"$batch"') == batches, "what was declared once isn't declared again"


def test_a_stream_without_owner_that_lost_its_beginning_takes_posts_again(memory_path: Path) -> None:
    """Its first header alone said that nobody owns it; the next post brings the header again, behind what was lost."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        commit_one(journal, post("i", "k"))
        appended(journal, create("a", event("a", 0)))
        store.close()
        content = store.segment().read_bytes()
        header = content.index(b'{"$batch"')
        store.segment().write_bytes(content[: header + 30] + b"#" + content[header + 31 :])
        store.delete_index()
        journal = store.open()
        assert journal.missing("i") == [(0, 1)]
        for number in (1, 2):
            answer = commit_one(journal, post("i", f"key {number}"))
            assert isinstance(answer, Appended)
            assert answer.first == number
        store.kill()
        store.delete_index()
        journal = store.open()
        assert journal.row("i").summary == {"kind": "inbox", "damaged": True}
        assert isinstance(commit_one(journal, post("i", "key 3")), Appended)
        assert isinstance(commit_one(journal, post("a", "key")), Exists)


def _rows(store: StoreInTest) -> list[StreamRow]:
    reader = open_reader(str(store.path))
    try:
        return reader.rows(100)
    finally:
        reader.close()
