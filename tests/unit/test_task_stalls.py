"""Silences of a task: told once each."""

from __future__ import annotations

from turnkeeper.actors.node.tasks.stall import StallWatch


def test_a_silence_is_told_once() -> None:
    """The first look after the time tells how long it has been silent; later ones tell nothing."""
    watch = StallWatch(10, since=100)
    due = watch.due
    assert due == 110
    assert watch.look(109.9, 0) is None
    assert watch.look(110.5, 0) == 10.5
    assert watch.due is None
    assert watch.look(500, 0) is None


def test_output_ends_a_silence() -> None:
    """After any output the time begins again, and the next silence is told, too; so after a truncation."""
    watch = StallWatch(10, since=0)
    assert watch.look(10, 0) == 10
    assert watch.look(15, 7) is None
    assert watch.due == 25
    assert watch.look(25, 7) == 10
    assert watch.look(30, 3) is None
    assert watch.look(40, 3) == 10


def test_a_silence_that_was_told_before_is_not_told_again() -> None:
    """Who takes over knows at which size a silence was told; the same silence is over only with new output."""
    watch = StallWatch(10, since=0, output_bytes=7, told=7)
    assert watch.due is None
    assert watch.look(1000, 7) is None
    assert watch.look(1001, 8) is None
    assert watch.look(1011, 8) == 10


def test_another_silence_than_the_told_one_is_told() -> None:
    """Told of at another size, the present silence is a new one; it counts from the last write."""
    watch = StallWatch(10, since=-60, output_bytes=9, told=7)
    assert watch.due == -50
    assert watch.look(0, 9) == 60
