"""Unit: what a process for CPU work makes of an order, called here as it is there."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.runtime.cpu.job import encode_order, run_job
from turnkeeper.runtime.frames import LENGTH_BYTES, FrameError, unpack
from turnkeeper.runtime.large_bytes import LARGE_BYTES, take_out


def answer_to(order: bytes) -> Any:
    """Give what is answered to the frame of an order whose memory, if it tells of any, didn't come with it."""
    return unpack(run_job(order[LENGTH_BYTES:], None, "/nowhere")[LENGTH_BYTES:])


def test_an_order_is_answered_by_what_its_function_returns() -> None:
    """Found by its name, with the arguments that are in the order."""
    assert answer_to(encode_order("math:gcd", {}, take_out([12, 18], {}))) == ["result", 6]


def test_an_order_whose_memory_was_lost_fails() -> None:
    """The function isn't called without it: a keeper may have had no descriptor left."""
    kind, error = answer_to(encode_order("builtins:len", {}, take_out([bytes(LARGE_BYTES)], {})))
    assert (kind, error["message"]) == ("failed", "a message tells of memory that didn't come with it")


def test_a_result_that_there_is_no_room_for_fails() -> None:
    """What the function returned isn't cut."""
    kind, error = answer_to(encode_order("builtins:bytes", {}, take_out([LARGE_BYTES], {})))
    assert (kind, error["type"]) == ("failed", "FileNotFoundError")


def test_what_is_no_order_is_refused() -> None:
    """It can only come from a keeper that is broken."""
    with pytest.raises(FrameError, match="is no message"):
        run_job(b"\xc1", None, "/nowhere")
