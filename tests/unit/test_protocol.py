"""Errors and greetings as they cross between processes."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

from turnkeeper.actors import errors
from turnkeeper.actors.protocol import PROTOCOL, VERSION, check_hello, error_from_wire, error_to_wire
from turnkeeper.runtime.frames import FrameDecoder, encode_frame
from turnkeeper.storage.errors import InvalidLine, StorageError

OWNER = {"boot": "b", "pid": 1, "start": 2, "host": "h", "token": "t"}
EVERY_ERROR = [
    errors.AlreadyAccepted("a", 3),
    errors.AlreadyServed("/store", 7),
    errors.Ambiguous("br", ["brave-otter", "brisk-owl"]),
    errors.Conflict("a", 3, 1),
    errors.Conflict("a", 3, 0, "ci-17"),
    errors.Corrupt("a", "events of it were lost", "00000001.jsonl", 7, [(1, 2)]),
    errors.CriticalTypes("a", ["acme/ledger", "acme/lease"]),
    errors.Exists("a", "key"),
    errors.Failed("batch 3 could not be written"),
    errors.Fenced("a", OWNER, 2),
    errors.Fenced("a", None),
    errors.InvalidValue(0, "x/y", "$.a", "NaN"),
    errors.NewerFormat("store.json", 2, 1),
    errors.NodeNotAnswering(None, "none stayed alive"),
    errors.NodeNotAnswering(7, "stopped"),
    errors.NotFound("a"),
    errors.PositionLost(9, 7),
    errors.SessionBusy("a", OWNER),
    errors.SessionClosed("a"),
    errors.StoreFull(1, 2),
    errors.StoreMissing("/store", "there is none"),
    errors.StoreRefused("/store", "a file"),
    errors.TooFarAhead("a", 70, 3),
    errors.TooLarge("a line", 2, 1),
    errors.TurnOpen("a", 3),
    errors.VersionMismatch(7, "2", "9.9", "1", "0.1"),
    errors.WrongKind("inbox-a", "inbox", "session"),
    InvalidLine("a", 1, "no newline"),
]


@pytest.mark.parametrize("error", EVERY_ERROR, ids=lambda error: type(error).__name__)
def test_an_error_crosses_as_its_name_and_fields(error: StorageError) -> None:
    """By frame, by JSON or pickled, the same class with the same fields and the same one-line message arrives."""
    (by_frame,) = FrameDecoder().feed(encode_frame(error_to_wire(error)))
    by_json = json.loads(json.dumps(error_to_wire(error)))
    for arrived in (error_from_wire(by_frame), error_from_wire(by_json), pickle.loads(pickle.dumps(error))):
        assert type(arrived) is type(error)
        assert vars(arrived) == vars(error)
        assert str(arrived) == str(error)
        assert "\n" not in str(arrived)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"error": "SystemExit", "args": [1]},
        {"error": ["NotFound"], "args": []},
        {"error": "NotFound", "args": []},
        {"error": "NotFound", "args": "a"},
        {"error": "SessionBusy", "args": ["a", "b"]},
        {"error": "Corrupt", "args": ["a", "b", "c", 1, [1]]},
    ],
    ids=repr,
)
def test_what_is_no_error_of_ours_never_becomes_another_class(message: dict[str, Any]) -> None:
    """A peer names an error and doesn't choose code to run; what it meant is still to be read."""
    error = error_from_wire(message)
    assert type(error) is StorageError
    assert str(message.get("error")) in str(error)


HELLO = {"op": "hello", "protocol": PROTOCOL, "version": VERSION, "pid": 7}


def test_a_greeting_of_the_same_protocol_is_taken_as_it_is() -> None:
    """Whatever the version of the package."""
    assert check_hello({**HELLO, "version": "9.9"}) == {**HELLO, "version": "9.9"}


def test_a_greeting_of_another_protocol_names_both_sides_and_the_process() -> None:
    """One error with all that is needed to find and end the other version."""
    with pytest.raises(errors.VersionMismatch) as caught:
        check_hello({**HELLO, "protocol": PROTOCOL + 1, "version": "9.9"})
    assert (caught.value.pid, caught.value.version, caught.value.own_version) == (7, "9.9", VERSION)


def test_a_refusal_in_place_of_a_greeting_is_raised() -> None:
    """Another user's process says why it doesn't talk to this one."""
    with pytest.raises(errors.StoreRefused, match="not you"):
        check_hello({"op": "error", **error_to_wire(errors.StoreRefused("/store", "not you"))})


@pytest.mark.parametrize("message", [None, [], 7, {}, {"op": "hello"}, {"op": "state", "pid": 7}], ids=repr)
def test_what_is_no_greeting_is_an_error(message: Any) -> None:
    """Whatever listens there is no process of ours."""
    with pytest.raises(StorageError, match="no turnkeeper process"):
        check_hello(message)
