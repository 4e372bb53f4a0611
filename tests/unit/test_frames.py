"""Contract of the frames: what goes in comes out, however it is cut, and what is no frame is refused with a reason."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.runtime.frames import FRAME_BYTES_MAX, FrameDecoder, FrameError, encode_frame

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(max_size=200)
)
messages = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(0, 9), inner, max_size=5),
)


def framed(body: bytes) -> bytes:
    """Put the right length before any body."""
    return len(body).to_bytes(4, "big") + body


@given(st.lists(messages, max_size=6), st.data())
def test_messages_survive_any_cutting_of_their_bytes(sent: list[Any], data: st.DataObject) -> None:
    """Whatever the pieces in which a stream arrives, the same messages come out in the same order."""
    stream = b"".join(map(encode_frame, sent))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, received = FrameDecoder(), []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:stop])
    decoder.finish()
    assert received == sent


@given(st.binary(max_size=300))
def test_any_bytes_give_messages_or_the_one_error(garbage: bytes) -> None:
    """No input makes the decoder raise anything but FrameError, alone or as the body of a well-formed frame."""
    for stream in (garbage, framed(garbage)):
        decoder = FrameDecoder()
        with suppress(FrameError):
            decoder.feed(stream)
            decoder.finish()


def test_a_message_is_given_as_soon_as_its_last_byte_is_there() -> None:
    """A decoder fed byte by byte gives each message with its last byte, neither earlier nor later."""
    first, second = encode_frame(["one"]), encode_frame({"two": 2})
    decoder = FrameDecoder()
    found = [
        (at, message) for at in range(len(first + second)) for message in decoder.feed((first + second)[at : at + 1])
    ]
    assert found == [(len(first) - 1, ["one"]), (len(first + second) - 1, {"two": 2})]


def test_bytes_and_text_stay_apart_and_tuples_become_lists() -> None:
    """Bytes arrive as bytes, text as text, a tuple as a list, and infinities unchanged."""
    (message,) = FrameDecoder().feed(encode_frame((b"\xff\x00", "ü\u2028", (1, 2), math.inf, bytearray(b"x"))))
    assert message == [b"\xff\x00", "ü\u2028", [1, 2], math.inf, b"x"]
    assert [type(value) for value in message] == [bytes, str, list, float, bytes]


def test_a_frame_at_the_limit_passes_and_one_byte_more_is_refused() -> None:
    """The limit counts the body; both sides hold it."""
    overhead = len(encode_frame(b"x" * 2**16)) - 4 - 2**16
    largest = bytes(FRAME_BYTES_MAX - overhead)
    (message,) = FrameDecoder().feed(encode_frame(largest))
    assert message == largest
    with pytest.raises(FrameError, match="16,777,217 bytes is over the limit of 16,777,216"):
        encode_frame(largest + b"x")


def test_an_oversized_frame_is_refused_by_its_length_alone() -> None:
    """The four bytes of a length over the limit are enough; nothing is kept for what they announce."""
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match="4,294,967,295 bytes is over the limit"):
        decoder.feed(b"\xff\xff\xff\xff" + bytes(1000))
    with pytest.raises(FrameError, match="4,294,967,295 bytes is over the limit"):
        decoder.feed(encode_frame("too late"))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="a byte that msgpack never uses"),
        pytest.param(b"\xc0\xc0", id="two values"),
        pytest.param(b"\xa5abc", id="text cut short"),
        pytest.param(b"\xa1\xff", id="text that is not UTF-8"),
        pytest.param(b"\x81\x90\x01", id="a list as a key"),
        pytest.param(b"\xd4\x05x", id="an extension"),
        pytest.param(b"\xc7\x00\x05", id="an empty extension"),
        pytest.param(b"\xd6\xff\x00\x00\x00\x00", id="a timestamp"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="an array of four thousand million"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="bytes of four gigabytes"),
        pytest.param(b"\x91" * 5000, id="nesting without end"),
        pytest.param(b"\xdd\x00\x00\x4e\x20" * 4000, id="a tower of arrays"),
    ],
)
def test_a_body_that_is_no_message_is_refused(body: bytes) -> None:
    """A frame whose body isn't exactly one plain value ends the stream, with a reason that gives its size."""
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match=f"a frame of {len(body):,} bytes is no message: .+"):
        decoder.feed(framed(body))
    with pytest.raises(FrameError, match="is no message"):
        decoder.finish()


def test_a_stream_that_ends_inside_a_frame_is_told_from_one_that_ends_between_frames() -> None:
    """Only an end inside a frame is an error."""
    whole = encode_frame(["whole"])
    decoder = FrameDecoder()
    assert decoder.feed(whole) == [["whole"]]
    decoder.finish()
    decoder.feed(whole[:3])
    with pytest.raises(FrameError, match="the stream ended inside a frame, after 3 of its bytes"):
        decoder.finish()


class Text(str):
    """A subclass of a plain type, which may cross as what it is."""


@pytest.mark.parametrize(
    ("message", "place"),
    [
        ({"op": {1, 2}}, r"message\['op'\] can't cross between processes: builtins.set is not a plain value"),
        ([0, [1, {"deep": object()}]], r"message\[1\]\[1\]\['deep'\] can't .*: builtins.object is not a plain value"),
        ([Text("fine"), 2**64], r"message\[1\] can't .*: the integer has more than 64 bits"),
        ([-(2**63) - 1], r"message\[0\] can't .*: the integer has more than 64 bits"),
        ({"text": "\ud800"}, r"message\['text'\] can't .*: text with a lone surrogate has no UTF-8 form"),
        ({frozenset(): 1}, r"key frozenset\(\) of message can't .*: builtins.frozenset is not a plain value"),
    ],
)
def test_a_value_that_cannot_cross_is_named_before_anything_is_sent(message: Any, place: str) -> None:
    """Encoding raises a TypeError that says where in the message the first such value stands."""
    with pytest.raises(TypeError, match=place):
        encode_frame(message)


def test_a_message_that_contains_itself_is_refused() -> None:
    """A cycle is a TypeError, not a crash."""
    cycle: list[Any] = []
    cycle.append({"again": cycle})
    with pytest.raises(TypeError, match="nested too deep, or contains itself"):
        encode_frame(cycle)


def test_an_unfinished_frame_costs_what_arrived_of_it() -> None:
    """A length just under the limit allocates nothing ahead of its bytes."""
    decoder = FrameDecoder()
    decoder.feed(FRAME_BYTES_MAX.to_bytes(4, "big"))
    assert decoder._unfinished.__alloc__() < 1024
