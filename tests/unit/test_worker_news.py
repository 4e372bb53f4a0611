"""Contract of what a worker may say to its host: read, or refused with what it was."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.runtime.errors import error_to_wire
from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.workers.main_module import load_failure_to_wire
from turnkeeper.runtime.workers.worker_news import News, read_news, read_readiness

ERROR = error_to_wire(ValueError("broken"))
UNIMPORTED = load_failure_to_wire(ImportError("gone"))


@pytest.mark.parametrize(
    ("message", "news"),
    [
        (["started", ["note", "notes"]], News("started", ["note", "notes"], [])),
        (["reply", None], News("reply", None, [])),
        (["reply", None, [0, 0, 5]], News("reply", None, [[0, 0, 5]])),
        (["refused", ERROR], News("refused", ERROR, [])),
        (["failed", ERROR], News("failed", ERROR, [])),
        (["ended", None], News("ended", None, [])),
        (["ended", ERROR], News("ended", ERROR, [])),
    ],
)
def test_what_a_worker_says_is_read(message: Any, news: News) -> None:
    """Kind, content, and the places of large byte strings."""
    assert read_news(message) == news


@pytest.mark.parametrize(
    "message",
    [
        *(5, None, {}, [], ["reply"], ["reply", 1, 2], ["reply", None, [1, 0, 5]], ["reply", None, ["a", 0, 5]]),
        *(["started", [1]], ["started", None], ["failed", None], ["failed", {"type": "E"}], ["refused", "no"]),
        *(["ended"], ["ended", 5], ["ready", None], ["other", None]),
    ],
    ids=repr,
)
def test_what_no_worker_says_is_refused(message: Any) -> None:
    """With what it was."""
    with pytest.raises(FrameError, match="it said what no worker says"):
        read_news(message)


def test_a_first_word_says_whether_it_is_ready() -> None:
    """Or why its actor can't be imported; anything else is none."""
    assert read_readiness(["ready", None]) is None
    assert read_readiness(["failed", UNIMPORTED]) == UNIMPORTED
    for message in (["ready"], ["failed", ERROR], ["failed", {"unguarded": True}], ["started", []], 5):
        with pytest.raises(FrameError, match="it said what no worker says"):
            read_readiness(message)


_values: Any = st.recursive(
    st.none() | st.integers() | st.sampled_from(["reply", "ended", "failed", "started", "ready", "type", "unguarded"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3),
    max_leaves=12,
)


@given(message=_values)
def test_any_message_is_read_or_refused(message: Any) -> None:
    """Nothing else comes out of it."""
    for read in (read_news, read_readiness):
        with suppress(FrameError):
            read(message)
