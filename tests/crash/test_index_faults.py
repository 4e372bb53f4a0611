"""Whatever becomes of the index, the journal wins: nothing is lost, nothing is stored twice, answers are the same."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from pathlib import Path

import pytest

from turnkeeper.storage import index as index_module
from turnkeeper.storage.errors import Failed, IndexFailed
from turnkeeper.storage.index import Index
from turnkeeper.storage.index_records import EXTENT, RECORD
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.limits import EXTENTS_MAX
from turnkeeper.storage.reading import open_reader
from turnkeeper.storage.requests import Append, Appended
from turnkeeper.storage.verify import verify

from ..served import end_all, read_line, start_python
from ..serving import FrameClient, first_append, next_append, served_store
from ..stores import appended, commit_one, create, event, lines, new_store

SMALL_MAP_BYTES = 256 * 1024
STREAMS = 40


def test_an_index_out_of_space_fails_the_commit_and_nothing_is_stored_twice(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The map is full in the middle: that commit has no answer. Reopened and sent again, each event is there once."""
    with new_store(memory_path / "store") as store:
        monkeypatch.setattr(index_module, "MAP_BYTES", SMALL_MAP_BYTES)
        journal = store.open()
        sent: list[Append] = []
        with pytest.raises(IndexFailed, match="MAP_FULL"):
            commit_until_it_fails(journal, sent)
        assert len(sent) > 20
        with pytest.raises(Failed):
            journal.commit([sent[-1]])
        store.kill()
        monkeypatch.undo()
        journal = store.open()
        again = journal.commit(sent)
        assert all(isinstance(result, Appended) for result in again)
        assert store.events() == {
            request.stream: [line for line in request.lines.split(b"\n") if line] for request in sent
        }
        entries = store.index_entries()
        store.kill()
        store.delete_index()
        store.open()
        assert store.index_entries() == entries


def commit_until_it_fails(journal: Journal, sent: list[Append]) -> None:
    """Make one stream after another, and note each before it is committed."""
    while True:
        sent.append(create(f"s{len(sent)}", lines(f"s{len(sent)}", 0, 2), title="t" * 1000))
        commit_one(journal, sent[-1])


def test_with_all_readers_places_taken_reading_fails_clearly_and_works_again(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds no place is told so, and the commit that finds none has no answer; sent again it is stored once."""
    monkeypatch.setattr(index_module, "READERS_MAX", 3)
    with new_store(memory_path / "store") as store, contextlib.ExitStack() as held:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        with pytest.raises(IndexFailed, match="READERS_FULL"):
            take_places(journal, held)
        with pytest.raises(IndexFailed, match="READERS_FULL"):
            store.events()
        with pytest.raises(IndexFailed, match="READERS_FULL"):
            commit_one(journal, Append("a", 1, 3, event("a", 3)))
        held.close()
        assert [len(each) for each in store.events().values()] == [3]
        store.kill()
        journal = store.open()
        assert appended(journal, Append("a", 1, 3, event("a", 3))).head == 4
        assert [len(each) for each in store.events().values()] == [4]


def take_places(journal: Journal, held: contextlib.ExitStack) -> None:
    """Hold snapshots until there is no place for another."""
    for _ in range(10):
        held.enter_context(journal._index.reading())


def test_places_of_dead_readers_are_free_again_when_a_writer_opens(memory_path: Path) -> None:
    """A reader killed in the middle of a look holds its place no longer than until the next opening."""
    program = (
        "import sys, time\n"
        "from turnkeeper.storage.reading import open_reader\n"
        "reader = open_reader(sys.argv[1], sys.argv[2])\n"
        "with reader._index.reading():\n"
        "    print('holding', flush=True)\n"
        "    time.sleep(600)\n"
    )
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        reader = start_python(program, str(store.path), journal.index_directory)
        try:
            assert read_line(reader) == "holding"
            assert str(reader.pid) in journal._index._environment.readers()
        finally:
            end_all([reader])
        store.kill()
        journal = store.open()
        assert str(reader.pid) not in journal._index._environment.readers()
        appended(journal, Append("a", 1, 3, event("a", 3)))


def test_a_forked_child_is_refused_the_inherited_index_and_leaves_its_parent_alone(memory_path: Path) -> None:
    """Neither commits nor reads go through what the child inherited; the parent goes on with both."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        with contextlib.closing(open_reader(str(store.path), journal.index_directory)) as reader:
            assert len(reader.read("a").events) == 3
            child = os.fork()
            if child == 0:
                refused = 0
                try:
                    with contextlib.suppress(RuntimeError):
                        refused += 1
                        journal.commit([Append("a", 1, 3, event("a", 3))])
                        refused -= 1
                    with contextlib.suppress(RuntimeError):
                        refused += 1
                        reader.read("a")
                        refused -= 1
                finally:
                    os._exit(refused)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
            appended(journal, Append("a", 1, 3, event("a", 3)))
            assert len(reader.read("a").events) == 4


def test_an_index_of_another_store_is_not_opened(memory_path: Path) -> None:
    """Moved here with its index.json, it is passed over: the journal's own index is built, and answers are its own."""
    with new_store(memory_path / "store") as store, new_store(memory_path / "other") as other:
        appended(other.open(), create("z", lines("z", 0, 9)))
        other.close()
        appended(store.open(), create("a", lines("a", 0, 3)))
        before, entries = store.events(), store.index_entries()
        store.close()
        store.delete_index()
        shutil.move(other.path / "index", store.path / "index")
        shutil.move(other.path / "index.json", store.path / "index.json")
        journal = store.open()
        assert journal.report.rebuilt == "it is another store's"
        assert (store.events(), store.index_entries()) == (before, entries)


def test_an_index_whose_builder_died_is_removed_at_the_next_opening(memory_path: Path) -> None:
    """The one that the record names is trusted and goes on; one that was begun beside it and never named goes."""
    with new_store(memory_path / "store") as store:
        appended(store.open(), create("a", lines("a", 0, 3)))
        store.kill()
        (named,) = (store.path / "index").iterdir()
        shutil.copytree(named, store.path / "index" / "0123456789abcdef")
        assert not store.open().report.rebuilt
        assert list((store.path / "index").iterdir()) == [named]
        assert store.events()["a"]


def test_an_index_that_is_no_database_is_refused_by_name(memory_path: Path) -> None:
    """Whoever opens one that can't be one is told which index it is, in an error that says it was the index."""
    directory = memory_path / "index"
    directory.mkdir()
    (directory / "data.mdb").write_bytes(b"#" * 8192)
    with pytest.raises(IndexFailed, match=str(directory)):
        Index.open_writable(str(directory))
    with pytest.raises(IndexFailed, match=str(directory)):
        Index.open_readable(str(directory), lock=False)


def test_an_index_that_contradicts_itself_is_an_index_that_failed(memory_path: Path) -> None:
    """A list of it that names what it doesn't have is told as that, so whoever reads waits for the one built anew."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        with journal._index.writing() as transaction:
            transaction.delete(b"a", db=journal._index._streams)
        with (
            contextlib.closing(open_reader(str(store.path), journal.index_directory)) as reader,
            pytest.raises(IndexFailed, match="contradicts itself"),
        ):
            reader.rows(10)
        store.kill()


@pytest.mark.parametrize("field", ["number of events", "first event"])
def test_an_index_that_leads_back_to_what_was_read_is_an_index_that_failed(memory_path: Path, field: str) -> None:
    """Whoever reads a stream along it gets an end, and not the same events for ever."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 1)))
        for seq in range(1, EXTENTS_MAX + 2):
            appended(journal, Append("a", 1, seq, lines("a", seq, 1)))
        with journal._index.writing() as transaction:
            if field == "number of events":
                blocks = journal._index._databases["blocks"]
                (key, block), *_ = transaction.cursor(db=blocks)
                extents = bytearray(block)
                second = EXTENT.size
                extents[second + 16 : second + 20] = bytes(4)
                transaction.put(key, bytes(extents), db=blocks)
            else:
                record = bytearray(transaction.get(b"a", db=journal._index._streams))
                record[RECORD.size - 8 : RECORD.size] = (EXTENTS_MAX - 1).to_bytes(8, "little")
                transaction.put(b"a", bytes(record), db=journal._index._streams)
        with (
            contextlib.closing(open_reader(str(store.path), journal.index_directory)) as reader,
            pytest.raises(IndexFailed, match="contradicts itself"),
        ):
            reader.read("a")
        store.kill()


@pytest.mark.parametrize(
    ("table", "value"),
    [("summaries", b'{"title": "t'), ("summaries", b'{"title": "\xff"}'), ("streams", b"too short")],
    ids=["no JSON", "no UTF-8", "no record"],
)
def test_an_index_with_values_that_nobody_put_is_an_index_that_failed(
    memory_path: Path, table: str, value: bytes
) -> None:
    """In one line, which says how it is built anew; the journal beside it is good."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        with journal._index.writing() as transaction:
            transaction.put(b"a", value, db=journal._index._databases[table])
        with (
            contextlib.closing(open_reader(str(store.path), journal.index_directory)) as reader,
            pytest.raises(IndexFailed, match="the index is damaged") as caught,
        ):
            reader.row("a")
        assert "journal rebuild" in caught.value.message()
        store.kill()


@pytest.mark.parametrize("place", range(0, 48, 5))
def test_an_index_whose_word_on_the_last_batch_was_changed_is_no_witness_against_the_journal(
    memory_path: Path, place: int
) -> None:
    """It is an index that failed, and is built anew; believed, it would have made damage of a journal that is good."""
    with new_store(memory_path / "store") as store:
        journal = store.open()
        appended(journal, create("a", lines("a", 0, 3)))
        with journal._index.writing() as transaction:
            meta = journal._index._databases["meta"]
            content = bytearray(transaction.get(b"indexed", db=meta))
            content[place % len(content)] ^= 0xFF
            transaction.put(b"indexed", bytes(content), db=meta)
        store.kill()
        with pytest.raises(IndexFailed, match="the index is damaged"):
            store.open()
        journal = store.open(distrust=True)
        assert (journal.report.findings, journal.report.may_lack_events) == ([], False)
        appended(journal, Append("a", 1, 3, lines("a", 3, 1)))
        assert journal.statistics()["batches"] == 2
        assert verify(str(store.path), journal.index_directory).damaged == []


def fill(path: Path) -> None:
    """Make a store of some streams and several pages of index, closed cleanly."""
    with served_store(path) as store, store.writer() as writer:
        for number in range(STREAMS):
            writer.ask([2 * number + 1, [first_append(f"s{number}", title="t" * 500)]])
            writer.ask([2 * number + 2, [next_append(f"s{number}", 1)]])


def append_to_all(writer: FrameClient) -> None:
    """Append the third event of every stream, each sent once on this connection."""
    for number in range(STREAMS):
        ((first, head, _),) = writer.ask([number + 1, [next_append(f"s{number}", 2)]])[1]
        assert (first, head) == (2, 3)


@pytest.mark.parametrize("how", ["zeroed", "flipped", "cut", "meta pages", "random"])
def test_a_node_survives_a_damaged_index_that_its_record_trusts(tmp_path: Path, how: str) -> None:
    """Its file was changed in place, so that nothing tells: the writer may die of it, and another builds it anew."""
    path = tmp_path / "store"
    fill(path)
    (data,) = (path / "index").glob("*/data.mdb")
    content = bytearray(data.read_bytes())
    chance = random.Random(how)
    if how == "zeroed":
        content[8192:] = bytes(len(content) - 8192)
    elif how == "flipped":
        for place in range(8192, len(content), 97):
            content[place] ^= 0xFF
    elif how == "cut":
        del content[8192:]
    elif how == "meta pages":
        content[16:8192] = chance.randbytes(8192 - 16)
    else:
        content[8192:] = chance.randbytes(len(content) - 8192)
    with data.open("r+b") as file:  # the same file: device, inode and generation stay
        file.write(content)
        file.truncate(len(content))
    with served_store(path) as store:
        deadline = 20
        while deadline:
            deadline -= 1
            with contextlib.suppress(ConnectionError), store.writer() as writer:
                append_to_all(writer)
                break
        assert deadline, "no writer gets over the damage"
    with contextlib.closing(open_reader(str(path))) as reader:
        assert {row.id: row.head for row in reader.rows(1000)} == {f"s{number}": 3 for number in range(STREAMS)}
        assert all(len(reader.read(f"s{number}").events) == 3 for number in range(STREAMS))
