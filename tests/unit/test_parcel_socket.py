"""Frames with memory over a socket, on trio and on asyncio."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import anyio
import pytest

from turnkeeper.runtime.cpu.parcel_socket import ParcelSocket
from turnkeeper.runtime.frames import FrameError, encode_frame
from turnkeeper.runtime.large_bytes import LARGE_BYTES, Parcel, put_back, take_out

pytestmark = pytest.mark.anyio


@pytest.fixture
def pair() -> Iterator[tuple[ParcelSocket, ParcelSocket]]:
    """Both ends of a connection."""
    left, right = (ParcelSocket(end, anyio) for end in socket.socketpair())
    yield left, right
    left.close()
    right.close()


async def test_a_frame_arrives_whole_with_its_memory(pair: tuple[ParcelSocket, ParcelSocket]) -> None:
    """Also one that is longer than the socket's buffer, with others before and behind it."""
    left, right = pair
    slim = take_out([bytes(LARGE_BYTES)], {})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(left.send, Parcel(encode_frame("first")))
        assert await right.receive() == "first"
        assert not right.memories
        tasks.start_soon(left.send, Parcel(encode_frame(["x" * 3_000_000, slim.places]), slim.copied()))
        text, places = await right.receive()
        assert text == "x" * 3_000_000
        values = [None]
        put_back(values, {}, places, right.memories)
        assert values == [bytes(LARGE_BYTES)]
        await left.send(Parcel(encode_frame("last")))
        assert await right.receive() == "last"


async def test_frames_can_be_left_packed() -> None:
    """For whoever only hands them on."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(encode_frame({"key": 1}))
        assert await ParcelSocket(ours, anyio, read=bytes).receive() == encode_frame({"key": 1})[4:]


async def test_who_has_ended_its_half_still_hears(pair: tuple[ParcelSocket, ParcelSocket]) -> None:
    """The other side is told that nothing more comes, and may answer."""
    left, right = pair
    left.end()
    assert await right.receive() is None
    await right.send(Parcel(encode_frame("answer")))
    right.end()
    assert [await left.receive(), await left.receive()] == ["answer", None]
    right.close()
    with pytest.raises(OSError, match="Broken pipe"):
        await left.send(Parcel(encode_frame("late")))
    left.end()


async def test_a_cancelled_wait_loses_nothing(pair: tuple[ParcelSocket, ParcelSocket]) -> None:
    """What had come of a frame is there for the next wait."""
    left, right = pair
    frame = encode_frame("a message")
    await left.send(Parcel(frame[:5]))
    with anyio.move_on_after(0.01):
        await right.receive()
    await left.send(Parcel(frame[5:]))
    assert await right.receive() == "a message"


async def test_what_is_no_frame_is_refused(pair: tuple[ParcelSocket, ParcelSocket]) -> None:
    """With the one error of frames."""
    left, right = pair
    await left.send(Parcel(b"\xff\xff\xff\xffgarbage"))
    with pytest.raises(FrameError, match="over the limit"):
        await right.receive()
