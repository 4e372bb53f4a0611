"""A journal that ends before what its own index knows: cut, replaced by an older copy, or with a file gone.

Heads stay, and whoever lost events is damaged: readable, not to be owned, its missing events named; with the index that
knew it, and when that is gone too.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.writer.openings import Openings
from turnkeeper.actors.writer.requests import Opening
from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.errors import Corrupt
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Grant

from ..stores import StoreInTest, appended, create, event, granted, lines, new_store, owner


@pytest.fixture
def store(memory_path: Path) -> Iterator[StoreInTest]:
    """A new store."""
    with new_store(memory_path / "store") as made:
        yield made


def is_gone(who: Mapping[str, Any]) -> bool:
    """Let nobody live."""
    return True


def damaged(journal: Journal, streams: str) -> dict[str, list[tuple[int, int]]]:
    """Give the streams that can't be owned, each with what is said to be missing; all others are granted."""
    openings = Openings(journal, is_gone)
    found = {}
    for stream in streams:
        decision = openings.decide(Opening(stream, owner("new"), takeover=False, header=None), None)
        if isinstance(decision, Corrupt):
            found[stream] = decision.missing
        else:
            assert isinstance(decision, Grant)
            granted(journal, decision)
    return found


def check(store: StoreInTest, heads: dict[str, int], missing: dict[str, list[tuple[int, int]]]) -> None:
    """Open the store with its index, again, and without it: heads, damage and what can be read are the same each time.

    And nothing more is declared than once.
    """
    declared = 0
    for again in range(3):
        if again == 2:
            store.delete_index()
        journal = store.open()
        assert again or journal.report.findings
        assert {stream: journal.row(stream).head for stream in heads} == heads
        assert damaged(journal, "".join(heads)) == missing
        with contextlib.closing(open_reader(str(store.path), journal.index_directory)) as reader:
            for stream, head in heads.items():
                page = reader.read(stream)
                gaps = {seq for first, events in missing.get(stream, ()) for seq in range(first, first + events)}
                assert [stored.seq for stored in page.events] == [seq for seq in range(head) if seq not in gaps]
        batches = sum(path.read_bytes().count(b'{"damaged":true}') for path in (store.path / "journal").iterdir())
        assert declared in (0, batches)
        declared = batches
        store.close()


def test_an_older_copy_of_the_last_file_is_damage_to_those_who_appended_since(store: StoreInTest) -> None:
    """Over several batches; who appended before, or whose summary alone was changed since, is whole."""
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 3)) for stream in "abcd"])
    older = store.segment().read_bytes()
    appended(journal, Append("a", 1, 3, lines("a", 3, 2)))
    appended(journal, Append("b", 1, 3, event("b", 3)))
    granted(journal, Grant("c", owner("second")))
    appended(journal, Append("a", 1, 5, event("a", 5)))
    store.close()
    store.segment().write_bytes(older)
    check(store, {"a": 6, "b": 4, "c": 3, "d": 3}, {"a": [(3, 3)], "b": [(3, 1)]})
    journal = store.open()
    assert appended(journal, create("z", event("z", 0))).position > 16, "no position is given again"


def test_a_file_that_is_gone_is_damage_to_those_who_stood_in_it(
    store: StoreInTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last file, in which the index stops; numbers of files and events go on behind it."""
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 2000)
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 2)) for stream in "abc"])
    head = 2
    while journal.statistics()["segment"] == 1:
        appended(journal, Append("a", 1, head, event("a", head)))
        head += 1
        journal.between_commits()
    appended(journal, Append("b", 1, 2, lines("b", 2, 3)))
    store.close()
    store.segment(2).unlink()
    check(store, {"a": head, "b": 5, "c": 2}, {"b": [(2, 3)]})
    assert store.segment(3).exists()
    assert not store.segment(2).exists()


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_last_batch_whose_events_were_changed_is_damage_to_those_alone(store: StoreInTest, index: str) -> None:
    """Its header is good, so what else stands in it is whole; the witness knows that it was acknowledged."""
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 2)) for stream in "ab"])
    journal.commit([Append(stream, 1, 2, event(stream, 2, "changed")) for stream in "ab"])
    store.close()
    content = store.segment().read_bytes()
    place = content.rindex(b"changed", 0, content.rindex(b"changed"))
    store.segment().write_bytes(content[:place] + b"#" + content[place + 1 :])
    if index == "lost":
        shutil.rmtree(store.path / "index")
    check(store, {"a": 3, "b": 3}, {"a": [(2, 1)]})


@pytest.mark.parametrize("spoil", [lambda line: b"#" + line[1:], lambda line: line.replace(b":", b";")])
def test_a_last_batch_whose_header_was_changed_is_damage_to_all_in_it(
    store: StoreInTest, spoil: Callable[[bytes], bytes]
) -> None:
    """The kept index could still read their events, but no other one could."""
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 2)) for stream in "abc"])
    journal.commit([Append(stream, 1, 2, event(stream, 2)) for stream in "ab"])
    store.close()
    content = store.content()
    begin = content.rindex(b'{"$batch"')
    header, rest = content[begin:].split(b"\n", 1)
    store.segment().write_bytes(content[:begin] + spoil(header) + b"\n" + rest)
    journal = store.open()
    assert {stream: journal.row(stream).head for stream in "abc"} == {"a": 3, "b": 3, "c": 2}
    assert set(damaged(journal, "abc")) == {"a", "b"}
    store.kill()
    store.delete_index()
    journal = store.open()
    assert damaged(journal, "abc") == {"a": [(2, 1)], "b": [(2, 1)]}
    assert journal.row("a").head == 3


def test_who_stands_only_behind_what_was_lost_is_whole(store: StoreInTest) -> None:
    """The index stops at a batch that is gone now, and the next one, which its writer couldn't index, is good."""
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 2)) for stream in "abc"])
    appended(journal, Append("a", 1, 2, event("a", 2)))
    (data,) = (store.path / "index").glob("*/data.mdb")
    seen = data.read_bytes()
    journal.commit([Append(stream, 1, head, event(stream, head)) for stream, head in (("a", 3), ("b", 2))])
    store.kill()
    with data.open("r+b") as file:
        file.write(seen)
    content = store.segment().read_bytes()
    begin = content.index(b'{"$batch":2,')
    store.segment().write_bytes(content[:begin] + b"#" + content[begin + 1 :])
    journal = store.open()
    assert {stream: journal.row(stream).head for stream in "abc"} == {"a": 4, "b": 3, "c": 2}
    assert set(damaged(journal, "abc")) == {"a"}


def test_another_history_of_the_same_store_is_damage(store: StoreInTest, memory_path: Path) -> None:
    """A copy went on by itself, and its file was put here: a batch of this number is there, but it is another one."""
    journal = store.open()
    journal.commit([create(stream, lines(stream, 0, 2)) for stream in "ab"])
    store.close()
    copy = store.copy_to(memory_path / "copy")
    appended(copy.open(), Append("b", 1, 2, event("b", 2)))
    copy.end()
    appended(store.open(), Append("a", 1, 2, event("a", 2)))
    store.close()
    shutil.copyfile(copy.segment(), store.segment())
    journal = store.open()
    assert journal.report.findings
    assert journal.row("a").head == 3
    assert damaged(journal, "a") == {"a": [(2, 1)]}
