"""End to end: large byte strings to and from worker actors are handed over as memory, and not copied to and fro."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper.runtime.errors import ActorNotStarted, ActorUnknown, MessageTooLarge
from turnkeeper.runtime.frames import FRAME_BYTES_MAX
from turnkeeper.runtime.mailbox_ref import MailboxRef
from turnkeeper.runtime.workers.worker import spawn_in_process

from ..worker_hosts import possessions, write_module

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

MIB = 1024 * 1024

LIBRARIAN = """
import sys

def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

class Librarian:
    async def describe(self, *books, **more):
        return [[type(book).__name__, len(book), bytes(book[-2:])] for book in [*books, *more.values()]]
    async def keep(self, book):
        self.book = book
        return sum(book[::4096])
    async def give(self):
        return self.book
    async def write(self, size):
        return bytearray(b"ab") * (size // 2)
    async def anonymous_bytes(self):
        return anonymous_bytes()
"""


@pytest.fixture
async def librarian(group: TaskGroup, tmp_path: Path) -> MailboxRef:
    """An actor in a process of its own that keeps byte strings, with a mailbox for very large ones."""
    target = write_module(tmp_path, "library", LIBRARIAN) + ":Librarian"
    return await spawn_in_process(group, target, bytes_max=256 * MIB)


async def test_large_arguments_arrive_as_views_and_small_ones_as_they_are(librarian: MailboxRef) -> None:
    """By number and by keyword, several in one message, beside others."""
    told = await librarian.ask(
        "describe", b"small", bytes(MIB) + b"ab", bytearray(2 * MIB), cover=memoryview(bytes(MIB))
    )
    assert told == [
        ["bytes", 5, b"ll"],
        ["memoryview", MIB + 2, b"ab"],
        ["memoryview", 2 * MIB, b"\0\0"],
        ["memoryview", MIB, b"\0\0"],
    ]


async def test_a_large_reply_arrives_as_a_view(librarian: MailboxRef) -> None:
    """Also one that is longer than any frame."""
    book = await librarian.ask("write", 2 * FRAME_BYTES_MAX)
    assert isinstance(book, memoryview)
    assert book.readonly
    assert len(book) == 2 * FRAME_BYTES_MAX
    assert bytes(book[-4:]) == b"abab"


async def test_neither_side_has_a_copy_of_its_own(librarian: MailboxRef) -> None:
    """64 MiB go there, are read there, and come back, and no heap grows by an eighth of that."""
    book = b"\1" * (64 * MIB)
    before = [anonymous_bytes(), await librarian.ask("anonymous_bytes")]
    assert await librarian.ask("keep", book) == 64 * MIB // 4096
    back = await librarian.ask("give")
    assert back == book
    grown = [
        anonymous_bytes() - before[0],
        await librarian.ask("anonymous_bytes") - before[1],
    ]
    assert max(grown) < 8 * MIB


async def test_the_mailbox_counts_what_is_handed_over(group: TaskGroup, librarian: MailboxRef) -> None:
    """A message that its mailbox could never hold is refused, however it would cross."""
    with pytest.raises(MessageTooLarge):
        await librarian.ask("describe", bytes(257 * MIB))
    assert await librarian.ask("describe", b"small") == [["bytes", 5, b"ll"]]


async def test_nothing_is_left_of_messages_that_were_lost(librarian: MailboxRef) -> None:
    """One at hand and one in the mailbox when the worker dies: their memory is given back."""
    await librarian.ask("describe", bytes(MIB))
    pid = int(possessions()[1][-1])
    before = len(possessions()[0])
    os.kill(pid, signal.SIGSTOP)
    async with anyio.create_task_group() as asking:
        for error in (ActorUnknown, ActorNotStarted):
            asking.start_soon(lose, librarian, error)
            await anyio.wait_all_tasks_blocked()
        assert len(possessions()[0]) == before + 1, "one in the mailbox, and one sent"
        os.kill(pid, signal.SIGKILL)
    await librarian.wait_ended()
    assert len(possessions()[0]) < before


async def lose(librarian: MailboxRef, error: type[Exception]) -> None:
    """Ask what nobody answers."""
    with pytest.raises(error):
        await librarian.ask("keep", bytes(8 * MIB))


def anonymous_bytes() -> int:
    """Give how much memory of its own this process has."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))
