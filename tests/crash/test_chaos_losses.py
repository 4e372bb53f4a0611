"""The oracle of chaos on copies whose bytes were spoiled: it knows what they may have lost, and what must be said.

The product is asked about each copy, and is right; then its answers are changed, and each change is found.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.chaos.checker.journal import read_journal, read_segments
from turnkeeper.benchmarks.chaos.checker.losses import CopyReading, Harm, Loss, copy_is_same_or_reported, expected_loss
from turnkeeper.benchmarks.chaos.checker.stored import Run, Stored, StoredEvent
from turnkeeper.benchmarks.demonstration.oracle import digest, whole_data
from turnkeeper.storage import blobs
from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Patch
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, create, event, new_store, owner

SEGMENT_BYTES = 6 * 1024
SEGMENTS = 3
SPOILT = 200
"""How many copies are spoiled in a test."""


@pytest.fixture
def store(memory_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreInTest]:
    """A store of three segments, cleanly closed: sessions `a` and `b`, a fork `c` of `a`, and data in a blob.

    Its files are their batches and nothing else.
    """
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", SEGMENT_BYTES)
    with new_store(memory_path / "store") as made:
        write(made)
        made.close()
        for number in range(1, SEGMENTS + 1):
            made.segment(number).write_bytes(made.content(number))
        yield made


def write(made: StoreInTest) -> None:
    """Write batches of one to three sessions into so many segments."""
    journal = made.open()
    blob = blobs.put(str(made.path), json.dumps({"text": "large"}).encode())
    stub = json.dumps({"$blob": blob, "bytes": 17}, separators=(",", ":")).encode()
    spilled = event("b", 1).replace(b'"data":{"text":"hello"}', b'"data":%b' % stub)
    header = {"kind": "session", "owner": owner("c-1"), "parent": "a", "parent_seq": 1}
    journal.commit([create("a", event("a", 0)), create("b", event("b", 0))])
    journal.commit([Append("b", 1, 1, spilled, {"blobs": [blob]})])
    journal.commit([Append("c", 1, 1, event("c", 1, "forked"), header, create=True)])
    heads, number = {"a": 1, "b": 2, "c": 2}, 0
    while journal.statistics()["segment"] < SEGMENTS or number % 5:
        number += 1
        some = list(heads)[: 1 + number % 3]
        text = f"{number} is said in some more words, " * 3
        journal.commit([Append(each, 1, heads[each], event(each, heads[each], text)) for each in some])
        heads |= {each: heads[each] + 1 for each in some}
        journal.between_commits()


def ask(copy: Path) -> CopyReading:
    """Ask the product what it makes of a copy that nobody serves."""
    events: dict[str, list[list[Any]]] = {}
    missing: dict[str, list[list[int]]] = {}
    refused: dict[str, str] = {}
    with closing(open_reader(str(copy))) as reader:
        for row in reader.rows(1000):
            try:
                page = reader.read(row.id, limit=100_000)
            except StorageError as error:
                refused[row.id] = str(error)
                continue
            events[row.id], missing[row.id] = [], [[gap.first, gap.events] for gap in page.missing]
            for stored in page.events:
                record = json.loads(stored.line)
                try:
                    data = whole_data(copy, record["data"])
                except (OSError, ValueError):
                    missing[row.id].append([stored.seq, 1])
                else:
                    events[row.id].append([stored.seq, record["type"], digest(data)])
    return CopyReading(verify(str(copy)).as_map(), events, missing, refused)


class SpoiledCopies:
    """Copies of a store, each spoiled at one random place, or some."""

    def __init__(self, store: Path, seed: int) -> None:
        self.store = store
        self.copy = store.with_name("copy")
        self.rng = random.Random(seed)

    def __iter__(self) -> Iterator[str]:
        """Spoil one copy after the other, and say how."""
        ways: list[Callable[[Path], None]] = [self._flip, self._flip, self._flip, self._zero, self._cut, self._blob]
        for _ in range(SPOILT):
            shutil.rmtree(self.copy, ignore_errors=True)
            shutil.copytree(self.store, self.copy)
            if self.rng.random() < 0.3:
                (self.copy / "index.json").unlink()
            chosen = self.rng.choices(ways, k=self.rng.choice((1, 1, 1, 2, 3)))
            for way in chosen:
                way(self.rng.choice([path for path in sorted((self.copy / "journal").iterdir()) if _batches_in(path)]))
            yield " ".join(way.__name__ for way in chosen)

    def _flip(self, path: Path) -> None:
        """Flip a bit of a batch."""
        content = bytearray(path.read_bytes())
        place = self.rng.randrange(len(content.rstrip(b"\n\0")))
        content[place] ^= 1 << self.rng.randrange(8)
        path.write_bytes(content)

    def _zero(self, path: Path) -> None:
        """Zero a sector."""
        content = bytearray(path.read_bytes())
        place = self.rng.randrange(0, len(content.rstrip(b"\n\0")), 512)
        content[place : place + 512] = bytes(len(content[place : place + 512]))
        path.write_bytes(content)

    def _cut(self, path: Path) -> None:
        """Cut a file anywhere, or away."""
        os.truncate(path, self.rng.randrange(len(path.read_bytes().rstrip(b"\n\0"))))
        if self.rng.random() < 0.1:
            path.unlink()

    def _blob(self, path: Path) -> None:
        """Change a blob."""
        blob = next((self.copy / "blobs").glob("*/*"))
        blob.write_bytes(blob.read_bytes()[::-1])


def _batches_in(path: Path) -> bool:
    return bool(path.read_bytes().strip(b"\n\0"))


def test_what_the_product_says_of_spoiled_copies_is_what_the_oracle_expects(store: StoreInTest) -> None:
    """Bits flipped, sectors zeroed, files cut or gone, a blob changed: the same or reported, by the bytes alone."""
    stored = read_journal(store.path)
    assert not stored.faults
    harmed: Counter[str] = Counter()
    for way in (copies := SpoiledCopies(store.path, 1)):
        loss = expected_loss(store.path, copies.copy)
        violations = list(copy_is_same_or_reported(stored, loss, ask(copies.copy)))
        assert not violations, (way, violations[0])
        harmed[way] += bool(loss.events)
    assert all(harmed[way] > 5 for way in ("_flip", "_zero", "_cut", "_blob"))


def test_an_answer_that_hides_or_changes_something_is_found(store: StoreInTest) -> None:
    """An unharmed event that isn't given, one that is another, one that never was, and damage that nobody tells."""
    stored = read_journal(store.path)
    tried: Counter[str] = Counter()
    for _ in (copies := SpoiledCopies(store.path, 2)):
        loss, reading = expected_loss(store.path, copies.copy), ask(copies.copy)
        for changed in _changed(reading, loss, copies.rng):
            tried[changed[0]] += 1
            assert list(copy_is_same_or_reported(stored, loss, changed[1])), changed
    assert len(tried) == 5
    assert min(tried.values()) > 20


def _changed(reading: CopyReading, loss: Loss, rng: random.Random) -> Iterator[tuple[str, CopyReading]]:
    """Give the reading with one thing changed, in each way in which that makes it a wrong one."""
    session = rng.choice(sorted(reading.events))
    events = list(reading.events[session])
    unharmed = [place for place, (seq, _, _) in enumerate(events) if seq not in loss.harmed.get(session, {})]
    place = rng.choice([*unharmed, len(events) - 1])
    if unharmed and not loss.unnamed:
        kept = [each for each in range(len(events)) if each != unharmed[-1]]
        yield "left out", replace(reading, events={**reading.events, session: [events[each] for each in kept]})
    if events:
        other = [events[place][0], "my/other", events[place][2]]
        changed = [*events[:place], other, *events[place + 1 :]]
        yield "changed", replace(reading, events={**reading.events, session: changed})
    yield "invented", replace(reading, events={**reading.events, session: [*events, [10_000, "my/other", "0" * 32]]})
    yield "a stranger", replace(reading, events={**reading.events, "stranger": []})
    if loss.events and not loss.may_be_silent:
        silent: dict[str, Any] = {"damaged": [], "torn_tail": None}
        yield "hidden", replace(reading, verification=silent, missing={}, refused={})


def test_whole_batches_that_nobody_has_seen_may_go_without_a_word(store: StoreInTest) -> None:
    """What a witness has seen is missed; without one, a journal that ends earlier is a journal that ended earlier."""
    copy = store.path.with_name("copy")
    shutil.copytree(store.path, copy)
    last = read_segments(store.path)[-1]
    os.truncate(copy / "journal" / last.file, last.batches[-1].offset)
    witnessed = expected_loss(store.path, copy)
    assert witnessed.events
    assert not witnessed.may_be_silent
    assert ask(copy).is_reported
    (copy / "index.json").unlink()
    unseen = expected_loss(store.path, copy)
    assert unseen.may_be_silent
    reading = ask(copy)
    assert not reading.is_reported
    assert not list(copy_is_same_or_reported(read_journal(store.path), unseen, reading))
    with (copy / "journal" / last.file).open("ab") as file:
        file.write(b'{"$batch":')
    assert not expected_loss(store.path, copy).may_be_silent


TURN: list[tuple[str, dict[str, Any]]] = [
    ("turn/start", {"turn": 6}),
    ("tool/started", {"id": "c"}),
    ("tool/finished", {"id": "c"}),
    ("my/text", {}),
]
INTERRUPTED = ("turn/end", {"turn": 6, "reason": "interrupted"})
ANSWER = ("tool/finished", {"id": "c", "outcome": "unknown"})


@pytest.mark.parametrize(
    ("lost", "closings", "is_right"),
    [
        (2, [ANSWER, INTERRUPTED], True),
        (1, [INTERRUPTED], True),
        (2, [INTERRUPTED, ANSWER], False),
        (1, [("turn/end", {"turn": 5, "reason": "interrupted"})], False),
        (1, [("my/other", {})], False),
        (0, [INTERRUPTED], False),
        (4, [INTERRUPTED], False),
    ],
)
def test_a_turn_whose_rest_is_lost_may_be_shown_closed(
    lost: int, closings: list[tuple[str, dict[str, Any]]], is_right: bool
) -> None:
    """As the session's next opening will close it, right behind what is left; nothing else was never stored."""
    events = [StoredEvent(seq + 1, "a", seq, type, digest(data), 1, data) for seq, (type, data) in enumerate(TURN)]
    stored = Stored.from_runs(events, [Run(1, "a", 1, 0, len(events), {"kind": "session"})])
    left = len(events) - lost
    harm = Harm("00000001.jsonl", 0, 1, is_gone=True)
    loss = Loss({"a": dict.fromkeys(range(left, len(events)), harm)}, may_be_silent=True)
    read = [[event.seq, event.type, event.digest] for event in events[:left]]
    read += [[left + place, type, digest(data)] for place, (type, data) in enumerate(closings)]
    reading = CopyReading({"damaged": [], "torn_tail": None}, {"a": read})
    assert (not list(copy_is_same_or_reported(stored, loss, reading))) == is_right


def test_the_end_of_a_sealed_file_is_missed_whatever_comes_behind_it(store: StoreInTest) -> None:
    """Also where that is a new file without a batch, and where no witness has seen the last one: its header tells."""
    journal, head = store.open(), len(store.events()["a"])
    journal.commit([Append("a", 1, head, event("a", head, "long " * SEGMENT_BYTES))])
    journal.between_commits()
    store.close()
    *_, sealed, last = read_segments(store.path)
    assert (bool(sealed.batches), last.batches) == (True, [])
    copy = store.path.with_name("copy")
    shutil.copytree(store.path, copy)
    (copy / "index.json").unlink()
    os.truncate(copy / "journal" / sealed.file, sealed.batches[-1].offset)
    loss, reading, stored = expected_loss(store.path, copy), ask(copy), read_journal(store.path)
    assert (list(loss.harmed["a"]), loss.may_be_silent) == ([head], False)
    assert not list(copy_is_same_or_reported(stored, loss, reading))
    silent = replace(reading, verification={"damaged": [], "torn_tail": None}, missing={})
    assert list(copy_is_same_or_reported(stored, loss, silent))
    (copy / "journal" / last.file).unlink()
    assert expected_loss(store.path, copy).may_be_silent


def test_a_session_whose_way_back_was_harmed_may_be_a_deleted_one(store: StoreInTest) -> None:
    """A batch without an event says that it is no longer deleted; what names no event can't be missed by its number."""
    journal = store.open()
    for deleted in (5, None):
        journal.commit([Patch("b", {"deleted": deleted})])
    journal.commit([Patch("a", {"title": "behind it"})])
    store.close()
    copy = store.path.with_name("copy")
    shutil.copytree(store.path, copy)
    shutil.rmtree(copy / "index")
    last = read_segments(store.path)[-1]
    harmed = next(batch for batch in last.batches if any(run.patch == {"deleted": None} for run in batch.runs))
    path = copy / "journal" / last.file
    content = bytearray(path.read_bytes())
    content[harmed.offset + 3] ^= 1
    path.write_bytes(content)
    loss, reading, stored = expected_loss(store.path, copy), ask(copy), read_journal(store.path)
    assert "b" not in reading.events
    assert loss.brought_back == {"b"}
    assert not list(copy_is_same_or_reported(stored, loss, reading))
    silent = replace(reading, verification={"damaged": [], "torn_tail": None})
    assert list(copy_is_same_or_reported(stored, loss, silent))


def test_a_copy_that_is_the_same_has_lost_nothing(store: StoreInTest) -> None:
    """Filling may be anything that readers take for it."""
    copy = store.path.with_name("copy")
    shutil.copytree(store.path, copy)
    for path in (copy / "journal").iterdir():
        path.write_bytes(path.read_bytes().rstrip(b"\n") + b"\n" + b"\0" * 100)
    assert expected_loss(store.path, copy) == Loss()
    assert not list(copy_is_same_or_reported(read_journal(store.path), Loss(), ask(copy)))
