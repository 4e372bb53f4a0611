"""Ctrl-C at any moment, without leaving anything behind: it is heard where the program waits, and nowhere else.

An exception that could come between a mount and the note of it, or in the middle of the cleaning up, would leave the
mount. So SIGINT, SIGTERM and SIGHUP are only written down, and raised by `pause`, by `checkpoint` and within `raising`:
whoever changes something that has to be put right again calls none of these until it is written down how.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """The signals that end a program, while it is entered. For the main thread, and one at a time."""

    def __init__(self) -> None:
        self._arrived: int | None = None
        self._is_raising = False
        self._awake, self._waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def __enter__(self) -> Interrupts:
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._awake)
        os.close(self._waker)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._arrived = number
        if self._is_raising:
            self._is_raising = False  # whoever cleans up is let to
            self.checkpoint()
        else:
            os.write(self._waker, b"!")

    def checkpoint(self) -> None:
        """Raise KeyboardInterrupt, or SystemExit for another signal than Ctrl-C's, if one has come."""
        if self._arrived == signal.SIGINT:
            raise KeyboardInterrupt
        if self._arrived is not None:
            raise SystemExit(128 + self._arrived)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until a signal has come, which is raised as by `checkpoint`."""
        deadline = time.monotonic() + seconds
        self.checkpoint()
        while (left := deadline - time.monotonic()) > 0:
            select.select([self._awake], [], [], left)
            self.checkpoint()

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Let the first signal be raised wherever the body is: it only computes, or cleans up after itself."""
        self._is_raising = True
        try:
            self.checkpoint()
            yield
        finally:
            self._is_raising = False
