"""Unit: the ids and tokens that sessions get."""

from __future__ import annotations

import random
import re

from turnkeeper.actors.ids import new_session_id, new_token
from turnkeeper.storage.limits import ID_PATTERN


def test_an_id_is_two_words_and_four_hex_digits() -> None:
    """It fits storage's form, so it is never part of a path and the same on every file system."""
    for _ in range(200):
        id = new_session_id()
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+-[0-9a-f]{4}", id)
        assert ID_PATTERN.match(id)


def test_ids_neither_follow_nor_disturb_the_hosts_own_randomness() -> None:
    """A host that seeds `random` gets the same numbers with and without sessions, and no session's id twice."""
    random.seed(7)
    expected = random.random()
    random.seed(7)
    first = new_session_id()
    assert random.random() == expected
    random.seed(7)
    assert new_session_id() != first


def test_tokens_are_never_the_same() -> None:
    """Two openings in one process are two owners."""
    assert len({new_token() for _ in range(1000)}) == 1000
