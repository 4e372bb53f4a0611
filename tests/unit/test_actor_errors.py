"""Contract of the errors that cross from an actor: what arrives as itself, what as a description, and never by code."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from turnkeeper.runtime.errors import (
    ARGUMENTS_BYTES_MAX,
    TEXT_CHARACTERS_MAX,
    ActorError,
    ActorNotStarted,
    ActorUnknown,
    WorkerStartError,
    error_from_wire,
    error_to_wire,
    is_answer,
    register_error,
)
from turnkeeper.runtime.frames import FrameDecoder, encode_frame


@register_error
class Taken(Exception):
    """A registered error with a field and a message made from it."""

    def __init__(self, seat: object) -> None:
        super().__init__(seat)
        self.seat = seat

    def __str__(self) -> str:
        return f"seat {self.seat} is taken"


class TakenTwice(Taken):
    """A subclass that nobody registered."""


@register_error
class Particular(Exception):
    """A registered error whose constructor does not take its args."""

    def __init__(self) -> None:
        super().__init__("made by itself")


def raised(error: Exception) -> Exception:
    """Give the exception a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


def crossed(error: Exception) -> Exception:
    """Send the exception through a frame, as between two processes."""
    ((wire,),) = (FrameDecoder().feed(encode_frame(error_to_wire(raised(error)))),)
    return error_from_wire(wire)


def test_a_registered_error_arrives_as_itself() -> None:
    """Class, fields and message are the same on the other side."""
    arrived = crossed(Taken("4b"))
    assert type(arrived) is Taken
    assert (arrived.seat, str(arrived)) == ("4b", "seat 4b is taken")


def test_any_other_error_arrives_as_its_description() -> None:
    """Type, message and traceback cross as text."""
    arrived = crossed(ZeroDivisionError("by hand"))
    assert isinstance(arrived, ActorError)
    assert (arrived.type_name, arrived.message, str(arrived)) == (
        "ZeroDivisionError",
        "by hand",
        "ZeroDivisionError: by hand",
    )
    assert arrived.traceback_text.startswith("Traceback (most recent call last):")
    assert "raise error" in arrived.__notes__[0]


@pytest.mark.parametrize(
    ("error", "type_name"),
    [
        pytest.param(TakenTwice("4b"), "TakenTwice", id="an unregistered subclass"),
        pytest.param(Taken({1, 2}), "Taken", id="args that are not plain"),
        pytest.param(Taken("x" * ARGUMENTS_BYTES_MAX), "Taken", id="args that are too large"),
        pytest.param(Particular(), "Particular", id="args that the constructor does not take"),
    ],
)
def test_an_error_that_cannot_be_built_again_is_described(error: Exception, type_name: str) -> None:
    """Registering a class promises that its args build it; where they don't, the description is still there."""
    arrived = crossed(error)
    assert isinstance(arrived, ActorError)
    assert arrived.type_name == type_name


def test_only_registered_classes_are_built() -> None:
    """A peer names a class; one that this process did not register is never looked up, let alone run."""
    wire = {"type": "Popen", "message": "m", "traceback": "", "class": ["subprocess", "Popen"], "args": [["true"]]}
    assert isinstance(error_from_wire(wire), ActorError)


def test_a_registered_error_is_an_answer_and_no_other_is() -> None:
    """It is the exact class that counts."""
    assert is_answer(Taken(1))
    assert not is_answer(TakenTwice(1))
    assert not is_answer(KeyError(1))


def test_a_class_of_the_main_module_is_the_same_in_a_spawned_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program's main module has another name in the processes that import it; its errors arrive as themselves."""

    class Refused(Exception):
        pass

    monkeypatch.setattr(Refused, "__module__", "__main__")
    register_error(Refused)
    monkeypatch.setattr(Refused, "__module__", "__mp_main__")
    wire = error_to_wire(Refused("why"))
    assert wire["class"] == ("__main__", Refused.__qualname__)
    assert type(error_from_wire(wire)) is Refused


class Mute(Exception):
    """An error whose message can't be had."""

    def __str__(self) -> str:
        raise RuntimeError("no message")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "(its message can't be read: RuntimeError)"),
        (ValueError("lone \ud800"), "lone \\ud800"),
        (ValueError("x" * (TEXT_CHARACTERS_MAX + 1)), "x" * TEXT_CHARACTERS_MAX),
    ],
    ids=["unreadable", "surrogate", "long"],
)
def test_any_message_crosses_bounded_and_readable(error: Exception, message: str) -> None:
    """No message keeps an error from crossing."""
    arrived = crossed(error)
    assert isinstance(arrived, ActorError)
    assert arrived.message == message


def test_an_error_that_passes_through_an_actor_keeps_its_origin() -> None:
    """An actor that asks another one and fails by it shows the first failure."""
    origin = ActorError("KeyError", "'k'", "Traceback …")
    arrived = crossed(origin)
    assert isinstance(arrived, ActorError)
    assert arrived.args == origin.args


@pytest.mark.parametrize(
    "error",
    [
        ActorError("ValueError", "why", "Traceback …"),
        ActorNotStarted("Clerk.note", "it was stopped"),
        ActorUnknown("Clerk.note", "its worker process 7 was killed by SIGKILL"),
        WorkerStartError("agents:Clerk", "was not ready within 10 s", "last words"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_each_error_survives_pickling(error: Exception) -> None:
    """Fields, message and notes are the same after it, and the notes stand there once."""
    again: Any = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (again.args, str(again), vars(again)) == (error.args, str(error), vars(error))
