"""Unit: large byte strings are taken out of a message into sealed memory, and put back as what was taken."""

from __future__ import annotations

import os
from collections import deque
from typing import Any

import pytest

from turnkeeper.runtime.frames import FrameError
from turnkeeper.runtime.large_bytes import LARGE_BYTES, Memory, put_back, take_out

LARGE = bytes(range(256)) * (LARGE_BYTES // 256)


@pytest.mark.parametrize(
    ("arguments", "keywords", "taken"),
    [
        ([LARGE], {}, [0]),
        ([1, LARGE, "text", bytearray(LARGE + b"more")], {}, [1, 3]),
        ([None], {"page": memoryview(LARGE), "number": 2}, ["page"]),
        ([memoryview(LARGE).cast("I")], {"cover": LARGE[::-1], "back": LARGE}, [0, "cover", "back"]),
    ],
)
def test_large_byte_strings_are_put_back_where_they_were(
    arguments: list[Any], keywords: dict[str, Any], taken: list[Any]
) -> None:
    """Each in its own place, as a read-only view; the rest, and what was given, isn't touched."""
    given = list(arguments), dict(keywords)
    slim = take_out(arguments, keywords)
    assert (arguments, keywords) == given
    assert [place[0] for place in slim.places] == taken
    assert all((slim.arguments if isinstance(key, int) else slim.keywords)[key] is None for key in taken)
    memory = slim.copied()
    assert memory is not None
    put_back(slim.arguments, slim.keywords, slim.places, deque([memory]))
    for before, after in zip([*arguments, *keywords.values()], [*slim.arguments, *slim.keywords.values()], strict=True):
        if isinstance(after, memoryview):
            assert after.readonly
            assert bytes(after) == bytes(before)
        else:
            assert after is before


@pytest.mark.parametrize(
    "value", [LARGE[:-1], memoryview(LARGE + LARGE)[::2], [LARGE], {"page": LARGE}, "x" * LARGE_BYTES]
)
def test_what_is_small_or_lies_deeper_stays(value: Any) -> None:
    """It goes as a part of the frame, and no memory is made."""
    slim = take_out([value], {})
    assert slim.arguments[0] is value
    assert (slim.places, slim.large, slim.size, slim.copied()) == ([], [], 0, None)


def test_memory_ends_with_what_maps_it() -> None:
    """The descriptors are closed when nobody has the message or its views any more."""
    before = os.listdir("/proc/self/fd")
    slim = take_out([LARGE], {})
    memory = slim.copied()
    assert memory is not None
    put_back(slim.arguments, {}, slim.places, deque([memory]))
    assert len(os.listdir("/proc/self/fd")) > len(before)
    del slim, memory
    assert os.listdir("/proc/self/fd") == before


def test_memory_that_could_change_is_refused() -> None:
    """Its other side could cut it, which would kill whoever reads."""
    memory = Memory(os.memfd_create("open", os.MFD_ALLOW_SEALING))
    os.truncate(memory.descriptor, LARGE_BYTES)
    with pytest.raises(FrameError, match="isn't sealed"):
        put_back([None], {}, [[0, 0, LARGE_BYTES]], deque([memory]))


@pytest.mark.parametrize(("start", "length"), [(1, LARGE_BYTES), (-1, 2), (0, LARGE_BYTES + 1), (0, 0), (5, -2)])
def test_places_outside_of_the_memory_are_refused(start: int, length: int) -> None:
    """Nothing is put back then."""
    memory = take_out([LARGE], {}).copied()
    assert memory is not None
    arguments: list[Any] = [None]
    with pytest.raises(FrameError, match="aren't in memory of 1,048,576"):
        put_back(arguments, {}, [[0, start, length]], deque([memory]))
    assert arguments == [None]


def test_memory_that_did_not_come_is_an_error_of_the_stream() -> None:
    """A message names places, and no descriptor came with it."""
    with pytest.raises(FrameError, match="didn't come"):
        put_back([None], {}, [[0, 0, 1]], deque())
