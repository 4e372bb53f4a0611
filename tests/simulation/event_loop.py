"""The event loop of a story: trio's, but nothing in it comes from outside.

Its clock stands still until it is told that time passes. Instead of asking the operating system for news when no task
can run, it lets the story go on, which is the one that makes news. The order in which tasks run follows from a seed.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

import trio
import trio._core._run as trio_run
from trio.lowlevel import Abort, Task


class EventLoop(trio.abc.Clock):
    """The clock of trio's loop, and what it waits at when no task can run."""

    def __init__(self) -> None:
        self.now = 0.0
        self._story: Task | None = None
        self._called: Task | None = None

    # -- What the story does

    def jump(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self.now += seconds

    async def all_wait(self) -> None:
        """Wait until no other task can run; of all tasks the story's alone does that."""
        self._story = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._give_up)

    def _give_up(self, _: object) -> Abort:
        self._story = None
        return Abort.SUCCEEDED

    # -- What trio does with a clock

    def start_clock(self) -> None:
        """Do nothing: it stands still."""

    def current_time(self) -> float:
        """Give the seconds since the story began."""
        return self.now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Give how long no task can run."""
        return max(0.0, deadline - self.now)

    # -- What trio does with the operating system's events

    def get_events(self, timeout: float) -> bool:
        """Say whether it is the story's turn: nobody else has anything to do now."""
        return timeout > 0

    def process_events(self, is_quiet: bool) -> None:
        """Let the story go on if it is its turn; behind its end, trio calls itself as other threads would call it."""
        if is_quiet:
            task, self._story = self._story or self._called, None
            assert task is not None, "no task can run, and none waits for that"
            trio.lowlevel.reschedule(task)

    async def wait_readable(self, _: object) -> None:
        """Wait until trio is called from outside its tasks."""
        self._called = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(lambda _: Abort.SUCCEEDED)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class _Order(random.Random):
    """What trio draws the order of tasks from, which are mostly one or two."""

    def shuffle(self, tasks: Any) -> None:
        if len(tasks) > 1:
            super().shuffle(tasks)


def run(seed: int, main: Callable[[EventLoop], Awaitable[None]]) -> None:
    """Run `main` with a loop of its own; raises what it raises."""
    loop = EventLoop()
    changes = {"_ALLOW_DETERMINISTIC_SCHEDULING": True, "_r": _Order(seed), "TheIOManager": lambda: loop}
    options = vars(trio_run)
    before = {name: options[name] for name in changes}
    with ExitStack() as ending:
        ending.callback(options.update, before)
        options.update(changes)
        gc.disable()  # a fifth of the time; what a story leaves is collected behind it
        ending.callback(gc.enable)
        trio.run(main, loop, clock=loop)
