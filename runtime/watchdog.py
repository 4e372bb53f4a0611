"""Notice from a thread that an event loop doesn't turn, and say where it is stuck.

A task of the loop beats and a thread looks whether it did. Only the thread's own looks count as time, so a process that
was stopped or whose machine slept isn't taken for a blocked one. What is done about a blockage is the owner's affair:
`Watchdog` tells of it once, from its thread. A thread of Python's: code in C that never gives up the interpreter's
lock holds it up as well, and is told of when it lets go. Standard library only.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from types import FrameType

PROCESS_BLOCKED_SECONDS = 30.0
"""How long the loop of a process of ours may be blocked, if nothing else is said, before it is ended."""

HOST_BLOCKED_SECONDS = 5.0
"""How long a host's loop may be blocked before the host is told."""

LOOKS = 5
"""How often the thread looks within that time."""

FRAMES_MAX = 100
"""How many frames of a thread are told, the innermost ones."""


@dataclass(frozen=True, slots=True)
class Blockage:
    """A loop that hasn't turned for `seconds`, in this process; `stacks` says where all of its threads are."""

    seconds: float
    stacks: str

    def __str__(self) -> str:
        return f"the event loop was blocked for {self.seconds:g} s"


class Watchdog:
    """Tell of each blockage of a loop once, when it has lasted `blocked_seconds`.

    `tell` is called in the watching thread, while the loop is still blocked. With `excuse_disk`, time in which the
    loop's thread waits for a disk doesn't count.
    """

    def __init__(self, blocked_seconds: float, tell: Callable[[Blockage], None], *, excuse_disk: bool = False) -> None:
        check_blocked_seconds(blocked_seconds)
        self._blocked_seconds = blocked_seconds
        self._tell = tell
        self._excuse_disk = excuse_disk
        self._beats = 0
        self._ended = threading.Event()

    async def watch(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Watch the loop in which this runs until it is cancelled; `sleep` is the loop's own."""
        self.begin()
        await self.beat(sleep)

    def begin(self) -> None:
        """Begin to look at the loop of this thread, which has to `beat` from now on."""
        thread = threading.Thread(
            target=self._look, args=(threading.get_ident(), threading.get_native_id()), name="watchdog", daemon=True
        )
        thread.start()

    async def beat(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Show that the loop turns, until cancelled, which ends the watching; `sleep` is the loop's own."""
        try:
            while True:
                await sleep(self._blocked_seconds / LOOKS)
                self._beats += 1
        finally:
            # Not joined: it may be telling of a blockage, which may take any time.
            self._ended.set()

    def _look(self, watched: int, native: int) -> None:
        seen, looks = -1, 0
        while not self._ended.wait(self._blocked_seconds / LOOKS):
            if self._beats != seen:
                seen, looks = self._beats, 0
            elif not (self._excuse_disk and waits_for_disk(native)):
                looks += 1
                # One more than fit: the beat may be late by one look without any blockage.
                if looks == LOOKS + 1:
                    self._tell(Blockage(self._blocked_seconds, stacks_of_all(watched)))


def check_blocked_seconds(seconds: float | None) -> None:
    """Raise ValueError where a loop can't be watched so; None is one that isn't watched."""
    if seconds is not None and not seconds > 0:
        raise ValueError(f"a loop is blocked after some seconds, not {seconds!r}")


def waits_for_disk(thread: int) -> bool:
    """Say whether the thread of this process, by its native id, is in an uninterruptible wait."""
    try:
        with open(f"/proc/self/task/{thread}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "D"
    except OSError:
        return False


def is_traced() -> bool:
    """Say whether a debugger holds this process."""
    with open("/proc/self/status") as status:
        return any(line.startswith("TracerPid:") and line.split()[1] != "0" for line in status)


def stacks_of_all(first: int) -> str:
    """Give the stacks of this process's threads but the calling one, the `first` thread's first.

    Without the lines of source: what would read those may wait for a lock that a blocked thread holds.
    """
    frames = _current_frames()
    del frames[threading.get_ident()]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    order = sorted(frames, key=lambda ident: ident != first)
    return "".join(_stack_of(names.get(ident, "unknown"), frames[ident]) for ident in order)


def _current_frames() -> dict[int, FrameType]:
    """Give each thread's innermost frame, with the collector at rest.

    CPython 3.11 holds the lock of the list of threads meanwhile, and makes objects. Would these set off the collector,
    and that find a `threading.local` that nobody has any more, it would wait for its own lock, and all threads for it.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def _stack_of(name: str, innermost: FrameType) -> str:
    frames = list(_outwards(innermost))
    told = [f'  File "{each.f_code.co_filename}", line {each.f_lineno}, in {each.f_code.co_name}\n' for each in frames]
    return f"Thread {name} (most recent call last):\n{''.join(reversed(told))}"


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    for _ in range(FRAMES_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
