"""End to end: `turnkeeper session import` of files in every state: new, grown, damaged, and none at all."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from turnkeeper import connect
from turnkeeper.actors.core_types import IMPORT_KEY

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line
from ..serving import eventually
from ..session_files import (
    CODEX_SESSION,
    SESSION,
    assistant,
    call,
    conversation,
    encoded,
    result,
    rollout,
    text,
    user,
)

CLAUDE_KEY = f"claude-code:{SESSION}"
CODEX_KEY = f"codex:{CODEX_SESSION}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one session file of each program."""
    files = tmp_path / "files"
    (files / "deep").mkdir(parents=True)
    write_lines(files / "claude.jsonl", conversation())
    write_lines(files / "deep" / "codex.jsonl", rollout())
    return files


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Write a session file of these records."""
    path.write_bytes(encoded(records))


def events(cli: CommandLine, key: str) -> list[dict[str, Any]]:
    """Give all events of a session."""
    return cli.succeed_here("session", "show", key, "--json").objects


def row(cli: CommandLine, key: str) -> dict[str, Any]:
    """Give what the list says of a session."""
    (found,) = (each for each in cli.succeed_here("session", "list", "--all", "--json").objects if each["key"] == key)
    return dict(found)


def test_a_folder_brings_all_sessions_in_it(cli: CommandLine, folder: Path) -> None:
    """Files of both programs are recognised by their content, and the report counts what was stored."""
    report = cli.succeed("session", "import", folder, "--json").object
    assert (report["sessions"], report["skipped"], report["damaged_lines"]) == (2, 0, [])
    assert report["events"] == len(events(cli, CLAUDE_KEY)) + len(events(cli, CODEX_KEY))
    assert cli.succeed_here("journal", "verify", "--deep").code == 0


def test_an_imported_session_keeps_what_the_file_says(cli: CommandLine, folder: Path) -> None:
    """Title, directory, beginning, labels and every event's time are the file's own."""
    cli.succeed_here("session", "import", folder / "claude.jsonl")
    found = row(cli, CLAUDE_KEY)
    assert (found["title"], found["cwd"]) == ("Boats in the harbour", "/home/ines/harbour")
    assert (found["labels"]["imported"], found["origin"]["file"]) == ("claude-code", "claude.jsonl")
    assert (found["status"], found["open_turn"], found["turns"]) == ("closed", False, 2)
    stored = events(cli, CLAUDE_KEY)
    first = 1772614800000  # 2026-03-04T09:00:00Z
    assert found["created"] == first
    assert [event["time"] - first for event in stored][:2] == [0, 0]
    assert stored[-1]["time"] > first + 9000
    assert stored[0]["type"] == "turn/start"
    assert all(IMPORT_KEY in event["data"] for event in stored)


def test_importing_twice_adds_nothing(cli: CommandLine, folder: Path) -> None:
    """The second import finds every event there, and writes none."""
    first = cli.succeed_here("session", "import", folder, "--json").object
    before = cli.succeed_here("journal", "cat").out
    second = cli.succeed_here("session", "import", folder, "--json").object
    assert (second["events"], second["skipped"]) == (0, first["events"])
    assert cli.succeed_here("journal", "cat").out == before


def test_a_grown_file_adds_what_is_new(cli: CommandLine, tmp_path: Path) -> None:
    """Cut anywhere and imported, then grown by a line and imported again: each record's event is there once."""
    records, file = conversation(), tmp_path / "claude.jsonl"
    with connect(cli.store):
        for length in range(1, len(records) + 1):
            write_lines(file, records[:length])
            cli.succeed_here("session", "import", file)
    grown = events(cli, CLAUDE_KEY)
    keys = [event["data"][IMPORT_KEY] for event in grown]
    assert len(keys) == len(set(keys))
    other = CommandLine(tmp_path / "other", tmp_path)
    other.succeed_here("session", "import", file)
    said = ("user/message", "assistant/message", "tool/started", "claude-code/progress", "claude-code/summary")
    told = [(each["type"], each["data"]) for each in grown if each["type"] in said]
    assert told == [(each["type"], each["data"]) for each in events(other, CLAUDE_KEY) if each["type"] in said]
    assert row(cli, CLAUDE_KEY)["open_turn"] is False


def test_a_result_that_came_later_is_kept_as_a_late_one(cli: CommandLine, tmp_path: Path) -> None:
    """A file that ended within a call had it closed as unknown; the longer file's real result is added, once."""
    file = tmp_path / "claude.jsonl"
    records = [user(0, "Go."), assistant(1, call("toolu-1")), user(2, [result("toolu-1", "done")])]
    write_lines(file, records[:2])
    cli.succeed_here("session", "import", file)
    write_lines(file, records)
    for added in (1, 0):
        assert cli.succeed_here("session", "import", file, "--json").object["events"] == added
    results = [
        (each["type"], each["data"].get("output")) for each in events(cli, CLAUDE_KEY) if "output" in each["data"]
    ]
    assert results == [("tool/finished", None), ("tool/late-result", "done")]


def test_an_import_that_was_killed_is_made_whole_by_the_next(cli: CommandLine, tmp_path: Path) -> None:
    """Killed in the middle of a long file, then run again: every event once, all turns ended."""
    file = tmp_path / "claude.jsonl"
    records: list[dict[str, Any]] = []
    for number in range(0, 6000, 4):
        records += [
            user(number, f"Question {number}."),
            assistant(number + 1, text("x" * 300), call(f"toolu-{number}")),
            user(number + 2, [result(f"toolu-{number}", "y" * 300)]),
            assistant(number + 3, text("Done.")),
        ]
    write_lines(file, records)
    process = cli.start("session", "import", file)
    eventually(lambda: cli.store.exists() and '"seq":500,' in cli.here("journal", "cat").out)
    process.kill()
    process.communicate(timeout=DEADLINE_SECONDS)
    eventually(lambda: cli.here("status").code == 3)
    partial = len(events(cli, CLAUDE_KEY))
    assert partial > 500
    cli.succeed("session", "import", file)
    stored = events(cli, CLAUDE_KEY)
    keys = [event["data"][IMPORT_KEY] for event in stored if IMPORT_KEY in event["data"]]
    assert len(keys) == len(set(keys))
    other = CommandLine(tmp_path / "other", tmp_path)
    other.succeed("session", "import", file)
    whole = {event["data"][IMPORT_KEY] for event in events(other, CLAUDE_KEY)}
    closings = [event for event in stored if IMPORT_KEY not in event["data"]]
    assert len(whole - set(keys)) <= len(closings) <= 2
    assert sum(event["type"] == "turn/start" for event in stored) == 1500
    assert sum(event["type"] == "turn/end" for event in stored) == 1500
    assert cli.succeed_here("journal", "verify", "--deep").code == 0


def test_four_hundred_lines_take_well_under_a_second(cli: CommandLine, tmp_path: Path) -> None:
    """Importing costs what its bytes cost: within a turn there is no commit a line."""
    file = tmp_path / "claude.jsonl"
    write_lines(file, [user(0, "Go."), *(assistant(number, text("x" * 1500)) for number in range(1, 400))])
    with cli.running("serve", "--json") as server:
        assert server.stdout is not None
        server.stdout.readline()
        begun = time.monotonic()
        assert cli.succeed("session", "import", file, "--json").object["events"] >= 400
        assert time.monotonic() - begun < 5, "a busy machine takes longer, but not so much"
        batches = cli.succeed_here("journal", "cat", "--batches").objects[1:]
    assert len(batches) < 40


def test_damaged_lines_are_named_and_the_rest_is_kept(cli: CommandLine, tmp_path: Path) -> None:
    """A file with garbage, a torn end and an over-long line is taken but for those, each with its line."""
    file = tmp_path / "claude.jsonl"
    good = [json.dumps(record) for record in conversation()]
    file.write_text("\n".join([*good[:3], "garbage", *good[3:], good[0][:50]]))
    outcome = cli.here("session", "import", file, "--json")
    assert outcome.code == 0
    assert [(each["file"], each["line"]) for each in outcome.object["damaged_lines"]] == [
        (str(file), 4),
        (str(file), 14),
    ]
    assert row(cli, CLAUDE_KEY)["turns"] == 2
    told = cli.here("session", "import", file).err
    assert f"turnkeeper: {file}:4: " in told
    assert f"turnkeeper: {file}:14: " in told


def make_fifo(path: Path) -> None:
    """Make a FIFO that nobody writes to."""
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda path: path.write_bytes(b""), "an empty file"),
        (lambda path: path.write_bytes(bytes(4096)), "nothing but filling"),
        (lambda path: path.write_bytes(os.urandom(4096)), "no session file"),
        (lambda path: path.write_text('{"some": "json"}\n'), "no session file"),
        (lambda path: path.write_text("Dear diary,\n"), "no session file"),
        (make_fifo, "a FIFO"),
        (Path.mkdir, "no session files in this folder"),
    ],
    ids=["empty", "NULs", "binary", "other JSON", "text", "FIFO", "empty folder"],
)
def test_what_holds_no_session_is_named_and_makes_no_store(
    cli: CommandLine, tmp_path: Path, make: Any, why: str
) -> None:
    """One line says which file and why, the exit code is 1, and there is no store afterwards."""
    path = tmp_path / "given"
    make(path)
    outcome = cli.here("session", "import", path, "--json")
    assert outcome.code == 1
    assert outcome.err.count("\n") == 1
    assert why in outcome.err
    assert str(path) in outcome.err
    assert (outcome.object["sessions"], outcome.object["events"]) == (0, 0)
    assert not cli.store.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="modes bind everybody but root")
def test_a_file_without_permission_is_named(cli: CommandLine, folder: Path) -> None:
    """A file that can't be read is reported with its reason, and the others are imported."""
    (folder / "claude.jsonl").chmod(0)
    outcome = cli.run("session", "import", folder, "--json")
    assert outcome.code == 0
    (damaged,) = outcome.object["damaged_lines"]
    assert (damaged["file"], damaged["line"]) == (str(folder / "claude.jsonl"), 0)
    assert "Permission denied" in damaged["why"]
    assert outcome.object["sessions"] == 1


def test_a_missing_path_is_not_found_and_nothing_is_imported(cli: CommandLine, folder: Path) -> None:
    """All paths are looked for before anything is stored."""
    outcome = cli.here("session", "import", folder, folder / "missing.jsonl", "--json")
    assert (outcome.code, outcome.error["kind"]) == (3, "not_found")
    assert not cli.store.exists()


def test_one_empty_path_among_others_is_told_at_the_end(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    """What can be imported is, and the exit code 1 says that one path held nothing."""
    (tmp_path / "empty").write_text("")
    outcome = cli.run("session", "import", folder, tmp_path / "empty", "--json")
    assert outcome.code == 1
    assert outcome.object["sessions"] == 2


def test_a_session_in_use_is_left_out_and_the_others_are_taken(cli: CommandLine, folder: Path) -> None:
    """An owner keeps others' events out of its session: told with the file, exit code 4."""
    cli.succeed("session", "import", folder)
    with cli.running("session", "append", CLAUDE_KEY) as owner:
        assert owner.stdin is not None
        owner.stdin.write(event_line("note/one").encode())
        owner.stdin.flush()
        eventually(lambda: events(cli, CLAUDE_KEY)[-1]["type"] == "note/one")
        outcome = cli.run("session", "import", folder, "--json")
    assert outcome.code == 4
    assert outcome.object["sessions"] == 1
    (refused,) = outcome.object["damaged_lines"]
    assert refused["file"] == str(folder / "claude.jsonl")
    assert f"process {owner.pid}" in refused["why"]


def test_a_child_finds_its_parent_wherever_that_stands(cli: CommandLine, tmp_path: Path) -> None:
    """A sub-agent's file may come before its parent's, or be imported long before it."""
    files = tmp_path / "files"
    files.mkdir()
    child = [
        user(0, "Look.", isSidechain=True, agentId="a1"),
        assistant(1, text("Seen."), isSidechain=True, agentId="a1"),
    ]
    write_lines(files / "a-child.jsonl", child)
    cli.succeed_here("session", "import", files)
    child_key = f"{CLAUDE_KEY}/a1"
    assert row(cli, child_key)["parent"] is None
    write_lines(files / "b-parent.jsonl", conversation())
    cli.succeed_here("session", "import", files)
    assert row(cli, child_key)["parent"] == row(cli, CLAUDE_KEY)["id"]
    assert [each["key"] for each in cli.succeed_here("session", "list", "--json").objects] == [CLAUDE_KEY]
    before = cli.succeed_here("journal", "cat").out
    cli.succeed_here("session", "import", files)
    assert cli.succeed_here("journal", "cat").out == before


def test_only_the_asked_format_is_taken(cli: CommandLine, folder: Path) -> None:
    """With --format files of another program are left out and told."""
    outcome = cli.here("session", "import", folder, "--format", "codex", "--json")
    assert outcome.code == 0
    assert outcome.object["sessions"] == 1
    assert [row["key"] for row in cli.succeed_here("session", "list", "--json").objects] == [CODEX_KEY]


def test_what_is_too_large_for_a_line_is_kept_beside_the_journal(cli: CommandLine, tmp_path: Path) -> None:
    """Pictures of megabytes come back whole, lists and previews don't read them, and a second import adds nothing."""
    file = tmp_path / "claude.jsonl"
    pictures = ["iVBOR" + letter * 2 * 1024**2 for letter in "QR"]
    blocks = [{"type": "image", "source": {"type": "base64", "data": picture}} for picture in pictures]
    write_lines(file, [user(0, "Look."), user(1, [text("These."), *blocks]), assistant(2, text("Done."))])
    outcome = cli.succeed_here("session", "import", file, "--json").object
    assert (outcome["events"], outcome["damaged_lines"]) == (7, [])
    assert sum(each.stat().st_size for each in (cli.store / "journal").iterdir()) < 2 * 1024**2
    kept = [each["data"]["content"] for each in events(cli, CLAUDE_KEY) if each["data"].get("text") == "These."]
    assert [block["source"]["data"] for block in kept[0][1:]] == pictures
    assert cli.succeed_here("session", "import", file, "--json").object["events"] == 0
