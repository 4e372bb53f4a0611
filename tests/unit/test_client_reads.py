"""Contract of a client's reads: each caller gets its own answer, from the right reader, and many share a way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import pytest

from turnkeeper.actors.client import reads
from turnkeeper.actors.client.reads import StoreReads
from turnkeeper.storage.errors import Failed

from ..serving import DEADLINE_SECONDS

pytestmark = pytest.mark.anyio


class FakeReader:
    """A reader of an index, which closes."""

    def __init__(self, index: str | None) -> None:
        self.index = index
        self.is_closed = False

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeReader]:
    """Stand in for stores; gives the readers that were opened."""
    made: list[FakeReader] = []

    def open_reader(root: str, index: str | None) -> FakeReader:
        made.append(FakeReader(index))
        return made[-1]

    monkeypatch.setattr(reads, "open_reader", open_reader)
    return made


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the ways to the thread, which take all that waits unless a test says otherwise."""
    counted: list[int] = []
    read_in_thread = StoreReads._read_in_thread

    def count(self: StoreReads, hello: int) -> None:
        counted.append(hello)
        read_in_thread(self, hello)

    monkeypatch.setattr(StoreReads, "_read_in_thread", count)
    monkeypatch.setattr(reads, "READS_A_WAY", 1_000)
    return counted


def serving() -> StoreReads:
    """Make reads of a store that a first writer serves."""
    made = StoreReads("store")
    made.serve("first")
    return made


class Gate:
    """A function to call that has begun, and goes on when it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()

    def __call__(self, reader: Any) -> str | None:
        self.begun.set()
        assert self.open.wait(DEADLINE_SECONDS)
        index: str | None = reader.index
        return index

    async def wait_begun(self) -> None:
        """Wait until it was called."""
        assert await anyio.to_thread.run_sync(self.begun.wait, DEADLINE_SECONDS)


async def ask(store: StoreReads, function: Callable[[Any], Any], answers: list[Any]) -> None:
    """Call a function, and note its answer or its error."""
    try:
        answers.append(await store.call(function))
    except (ValueError, Failed) as error:
        answers.append(error)


@contextmanager
def deadline() -> Iterator[None]:
    """Fail a test that would hang."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


@pytest.mark.parametrize(("reads_a_way", "expected"), [(1, 21), (8, 3), (21, 1)])
async def test_what_waits_is_read_on_one_way(
    reads_a_way: int, expected: int, opened: list[FakeReader], ways: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many at most; everybody gets his own answer, in the order in which they asked."""
    monkeypatch.setattr(reads, "READS_A_WAY", reads_a_way)
    store, gate, answers = serving(), Gate(), list[Any]()
    with deadline():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, store, gate, answers)
            await gate.wait_begun()
            for number in range(20):
                tasks.start_soon(ask, store, lambda reader, number=number: number, answers)
                await anyio.wait_all_tasks_blocked()
            gate.open.set()
    assert answers == ["first", *range(20)]
    assert len(ways) == expected
    assert len(opened) == 1


async def test_an_error_is_told_to_who_asked(opened: list[FakeReader], ways: list[int]) -> None:
    """The others on the same way get their answers."""

    def refuse(reader: Any) -> None:
        raise ValueError("this one")

    store, gate, answers = serving(), Gate(), list[Any]()
    with deadline():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, store, gate, answers)
            await gate.wait_begun()
            for function in (refuse, lambda reader: "after it"):
                tasks.start_soon(ask, store, function, answers)
                await anyio.wait_all_tasks_blocked()
            gate.open.set()
    assert list(map(str, answers)) == ["first", "this one", "after it"]
    assert len(ways) == 1


async def test_a_read_that_waits_is_taken_back_and_one_that_has_begun_is_waited_for(
    opened: list[FakeReader], ways: list[int]
) -> None:
    """Cancelled before its turn it never runs; cancelled in the middle, whoever asked goes on only behind its end."""
    store, first, second = serving(), Gate(), Gate()
    ended: list[str] = []
    ran: list[str] = []

    async def ask_cancelled(scope: anyio.CancelScope, name: str, function: Callable[[Any], Any]) -> None:
        with scope:
            await store.call(function)
        ended.append(name)

    scopes = [anyio.CancelScope() for _ in range(3)]
    with deadline():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask_cancelled, scopes[0], "first", first)
            await first.wait_begun()
            tasks.start_soon(ask_cancelled, scopes[1], "waiting", lambda reader: ran.append("waiting"))
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(ask_cancelled, scopes[2], "second", second)
            await anyio.wait_all_tasks_blocked()
            scopes[1].cancel()
            await anyio.wait_all_tasks_blocked()
            assert ended == ["waiting"]
            first.open.set()
            await second.wait_begun()
            scopes[2].cancel()
            scopes[0].cancel()
            await anyio.wait_all_tasks_blocked()
            assert ended == ["waiting"]
            second.open.set()
    assert sorted(ended) == ["first", "second", "waiting"]
    assert ran == []
    assert await store.call(lambda reader: "goes on") == "goes on"
    await store.aclose()
    assert opened[-1].is_closed


async def test_what_is_asked_behind_a_hello_is_read_by_what_it_names(opened: list[FakeReader], ways: list[int]) -> None:
    """Though a way under the hello before is under way: its reader may not know what was acknowledged since."""
    store, gate, answers = serving(), Gate(), list[Any]()
    with deadline():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, store, gate, answers)
            await gate.wait_begun()
            store.serve("second")
            tasks.start_soon(ask, store, lambda reader: reader.index, answers)
            await anyio.wait_all_tasks_blocked()
            gate.open.set()
    assert answers == ["first", "second"]
    assert [(reader.index, reader.is_closed) for reader in opened] == [("first", True), ("second", False)]


async def test_a_read_is_done_again_where_its_index_went_away(opened: list[FakeReader], ways: list[int]) -> None:
    """If a writer has said hello meanwhile; else what failed is told."""
    store, gate, answers = serving(), Gate(), list[Any]()

    def fail_in_first(reader: Any) -> str:
        if gate(reader) == "first":
            raise Failed("the index is gone")
        return "read"

    with deadline():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, store, fail_in_first, answers)
            await gate.wait_begun()
            store.serve("second")
            gate.open.set()
    assert answers == ["read"]
    store.serve("first")
    with deadline():
        await ask(store, fail_in_first, answers)
    assert isinstance(answers[-1], Failed)
