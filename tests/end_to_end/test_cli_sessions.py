"""End to end: the commands that fork, rewind, change, delete and stop sessions, and what list and show make of it."""

from __future__ import annotations

from pathlib import Path

from turnkeeper import connect

from ..command_line import CommandLine, event_line
from ..serving import eventually


def new_with_events(cli: CommandLine, *arguments: str) -> str:
    """Make a session with five events, the first of which is its creation."""
    id = cli.new_session(*arguments)
    lines = "".join(event_line("note/n", number=number) for number in range(1, 5))
    cli.succeed_here("session", "append", id, stdin=lines)
    return id


def told(cli: CommandLine, id: str) -> list[tuple[int, str]]:
    """Give number and type of a session's events, as show does."""
    return [(event["seq"], event["type"]) for event in cli.succeed_here("session", "show", id, "--json").objects]


def test_fork_prints_the_id_of_a_child_that_begins_so(cli: CommandLine) -> None:
    """With the first events of its parent, or all; list shows it with --all, and its parent is as it was."""
    id = new_with_events(cli, "--title", "first", "--label", "a=b")
    fork = cli.succeed("session", "fork", id[:-1], "--at", "3", "--title", "second", "--key", "f", "--json").object
    assert fork["head"] == 4
    assert told(cli, "f") == [(0, "session/created"), (1, "note/n"), (2, "note/n"), (3, "session/forked")]
    whole = cli.succeed("session", "fork", id, "--label", "c=d").out.strip()
    assert len(told(cli, whole)) == 6
    rows = {row["id"]: row for row in cli.succeed_here("session", "list", "--all", "--json").objects}
    assert {(row["title"], row["parent_seq"], str(row["labels"])) for row in rows.values()} == {
        ("first", None, "{'a': 'b'}"),
        ("second", 3, "{'a': 'b'}"),
        ("first", 5, "{'c': 'd'}"),
    }
    assert [row["id"] for row in cli.succeed_here("session", "list", "--json").objects] == [id]
    assert len(told(cli, id)) == 5


def test_rewind_is_told_and_destroys_nothing(cli: CommandLine) -> None:
    """The record is the last event, and the head is behind it."""
    id = new_with_events(cli)
    assert cli.succeed("session", "rewind", id, "--to", "2", "--json").object == {"id": id, "head": 6}
    (last,) = cli.succeed_here("session", "show", id, "--last", "1", "--json").objects
    assert (last["type"], last["data"]) == ("session/rewound", {"to": 2, "previous": None})
    assert cli.succeed("session", "rewind", id, "--to", "5").out == f"{id} goes on behind its first 5 events\n"
    assert len(told(cli, id)) == 7


def test_set_changes_what_is_named(cli: CommandLine) -> None:
    """Title and single labels, by a beginning of the id; other labels stay."""
    id = new_with_events(cli, "--title", "first", "--label", "a=1", "--label", "b=2")
    changed = cli.succeed("session", "set", id[:-1], "--title", "ü", "--label", "c=3", "--remove-label", "a", "--json")
    assert changed.object == {"id": id, "head": 5}
    (row,) = cli.succeed_here("session", "list", "--json").objects
    assert (row["title"], row["labels"]) == ("ü", {"b": "2", "c": "3"})
    cli.succeed("session", "set", id, "--title", "")
    (row,) = cli.succeed_here("session", "list", "--json").objects
    assert row["title"] == ""


def test_delete_and_undelete(cli: CommandLine) -> None:
    """Out of the list and back, with a message that says how; a fork of it reads on."""
    id = new_with_events(cli, "--key", "k")
    fork = cli.succeed("session", "fork", id, "--at", "2").out.strip()
    assert cli.succeed("session", "delete", "k", "--json").object == {"id": id, "head": 5}
    cli.succeed("session", "delete", id)
    assert cli.succeed_here("session", "list", "--json").out == ""
    assert len(told(cli, fork)) == 3
    with connect(cli.store):
        for command in (["append"], ["fork"], ["rewind", "--to", "1"], ["set", "--title", "x"], ["stop"]):
            outcome = cli.here("session", command[0], id, *command[1:], "--json", stdin=event_line("note/n"))
            assert (outcome.code, outcome.error["kind"], outcome.error["wanted"]) == (3, "deleted", id), command
            assert outcome.err == (
                f"turnkeeper: {id} is deleted: {cli.store}: turnkeeper session undelete {id} brings it back\n"
            )
    assert cli.succeed("session", "undelete", "k").out == f"{id}\n"
    assert [row["id"] for row in cli.succeed_here("session", "list", "--json").objects] == [id]
    assert len(told(cli, id)) == 5


def test_stop_takes_a_session_and_its_children_from_their_owners(cli: CommandLine) -> None:
    """Their commands end with an error, and an open turn with them; stopping once more finds nobody."""
    id = new_with_events(cli)
    child = cli.succeed("session", "fork", id).out.strip()
    with cli.running("session", "append", child) as owner:
        assert owner.stdin is not None
        owner.stdin.write(event_line("turn/start").encode())
        owner.stdin.flush()
        eventually(lambda: (6, "turn/start") in told(cli, child))
        busy = cli.run("session", "delete", child, "--json")
        assert (busy.code, busy.error["kind"], busy.error["owner"]["pid"]) == (4, "busy", owner.pid)
        refused = cli.run("session", "fork", child, "--json")
        assert (refused.code, refused.error["kind"]) == (1, "invalid_fork")
        assert "event 6 began a turn that is open" in refused.err
        assert cli.succeed("session", "stop", id, "--json").object == {"id": id, "head": 5, "stopped": [child]}
        _, err = owner.communicate(event_line("note/late").encode())
        assert owner.returncode == 1
        assert b"taken over by" in err
    assert told(cli, child)[6:] == [(6, "turn/start"), (7, "turn/end")]
    assert cli.succeed("session", "stop", id).out == f"nobody has {id} open, nor a child of it\n"


REFUSED: list[tuple[list[str], int, str, str]] = [
    (["fork", "ID", "--at", "6"], 1, "invalid_fork", "can't be forked at 6: it has 5 events"),
    (["fork", "ID", "--at", "-1"], 2, "usage", "--at"),
    (["fork", "nobody"], 3, "not_found", "no session 'nobody'"),
    (["fork", "ID", "--key", "taken"], 1, "exists", "this key is taken"),
    (["fork", "ID", "--title", "a\x07b"], 1, "invalid_value", "a control character (U+0007) at place 1"),
    (["rewind", "ID", "--to", "6"], 2, "usage", "ID has 5 events"),
    (["rewind", "ID"], 2, "usage", "--to"),
    (["set", "ID"], 2, "usage", "nothing to set"),
    (["set", "ID", "--title", "a\nb"], 1, "invalid_value", "a control character (U+000A)"),
    (["set", "ID", "--label", "x"], 2, "usage", "no label"),
    (["set", "ID", "--label", f"x={'y' * 5000}"], 1, "too_large", "the label 'x' of a session has 5,001 bytes"),
    (["delete", "nobody"], 3, "not_found", "no session 'nobody'"),
    (["undelete", "nobody"], 3, "not_found", "no session 'nobody'"),
    (["stop", "nobody"], 3, "not_found", "no session 'nobody'"),
    (["stop", ""], 3, "not_found", "no session ''"),
]


def test_what_cannot_be_done_is_one_line_and_changes_nothing(cli: CommandLine) -> None:
    """With the exit code and the kind that scripts go by."""
    id = new_with_events(cli, "--key", "taken", "--title", "first")
    before = cli.succeed_here("session", "list", "--all", "--json").objects
    with connect(cli.store):
        for arguments, code, kind, why in REFUSED:
            outcome = cli.here("session", *(id if each == "ID" else each for each in arguments), "--json")
            assert (outcome.code, outcome.error["kind"]) == (code, kind), arguments
            assert why.replace("ID", id) in outcome.err
            assert outcome.err.count("\n") == 1
    assert cli.succeed_here("session", "list", "--all", "--json").objects == before


def test_a_store_that_is_missing_is_not_made(cli: CommandLine) -> None:
    """There is no session in it."""
    for command in ("fork", "rewind --to 1", "set --title t", "delete", "undelete", "stop"):
        outcome = cli.here("session", *command.split(), "x", "--json")
        assert (outcome.code, outcome.error["kind"]) == (3, "store_missing")
    assert not cli.store.exists()


def test_a_list_takes_a_directory_however_it_is_spelled(cli: CommandLine, tmp_path: Path) -> None:
    """The newest session of a directory is its first row."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    first = cli.new_session("--cwd", str(tmp_path / "link"))
    second = cli.new_session("--cwd", str(tmp_path / "real"))
    cli.new_session("--cwd", "/elsewhere")
    for spelling in ("real", "link"):
        rows = cli.succeed_here("session", "list", "--cwd", str(tmp_path / spelling), "--json").objects
        assert [row["id"] for row in rows] == [second, first]
    (newest,) = cli.succeed_here("session", "list", "--cwd", str(tmp_path / "link"), "--limit", "1", "--json").objects
    rest = cli.succeed(
        "session", "list", "--cwd", str(tmp_path / "link"), "--after", newest["cursor"], "--json"
    ).objects
    assert [row["id"] for row in rest] == [first]
