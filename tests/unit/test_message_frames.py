"""Contract of the frames that carry what callers give: what can't cross is their mistake, named as they know it."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.runtime.errors import MessageTooLarge
from turnkeeper.runtime.frames import FRAME_BYTES_MAX, encode_frame
from turnkeeper.runtime.message_frames import encode_message


def test_what_can_cross_is_the_frame_that_it_always_was() -> None:
    """Checking changes nothing."""
    assert encode_message(["ask", (1, b"two")], arguments=1) == encode_frame(["ask", [1, b"two"]])


@pytest.mark.parametrize(
    ("arguments", "keywords", "place"),
    [
        ([1, {"deep": [{1, 2}]}], {}, r"^arguments\[1\]\['deep'\]\[0\] can't cross .*: builtins.set is not a plain"),
        ([], {"text": "\ud800"}, r"^keywords\['text'\] can't cross between processes: text with a lone surrogate"),
    ],
)
def test_a_value_that_cannot_cross_is_named_as_its_giver_knows_it(
    arguments: list[Any], keywords: dict[str, Any], place: str
) -> None:
    """Not by its place in the frame."""
    with pytest.raises(TypeError, match=place):
        encode_message(["ask", arguments, keywords], arguments=1, keywords=2)


def test_items_of_a_map_are_named_by_their_keys() -> None:
    """As those of a list are by their index."""
    with pytest.raises(TypeError, match=r"^arguments\[0\] can't cross"):
        encode_message({"function": "f", "arguments": [object()]}, arguments="arguments")


def test_what_nobody_gave_is_named_by_its_place() -> None:
    """It would be a mistake of ours."""
    with pytest.raises(TypeError, match=r"^message\[0\] can't cross"):
        encode_message([object(), []], arguments=1)


def test_nesting_that_never_ends_is_named_too() -> None:
    """A list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match=r"^reply can't cross between processes: it is nested too deep"):
        encode_message(["reply", endless], reply=1)


def test_a_key_that_only_the_reader_would_refuse_is_found() -> None:
    """It packs, and can't be built again as a key."""
    with pytest.raises(TypeError, match=r"can't cross between processes: .*unhashable"):
        encode_message(["ask", [{("a", "tuple"): 1}]], arguments=1)


def test_a_message_that_is_too_large_says_its_size_and_the_limit() -> None:
    """And which limit that is, and what to do."""
    with pytest.raises(MessageTooLarge, match=r"is over the limit of 16,777,216 between processes: put its") as caught:
        encode_message(["ask", "x" * FRAME_BYTES_MAX])
    assert (caught.value.size > FRAME_BYTES_MAX, caught.value.limit, caught.value.holder) == (
        True,
        FRAME_BYTES_MAX,
        "frame",
    )
