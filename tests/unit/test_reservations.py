"""Names of sessions of which nothing is stored yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from turnkeeper.actors.writer.reservations import Reservations
from turnkeeper.storage.errors import Exists, SessionBusy

MINE, THEIRS = {"pid": 1, "token": "mine"}, {"pid": 2, "token": "theirs"}


class Gone:
    """Says who has ended: those whom the test has added."""

    def __init__(self) -> None:
        self.pids: set[int] = set()

    def __call__(self, owner: Mapping[str, Any]) -> bool:
        return owner["pid"] in self.pids


@pytest.fixture
def gone() -> Gone:
    """Nobody, at first."""
    return Gone()


@pytest.fixture
def reservations(gone: Gone) -> Reservations:
    """With the session a, key k, reserved by `MINE` over the connection "c"."""
    made = Reservations(gone)
    assert made.reserve("a", "k", MINE, "c") is None
    return made


@pytest.mark.parametrize(("id", "key"), [("a", None), ("b", "k"), ("a", "k"), ("k", None)])
def test_a_reserved_name_is_busy_for_another_whoever_asks_for_it(
    reservations: Reservations, id: str, key: str | None
) -> None:
    """By id, by key, or by an id that is the other's key: the owner is named."""
    refusal = reservations.reserve(id, key, THEIRS, "d")
    assert isinstance(refusal, SessionBusy)
    assert (refusal.stream, refusal.owner) == ("a", MINE)


def test_the_same_token_may_ask_again_over_another_connection(reservations: Reservations) -> None:
    """The reservation moves there, and outlives the connection that it came from."""
    assert reservations.reserve("a", "k", MINE, "d") is None
    reservations.forget("c")
    assert reservations.find("k") is not None
    reservations.forget("d")
    assert reservations.find("k") is None


def test_the_same_token_cannot_have_one_name_twice(reservations: Reservations) -> None:
    """Asking for the same key with another id is asking for something else."""
    assert isinstance(reservations.reserve("b", "k", MINE, "c"), Exists)


def test_a_name_whose_owner_has_gone_is_free(reservations: Reservations, gone: Gone) -> None:
    """Although its connection may still stand: a forked child keeps it open."""
    gone.pids.add(1)
    assert reservations.find("a") is None
    assert reservations.reserve("b", "k", THEIRS, "d") is None


def test_a_stored_session_is_no_reservation_any_more(reservations: Reservations) -> None:
    """Nor is one that lost its name; settling what isn't reserved is no error."""
    reservations.settle("a")
    reservations.settle("a")
    assert (reservations.find("a"), reservations.find("k")) == (None, None)


def test_only_its_owner_can_give_a_reservation_back(reservations: Reservations) -> None:
    """Another token has no effect."""
    reservations.release("a", "theirs")
    assert reservations.find("a") is not None
    reservations.release("a", "mine")
    assert reservations.find("k") is None
