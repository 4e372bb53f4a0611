"""Signals that end a program, heard where it waits and nowhere else; and deeds in the order of their moments."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from turnkeeper.benchmarks.chaos.timeline import Timeline
from turnkeeper.benchmarks.measuring.interrupts import Interrupts

LONG_SECONDS = 30.0


def interrupt(number: signal.Signals = signal.SIGINT) -> None:
    """Send a signal to this process, which handles it before the next line."""
    os.kill(os.getpid(), number)


def test_a_signal_is_raised_at_the_next_pause_and_not_before() -> None:
    """What is being done is done to its end."""
    with Interrupts() as interrupts:
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupts.pause(LONG_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_end_the_program_with_their_code(number: signal.Signals) -> None:
    """As shells count: 128 and the signal's number."""
    with Interrupts() as interrupts:
        interrupt(number)
        with pytest.raises(SystemExit) as caught:
            interrupts.checkpoint()
    assert caught.value.code == 128 + number


def test_a_pause_ends_when_a_signal_comes() -> None:
    """Nobody waits for the end of a long one."""
    began = time.monotonic()
    with Interrupts() as interrupts:
        threading.Timer(0.05, interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            interrupts.pause(LONG_SECONDS)
    assert time.monotonic() - began < LONG_SECONDS / 2


def test_where_it_only_computes_a_signal_is_raised_at_once() -> None:
    """Also one that has come before; and behind that place it is held back again."""
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.raising():
            interrupt()
        with pytest.raises(KeyboardInterrupt), interrupts.raising():
            pytest.fail("it begins")
        interrupt()


def test_who_cleans_up_behind_a_signal_is_not_struck_by_another() -> None:
    """An impatient second Ctrl-C is held back: it would leave half of it."""
    cleaned = []

    def work(interrupts: Interrupts) -> None:
        with interrupts.raising():
            try:
                interrupt()
            finally:
                interrupt()
                cleaned.append("all")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        work(interrupts)
    assert cleaned == ["all"]


def test_the_handlers_are_put_back() -> None:
    """A program that goes on has its own again."""
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_deeds_are_done_in_the_order_of_their_moments_until_the_end() -> None:
    """Those that are added meanwhile, too; what would come behind the end is forgotten."""
    done: list[str] = []
    with Interrupts() as interrupts:
        timeline = Timeline(interrupts)
        timeline.at(0.02, lambda: done.append("second"))
        timeline.at(0.0, lambda: done.append("first"))
        timeline.at(0.02, lambda: timeline.at(0.03, lambda: done.append("third")))
        timeline.at(5.0, lambda: done.append("never"))
        timeline.run(0.05)
        assert timeline.now >= 0.05
        timeline.run(0.06)
    assert done == ["first", "second", "third"]


def test_an_interrupt_between_two_deeds_is_heard() -> None:
    """The next deed isn't begun."""
    done: list[str] = []
    with Interrupts() as interrupts:
        timeline = Timeline(interrupts)
        timeline.at(0.0, interrupt)
        timeline.at(0.0, lambda: done.append("never"))
        with pytest.raises(KeyboardInterrupt):
            timeline.run(LONG_SECONDS)
    assert done == []
