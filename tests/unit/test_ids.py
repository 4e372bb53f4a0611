"""Unit: the ids and tokens that sessions and tasks get."""

from __future__ import annotations

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.ids import is_task_id, new_session_id, new_task_id, new_token, task_id_of_key
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


def test_a_tasks_id_says_that_it_is_one() -> None:
    """Two words and eight hex digits: it is new without anybody's having looked."""
    ids = {new_task_id() for _ in range(200)}
    assert len(ids) == 200
    for id in ids:
        assert re.fullmatch(r"task-[a-z]+(-[a-z]+)*-?-[0-9a-f]{8}", id)
        assert ID_PATTERN.match(id)
        assert is_task_id(id)
    assert not is_task_id(new_session_id())


@given(st.text(min_size=1, max_size=256))
def test_a_tasks_key_makes_its_id(key: str) -> None:
    """Always the same, fit for storage, with what can be read of the key; another key makes another id."""
    id = task_id_of_key(key)
    assert id == task_id_of_key(key) != task_id_of_key(key + "x")
    assert ID_PATTERN.match(id)
    assert is_task_id(id)


def test_the_beginning_of_a_key_can_be_read_in_the_tasks_id() -> None:
    """What an id can't hold becomes a hyphen; a key of which nothing is left is its digest alone."""
    assert re.fullmatch("task-build-17-main-[0-9a-f]{12}", task_id_of_key("Build #17 (main)"))
    assert re.fullmatch("task-[0-9a-f]{12}", task_id_of_key("測試"))
    assert re.fullmatch(f"task-{'x' * 24}-[0-9a-f]{{12}}", task_id_of_key("x" * 100))
