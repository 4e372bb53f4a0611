"""Standard input, read without blocking an event loop: line by line, without holding more than one, or whole."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import suppress

import anyio

READ_BYTES = 64 * 1024


async def input_lines(descriptor: int, bytes_max: int) -> AsyncIterator[bytes]:
    """Yield each line with its newline, which the last one may lack.

    Of a line that is longer than `bytes_max` the beginning is yielded, longer than that by one byte at least, and then
    the lines end: whoever reads them refuses it. Raises OSError.
    """
    pending = b""
    while content := await _read(descriptor):
        *lines, rest = (pending + content).split(b"\n")
        for line in lines:
            yield line + b"\n"
        pending = rest
        if len(pending) > bytes_max:
            break
    if pending:
        yield pending


async def input_whole(descriptor: int, bytes_max: int) -> bytes:
    """Give all that comes up to the input's end; of what is over `bytes_max` long, a beginning that is, too.

    Raises OSError.
    """
    content = b""
    while len(content) <= bytes_max and (piece := await _read(descriptor)):
        content += piece
    return content


async def _read(descriptor: int) -> bytes:
    """Wait for bytes without a thread: one that is stuck in a read would outlive Ctrl-C."""
    while True:
        with suppress(PermissionError):  # epoll(7) takes no regular files, which are always readable
            await anyio.wait_readable(descriptor)
        with suppress(BlockingIOError):
            return os.read(descriptor, READ_BYTES)
