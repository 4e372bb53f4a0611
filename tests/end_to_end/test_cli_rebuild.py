"""End to end: `turnkeeper journal rebuild`, with and without somebody who serves the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnkeeper.storage.lock import store_is_held

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store with one session."""
    filled = CommandLine(tmp_path / "store", tmp_path)
    id = filled.new_session("--key", "k")
    filled.succeed_here(
        "session", "append", id, stdin="".join(event_line("note/n", number=number) for number in range(50))
    )
    return filled


def index_directory(cli: CommandLine) -> str:
    """Say which index is the store's."""
    directory: str = json.loads((cli.store / "index.json").read_text())["directory"]
    return directory


def test_a_store_that_nobody_serves_gets_a_new_index(cli: CommandLine) -> None:
    """The index is another one, the events are the same, and nobody serves the store afterwards."""
    before, index = cli.succeed_here("journal", "cat").out, index_directory(cli)
    report = cli.succeed("journal", "rebuild", "--json").object
    assert report["batches"] == len(cli.succeed_here("journal", "cat", "--batches").objects) - 1
    assert (report["torn_bytes"], report["quarantined"], report["damaged"]) == (0, None, [])
    assert report["index_bytes"]["after"] > 0
    assert index_directory(cli) != index
    assert cli.succeed_here("journal", "cat").out == before
    assert cli.succeed_here("journal", "verify", "--json").object["index"] == {"ok": True, "why": ""}
    assert not store_is_held(str(cli.store))


def test_a_served_store_goes_on_with_a_new_index(cli: CommandLine) -> None:
    """The node stays, its writer is another one, and a program that has a session open goes on appending."""
    with cli.running("serve", "--json") as server:
        assert server.stdout is not None
        pids = json.loads(server.stdout.readline())["pids"]
        client = cli.start("session", "append", "k", "--json")
        assert client.stdin is not None
        client.stdin.write(event_line("note/before").encode())
        client.stdin.flush()
        cli.succeed("journal", "rebuild")
        after = cli.succeed_here("status", "--json").object["pids"]
        assert after["node"] == pids["node"]
        assert after["writer"] != pids["writer"]
        out, err = client.communicate(event_line("note/after").encode(), timeout=DEADLINE_SECONDS)
        assert (client.returncode, json.loads(out)) == (0, {"first": 51, "last": 52}), err
    types = [event["type"] for event in cli.succeed_here("session", "show", "k", "--json", "--last", "2").objects]
    assert types == ["note/before", "note/after"]


def test_a_damaged_journal_is_told_and_what_is_good_is_served(cli: CommandLine) -> None:
    """A batch that lost its header is reported with 5; the other sessions can be read and written."""
    other = cli.new_session()
    segment = cli.store / "journal" / "00000001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'{"$batch":4,', b'{"$botch":4,'))
    outcome = cli.run("journal", "rebuild", "--json")
    assert outcome.code == 5
    assert [finding["kind"] for finding in outcome.object["damaged"]]
    assert outcome.err.startswith("turnkeeper: the journal is damaged in ")
    cli.succeed_here("session", "append", other, stdin=event_line("note/one"))
    refused = cli.here("session", "append", "k", "--json", stdin=event_line("note/one"))
    assert (refused.code, refused.error["kind"]) == (5, "damaged")
    assert refused.error["missing"]
    damaged = {row["id"]: row["damaged"] for row in cli.here("session", "list", "--json").objects}
    assert damaged == {other: False, refused.error["stream"]: True}
