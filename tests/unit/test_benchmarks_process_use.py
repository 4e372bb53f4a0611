"""What processes are said to use is what they use."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from turnkeeper.benchmarks.measuring.process_memory import proportional_bytes
from turnkeeper.benchmarks.measuring.process_use import descriptors, processor_seconds, zombies

from ..serving import eventually

NOBODY = 2**22 + 1
"""More than any pid may be."""


def test_processor_time_is_told_to_less_than_a_tick() -> None:
    """It grows while a process works, by as much as it worked, and of nobody it is 0."""
    own_before, before = time.process_time(), processor_seconds(os.getpid())
    sum(range(10_000))
    used, own = processor_seconds(os.getpid()) - before, time.process_time() - own_before
    assert 0 < used < own
    assert processor_seconds(NOBODY) == 0


def test_open_descriptors_are_counted() -> None:
    """One more is one more."""
    before = descriptors(os.getpid())
    with open(os.devnull):
        assert descriptors(os.getpid()) == before + 1
    assert descriptors(os.getpid()) == before
    assert descriptors(NOBODY) == 0


def test_who_ended_unreaped_is_found() -> None:
    """A child is a zombie from its end until somebody waits for it; a living one is none."""
    living = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        ended = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
        eventually(lambda: zombies([os.getpid()]) == {ended.pid})
        ended.wait()
        assert zombies([os.getpid()]) == set()
    finally:
        living.communicate()


def test_a_shared_page_counts_by_its_share() -> None:
    """What a fork shares with its parent counts for both of them together once."""
    content = bytearray(os.urandom(4096) * 10_000)
    alone = proportional_bytes(os.getpid())
    assert alone > len(content)
    ready, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(told, b".")
        time.sleep(60)
        os._exit(0)
    try:
        os.read(ready, 1)
        shared = proportional_bytes(os.getpid())
        assert shared < alone - 0.4 * len(content)
        assert shared + proportional_bytes(child) < alone + 0.5 * len(content)
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)
    assert proportional_bytes(NOBODY) == 0
