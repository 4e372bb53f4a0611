"""End to end: `session send`, as scripts use it, and what it does with what can't be sent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from turnkeeper import connect

from ..command_line import CommandLine
from ..serving import eventually

MESSAGE = json.dumps({"text": "and lint it"}, indent=2)


def test_a_message_is_stored_and_its_number_printed(cli: CommandLine) -> None:
    """Whether anybody has the session open or not; a key makes it one message. No list counts an inbox as a session."""
    id = cli.new_session("--key", "issue-4711")
    send = ("session", "send", "issue-4711", "--type", "user/message")
    assert cli.succeed(*send, "--json", stdin=MESSAGE).object == {"seq": 0}
    assert cli.succeed(*send, "--key", "ci-17", stdin=MESSAGE).out == "1\n"
    with cli.running("serve"):
        eventually(lambda: cli.here("status").code == 0)
        assert cli.succeed(*send, "--key", "ci-17", stdin=MESSAGE).out == "1\n"
        assert cli.succeed_here("status", "--json").object["sessions"] == 1
    messages = cli.succeed_here("session", "show", f"inbox-{id}", "--json").objects
    sent = {"type": "user/message", "data": {"text": "and lint it"}, "sender": None}
    assert [(each["type"], each["data"]) for each in messages] == [("inbox/message", sent)] * 2
    assert [row["id"] for row in cli.succeed_here("session", "list", "--all", "--json").objects] == [id]
    assert cli.succeed_here("journal", "stats", "--json").object["sessions"] == 1


@pytest.mark.parametrize(
    ("arguments", "stdin", "code", "parts"),
    [
        (["nobody"], MESSAGE, 3, ["no session 'nobody'"]),
        (["inbox-ID"], MESSAGE, 3, ["is no session but of the kind 'inbox'"]),
        (["ID", "--type", "unnamed"], MESSAGE, 2, ["--type"]),
        (["ID", "--key", ""], MESSAGE, 2, ["--key", "1 to 256 characters"]),
        (["ID"], b"", 2, ["standard input", "empty"]),
        (["ID"], b"[1]", 2, ["no JSON object", "nothing was sent"]),
        (["ID"], b"{", 2, ["no JSON at character"]),
        (["ID"], b'{"a": 1, "a": 2}', 2, ["'a' stands twice"]),
        (["ID"], b'{"a": "\xff"}', 2, ["not UTF-8"]),
        (["ID"], b'{"a": 1e999}', 2, ["$.a"]),
        (["ID"], b'{"a": "' + b"x" * 8 * 1024 * 1024 + b'"}', 2, ["over 8,388,608 bytes"]),
        (["ID", "--type", "user/message"], b'{"text": 1}', 2, ["user/message at $.text"]),
        (["ID", "--key", "taken"], b"{}", 1, ["the key 'taken' has another event already"]),
    ],
    ids=lambda value: None if isinstance(value, bytes | list) else str(value)[:20],
)
def test_what_cant_be_sent_ends_with_one_line(
    sent_to: tuple[CommandLine, str], arguments: list[str], stdin: bytes | str, code: int, parts: list[str]
) -> None:
    """It says what, where and what to do, tells scripts the same, and nothing was sent."""
    cli, id = sent_to
    words = [word.replace("ID", id) for word in arguments]
    type = [] if "--type" in words else ["--type", "my/note"]
    outcome = cli.here("session", "send", *words, *type, "--json", stdin=stdin)
    assert outcome.code == code, outcome
    assert outcome.err == f"turnkeeper: {outcome.error['message']}\n"
    for part in parts:
        assert part in outcome.err


@pytest.fixture(scope="module")
def sent_to(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CommandLine, str]]:
    """A served store, and a session whose inbox holds one message, under the key `taken`; no other after all tests."""
    path = tmp_path_factory.mktemp("sent-to")
    cli = CommandLine(path / "store", path)
    id = cli.new_session()
    with connect(cli.store) as runtime:
        runtime.send(id, "my/note", json.loads(MESSAGE), key="taken")
        yield cli, id
    assert len(cli.succeed_here("session", "show", f"inbox-{id}", "--json").objects) == 1


def test_a_missing_store_is_not_made(cli: CommandLine) -> None:
    """Nobody in it could be sent to."""
    assert cli.run("session", "send", "x", "--type", "my/note", stdin=MESSAGE).code == 3
    assert not cli.store.exists()
