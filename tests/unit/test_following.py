"""Unit: the patterns by which followers choose streams and types."""

from __future__ import annotations

import pytest

from turnkeeper.actors.reading.following import pattern_matcher


@pytest.mark.parametrize(
    ("patterns", "fitting", "other"),
    [
        ([], "anything", None),
        (["turn/start"], "turn/start", "turn/start2"),
        (["turn/*"], "turn/end", "my/turn/end"),
        (["*/end"], "turn/end", "turn/end/"),
        (["*"], "", None),
        (["a*c*e"], "abcde", "abcd"),
        (["my/type", "user/*"], "user/message", "assistant/message"),
        (["a.c"], "a.c", "abc"),
        (["a[bc]?"], "a[bc]?", "abx"),
        (["line*"], "line\nbreak", "a line"),
    ],
)
def test_a_star_stands_for_anything_and_nothing_else_does(patterns: list[str], fitting: str, other: str | None) -> None:
    """Whole texts fit, characters that mean something elsewhere are plain, and no pattern fits all."""
    fits = pattern_matcher(patterns)
    assert fits(fitting)
    assert other is None or not fits(other)
