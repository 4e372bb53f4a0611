"""End to end: turns that are cut short anywhere, by a cancellation, an exception or the loss of the session."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.errors import Failed, Fenced, NotFound, SessionBusy
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session import session as session_module
from turnkeeper.actors.session.session import Session

from ..closed_logs import assert_closed, reason_of, results_of
from ..served import LOOPS_AND_STORES, SECONDS_MAX, writer_of
from ..serving import stopped
from .suspensions import Once, Suspensions

pytestmark = pytest.mark.anyio

SUSPENSIONS_MIN = 12
"""How often the turn below suspends at least, however fast the store is; a harness that sees fewer sees nothing."""


class Agent:
    """One turn with two calls, and what its own code has seen: what was appended, which bodies ran."""

    def __init__(self, runtime: Runtime, key: str, after_each_step: Callable[[], object] = lambda: None) -> None:
        self._runtime = runtime
        self._key = key
        self._step = after_each_step
        self.appended: dict[int, str] = {}
        self.ran: list[str] = []
        self.opened = False

    async def work(self) -> None:
        """Open the session, take the turn, close the session."""
        async with await self._runtime.open_session(self._key, create=True) as session:
            self.opened = True
            self._session = session
            self._step()
            async with session.turn():
                self._step()
                calls = [{"id": id, "name": "bash"} for id in ("a", "b")]
                await self._append("assistant/message", text="", tool_calls=calls)
                async with session.tool("a", "bash", {}, effect="read") as call:
                    self.ran.append("a")
                    self._step()
                    await self._append("note/in", tool="a")
                    await session.flush()
                    self._step()
                    await call.finish("done")
                    self._step()
                await self._append("note/keyed", key="once")
                async with session.tool("b", "bash", {}):
                    self.ran.append("b")
                    self._step()
                await session.flush()
                self._step()

    async def _append(self, type: str, key: str | None = None, **data: Any) -> None:
        self.appended[await self._session.append(type, data, key=key)] = type
        self._step()

    async def check(self, *reasons: str) -> None:
        """See what the next opening finds: a closed turn, with everything that was appended, or nothing at all."""
        try:
            session = await self._runtime.open_session(self._key)
        except NotFound:
            assert not self.appended
            assert not self.ran
            return
        async with session:
            assert session.interrupted is None
            log = await session.read()
        assert_closed(log)
        assert reason_of(log) in reasons
        types = [event.type for event in log]
        assert {seq: types[seq] for seq in self.appended} == self.appended
        assert max(map(types.count, ("turn/start", "note/in", "note/keyed"))) == 1
        started = [event.data["id"] for event in log if event.type == "tool/started"]
        assert len(started) == len(set(started))
        assert set(self.ran) <= set(started)
        not_begun = {id for id, result in results_of(log).items() if result == "TOOL_NOT_STARTED"}
        assert not not_begun & set(self.ran)


@LOOPS_AND_STORES
async def test_a_cancellation_at_any_suspension_leaves_a_closed_turn(runtime: Runtime) -> None:
    """From the opening to the close, wherever the cancellation hits: nothing is lost, repeated, open or still owned."""
    at = 0
    is_cut = True
    while is_cut:
        at += 1
        agent = Agent(runtime, f"turn-{at}")
        with anyio.fail_after(SECONDS_MAX), anyio.CancelScope() as scope:
            cut = Once(at, scope.cancel)
            await Suspensions(agent.work(), cut)
        is_cut = cut.has_acted
        await agent.check(*(("aborted", "completed") if is_cut else ("completed",)))
    assert at > SUSPENSIONS_MIN


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_asyncios_own_cancellation_is_as_good(runtime: Runtime) -> None:
    """It comes once and knows no shields, so it may end even the wait for an end; what has ended ends all the same."""
    at = 0
    is_cut = True
    while is_cut:
        at += 1
        agent = Agent(runtime, f"turn-{at}")
        is_cut = await cancelled_at(at, agent.work())
        await agent.check(*(("aborted", "completed") if is_cut else ("completed",)))
    assert at > SUSPENSIONS_MIN


async def cancelled_at(at: int, coroutine: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine in a task, which is cancelled at its suspension of this number; say whether it came to that."""
    cut = Once(at, lambda: task.cancel())

    async def run() -> None:
        await Suspensions(coroutine, cut)

    task = asyncio.get_running_loop().create_task(run())
    await asyncio.wait([task], timeout=SECONDS_MAX)
    assert task.done()
    if not task.cancelled():
        task.result()
    return cut.has_acted


@LOOPS_AND_STORES
@pytest.mark.parametrize("make", [ValueError, KeyboardInterrupt, SystemExit])
async def test_an_exception_behind_any_step_leaves_a_closed_turn_and_passes_as_it_is(
    runtime: Runtime, make: type[BaseException]
) -> None:
    """The very object comes out, in no group and without notes; an Exception is the turn's error, others abort it."""
    at = 0
    is_cut = True
    while is_cut:
        at += 1
        error = make("of the body")
        cut = Once(at, raiser_of(error))
        agent = Agent(runtime, f"turn-{at}", cut)
        caught: BaseException | None = None
        try:
            await agent.work()
        except make as raised:
            caught = raised
        is_cut = cut.has_acted
        assert caught is (error if is_cut else None)
        assert not hasattr(error, "__notes__")
        await agent.check("completed" if not is_cut else "error" if make is ValueError else "aborted")
    assert at == 11


def raiser_of(error: BaseException) -> Callable[[], None]:
    """Make what raises an error when it is called."""

    def fail() -> None:
        raise error

    return fail


@LOOPS_AND_STORES
async def test_a_session_lost_at_any_suspension_raises_one_clear_error(runtime: Runtime, store: Path) -> None:
    """Fenced comes out as itself, the turn that the new owner found open is closed by him, and nothing comes after."""
    at = 0
    is_lost = True
    async with open_runtime(store) as other:
        while is_lost:
            at += 1
            agent = Agent(runtime, f"turn-{at}")
            is_lost = await lose_session_at(at, agent, other)
        assert at > SUSPENSIONS_MIN


async def lose_session_at(at: int, agent: Agent, other: Runtime) -> bool:
    """Let another runtime take the session over at a suspension of its owner; say whether there was one to lose."""
    wanted = anyio.Event()
    cut = Once(at, wanted.set)

    async def take_over() -> None:
        await wanted.wait()
        try:
            session = await other.open_session(f"turn-{at}", takeover=True)
        except (NotFound, SessionBusy):
            return  # nothing of it is stored yet, so there is nothing to take
        async with session:
            taken.append([event.type for event in await session.read()])

    taken: list[list[str]] = []
    owners: list[Any] = []
    with anyio.fail_after(SECONDS_MAX):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(take_over)
            try:
                await Suspensions(agent.work(), cut)
            except Fenced as error:
                owners.append(error.owner)
            wanted.set()
    log = await other.read(f"turn-{at}")
    assert_closed(log)
    if taken:
        assert [event.type for event in log] == taken[0]
    if owners:
        assert taken
        assert owners[0] is not None
    return cut.has_acted


@LOOPS_AND_STORES
async def test_an_end_waits_for_the_store_so_long_and_no_longer(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the writer stopped the end raises, or is a note of the body's exception; it is stored when it can be."""
    monkeypatch.setattr(session_module, "END_SECONDS_MAX", 0.2)

    async def fail_in_a_turn(session: Session) -> None:
        async with session.turn():
            raise ValueError("of the body")

    async with await runtime.create_session(key="k") as session:
        await session.append("my/n", {"n": 0})
        await session.flush()
        with stopped(writer_of(store)), anyio.fail_after(SECONDS_MAX):
            with pytest.raises(Failed, match=r"turn wasn't stored within"):
                async with session.turn():
                    pass
            with pytest.raises(ValueError, match="of the body") as caught:
                await fail_in_a_turn(session)
            assert any("turn wasn't stored" in note for note in caught.value.__notes__)
            assert [event.type for event in await runtime.read("k")] == ["my/n"]
        await session.flush()
        ends = [event.data["reason"] for event in await runtime.read("k") if event.type == "turn/end"]
    assert ends == ["completed", "error"]
