"""Unit: what a session's summary says of the types in its log."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.errors import TooLarge
from turnkeeper.actors.log_summary import SNAPSHOTS_KEPT, LogSummary
from turnkeeper.actors.vocabulary import Vocabulary, Word


def word(type: str = "my/own", **options: Any) -> Word:
    """Make a registered word."""
    vocabulary = Vocabulary()
    if type != "snapshot":
        vocabulary.register(type, **options)
    return vocabulary.word(type)


def appended(summary: LogSummary, seq: int, each: Word) -> dict[str, Any] | None:
    """Append an event of the word: give the patch, and take it."""
    patch = summary.patch(seq, each)
    summary.take(patch or {})
    return patch


def test_a_critical_type_is_named_once() -> None:
    """With the first event of it, beside those that were named before."""
    summary = LogSummary.from_summary({"critical": ["a/b"], "title": "x"})
    assert appended(summary, 4, word(critical=True)) == {"critical": ["a/b", "my/own"]}
    assert appended(summary, 5, word(critical=True)) is None
    assert appended(summary, 6, word()) is None


def test_a_version_is_noted_where_it_changes() -> None:
    """Version 1 is what an unnamed type was written in; who goes back to it is noted, too."""
    summary = LogSummary()
    assert appended(summary, 0, word(version=1)) is None
    assert appended(summary, 3, word(version=2)) == {"schemas": {"my/own": [[2, 3]]}}
    assert appended(summary, 4, word(version=2)) is None
    assert appended(summary, 5, word("my/other", version=7)) == {"schemas": {"my/own": [[2, 3]], "my/other": [[7, 5]]}}
    assert appended(summary, 9, word(version=1)) == {"schemas": {"my/own": [[2, 3], [1, 9]], "my/other": [[7, 5]]}}


def test_a_patch_counts_only_once_it_is_taken() -> None:
    """An event that is refused after all leaves nothing behind."""
    summary = LogSummary()
    for seq in (3, 8):
        assert summary.patch(seq, word(critical=True, version=2)) == {
            "critical": ["my/own"],
            "schemas": {"my/own": [[2, seq]]},
        }


def test_the_newest_snapshots_are_kept() -> None:
    """So many that some may be damaged, the latest last."""
    summary = LogSummary()
    for seq in range(SNAPSHOTS_KEPT + 3):
        appended(summary, seq, word("snapshot"))
    assert summary.snapshots == list(range(3, SNAPSHOTS_KEPT + 3))


def test_too_many_critical_types_are_refused_and_named() -> None:
    """A summary is small; what doesn't fit isn't stored, and what was there goes on."""
    summary = LogSummary([f"{'x' * 40}/{number}" for number in range(21)])
    assert appended(summary, 0, word("x/last", critical=True)) is not None
    with pytest.raises(TooLarge, match=r"critical and versioned types, with y{40}/1, has 1,0"):
        appended(summary, 1, word(f"{'y' * 40}/1", critical=True))
    assert summary.critical[-1] == "x/last"
    assert appended(summary, 99, word("snapshot")) == {"snapshots": [99]}


def test_a_prefix_has_what_began_in_it() -> None:
    """A fork at 10: versions and snapshots before it, and every critical type."""
    summary = LogSummary(["a/b"], {"x/y": [[2, 9], [3, 10]], "z/z": [[2, 10]]}, [4, 9, 10])
    assert summary.of_prefix(10) == LogSummary(["a/b"], {"x/y": [[2, 9]]}, [4, 9])


def test_a_copy_has_the_copied_events_numbers() -> None:
    """An event that is left out gives its number to the next one, with which its version is in force."""
    summary = LogSummary(["a/b"], {"x/y": [[2, 4], [3, 6]]}, [3, 9])
    copy = summary.renumbered(lambda seq: seq - 2 if seq > 5 else seq)
    assert copy == LogSummary(["a/b"], {"x/y": [[2, 4], [3, 4]]}, [3, 7])
    assert copy.as_members() == {"critical": ["a/b"], "schemas": {"x/y": [[2, 4], [3, 4]]}, "snapshots": [3, 7]}
    assert LogSummary().as_members() == {}
