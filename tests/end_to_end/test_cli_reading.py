"""End to end: the commands that look at a store, served or not, and on a copy that can't change."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage import lock
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.requests import Append

from ..command_line import CommandLine, event_line
from ..serving import served_store
from ..stores import StoreInTest, appended, create, lines, new_store, owner


def fill(store: StoreInTest) -> None:
    """Store three sessions: one left, one whose owner died in a turn, one child."""
    journal = store.open()
    left = {"title": "left", "cwd": "/one", "labels": {"k": "v"}, "created": 1_700_000_000_000, "owner": None}
    appended(journal, create("brave-otter-0001", lines("brave-otter-0001", 0, 5), **left))
    appended(journal, create("calm-heron-0002", lines("calm-heron-0002", 0, 3), title="died", open_turn=1))
    appended(journal, create("calm-horse-0003", lines("calm-horse-0003", 0, 1), parent="brave-otter-0001", owner=None))


@pytest.fixture
def closed(cli: CommandLine) -> Iterator[StoreInTest]:
    """A filled store that nobody serves, closed cleanly."""
    with new_store(cli.store) as store:
        fill(store)
        store.close()
        lock.release(store.lock)
        yield store


@pytest.fixture
def damaged(closed: StoreInTest) -> StoreInTest:
    """The same, with one byte of the first session's events flipped, and no index that knows better."""
    segment = closed.segment()
    content = bytearray(segment.read_bytes())
    content[content.index(b"hello 2")] ^= 1
    segment.write_bytes(content)
    return closed


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Mount a directory over itself so that nothing below it can be written."""
    subprocess.run(["mount", "--bind", path, path], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def files(path: Path) -> dict[str, tuple[int, int, int]]:
    """Describe everything below a directory so that any change shows."""
    found = {}
    for each in sorted(path.rglob("*")):
        status = each.lstat()
        found[str(each.relative_to(path))] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


READING = [
    ("session", "list", "--json"),
    ("session", "show", "brave-otter-0001", "--json"),
    ("journal", "verify", "--deep", "--json"),
    ("journal", "stats", "--json"),
    ("journal", "cat"),
    ("journal", "cat", "--batches"),
]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_looking_changes_nothing_and_starts_nothing(
    cli: CommandLine, closed: StoreInTest, command: tuple[str, ...]
) -> None:
    """A reading command leaves every file of a store that nobody serves as it is, and nobody serves it afterwards."""
    before = files(cli.store)
    assert cli.succeed(*command).objects
    assert files(cli.store) == before
    assert cli.here("status").code == 3


def test_a_store_looks_the_same_served_or_not(cli: CommandLine, closed: StoreInTest) -> None:
    """What a served store shows is what it shows when nobody serves it, but for figures about the serving itself."""
    alone = [each for command in READING for each in cli.succeed_here(*command).objects]
    with served_store(cli.store):
        served = [each for command in READING for each in cli.succeed_here(*command).objects]
    for one in (*alone, *served):
        for name in ("seconds", "served", "bytes", "index"):
            one.pop(name, None)
    assert served == alone


@pytest.mark.root
@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_copy_on_a_read_only_disk_can_be_read(
    cli: CommandLine, closed: StoreInTest, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A copied store, whose index is trusted no more, is read on a disk that takes no writes."""
    copy = CommandLine(tmp_path / "copy", tmp_path)
    shutil.copytree(cli.store, copy.store)
    with read_only(copy.store):
        assert copy.succeed_here(*command).objects


@pytest.mark.parametrize(
    "command", [*READING, ("status",), ("stop",), ("follow",), ("journal", "rebuild")], ids=" ".join
)
def test_a_missing_store_is_not_found_and_not_made(cli: CommandLine, command: tuple[str, ...]) -> None:
    """What only reads, or needs something to be there, ends with 3 where there is no store, and makes none."""
    outcome = cli.here(*command)
    assert outcome.code == 3
    assert outcome.err.startswith("turnkeeper: there is no store here: ")
    assert outcome.err.count("\n") == 1
    assert not cli.store.exists()


def test_a_list_has_the_newest_first_and_hides_children(cli: CommandLine, closed: StoreInTest) -> None:
    """Rows come by their last event; a session with a parent is shown with --all or by its parent only."""
    rows = cli.succeed("session", "list", "--json").objects
    assert [row["id"] for row in rows] == ["calm-heron-0002", "brave-otter-0001"]
    everything = cli.succeed_here("session", "list", "--json", "--all").objects
    assert [row["id"] for row in everything] == ["calm-horse-0003", "calm-heron-0002", "brave-otter-0001"]
    children = cli.succeed_here("session", "list", "--json", "--parent", "brave").objects
    assert [row["id"] for row in children] == ["calm-horse-0003"]


def test_a_row_says_what_is_known_of_a_session(cli: CommandLine, closed: StoreInTest) -> None:
    """The documented members are there, and an owner that is gone makes a session crashed."""
    died, left = cli.succeed("session", "list", "--json").objects
    assert (left["title"], left["cwd"], left["labels"], left["events"]) == ("left", "/one", {"k": "v"}, 5)
    assert (left["status"], left["owner"], left["open_turn"], left["damaged"]) == ("closed", None, False, False)
    assert left["created"] == 1_700_000_000_000
    assert left["last_active"] > left["created"]
    assert (died["open_turn"], died["parent"], died["owner"]["pid"]) == (True, None, 1)


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        (("--label", "k=v"), ["brave-otter-0001"]),
        (("--label", "k=other"), []),
        (("--status", "closed"), ["brave-otter-0001"]),
        (("--cwd", "/one"), ["brave-otter-0001"]),
        (("--limit", "1"), ["calm-heron-0002"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_list_can_be_filtered(
    cli: CommandLine, closed: StoreInTest, filters: tuple[str, ...], ids: list[str]
) -> None:
    """Each filter leaves the rows that fit it."""
    assert [row["id"] for row in cli.succeed_here("session", "list", "--json", *filters).objects] == ids


def test_pages_of_a_list_join_without_gap_or_repetition(cli: CommandLine, closed: StoreInTest) -> None:
    """Going on behind each page's last cursor gives every row once."""
    found, after = list[str](), list[str]()
    while rows := cli.succeed_here("session", "list", "--all", "--json", "--limit", "1", *after).objects:
        found.append(rows[0]["id"])
        after = ["--after", rows[0]["cursor"]]
    assert found == ["calm-horse-0003", "calm-heron-0002", "brave-otter-0001"]


def test_a_list_in_a_pipe_is_plain_and_whole(cli: CommandLine, closed: StoreInTest) -> None:
    """Without a terminal there are neither escapes nor cut cells, only columns."""
    head, first, *_ = cli.succeed("session", "list").out.splitlines()
    assert head.split("  ")[0] == "ID"
    assert first.startswith("calm-heron-0002  ")
    assert "\x1b" not in first


def test_a_title_cannot_steer_a_terminal(cli: CommandLine) -> None:
    """Control characters that came into a title are shown as escapes."""
    with new_store(cli.store) as store:
        appended(store.open(), create("odd-owl-0001", lines("odd-owl-0001", 0, 1), title="\x1b]0;gotcha\x07"))
        store.close()
        lock.release(store.lock)
        assert "\\x1b]0;gotcha\\x07" in cli.succeed("session", "list").out


@pytest.mark.parametrize(
    ("options", "seqs"),
    [
        ((), [0, 1, 2, 3, 4]),
        (("--from", "3"), [3, 4]),
        (("--from", "1", "--to", "2"), [1, 2]),
        (("--to", "99"), [0, 1, 2, 3, 4]),
        (("--from", "99"), []),
        (("--last", "2"), [3, 4]),
        (("--last", "99"), [0, 1, 2, 3, 4]),
        (("--type", "user/*"), [0, 1, 2, 3, 4]),
        (("--type", "user"), []),
        (("--type", "user/message", "--last", "2"), [3, 4]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_show_gives_the_events_asked_for(
    cli: CommandLine, closed: StoreInTest, options: tuple[str, ...], seqs: list[int]
) -> None:
    """Bounds are event numbers, both included; what lies beyond the end is nothing."""
    shown = cli.succeed_here("session", "show", "brave-otter-0001", "--json", *options).objects
    assert [event["seq"] for event in shown] == seqs


def test_show_closes_what_a_crash_left_open(cli: CommandLine) -> None:
    """An open turn whose owner is gone is shown as its next opening will close it, and nothing is stored by that."""
    with new_store(cli.store) as store:
        start = encode_event("odd-owl-0001", 0, 1_700_000_000_000, "turn/start", {"turn": 1})
        dead = {**owner("dead"), "host": socket.gethostname()}
        appended(store.open(), create("odd-owl-0001", start, open_turn=0, turns=1, owner=dead))
        store.close()
        lock.release(store.lock)
        before = files(cli.store)
        shown = cli.succeed_here("session", "show", "odd", "--json").objects
        assert [(each["seq"], each["type"]) for each in shown] == [(0, "turn/start"), (1, "turn/end")]
        assert shown[1]["data"] == {"turn": 1, "reason": "interrupted"}
        assert cli.succeed_here("session", "show", "odd", "--json", "--last", "1").objects == shown[1:]
        assert (
            cli.succeed_here("session", "show", "odd", "--json", "--type", "turn/end", "--last", "9").objects
            == shown[1:]
        )
        assert cli.succeed_here("session", "show", "odd", "--json", "--to", "0").objects == shown[:1]
        (row,) = cli.succeed_here("session", "list", "--json").objects
        assert (row["events"], row["status"], row["open_turn"]) == (1, "crashed", True)
        assert files(cli.store) == before


def test_show_prints_the_lines_that_the_journal_keeps(cli: CommandLine, closed: StoreInTest) -> None:
    """With --json the output is the stored bytes; a prefix or key names the session as well as its id."""
    shown = cli.succeed("session", "show", "brave", "--json")
    assert shown.out.encode() == lines("brave-otter-0001", 0, 5)


def test_show_puts_large_data_in_its_place(cli: CommandLine) -> None:
    """Data that lies in a blob is printed as if it stood in the line; without its blob it is a gap, named, exit 5."""
    id = cli.new_session()
    data = {"text": "x" * 300_000}
    cli.succeed_here("session", "append", id, stdin=event_line("note/large", **data))
    shown = cli.succeed_here("session", "show", id, "--last", "1", "--json").object
    assert (shown["seq"], shown["type"], shown["data"]) == (1, "note/large", data)
    assert data["text"] in cli.succeed_here("session", "show", id).out
    (blob,) = (cli.store / "blobs").glob("??/*")
    blob.unlink()
    outcome = cli.run("session", "show", id, "--json")
    assert outcome.code == 5
    assert [each["type"] for each in outcome.objects[:-1]] == ["session/created"]
    assert "the blob that holds its data is missing" in outcome.err


def test_an_ambiguous_prefix_lists_the_candidates(cli: CommandLine, closed: StoreInTest) -> None:
    """A beginning that several ids share ends with 3 and names them."""
    outcome = cli.run("session", "show", "calm", "--json")
    assert outcome.code == 3
    assert outcome.error["kind"] == "ambiguous"
    assert outcome.error["candidates"] == ["calm-heron-0002", "calm-horse-0003"]


def test_an_unknown_session_is_not_found(cli: CommandLine, closed: StoreInTest) -> None:
    """An id that names nothing ends with 3, one line for people and one object for scripts."""
    outcome = cli.run("session", "show", "nobody", "--json")
    assert outcome.code == 3
    assert outcome.err == (
        f"turnkeeper: no session 'nobody': {cli.store}: turnkeeper session list shows those that are there\n"
    )
    assert outcome.object["error"]["kind"] == "not_found"
    assert outcome.object["error"]["wanted"] == "nobody"


def test_cat_prints_every_event_in_the_order_of_storing(cli: CommandLine, closed: StoreInTest) -> None:
    """All sessions' lines come by position, as they lie in the journal."""
    expected = lines("brave-otter-0001", 0, 5) + lines("calm-heron-0002", 0, 3) + lines("calm-horse-0003", 0, 1)
    assert cli.succeed("journal", "cat").out.encode() == expected


def test_cat_prints_the_control_lines(cli: CommandLine, closed: StoreInTest) -> None:
    """With --batches there is one line a segment and one a batch, numbered without a gap."""
    segment, *batches = cli.succeed("journal", "cat", "--batches").objects
    assert segment["$segment"] == 1
    assert [batch["$batch"] for batch in batches] == [1, 2, 3]


def test_stats_count_what_is_there(cli: CommandLine, closed: StoreInTest) -> None:
    """Figures say how much is stored, and the space it takes."""
    figures = cli.succeed("journal", "stats", "--json").object
    assert (figures["sessions"], figures["events"], figures["position"]) == (3, 9, 9)
    assert (figures["open_turns"], figures["damaged"], figures["segments"], figures["served"]) == (1, 0, 1, False)
    assert figures["bytes"]["journal"] >= closed.segment().stat().st_blocks * 512


def test_verify_finds_one_flipped_byte(cli: CommandLine, damaged: StoreInTest) -> None:
    """Damage ends with 5, and the one object on stdout says where it is and whose events it hit."""
    outcome = cli.run("journal", "verify", "--json")
    assert outcome.code == 5
    (finding,) = outcome.object["damaged"]
    assert finding["segment"] == "00000001.jsonl"
    assert finding["streams"] == [{"stream": "brave-otter-0001", "seqs": [[0, 4]]}]
    assert outcome.err.startswith("turnkeeper: damage in 1 place, of brave-otter-0001: ")


def test_a_torn_tail_is_no_damage(cli: CommandLine, closed: StoreInTest) -> None:
    """An unfinished write at the end is told, and the exit code is 0."""
    content = closed.segment().read_bytes()
    end = len(closed.content())
    closed.segment().write_bytes(content[:end] + b'{"$batch":4,"pos' + content[end + 16 :])
    found = cli.succeed("journal", "verify", "--json").object
    assert found["torn_tail"]["offset"] == end
    assert found["damaged"] == []


def test_show_leaves_out_what_is_damaged_and_says_so(cli: CommandLine, damaged: StoreInTest) -> None:
    """The missing events are named on stderr and to scripts; the exit code is 5."""
    outcome = cli.run("session", "show", "brave", "--json")
    assert outcome.code == 5
    assert outcome.error["kind"] == "damaged"
    assert outcome.error["missing"] == [[0, 4]]
    assert "events 0 to 4 are missing" in outcome.err
    assert cli.succeed("session", "show", "calm-heron", "--json").out.encode() == lines("calm-heron-0002", 0, 3)


def test_cat_leaves_out_what_is_damaged_and_says_so(cli: CommandLine, damaged: StoreInTest) -> None:
    """Positions without a readable event are counted; everything else is printed, and the exit code is 5."""
    outcome = cli.run("journal", "cat")
    assert outcome.code == 5
    assert outcome.out.encode() == lines("calm-heron-0002", 0, 3) + lines("calm-horse-0003", 0, 1)
    assert "5 events can't be read" in outcome.err


def test_a_list_marks_the_damaged_and_warns(cli: CommandLine) -> None:
    """A batch that lost its header is noticed by the list itself, and its session is marked."""
    with new_store(cli.store) as store:
        journal = store.open()
        appended(journal, create("brave-otter-0001", lines("brave-otter-0001", 0, 1)))
        appended(journal, Append("brave-otter-0001", 1, 1, lines("brave-otter-0001", 1, 2)))
        appended(journal, create("calm-heron-0002", lines("calm-heron-0002", 0, 1)))
        store.close()
        lock.release(store.lock)
        store.delete_index()
        segment = store.segment()
        segment.write_bytes(segment.read_bytes().replace(b'{"$batch":2,', b'{"$botch":2,'))
        outcome = cli.run("session", "list", "--json")
    assert outcome.code == 0
    assert {row["id"]: row["damaged"] for row in outcome.objects} == {
        "calm-heron-0002": False,
        "brave-otter-0001": True,
    }
    assert "warning: the journal is damaged in " in outcome.err


def test_a_journal_without_index_reads_the_same(cli: CommandLine, closed: StoreInTest) -> None:
    """Deleting the index loses nothing, and looking makes none."""
    before = cli.succeed_here("session", "list", "--all").out
    closed.delete_index()
    assert cli.succeed_here("session", "list", "--all").out == before
    assert not (cli.store / "index").exists()
