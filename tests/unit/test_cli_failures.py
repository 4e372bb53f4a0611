"""How whatever ends a command becomes a line, a kind and an exit code."""

from __future__ import annotations

import errno
import inspect

import click
import pytest

from turnkeeper.actors import errors
from turnkeeper.runtime.cli.failures import EXIT_CODES, TRACEBACK_VARIABLE, Failure, failure_of
from turnkeeper.storage.errors import InvalidLine, StorageError

STORE = "/a/store"
OWNER = {"boot": "b", "pid": 7, "start": 1, "host": "here"}


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.NotFound("x"), "not_found", 3),
        (errors.Ambiguous("x", ["xa", "xb"]), "ambiguous", 3),
        (errors.StoreMissing("/p", "there is no store here; check the path"), "store_missing", 3),
        (errors.BlobMissing("x", "0" * 64), "blob_missing", 3),
        (errors.SessionBusy("x", OWNER), "busy", 4),
        (errors.AlreadyServed("/p", 7), "busy", 4),
        (errors.Corrupt("x", "torn", "00000001.jsonl", 5, [(1, 2)]), "damaged", 5),
        (errors.StoreFull(1, 2), "store_full", 6),
        (errors.StoreRefused("/p", "not a directory; give another"), "refused", 1),
        (errors.NewerFormat("/p", 2, 1), "newer_format", 1),
        (errors.VersionMismatch(7, "2", "0.2", "1", "0.1"), "version_mismatch", 1),
        (errors.NodeNotAnswering(7, "stopped"), "not_answering", 1),
        (errors.Exists("x", "key"), "exists", 1),
        (errors.Conflict("x", 4, 1), "conflict", 1),
        (errors.Fenced("x", OWNER), "fenced", 1),
        (errors.TooLarge("a patch", 5000, 4096), "too_large", 1),
        (errors.InvalidValue(0, "a/b", "$.x", "no NaN"), "invalid_value", 1),
        (errors.PositionLost(9, 7), "position_lost", 3),
        (errors.Failed("a write failed"), "failed", 1),
        (InvalidLine("x", 3, "no frame"), "failed", 1),
        (OSError(errno.EACCES, "Permission denied", "/p"), "failed", 1),
        (OSError(errno.EFBIG, "File too large", "/p"), "store_full", 6),
        (errors.StoreRefused("/p", "File too large; check it"), "store_full", 6),
        (click.UsageError("No such option"), "usage", 2),
        (ZeroDivisionError("division by zero"), "internal", 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_a_kind_an_exit_code_and_one_line(error: Exception, kind: str, code: int) -> None:
    """Every error that a command can end with is one line of parts, and an object that says the same."""
    failure = failure_of(error, STORE)
    assert (failure.kind, failure.exit_code) == (kind, code)
    assert "\n" not in failure.message
    assert failure.message.count(": ") >= 1
    assert failure.as_map()["error"]["kind"] == kind
    assert failure.as_map()["error"]["message"] == failure.message


@pytest.mark.parametrize("name", errors.__all__)
def test_every_public_error_can_be_told(name: str) -> None:
    """No public error is unforeseen, whatever its fields are called."""
    kind = getattr(errors, name)
    values = {"int": 1, "str": "s", "list[str]": [], "Mapping[str, Any]": OWNER, "Mapping[str, Any] | None": None}
    needed = [] if kind is StorageError else inspect.signature(kind).parameters.values()
    error = kind(*(values.get(str(each.annotation), 1) for each in needed if each.default is each.empty))
    failure = failure_of(error, STORE)
    assert failure.kind in EXIT_CODES
    assert failure.kind != "internal"


def test_the_fields_of_an_error_are_told_to_scripts() -> None:
    """Who owns a busy session, and which ids a prefix could mean, needn't be read out of a sentence."""
    assert failure_of(errors.SessionBusy("x", OWNER), STORE).as_map()["error"]["owner"] == OWNER
    assert failure_of(errors.Ambiguous("x", ["xa", "xb"]), STORE).as_map()["error"]["candidates"] == ["xa", "xb"]


def test_a_line_says_what_where_and_what_to_do() -> None:
    """The parts stand in this order, each once."""
    failure = failure_of(errors.StoreMissing("/p", "there is no store here; check the path"), STORE)
    assert failure.message == "there is no store here: /p: check the path"


def test_an_error_that_came_in_a_group_is_told_as_itself() -> None:
    """A task group around a single error doesn't hide it."""
    group = ExceptionGroup("one", [ExceptionGroup("inner", [errors.NotFound("x")])])
    assert failure_of(group, STORE).kind == "not_found"


def test_a_failure_passes_as_it_is() -> None:
    """What a command has worded itself isn't worded again."""
    failure = Failure("usage", "what", "where", "do", line=3)
    assert failure_of(failure, STORE) is failure
    assert failure.as_map() == {"error": {"kind": "usage", "message": "what: where: do", "line": 3}}


def test_what_nobody_foresaw_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A defect is one line without a traceback; the variable that it names prints one."""
    monkeypatch.delenv(TRACEBACK_VARIABLE, raising=False)
    failure = failure_of(ZeroDivisionError("division\nby zero"), STORE)
    assert failure.message == (
        "unexpected ZeroDivisionError: division by zero: /a/store: please report it, with what TURNKEEPER_TRACEBACK=1 "
        "prints"
    )
    assert capsys.readouterr().err == ""
    monkeypatch.setenv(TRACEBACK_VARIABLE, "1")
    failure_of(ZeroDivisionError("division by zero"), STORE)
    assert "ZeroDivisionError: division by zero" in capsys.readouterr().err
