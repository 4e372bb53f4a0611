"""End to end: the commands that write to a store: new, append, follow."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from turnkeeper import connect

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line
from ..serving import eventually, kill_holder

INTERRUPTED_SECONDS_MAX = 2.5
"""Within a second of Ctrl-C a command has ended; a busy machine is allowed some more."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line of a store that is open meanwhile, so that no command starts what serves it."""
    path = tmp_path_factory.mktemp("served")
    with connect(path / "store"):
        yield CommandLine(path / "store", path)


def told_lines(process: subprocess.Popen[bytes], count: int) -> list[dict[str, object]]:
    """Wait until a running command has printed so many JSON lines, and give them."""
    assert process.stdout is not None
    content, deadline = b"", time.monotonic() + DEADLINE_SECONDS
    while content.count(b"\n") < count:
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"only {content!r} came"
        piece = os.read(process.stdout.fileno(), 65536)
        assert piece, f"it ended after {content!r}"
        content += piece
    return [json.loads(line) for line in content.splitlines()]


def wait_for_events(cli: CommandLine, id: str, count: int) -> None:
    """Wait until a session has so many durable events."""
    eventually(lambda: len(cli.here("session", "show", id, "--json").objects) >= count)


def test_new_makes_the_store_and_writes_the_first_event(cli: CommandLine) -> None:
    """A session of a memorable id is there at once, with its header; nothing goes on running."""
    id = cli.succeed("session", "new", "--title", "a title", "--label", "a=b", "--cwd", "/one", "--json").object["id"]
    (row,) = cli.succeed("session", "list", "--json").objects
    assert (row["id"], row["title"], row["labels"], row["cwd"]) == (id, "a title", {"a": "b"}, "/one")
    assert (row["events"], row["status"]) == (1, "closed")
    (event,) = cli.succeed_here("session", "show", id, "--json").objects
    assert event["type"] == "session/created"
    assert cli.here("status").code == 3


def test_the_default_store_is_made_with_its_parents(cli: CommandLine, tmp_path: Path) -> None:
    """Without any store named, the one in the user's data directory is meant, and made by what writes."""
    data = tmp_path / "deep" / "data"
    environment = {"TURNKEEPER_STORE": None, "XDG_DATA_HOME": str(data)}
    assert cli.run("session", "list", environment=environment).code == 3
    assert not data.exists()
    assert cli.run("session", "new", environment=environment).code == 0
    (store,) = (path.parent for path in data.rglob("store.json"))
    assert cli.here("session", "list", "--store", str(store)).out.count("\n") == 2


def test_a_key_names_one_session(cli: CommandLine) -> None:
    """A key can be used instead of the id, and a second session of that key is refused, naming the first."""
    id = cli.new_session("--key", "issue-7")
    cli.succeed_here("session", "append", "issue-7", stdin=event_line("note/one"))
    assert len(cli.succeed_here("session", "show", "issue-7", "--json").objects) == 2
    outcome = cli.here("session", "new", "--key", "issue-7", "--json")
    assert outcome.code == 1
    assert (outcome.error["kind"], outcome.error["id"]) == ("exists", id)


def test_append_stores_every_line_and_prints_the_numbers(cli: CommandLine) -> None:
    """What is on stdin is stored in order, the last line without a newline too; blank lines are nothing."""
    id = cli.new_session()
    text = event_line("note/one", x=1) + "\n" + event_line("note/two", x=[1.5, None, "ü"]).rstrip("\n")
    assert cli.succeed("session", "append", id, "--json", stdin=text).object == {"first": 1, "last": 2}
    stored = cli.succeed_here("session", "show", id, "--json", "--from", "1").objects
    assert [(each["type"], each["data"]) for each in stored] == [
        ("note/one", {"x": 1}),
        ("note/two", {"x": [1.5, None, "ü"]}),
    ]


def test_append_of_nothing_adds_nothing(cli: CommandLine) -> None:
    """An empty input is no failure."""
    id = cli.new_session()
    assert cli.succeed("session", "append", id, "--json").object == {"first": None, "last": None}
    assert len(cli.succeed_here("session", "show", id, "--json").objects) == 1


def test_append_takes_a_file_and_many_lines(cli: CommandLine, tmp_path: Path) -> None:
    """Standard input may be a regular file, longer than any buffer."""
    id, path = cli.new_session(), tmp_path / "events"
    path.write_text("".join(event_line("note/n", number=number, text="x" * 400) for number in range(5000)))
    with path.open("rb") as file:
        process = cli.start("session", "append", id, "--json", stdin=file)
        out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, json.loads(out)) == (0, {"first": 1, "last": 5000}), err
    numbers = [
        event["data"]["number"] for event in cli.succeed_here("session", "show", id, "--json", "--from", "1").objects
    ]
    assert numbers == list(range(5000))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "no JSON at character 1"),
        ("[]", "no object with the members"),
        ('{"type": "a/b"}', "no object with the members"),
        ('{"type": "a/b", "data": {}, "more": 1}', "no object with the members"),
        ('{"type": "", "data": {}}', "its type is no text, or empty"),
        ('{"type": "a/b", "data": []}', "its data is no object"),
        ('{"type": "a/b", "data": {"x": NaN}}', "$.x: JSON has no nan"),
        ('{"type": "a/b", "data": {"x": 1e999}}', "$.x: JSON has no inf"),
        ('{"type": "a/b", "data": {"x": [18446744073709551616]}}', "$.x[0]: an integer beyond 64 bits"),
        ('{"type": "a/b", "data": {"x": "\\ud800"}}', "$.x: a lone surrogate"),
        ('{"type": "a/b", "data": {"x": 1, "x": 2}}', "the member 'x' stands twice"),
        ('{"type": "a/b", "data": {"x": ' + "[" * 600 + "]" * 600 + "}}", "nested over 512 levels deep"),
        ('{"type": "a/b", "data": {"x": ' + "[" * 90_000 + "]" * 90_000 + "}}", "nested too deeply"),
        ('{"type": "' + "y" * 1024**2 + '", "data": {}}', "an event's type has 256 characters at most"),
        ('{"type": "note", "data": {}}', "a type of your own is name/word"),
        ('{"type": "turn/began", "data": {}}', "no such core type; with turn there is turn/start, turn/end;"),
        ('{"type": "turn/end", "data": {"reason": "done"}}', "turn/end at $.reason: must be one of completed, error,"),
        (
            '{"type": "a/b", "data": {"x": {"blob": "' + "0" * 64 + '", "bytes": 1, "media_type": "a/b"}}}',
            "isn't in this store; put it again",
        ),
        ("x" * (8 * 1024**2 + 1), "over 8,388,608 bytes long"),
    ],
    ids=lambda value: value[:45],
)
def test_a_bad_line_is_named_and_what_stood_before_it_is_told(served: CommandLine, line: str, why: str) -> None:
    """The exit code is 2, the message has the line's number, what is wrong, and what of the input is stored."""
    id = served.new_session()
    text = event_line("note/one") + event_line("note/two") + line + "\n" + event_line("note/three")
    outcome = served.here("session", "append", id, "--json", stdin=text)
    assert outcome.code == 2
    assert outcome.err.startswith("turnkeeper: line 3: ")
    assert outcome.err.count("\n") == 1
    assert why in outcome.err
    assert "2 events of the input are stored, numbers 1 to 2" in outcome.err
    assert {name: outcome.error[name] for name in ("kind", "line", "first", "last")} == {
        "kind": "invalid_line",
        "line": 3,
        "first": 1,
        "last": 2,
    }
    assert len(served.succeed_here("session", "show", id, "--json").objects) == 3


def test_input_that_is_no_text_is_refused(cli: CommandLine) -> None:
    """Bytes that aren't UTF-8 are named by their place, and nothing is stored."""
    id = cli.new_session()
    outcome = cli.run("session", "append", id, stdin=b'{"type": "a/b", "data": {"x": "\xff"}}\n')
    assert outcome.code == 2
    assert "line 1: not UTF-8 at byte 31" in outcome.err
    assert "nothing of the input is stored" in outcome.err


def test_append_to_an_unknown_session_makes_none(cli: CommandLine) -> None:
    """An id that names nothing ends with 3, and nothing is stored anywhere."""
    cli.new_session()
    outcome = cli.here("session", "append", "nobody", "--json", stdin=event_line("note/one"))
    assert (outcome.code, outcome.error["kind"]) == (3, "not_found")
    assert len(cli.succeed_here("session", "list", "--json").objects) == 1


def test_append_to_a_missing_store_makes_none(cli: CommandLine) -> None:
    """There is no session in a store that isn't there, so no store is made for it."""
    assert cli.here("session", "append", "nobody", stdin=event_line("note/one")).code == 3
    assert not cli.store.exists()


def test_a_session_in_use_is_busy_and_its_owner_is_named(cli: CommandLine) -> None:
    """While one command appends to a session another one ends with 4, and says which process has it."""
    id = cli.new_session()
    with cli.running("session", "append", id) as owner:
        assert owner.stdin is not None
        owner.stdin.write(event_line("note/one").encode())
        owner.stdin.flush()
        wait_for_events(cli, id, 2)
        outcome = cli.run("session", "append", id, "--json", stdin=event_line("note/two"))
        assert (outcome.code, outcome.error["kind"]) == (4, "busy")
        assert outcome.error["owner"]["pid"] == owner.pid
        assert f"process {owner.pid} on " in outcome.err


def test_what_is_appended_is_seen_while_the_input_goes_on(cli: CommandLine) -> None:
    """Lines are stored as they come; killing node and writer meanwhile loses and repeats nothing."""
    id = cli.new_session()
    process = cli.start("session", "append", id, "--json")
    assert process.stdin is not None
    for number, role in enumerate(("writer", "node", "writer")):
        process.stdin.write(event_line("note/n", number=2 * number).encode())
        process.stdin.flush()
        wait_for_events(cli, id, 2 * number + 2)
        eventually(partial(kill_holder, cli.store, role))
        process.stdin.write(event_line("note/n", number=2 * number + 1).encode())
        process.stdin.flush()
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, json.loads(out)) == (0, {"first": 1, "last": 6}), err
    stored = cli.succeed_here("session", "show", id, "--json", "--from", "1").objects
    assert [event["data"]["number"] for event in stored] == list(range(6))
    assert [event["seq"] for event in stored] == list(range(1, 7))


def test_interrupting_append_stores_what_was_taken_and_says_so(cli: CommandLine) -> None:
    """Ctrl-C ends it with 130 within a second; the lines it took are durable and counted on stderr."""
    id = cli.new_session()
    process = cli.start("session", "append", id)
    assert process.stdin is not None
    process.stdin.write(event_line("note/one").encode())
    process.stdin.flush()
    wait_for_events(cli, id, 2)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert time.monotonic() - begun < INTERRUPTED_SECONDS_MAX
    assert process.returncode == 130
    assert err.decode() == "turnkeeper: one event of the input is stored, number 1\n"
    (row,) = cli.succeed_here("session", "list", "--json").objects
    assert row["status"] == "closed"


def test_follow_replays_and_goes_on(cli: CommandLine) -> None:
    """From a position on, every event comes once, with its position: the stored ones, then those that are appended."""
    id = cli.new_session()
    with cli.running("follow", "--after", "0", "--json") as follower:
        (created,) = told_lines(follower, 1)
        assert (created["position"], created["stream"], created["seq"]) == (1, id, 0)
        cli.succeed_here("session", "append", id, stdin=event_line("note/one", x=1) + event_line("note/two"))
        one, two = told_lines(follower, 2)
        assert (one["position"], one["type"], one["data"]) == (2, "note/one", {"x": 1})
        assert (two["position"], two["seq"]) == (3, 2)


def test_follow_takes_sessions_and_types(cli: CommandLine) -> None:
    """Only events of the named sessions and types are printed."""
    wanted, other = cli.new_session(), cli.new_session()
    text = event_line("note/one") + event_line("memo/one")
    cli.succeed_here("session", "append", other, stdin=text)
    cli.succeed_here("session", "append", wanted, stdin=text)
    with cli.running("follow", wanted, "--type", "note/*", "--after", "0", "--json") as follower:
        (event,) = told_lines(follower, 1)
    assert (event["stream"], event["type"]) == (wanted, "note/one")


def test_follow_of_an_unknown_session_is_not_found(cli: CommandLine) -> None:
    """An id that names nothing ends it with 3."""
    cli.new_session()
    assert cli.run("follow", "nobody").code == 3


def test_interrupting_follow_ends_it_and_what_served_it(cli: CommandLine) -> None:
    """Ctrl-C ends it with 130, within a second, and no process is left."""
    cli.new_session()
    process = cli.start("follow", "--after", "0", "--json")
    told_lines(process, 1)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, err) == (130, b"")
    assert time.monotonic() - begun < INTERRUPTED_SECONDS_MAX
    assert cli.here("status").code == 3


def test_interrupting_follow_ends_it_while_nobody_reads_its_output(cli: CommandLine) -> None:
    """Stuck in a write to a pipe that nobody empties, it still ends within a second of Ctrl-C."""
    id = cli.new_session()
    cli.succeed_here("session", "append", id, stdin="".join(event_line("note/n", text="x" * 1000) for _ in range(200)))
    process = cli.start("follow", "--after", "0", "--json")
    stuck = Path(f"/proc/{process.pid}/wchan")
    eventually(lambda: "pipe" in stuck.read_text())
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) == 130
    assert time.monotonic() - begun < INTERRUPTED_SECONDS_MAX
    process.communicate()
    eventually(lambda: cli.here("status").code == 3)


def test_a_pipe_that_is_closed_ends_it_quietly(cli: CommandLine) -> None:
    """`turnkeeper … | head` says nothing on stderr."""
    id = cli.new_session()
    cli.succeed_here("session", "append", id, stdin="".join(event_line("note/n", text="x" * 1000) for _ in range(2000)))
    for command in (("session", "show", id), ("journal", "cat"), ("follow", "--after", "0")):
        process = cli.start(*command)
        assert process.stdout is not None
        assert process.stdout.read(100)
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(DEADLINE_SECONDS)) == (b"", 0)
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()
