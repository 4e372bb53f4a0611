"""Contract of the append rule: what is stored, acknowledged, refused, and in which order that is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage.errors import (
    Ambiguous,
    Conflict,
    Exists,
    Fenced,
    InvalidLine,
    NotFound,
    SessionBusy,
    TooLarge,
)
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.limits import BATCH_BYTES_MAX, RUNS_MAX
from turnkeeper.storage.requests import Append, Appended, Grant, Granted

from ..stores import StoreInTest, appended, commit_one, create, event, granted, lines, new_store, owner


@pytest.fixture
def store(tmp_path: Path) -> Iterator[StoreInTest]:
    """A new store with its journal open."""
    with new_store(tmp_path / "store") as made:
        made.open()
        yield made


@pytest.fixture
def journal(store: StoreInTest) -> Journal:
    """The open journal of the store."""
    assert store.journal is not None
    return store.journal


def test_what_was_appended_is_read_back_byte_for_byte(store: StoreInTest, journal: Journal) -> None:
    """Lines come back as they were sent, in order."""
    text = lines("a", 0, 3, "U+2028 \u2028, NEL \x85, form feed \f, CR \r, emoji 🚀")
    appended(journal, create("a", text))
    appended(journal, Append("a", 1, 3, event("a", 3)))
    assert b"".join(line + b"\n" for line in store.events()["a"]) == text + event("a", 3)


def test_lines_sent_again_are_acknowledged_as_the_first_time(store: StoreInTest, journal: Journal) -> None:
    """The same bytes under the same epoch are stored once, whole, split or merged."""
    first = create("a", lines("a", 0, 2))
    answer = appended(journal, first)
    assert appended(journal, first) == answer
    assert appended(journal, Append("a", 1, 1, lines("a", 1, 3))) == Appended(1, 4, 4)
    assert appended(journal, Append("a", 1, 0, lines("a", 0, 4))).head == 4
    assert len(store.events()["a"]) == 4


def test_lines_sent_twice_in_one_commit_are_stored_once(store: StoreInTest, journal: Journal) -> None:
    """A resend may stand beside the first in the same batch."""
    appended(journal, create("a", event("a", 0)))
    again = Append("a", 1, 1, lines("a", 1, 2))
    results = journal.commit([again, again, Append("a", 1, 2, lines("a", 2, 2))])
    assert results == [Appended(1, 3, 3), Appended(1, 3, 3), Appended(2, 4, 4)]
    assert len(store.events()["a"]) == 4


@pytest.mark.parametrize("first", [0, 2, 3, 9])
def test_another_number_than_the_head_conflicts(store: StoreInTest, journal: Journal, first: int) -> None:
    """A gap, a repeat with other bytes and a stale cursor are Conflict, name the head, and write nothing."""
    appended(journal, create("a", lines("a", 0, 1)))
    before = store.content()
    answer = commit_one(journal, Append("a", 1, first, event("a", first, "other")))
    assert isinstance(answer, Conflict)
    assert (answer.expected, answer.stored) == (1, 0)
    assert store.content() == before


def test_a_conflict_says_how_many_lines_are_stored(journal: Journal) -> None:
    """Some leading lines may be stored already though the rest conflicts."""
    appended(journal, create("a", lines("a", 0, 3)))
    answer = commit_one(journal, Append("a", 1, 1, event("a", 1, "hello 1") + event("a", 2, "other")))
    assert isinstance(answer, Conflict)
    assert (answer.expected, answer.stored) == (3, 1)


def test_a_superseded_owner_is_fenced_though_its_number_is_right(store: StoreInTest, journal: Journal) -> None:
    """The epoch decides, and the refusal names who owns the stream now and how many lines are stored."""
    appended(journal, create("a", lines("a", 0, 2)))
    grant = granted(journal, Grant("a", owner("second")))
    assert (grant.epoch, grant.head) == (2, 2)
    answer = commit_one(journal, Append("a", 1, 1, lines("a", 1, 2)))
    assert isinstance(answer, Fenced)
    assert answer.stored == 1
    assert answer.owner is not None
    assert answer.owner["token"] == "second"
    assert len(store.events()["a"]) == 2


def test_a_resend_is_acknowledged_even_after_a_takeover(journal: Journal) -> None:
    """Recognition comes before fencing: what was stored under the old epoch stays acknowledged."""
    appended(journal, create("a", lines("a", 0, 2)))
    granted(journal, Grant("a", owner("second")))
    assert appended(journal, Append("a", 1, 0, lines("a", 0, 2))).head == 2


def test_the_same_bytes_under_another_epoch_are_not_a_resend(journal: Journal) -> None:
    """An epoch is never acknowledged for a line that another one stored."""
    appended(journal, create("a", event("a", 0)))
    granted(journal, Grant("a", owner("second")))
    appended(journal, Append("a", 2, 1, event("a", 1)))
    answer = commit_one(journal, Append("a", 1, 1, event("a", 1)))
    assert isinstance(answer, Fenced)
    assert answer.stored == 0


def test_a_grant_and_its_owners_lines_go_into_one_batch(store: StoreInTest, journal: Journal) -> None:
    """A stream has one run a batch; lines under the granted epoch join it, a second grant waits for the next batch."""
    appended(journal, create("a", event("a", 0)))
    results = journal.commit(
        [
            Grant("a", owner("second")),
            Append("a", 2, 1, event("a", 1)),
            Append("a", 1, 1, event("a", 1)),
            Grant("a", owner("third")),
        ]
    )
    assert isinstance(results[0], Granted)
    assert results[1] == Appended(1, 2, 2)
    assert isinstance(results[2], Fenced)
    assert isinstance(results[3], Granted)
    assert (results[3].epoch, results[3].head) == (3, 2)
    assert journal.statistics()["batches"] == 3
    assert len(store.events()["a"]) == 2


def test_a_living_owner_keeps_its_stream(store: StoreInTest, journal: Journal) -> None:
    """Another opening is told who owns it; takeover takes it; a dead or released owner stands in nobody's way."""
    appended(journal, create("a", event("a", 0)))
    store.alive.add("a-1")
    answer = commit_one(journal, Grant("a", owner("second")))
    assert isinstance(answer, SessionBusy)
    assert answer.owner["token"] == "a-1"
    assert granted(journal, Grant("a", owner("second"), takeover=True)).epoch == 2
    store.alive.add("second")
    appended(journal, Append("a", 2, 1, b"", {"owner": None}))
    assert granted(journal, Grant("a", owner("third"))).epoch == 3
    assert granted(journal, Grant("a", owner("fourth"))).epoch == 4


def test_the_same_opening_may_ask_twice(store: StoreInTest, journal: Journal) -> None:
    """After a lost answer the same token gets the next epoch, not Busy with itself."""
    appended(journal, create("a", event("a", 0)))
    store.alive.update({"a-1", "second"})
    granted(journal, Grant("a", owner("second"), takeover=True))
    assert granted(journal, Grant("a", owner("second"))).epoch == 3


def test_one_refusal_leaves_its_neighbours_alone(store: StoreInTest, journal: Journal) -> None:
    """Results come in the order of the requests, whatever becomes of the others."""
    appended(journal, create("a", event("a", 0)))
    results = journal.commit(
        [
            create("b", event("b", 0)),
            Append("a", 1, 5, event("a", 5)),
            Append("missing", 1, 0, event("missing", 0)),
            Append("a", 9, 1, event("a", 1)),
            Append("a", 1, 1, b'{"stream":"b","seq":1,"time":1,"type":"x/y","data":{}}\n'),
            Append("a", 1, 1, event("a", 1)),
        ]
    )
    kinds = [type(result) for result in results]
    assert kinds == [Appended, Conflict, NotFound, Fenced, InvalidLine, Appended]
    assert {stream: len(found) for stream, found in store.events().items()} == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    "line",
    [
        b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":{"t":"one\ntwo"}}\n',
        b'{"stream":"a","seq":2,"time":1,"type":"x/y","data":{}}\n',
        b'{"stream":"ab","seq":1,"time":1,"type":"x/y","data":{}}\n',
        b'{"seq":1,"stream":"a","time":1,"type":"x/y","data":{}}\n',
        b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":{}}',
        b'{"stream":"a","seq":1,"time":1,"type":"x/y","data":"end"}\n',
        b'{"$batch":3,"position":1,"time":1,"bytes":0,"streams":[],"prev":"00000000","h":"00000000"}\n',
        b"\n",
    ],
)
def test_a_line_that_is_not_its_event_is_refused(store: StoreInTest, journal: Journal, line: bytes) -> None:
    """A raw newline, a foreign id or number, a lost end, a control line: nothing of it is stored."""
    appended(journal, create("a", event("a", 0)))
    before = store.content()
    assert isinstance(commit_one(journal, Append("a", 1, 1, line)), InvalidLine)
    assert store.content() == before


def test_an_event_that_looks_like_a_header_is_data(store: StoreInTest, journal: Journal) -> None:
    """Bytes of an event can't pass for a control line, wherever a reader looks for one."""
    nested = {"$batch": 9, "position": 1, "time": 1, "bytes": 0, "streams": [], "prev": "0" * 8, "h": "0" * 8}
    line = encode_event("a", 1, 1, "user/message", {"$batch": 1, "x": nested, "h": "00000000"})
    appended(journal, create("a", event("a", 0) + line))
    appended(journal, Append("a", 1, 2, event("a", 2)))
    store.kill()
    store.delete_index()
    store.open()
    assert store.events()["a"][1] + b"\n" == line
    assert store.journal is not None
    assert store.journal.report.findings == []


def test_an_append_over_the_limit_of_a_batch_is_refused(journal: Journal) -> None:
    """A whole append fits one batch or is refused, with size and limit; a line over 1 MiB too."""
    appended(journal, create("a", event("a", 0)))
    big = b"".join(event("a", seq, "x" * 1_000_000) for seq in range(1, 10))
    answer = commit_one(journal, Append("a", 1, 1, big))
    assert isinstance(answer, TooLarge)
    assert (answer.size, answer.limit) == (len(big), BATCH_BYTES_MAX)
    line = event("a", 1, "x").replace(b'"x"', b'"' + b"x" * 1_100_000 + b'"')
    assert isinstance(commit_one(journal, Append("a", 1, 1, line)), TooLarge)
    assert isinstance(commit_one(journal, Append("a", 1, 1, b"", {"title": "x" * 5000})), TooLarge)


def test_requests_over_a_batch_go_into_several(store: StoreInTest, journal: Journal) -> None:
    """More than 1,024 streams or 8 MiB at once are several batches and one list of answers."""
    streams = [f"s-{number}" for number in range(RUNS_MAX + 10)]
    results = journal.commit([create(stream, event(stream, 0)) for stream in streams])
    assert all(isinstance(result, Appended) for result in results)
    assert journal.statistics()["batches"] == 2
    big = [Append(f"s-{n}", 1, 1, event(f"s-{n}", 1, "x" * 900_000)) for n in range(12)]
    assert all(isinstance(result, Appended) for result in journal.commit(big))
    assert journal.statistics()["batches"] == 4
    assert sum(map(len, store.events().values())) == len(streams) + 12


def test_an_append_longer_than_the_filling_is_safe(store: StoreInTest, journal: Journal) -> None:
    """A batch is never written beyond the filling: it is extended first."""
    text = b"".join(event("a", seq, "x" * 900_000) for seq in range(8))
    appended(journal, create("a", text))
    store.kill()
    store.delete_index()
    store.open()
    assert len(store.events()["a"]) == 8


def test_a_taken_id_or_key_exists(journal: Journal) -> None:
    """A first run with an id or a host's key that is taken names the stream that has it."""
    appended(journal, create("a", event("a", 0), key="issue-1"))
    answer = commit_one(journal, create("a", event("a", 0, "other")))
    assert isinstance(answer, Exists)
    results = journal.commit(
        [
            create("b", event("b", 0), key="issue-1"),
            create("c", event("c", 0), key="issue-2"),
            create("d", event("d", 0), key="issue-2"),
        ]
    )
    assert [type(result) for result in results] == [Exists, Appended, Exists]
    assert [result.id for result in results if isinstance(result, Exists)] == ["a", "c"]


def test_a_line_with_a_known_key_is_stored_once(store: StoreInTest, journal: Journal) -> None:
    """The old seq is the answer, whatever the number offered now; other content under the same key conflicts."""
    appended(journal, create("a", event("a", 0)))
    keyed = Append("a", 1, 1, event("a", 1, "once", time=5), key="k")
    later = Append("a", 1, 2, event("a", 2, "once", time=9), key="k")
    results = journal.commit([keyed, later, Append("a", 1, 2, event("a", 2))])
    assert results == [Appended(1, 2, 2), Appended(1, 2, 2), Appended(2, 3, 3)]
    assert appended(journal, Append("a", 1, 3, event("a", 3, "once"), key="k")).first == 1
    assert isinstance(commit_one(journal, Append("a", 1, 3, event("a", 3, "else"), key="k")), Conflict)
    store.kill()
    store.delete_index()
    journal = store.open()
    assert appended(journal, Append("a", 1, 3, event("a", 3, "once"), key="k")).first == 1
    assert len(store.events()["a"]) == 3


def test_an_empty_append_is_no_op(store: StoreInTest, journal: Journal) -> None:
    """Nothing to store stores nothing, not even a batch."""
    appended(journal, create("a", event("a", 0)))
    before = journal.statistics()
    assert commit_one(journal, Append("a", 1, 1, b"")) == Appended(1, 1, 0)
    assert journal.statistics() == before


def test_names_resolve_by_id_key_and_unique_prefix(journal: Journal) -> None:
    """Ambiguous names its candidates; unknown makes nothing."""
    journal.commit([create(id, event(id, 0), key=f"issue-{id[-1]}") for id in ("brave-otter-1", "brave-owl-2")])
    assert {journal.resolve(name) for name in ("brave-otter-1", "issue-1", "brave-ot")} == {"brave-otter-1"}
    with pytest.raises(Ambiguous) as caught:
        journal.resolve("brave")
    assert caught.value.candidates == ["brave-otter-1", "brave-owl-2"]
    with pytest.raises(NotFound):
        journal.resolve("calm")
