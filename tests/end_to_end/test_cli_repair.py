"""End to end: `turnkeeper journal repair`, on stores that were really damaged."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from turnkeeper import connect
from turnkeeper.storage.format import EVENT_PREFIX
from turnkeeper.storage.lock import store_is_held

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line

EVENTS = 12


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store with one session of thirteen batches, one event each."""
    filled = CommandLine(tmp_path / "store", tmp_path)
    with connect(filled.store) as runtime:
        session = runtime.create_session(key="k", title="a title", labels={"a": "b"})
        session.append("session/created", {})
        session.flush()
        for number in range(EVENTS):
            session.append("note/n", {"number": number, "amount": 1.50, "word": "naïve"})
            session.flush()
    return filled


def id_of(cli: CommandLine) -> str:
    """Give the id of the session in the store."""
    id: str = cli.succeed_here("session", "list", "--json").objects[-1]["id"]
    return id


def flip(cli: CommandLine, number: int) -> None:
    """Change one byte of the event that carries this number, as a disk would."""
    segment = cli.store / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    place = content.index(b'"number":%d,' % number)
    segment.write_bytes(content[:place] + b"'" + content[place + 1 :])


def lines(cli: CommandLine, id: str) -> list[bytes]:
    """Give the stored lines of a session, from their time on."""
    shown = cli.here("session", "show", id, "--json").out.encode().splitlines()
    return [re.sub(rb'^\{"stream":"[^"]*","seq":\d+,', b"", line) for line in shown if line.startswith(EVENT_PREFIX)]


def row(cli: CommandLine, id: str) -> dict[str, Any]:
    """Give a session's row of the list."""
    (found,) = [each for each in cli.here("session", "list", "--json", "--all").objects if each["id"] == id]
    return dict(found)


def test_a_copy_has_every_readable_event_and_says_what_is_missing(cli: CommandLine) -> None:
    """Two damaged events are named by number; all others stand in a new session without holes, byte for byte."""
    id = id_of(cli)
    whole = lines(cli, id)
    for number in (3, 7):
        flip(cli, number)
    report = cli.succeed("journal", "repair", "k", "--json").object
    missing = [[at, at] for at in report_numbers(whole, (3, 7))]
    assert report == {
        "from": id,
        "id": report["id"],
        "new": True,
        "head": len(whole),
        "events": len(whole) - 2,
        "missing": missing,
    }
    gone = {first for first, _ in missing}
    assert lines(cli, report["id"])[1:] == [line for seq, line in enumerate(whole) if seq not in gone]
    events = cli.succeed_here("session", "show", report["id"], "--json").objects
    assert [event["seq"] for event in events] == list(range(len(whole) - 1))
    assert events[0]["type"] == "session/repaired"
    assert events[0]["data"] == {
        "from": id,
        "first": 0,
        "head": len(whole),
        "missing": missing,
        "events": len(whole) - 2,
    }
    assert not store_is_held(str(cli.store))


def report_numbers(whole: list[bytes], numbers: tuple[int, ...]) -> list[int]:
    """Find the seqs of the events that carry these numbers."""
    return [next(seq for seq, line in enumerate(whole) if b'"number":%d,' % number in line) for number in numbers]


def test_the_copy_takes_the_header_over_and_can_be_appended_to(cli: CommandLine) -> None:
    """Title and labels are the damaged one's, its origin names it, and it is a session like any other."""
    id = id_of(cli)
    flip(cli, 3)
    copy = cli.succeed_here("journal", "repair", id, "--json").object["id"]
    found = row(cli, copy)
    assert (found["title"], found["labels"], found["damaged"], found["owner"]) == ("a title", {"a": "b"}, False, None)
    cli.succeed_here("session", "append", copy, stdin=event_line("note/after"))
    assert cli.succeed_here("session", "show", copy, "--json", "--last", "1").object["type"] == "note/after"


def test_a_second_run_finds_the_same_copy_and_adds_nothing(cli: CommandLine) -> None:
    """Repairing twice makes one copy; with further damage there is another one, and the first stays."""
    id = id_of(cli)
    flip(cli, 3)
    first = cli.succeed_here("journal", "repair", id, "--json").object
    before = lines(cli, first["id"])
    cli.succeed_here("session", "append", first["id"], stdin=event_line("note/after"))
    again = cli.succeed_here("journal", "repair", id, "--json").object
    assert again == {**first, "new": False}
    assert lines(cli, first["id"])[: len(before)] == before
    flip(cli, 5)
    other = cli.succeed_here("journal", "repair", id, "--json").object
    assert other["id"] != first["id"]
    assert (other["new"], other["events"]) == (True, first["events"] - 1)


def test_a_lost_batch_is_repaired_and_the_damaged_session_stays_readable_and_unowned(cli: CommandLine) -> None:
    """A session that misses a batch can't be opened; after its repair neither can it, and it reads as before."""
    id = id_of(cli)
    segment = cli.store / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    header = content.rindex(b'{"$batch":', 0, content.index(b'"number":4,'))
    segment.write_bytes(content[: header + 12] + b"#" + content[header + 13 :])
    assert cli.run("journal", "rebuild").code == 5
    before = lines(cli, id)
    report = cli.succeed("journal", "repair", id, "--json").object
    assert len(report["missing"]) == 1
    assert lines(cli, report["id"])[1:] == before == lines(cli, id)
    assert cli.run("session", "append", id, stdin=event_line("note/x")).code == 5
    assert row(cli, id)["damaged"]
    assert not row(cli, report["id"])["damaged"]


def test_a_session_that_is_whole_gets_no_copy(cli: CommandLine) -> None:
    """There is nothing to repair, which is no failure, and the store has one session afterwards as before."""
    report = cli.succeed_here("journal", "repair", "k", "--json").object
    assert (report["id"], report["new"], report["missing"]) == (None, False, [])
    assert cli.succeed_here("journal", "repair", "k").out == f"{id_of(cli)} is not damaged\n"
    assert len(cli.succeed_here("session", "list", "--json").objects) == 1


def test_an_unknown_session_is_not_found(cli: CommandLine) -> None:
    """The exit code is 3, and nothing was made."""
    outcome = cli.here("journal", "repair", "nobody", "--json")
    assert (outcome.code, outcome.error["kind"]) == (3, "not_found")


def test_an_open_turn_stays_open_in_the_copy_and_is_closed_by_its_first_owner(cli: CommandLine) -> None:
    """The copy's turn is the damaged one's, under its new number: opening the copy closes it as interrupted."""
    id = cli.new_session()
    with (
        cli.running("session", "append", id) as client,
        cli.running("follow", id, "--after", "0", "--json") as following,
    ):
        assert client.stdin is not None
        assert following.stdout is not None
        for line in (event_line("turn/start", turn=1), event_line("note/n", number=100, a=0)):
            # One by one, so that each is a run of its own and only one of them is damaged.
            client.stdin.write(line.encode())
            client.stdin.flush()
            while json.loads(following.stdout.readline())["type"] not in line:
                pass
        client.send_signal(signal.SIGKILL)
        client.wait(DEADLINE_SECONDS)
    flip(cli, 100)
    copy = cli.succeed("journal", "repair", id, "--json").object["id"]
    assert row(cli, copy)["open_turn"]
    cli.succeed_here("session", "append", copy, stdin=event_line("note/after"))
    types = [event["type"] for event in cli.succeed_here("session", "show", copy, "--json").objects]
    assert types == ["session/repaired", "session/created", "turn/start", "turn/end", "note/after"]


def test_a_repair_for_people_names_copy_and_loss(cli: CommandLine) -> None:
    """Without --json the copy's id and the missing numbers are printed in lines."""
    id = id_of(cli)
    flip(cli, 3)
    out = cli.succeed("journal", "repair", id).out
    assert re.search(rf"damaged\s+{id}", out)
    assert re.search(r"missing\s+4", out)
