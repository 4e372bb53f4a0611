"""End to end: what a client of the writer sees, over the socket, from a real process on a real disk."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.runtime.identity import identity_of
from turnkeeper.storage.reading import open_reader

from ..serving import (
    DEADLINE_SECONDS,
    FrameClient,
    ServedStore,
    eventually,
    first_append,
    next_append,
    own_owner,
    served_store,
    stopped,
)
from ..stores import event


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServedStore]:
    """A served store of its own."""
    with served_store(tmp_path / "store") as served:
        yield served


@pytest.fixture
def writer(store: ServedStore) -> Iterator[FrameClient]:
    """A connection to its writer."""
    with store.writer() as connection:
        yield connection


def lines_of(store: ServedStore, stream: str) -> list[bytes]:
    """Read a stream's lines as any other process would."""
    with store.writer() as writer:
        reader = open_reader(str(store.path), writer.hello["index"])
    try:
        return [stored.line + b"\n" for stored in reader.read(stream).events]
    finally:
        reader.close()


def opening(number: int, wanted: str, token: str, **more: Any) -> dict[str, Any]:
    """Make the request to open a stream, as this process."""
    return {"op": "open", "id": number, "wanted": wanted, "owner": own_owner(token), **more}


# -- Appends


def test_an_acknowledged_event_is_readable_from_another_process(store: ServedStore, writer: FrameClient) -> None:
    """The answer to an append says its first seq, the new head and the position; the event can be read then."""
    assert writer.ask([7, [first_append("a")]]) == [7, [[0, 1, 1]]]
    assert lines_of(store, "a") == [event("a", 0)]


def test_a_frame_is_answered_whole_and_a_refusal_leaves_its_neighbours_alone(writer: FrameClient) -> None:
    """Results come in the order of the appends, refused ones among them with their fields."""
    writer.ask([1, [first_append("a"), first_append("b")]])
    frame = [next_append("a", 1), next_append("a", 7), next_append("none", 0), next_append("b", 1)]
    number, (a, conflict, unknown, b) = writer.ask([2, frame])
    assert (number, a[:2], b[:2]) == (2, [1, 2], [1, 2])
    assert conflict == {"error": "Conflict", "args": ["a", 2, 0, None]}
    assert unknown == {"error": "NotFound", "args": ["none"]}


def test_frames_sent_at_once_are_answered_in_their_order(writer: FrameClient) -> None:
    """One connection may send ahead; it hears the answers in the order of its frames."""
    writer.send([0, [first_append("a")]], *([seq, [next_append("a", seq)]] for seq in range(1, 100)))
    assert [writer.receive() for _ in range(100)] == [[seq, [[seq, seq + 1, seq + 1]]] for seq in range(100)]


def test_what_queues_while_the_writer_is_held_up_is_one_commit(store: ServedStore) -> None:
    """Group commit: fifty clients that wait for the same disk don't wait for fifty commits."""
    with ExitStack() as open_connections:
        clients = [open_connections.enter_context(store.writer()) for _ in range(50)]
        before = clients[0].ask({"op": "statistics", "id": 1})["batches"]
        with stopped(clients[0].hello["pid"]):
            for number, client in enumerate(clients):
                client.send([1, [first_append(f"s-{number}")]])
        for client in clients:
            assert client.receive()[1][0][:2] == [0, 1]
        assert clients[0].ask({"op": "statistics", "id": 2})["batches"] - before <= 3


def test_a_frame_sent_again_to_the_next_writer_is_acknowledged_as_the_first_time(store: ServedStore) -> None:
    """Killing the writer loses the answer, never the event; sending again stores nothing twice."""
    frame = [1, [first_append("a"), first_append("b")]]
    with store.writer() as first:
        answer = first.ask(frame)
        store.kill_writer()
        first.wait_for_end()
    with store.writer() as second:
        assert second.ask(frame) == answer
        assert second.ask([2, [next_append("a", 1)]])[1][0][:2] == [1, 2]
    assert lines_of(store, "a") == [event("a", 0), event("a", 1)]


def test_clients_that_connect_while_no_writer_is_there_wait_for_the_next(store: ServedStore) -> None:
    """The listening socket is the node's: between two writers connections queue and are not refused."""
    store.kill_writer()
    with ExitStack() as open_connections:
        clients = [open_connections.enter_context(store.writer()) for _ in range(20)]
        assert len({client.hello["pid"] for client in clients}) == 1


def test_a_client_that_reads_no_answers_holds_up_nobody(store: ServedStore) -> None:
    """A deaf client's answers wait in memory and nothing more is read from it; hearing again, it gets all in order."""
    with store.writer() as deaf, store.writer() as other:
        deaf.ask([0, [first_append("deaf")]])
        refused = [[f"unknown-{'x' * 50}", 1, 0, event("u", 0), None, None, False]] * 5_000
        first_is_out = threading.Event()

        def send_all() -> None:
            for number in range(20):
                deaf.send([number, refused])
                first_is_out.set()

        sender = threading.Thread(target=send_all)
        sender.start()
        assert first_is_out.wait(DEADLINE_SECONDS)
        other.ask([0, [first_append("other")]])
        for seq in range(1, 1500):
            assert other.ask([seq, [next_append("other", seq)]])[1][0][:2] == [seq, seq + 1]
        assert sender.is_alive(), "the writer has read everything, although its answers can't be sent"
        assert [deaf.receive()[0] for _ in range(20)] == list(range(20))
        sender.join(DEADLINE_SECONDS)


# -- What is no request


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\x00\x00\x00\x01\xc1",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x01\x01",
        b"\x00\x00\x00\x03\x92\x01\x02",
        b"\x00\x00\x00\x04\x92\x01\x91\x90",
        b"\x00\x00\x00\x01\x80",
        b"\x00\x00\x00\x05\x81\xa2id\x01",
    ],
    ids=["no message", "too long", "a number", "no appends", "an empty append", "an empty map", "no op"],
)
def test_nonsense_ends_its_own_connection_with_a_reason(
    store: ServedStore, writer: FrameClient, nonsense: bytes
) -> None:
    """Whoever sends what is no request is told so and cut off; others notice nothing."""
    with store.writer() as other:
        other.connection.sendall(nonsense)
        assert other.receive()["error"] == "StorageError"
        with pytest.raises(ConnectionError):
            other.receive()
    assert writer.ask([1, [first_append("a")]])[1][0][:2] == [0, 1]


@pytest.mark.parametrize("patch", [{"a": b"bytes"}, {1: "number"}, {"a": [{"b": b""}]}], ids=repr)
def test_a_patch_that_json_cannot_hold_never_reaches_the_journal(
    store: ServedStore, writer: FrameClient, patch: dict[Any, Any]
) -> None:
    """The frame is refused before anything of it is committed."""
    writer.send([1, [[*first_append("a")[:4], patch, None, True]]])
    assert writer.receive()["error"] == "StorageError"
    with store.writer() as other:
        assert other.ask({"op": "statistics", "id": 1})["sessions"] == 0


# -- Openings


def test_a_new_session_is_only_reserved_until_its_first_append(store: ServedStore, writer: FrameClient) -> None:
    """A reservation stores nothing, keeps others off by id and by key, and names its owner to them."""
    header = {"id": "new-1", "key": "issue-1"}
    answer = writer.ask(opening(1, "issue-1", "mine", create=header))
    assert answer == {"re": 1, "stream": "new-1", "epoch": 1, "head": 0, "summary": {}, "new": True}
    with store.writer() as other:
        for wanted in ("issue-1", "new-1"):
            refusal = other.ask(opening(2, wanted, "theirs", create={"id": "new-2", "key": "issue-1"}))
            assert refusal == {"re": 2, "error": "SessionBusy", "args": ["new-1", own_owner("mine")]}
        assert other.ask({"op": "statistics", "id": 3})["sessions"] == 0
    assert writer.ask([1, [first_append("new-1", key="issue-1", owner=own_owner("mine"))]])[1][0] == [0, 1, 1]


def test_a_reservation_ends_with_its_connection_or_when_it_is_given_back(store: ServedStore) -> None:
    """A key that nobody used is free again, at once for who gave it back."""
    with store.writer() as first:
        first.ask(opening(1, "k", "one", create={"id": "new-1", "key": "k"}))
        assert first.ask({"op": "release", "id": 2, "stream": "new-1", "token": "one"}) == {"re": 2}
        assert first.ask(opening(3, "k", "two", create={"id": "new-2", "key": "k"}))["stream"] == "new-2"
    with store.writer() as second:
        request = opening(1, "k", "three", create={"id": "new-3", "key": "k"})
        eventually(lambda: second.ask(request).get("stream") == "new-3")


def test_asking_again_for_what_one_has_begun_is_answered_as_the_first_time(store: ServedStore) -> None:
    """After a lost answer the same token gets its reservation again, whether or not its first append was stored."""
    request = opening(1, "k", "mine", create={"id": "new-1", "key": "k"})
    append = first_append("new-1", key="k", owner=own_owner("mine"))
    with store.writer() as first:
        answer = first.ask(request)
        assert first.ask(request) == answer
        stored = first.ask([1, [append]])
        store.kill_writer()
    with store.writer() as second:
        assert second.ask(request) == answer
        assert second.ask([1, [append]]) == stored


def test_names_that_are_stored_are_taken(writer: FrameClient) -> None:
    """A new session can have neither a stored one's id nor its key, and is told whose they are."""
    writer.ask([1, [first_append("a", key="k", owner=own_owner("mine"))]])
    by_id = writer.ask(opening(1, "a", "other", create={"id": "a"}))
    by_key = writer.ask(opening(2, "b", "other", create={"id": "b", "key": "k"}))
    assert by_id == {"re": 1, "error": "Exists", "args": ["a", "id"]}
    assert by_key == {"re": 2, "error": "Exists", "args": ["a", "key"]}


def test_the_beginning_of_an_id_finds_a_session_but_never_stands_for_a_new_one(writer: FrameClient) -> None:
    """A unique prefix opens what is there; with leave to create, it is a new session's name."""
    writer.ask([1, [first_append("brave-otter")]])
    assert writer.ask(opening(1, "brave", "one"))["stream"] == "brave-otter"
    created = writer.ask(opening(2, "brave", "two", create={"id": "calm-owl", "key": "brave"}))
    assert (created["stream"], created["new"]) == ("calm-owl", True)
    assert writer.ask(opening(3, "none", "three")) == {"re": 3, "error": "NotFound", "args": ["none"]}


def test_a_living_owner_keeps_its_session_and_takeover_fences_it(writer: FrameClient) -> None:
    """A second opening is busy, also within one process; taking over raises the epoch and shuts the first one out."""
    writer.ask([1, [first_append("a", owner=own_owner("one"))]])
    busy = writer.ask(opening(1, "a", "two"))
    assert (busy["error"], busy["args"][1]["token"]) == ("SessionBusy", "one")
    taken = writer.ask(opening(2, "a", "two", takeover=True))
    assert (taken["epoch"], taken["head"], taken["new"]) == (2, 1, False)
    fenced = writer.ask([2, [next_append("a", 1)]])[1][0]
    assert (fenced["error"], fenced["args"][1]["token"]) == ("Fenced", "two")
    assert writer.ask([3, [next_append("a", 1, epoch=2)]])[1][0][:2] == [1, 2]


def test_a_session_whose_owner_is_gone_opens_at_once(writer: FrameClient) -> None:
    """A killed owner's session is free, and so is what it had only reserved; a zombie counts as gone."""
    with subprocess.Popen(["sleep", "100"]) as sleeper:
        identity = identity_of(sleeper.pid)
        assert identity is not None
        theirs = {**identity.as_map(), "token": "theirs"}
        writer.ask([1, [first_append("stored", owner=theirs)]])
        writer.ask({**opening(1, "k", "-"), "owner": theirs, "create": {"id": "reserved", "key": "k"}})
        assert writer.ask(opening(2, "stored", "mine"))["error"] == "SessionBusy"
        sleeper.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            sleeper.wait(0)
        os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
        assert writer.ask(opening(3, "stored", "mine"))["epoch"] == 2
        assert writer.ask(opening(4, "k", "mine", create={"id": "new", "key": "k"}))["new"] is True


def test_a_damaged_session_is_not_opened_and_what_is_missing_is_named(tmp_path: Path) -> None:
    """Whoever opens it is told which events are lost; the sessions beside it open as ever."""
    path = tmp_path / "store"
    with served_store(path) as store, store.writer() as writer:
        for number, append in enumerate([first_append("a"), next_append("a", 1), first_append("b")]):
            writer.ask([number, [append]])
    shutil.rmtree(path / "index")
    segment = path / "journal" / "00000001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'{"$batch":2,', b'{"$batch":9,'))
    with served_store(path) as store, store.writer() as writer:
        refusal = writer.ask(opening(1, "a", "mine"))
        assert (refusal["error"], refusal["args"][0], refusal["args"][4]) == ("Corrupt", "a", [[1, 1]])
        assert writer.ask(opening(2, "b", "mine"))["head"] == 1


# -- News and figures


def test_a_watch_is_answered_once_something_is_stored_behind_its_position(
    store: ServedStore, writer: FrameClient
) -> None:
    """It says the next position: at once when that is news already, else after the next commit, once."""
    with store.writer() as watcher:
        watcher.send({"op": "watch", "id": 1, "after": 1})
        assert watcher.ask({"op": "statistics", "id": 2})["re"] == 2
        writer.ask([1, [first_append("a")]])
        assert watcher.receive() == {"re": 1, "position": 2}
        assert watcher.ask({"op": "watch", "id": 3, "after": 1}) == {"re": 3, "position": 2}
        writer.ask([2, [next_append("a", 1)]])
        assert watcher.ask({"op": "statistics", "id": 4})["re"] == 4


def test_statistics_count_what_is_stored_and_how_long_flushes_take(writer: FrameClient) -> None:
    """Figures of the whole store, and the median and 99th percentile of the time to an acknowledgement."""
    empty = writer.ask({"op": "statistics", "id": 1})
    assert empty["flush_ms"] == {"p50": None, "p99": None}
    writer.ask([1, [first_append("a"), first_append("b")]])
    figures = writer.ask({"op": "statistics", "id": 2})
    assert {name: figures[name] for name in ("re", "position", "sessions", "events", "batches", "queue_bytes")} == {
        "re": 2,
        "position": 3,
        "sessions": 2,
        "events": 2,
        "batches": 1,
        "queue_bytes": 0,
    }
    assert 0 < figures["flush_ms"]["p50"] <= figures["flush_ms"]["p99"]


# -- Its ends


@pytest.mark.parametrize("by", ["the node's order", "SIGTERM"])
def test_an_ordered_end_leaves_a_clean_index(tmp_path: Path, by: str) -> None:
    """Ended in order, the writer leaves an index that is trusted even after the machine went down."""
    with served_store(tmp_path / "store") as store:
        with store.writer() as writer:
            writer.ask([1, [first_append("a")]])
        if by == "SIGTERM":
            store.kill_writer(signal.SIGTERM)
            assert store.writer_pid()
    assert json.loads((store.path / "index.json").read_text())["state"] == "clean"


def test_signals_of_a_terminal_do_not_end_it(store: ServedStore) -> None:
    """INT and HUP are ignored by node and writer."""
    pid = store.writer_pid()
    for process in (pid, store.process.pid):
        os.kill(process, signal.SIGINT)
        os.kill(process, signal.SIGHUP)
    with store.writer() as writer:
        assert writer.ask([1, [first_append("a")]])[1][0] == [0, 1, 1]
        assert writer.hello["pid"] == pid


def test_a_failed_sync_acknowledges_nothing_and_its_outcome_is_settled_by_the_next_writer(store: ServedStore) -> None:
    """The writer ends without an answer; what was sent is sent again to its successor, and is stored once."""
    frame = [1, [first_append("a")]]
    with store.writer() as writer:
        pid = writer.hello["pid"]
        inject = ["-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"]
        command = ["strace", "-qq", "-o", "/dev/null", *inject, "-p", str(pid)]
        try:
            tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
        except FileNotFoundError:
            pytest.skip("strace is missing")
        with tracer:
            eventually(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text())
            writer.send(frame)
            with pytest.raises(ConnectionError):
                writer.receive()
    with store.writer() as successor:
        assert successor.hello["pid"] != pid
        assert successor.ask(frame) == [1, [[0, 1, 1]]]
    assert "a commit failed" in (store.path / "node.log").read_text()


def test_what_comes_with_a_deletion_is_decided_behind_it(store: ServedStore, writer: FrameClient) -> None:
    """A message behind it is refused, and begins no inbox; one behind the way back is taken."""
    writer.ask([1, [first_append("a", kind="session")]])
    sending = {"op": "send", "to": "a", "tail": b'"time":1,"type":"note/n","data":{}}\n', "blobs": []}
    with stopped(store.writer_pid()):
        writer.send(
            {"op": "change", "id": 2, "wanted": "a", "deleted": True},
            {**sending, "id": 3, "key": "behind the deletion"},
            {"op": "change", "id": 4, "wanted": "a", "deleted": False},
            {**sending, "id": 5, "key": "behind the way back"},
        )
    answers = [writer.receive() for _ in range(4)]
    assert answers[1] == {"re": 3, "error": "Deleted", "args": ["a"]}
    assert answers[3] == {"re": 5, "seq": 0}
    assert len(lines_of(store, "inbox-a")) == 1
