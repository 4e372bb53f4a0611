"""Frames over a socket, on trio and on asyncio."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import anyio
import pytest

from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError, encode_frame

pytestmark = pytest.mark.anyio


@pytest.fixture
def pair() -> Iterator[tuple[FrameSocket, FrameSocket]]:
    """Both ends of a connection."""
    left, right = (FrameSocket(end, anyio) for end in socket.socketpair())
    yield left, right
    for end in (left, right):
        end.unsent.clear()


@pytest.fixture
def raw() -> Iterator[tuple[FrameSocket, socket.socket]]:
    """One end, and the bare socket at the other."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield FrameSocket(ours, anyio), theirs


async def test_what_is_sent_is_received_in_order(pair: tuple[FrameSocket, FrameSocket]) -> None:
    """Also when all of it waits in the socket; the end of the connection is None, or no frames."""
    left, right = pair
    for number in range(3):
        await left.send({"number": number})
    left.close()
    assert [(await right.receive())["number"] for _ in range(3)] == [0, 1, 2]
    assert await right.receive() is None
    assert await right.receive_all() == []
    right.close()


async def test_what_the_system_does_not_take_waits_and_keeps_its_place(pair: tuple[FrameSocket, FrameSocket]) -> None:
    """A frame larger than the socket's buffer, and the small one behind it, arrive once the other side reads."""
    left, right = pair
    large, small = encode_frame(b"x" * 2_000_000), encode_frame("small")
    assert left.send_nowait(large) is False
    assert left.send_nowait(small) is False
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(left.drain)
        assert await right.receive() == b"x" * 2_000_000
        assert await right.receive() == "small"
    assert not left.unsent
    assert left.send_nowait(small) is True
    left.close()
    right.close()


async def test_a_cancelled_receive_loses_nothing(raw: tuple[FrameSocket, socket.socket]) -> None:
    """Half a frame that came before the cancellation is half of the next one received."""
    frames, theirs = raw
    frame = encode_frame(["a", "message"])
    theirs.sendall(frame[:5])
    with anyio.move_on_after(0.01):
        await frames.receive()
    theirs.sendall(frame[5:])
    assert await frames.receive() == ["a", "message"]
    frames.close()


async def test_nonsense_is_a_frame_error(raw: tuple[FrameSocket, socket.socket]) -> None:
    """Whoever receives it has to end the connection."""
    frames, theirs = raw
    theirs.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(FrameError):
        await frames.receive()
    frames.close()


async def test_a_broken_connection_is_an_os_error(raw: tuple[FrameSocket, socket.socket]) -> None:
    """On either loop, as it is for one that this side has closed."""
    frames, theirs = raw
    theirs.close()
    with pytest.raises(OSError, match="pipe"):
        await frames.send("a")
    frames.close()
    frames.close()
    with pytest.raises(OSError, match="closed"):
        await frames.receive()


async def test_closing_wakes_who_waits(raw: tuple[FrameSocket, socket.socket]) -> None:
    """A task that waits for frames ends with the loop's own error for that."""
    frames, _ = raw
    async with anyio.create_task_group() as tasks:

        async def wait() -> None:
            with pytest.raises(anyio.ClosedResourceError):
                await frames.receive()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        frames.close()
