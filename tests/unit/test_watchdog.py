"""Unit: a blocked event loop is noticed once, told with where it is stuck, and nothing else is taken for one."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import pytest

from turnkeeper.runtime import watchdog
from turnkeeper.runtime.watchdog import FRAMES_MAX, Blockage, Watchdog, is_traced, stacks_of_all, waits_for_disk

from ..served import finish, start_python

BLOCKED_SECONDS = 0.05
COLLECTED_MEANWHILE = """
import gc, threading
from turnkeeper.runtime.watchdog import stacks_of_all

class Lost:
    def __init__(self):
        self.itself, self.local = self, threading.local()
        self.local.owner = self

def wait(there, over):
    there.release()
    over.wait()

for number in range(1, 40):
    there, over = threading.Semaphore(0), threading.Event()
    threads = [threading.Thread(target=wait, args=(there, over), daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
        there.acquire()
    gc.collect()
    gc.disable()
    Lost()
    gc.set_threshold(gc.get_count()[0] + number)
    gc.enable()
    stacks_of_all(0)
    assert gc.isenabled()
    gc.set_threshold(700)
    over.set()
    for thread in threads:
        thread.join()
"""
"""Has the collector set off at one moment after the other while stacks are taken, with what it must not find then."""

DEADLINE_SECONDS = 30


class Listener:
    """Takes what a watchdog tells, in its thread."""

    def __init__(self) -> None:
        self.heard: list[Blockage] = []
        self._told = threading.Semaphore(0)

    def tell(self, blockage: Blockage) -> None:
        """Be told."""
        self.heard.append(blockage)
        self._told.release()

    def block_this_loop_until_told(self) -> None:
        """Block whoever calls until one more was told."""
        assert self._told.acquire(timeout=DEADLINE_SECONDS)


@asynccontextmanager
async def watched(dog: Watchdog) -> AsyncIterator[None]:
    """Have this loop watched."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            dog.begin()
            tasks.start_soon(dog.beat, anyio.sleep)
            yield
            tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_blockage_is_told_while_it_lasts_with_where_the_loop_is() -> None:
    """The blocked thread's stack comes first, down to the call that blocks it."""
    listener = Listener()
    async with watched(Watchdog(BLOCKED_SECONDS, listener.tell)):
        listener.block_this_loop_until_told()
    (blockage,) = listener.heard
    assert str(blockage) == "the event loop was blocked for 0.05 s"
    first = blockage.stacks.split("\nThread ")[0]
    assert first.startswith("Thread MainThread (most recent call last):\n")
    assert "in block_this_loop_until_told\n" in first
    assert "in stacks_of_all" not in blockage.stacks


@pytest.mark.anyio
async def test_each_blockage_is_told_once() -> None:
    """However long it lasts; and the next one is told again, after the loop has turned."""
    listener = Listener()
    async with watched(Watchdog(BLOCKED_SECONDS, listener.tell)):
        listener.block_this_loop_until_told()
        time.sleep(4 * BLOCKED_SECONDS)  # noqa: ASYNC251 - this blocks on purpose
        assert len(listener.heard) == 1
        await anyio.sleep(2 * BLOCKED_SECONDS)
        listener.block_this_loop_until_told()
    assert len(listener.heard) == 2


@pytest.mark.anyio
async def test_a_loop_that_turns_and_one_that_is_not_watched_any_more_are_not_told() -> None:
    """The thread ends with the watching, whatever the loop does then."""
    listener = Listener()
    before = threading.active_count()
    async with watched(Watchdog(10 * BLOCKED_SECONDS, listener.tell)):
        await anyio.sleep(20 * BLOCKED_SECONDS)
    while threading.active_count() > before:
        time.sleep(0.001)  # noqa: ASYNC251 - and so does this
    assert listener.heard == []


def looks_of(monkeypatch: pytest.MonkeyPatch, states: Iterator[bool], looks: int) -> list[Blockage]:
    """Have a loop that never beats looked at so many times, waiting for the disk as `states` says at each look."""
    heard: list[Blockage] = []
    monkeypatch.setattr(watchdog, "waits_for_disk", lambda thread: next(states))
    dog = Watchdog(BLOCKED_SECONDS, heard.append, excuse_disk=True)
    done = iter([False] * looks + [True])
    monkeypatch.setattr(dog, "_ended", type("Ended", (), {"wait": lambda self, seconds: next(done)})())
    dog._look(threading.get_ident(), threading.get_native_id())
    return heard


@pytest.mark.parametrize(
    ("waits", "told"), [([True] * 50, 0), ([False] * 50, 1), ([True, True, False] * 5, 0), ([True, False] * 7, 1)]
)
def test_waiting_for_a_disk_is_excused(monkeypatch: pytest.MonkeyPatch, waits: list[bool], told: int) -> None:
    """Such time doesn't count, and that between does: six looks of it are a blockage."""
    assert len(looks_of(monkeypatch, iter(waits), len(waits))) == told


def test_the_state_of_a_thread_is_read_and_one_that_is_gone_waits_for_nothing() -> None:
    """This thread runs; so it doesn't wait for a disk, and neither does one that has ended. Nobody traces us."""
    assert not waits_for_disk(threading.get_native_id())
    assert not waits_for_disk(2**22 + 1)
    assert not is_traced()


def test_a_deep_stack_is_cut_at_its_outer_end() -> None:
    """The innermost frames are told, and a line in all for each."""
    release, deep = threading.Event(), threading.Event()

    def descend(depth: int) -> None:
        if depth:
            descend(depth - 1)
        else:
            deep.set()
            release.wait(DEADLINE_SECONDS)

    thread = threading.Thread(target=descend, args=(2 * FRAMES_MAX,), name="deep one")
    thread.start()
    deep.wait(DEADLINE_SECONDS)
    told = stacks_of_all(thread.ident or 0).split("Thread ")[1]
    release.set()
    thread.join()
    assert told.startswith("deep one (most recent call last):\n")
    assert told.count("\n") == FRAMES_MAX + 1
    assert "in wait\n" in told.splitlines(keepends=True)[-1]


def test_stacks_are_taken_whatever_the_collector_would_find_meanwhile() -> None:
    """CPython 3.11 would stand still for good, with the whole process, where it found a lost `threading.local`."""
    finish(start_python(COLLECTED_MEANWHILE), seconds=DEADLINE_SECONDS)


def test_no_loop_is_blocked_after_no_time() -> None:
    """It would be told at each look."""
    with pytest.raises(ValueError, match="after some seconds, not 0"):
        Watchdog(0, print)
