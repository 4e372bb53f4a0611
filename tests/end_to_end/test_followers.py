"""End to end: followers of a real store, over its past and its present, whatever dies and however late they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from turnkeeper.actors.reading import following as following_module
from turnkeeper.actors.reading.following import Following
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session

from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, writer_of
from .suspensions import Once, Suspensions

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]


async def append(session: Session, first: int, count: int) -> int:
    """Append so many numbered events and flush once; give the last one's position."""
    for n in range(first, first + count):
        await session.append("my/odd" if n % 2 else "my/even", {"n": n})
    return await session.flush()


async def take(following: Following, count: int) -> list[Event]:
    """Take so many events."""
    return [await anext(following) for _ in range(count)]


async def test_replay_begins_behind_any_event_of_a_batch(runtime: Runtime) -> None:
    """A position acknowledges one event, wherever in a commit it stood: nothing before it comes again."""
    async with await runtime.create_session() as session:
        last = await append(session, 0, 10)
        for after in range(last - 10, last):
            with anyio.fail_after(SECONDS_MAX):
                events = await take(runtime.follow(after=after), last - after)
            assert [event.position for event in events] == list(range(after + 1, last + 1))
            assert [event.data["n"] for event in events] == list(range(10))[after - last :]


async def test_no_follower_has_a_hole_or_a_repeat_while_writer_and_node_are_killed(
    runtime: Runtime, store: Path
) -> None:
    """From the beginning, from a position, from now on, by type, by session, elsewhere, and one that starts anew.

    Each of them sees what the store has, in the order of positions, over the seam between past and present.
    """
    rounds, each = 6, 20
    total = rounds * each * 2
    sessions = [await runtime.create_session(key=key) for key in ("one", "two")]
    last = 0
    for session in sessions:
        last = await append(session, 0, each)
    middle = last - each - each // 2
    seen: dict[str, list[Event]] = {}
    async with open_runtime(store) as other:
        live = runtime.follow()
        followers = {
            "all": (runtime.follow(after=0), total),
            "from the middle": (runtime.follow(after=middle), total - middle),
            "odd": (runtime.follow(after=0, types=["*/odd"]), total // 2),
            "one": (runtime.follow("one", after=0), total // 2),
            "elsewhere": (other.follow(after=0), total),
        }
        with anyio.fail_after(2 * SECONDS_MAX):
            await begun(live)
            async with anyio.create_task_group() as tasks:
                for name, (following, count) in {**followers, "live": (live, total - last)}.items():
                    tasks.start_soon(partial(keep, seen, name, following, count))
                tasks.start_soon(partial(keep_anew, seen, runtime, total))
                for number in range(1, rounds):
                    for session in sessions:
                        await append(session, number * each, each)
                    victim = writer_of(store) if number % 2 else node_of(store)
                    await anyio.to_thread.run_sync(kill, victim)
    everything = seen["all"]
    assert [event.position for event in everything] == list(range(1, total + 1))
    assert seen["elsewhere"] == seen["anew"] == everything
    assert seen["from the middle"] == everything[middle:]
    assert seen["live"] == everything[last:]
    assert seen["odd"] == [event for event in everything if event.type == "my/odd"]
    assert [event.data["n"] for event in seen["one"]] == list(range(rounds * each))
    for session in sessions:
        await session.aclose()


async def begun(following: Following) -> None:
    """Let a follower of the present find out where that is."""
    while following._after is None:
        with anyio.move_on_after(0.05):
            await anext(following)


async def keep(seen: dict[str, list[Event]], name: str, following: Following, count: int) -> None:
    """Be a follower, until it has seen so many events."""
    seen[name] = await take(following, count)


async def keep_anew(seen: dict[str, list[Event]], runtime: Runtime, count: int) -> None:
    """Be a consumer that keeps its position and begins anew behind it, again and again."""
    kept: list[Event] = []
    while len(kept) < count:
        kept += await take(runtime.follow(after=kept[-1].position if kept else 0), min(7, count - len(kept)))
    seen["anew"] = kept


async def test_a_cancelled_follower_goes_on_where_it_was(runtime: Runtime) -> None:
    """Whatever it waits for when it is cancelled: the same iterator gives the next event."""
    async with await runtime.create_session() as session:
        await append(session, 0, 3)
        following = runtime.follow(session.id, after=0)
        seen: list[int] = []
        for at in range(1, 40):
            if at % 3 == 0:
                await append(session, 3 + at // 3 - 1, 1)
            with anyio.move_on_after(0.02) as scope:
                event = await Suspensions(following.__anext__(), Once(at % 4 + 1, scope.cancel))
                seen.append(event.data["n"])
        with anyio.fail_after(SECONDS_MAX):
            while len(seen) < 16:
                seen.append((await anext(following)).data["n"])
    assert seen == list(range(16))


async def test_a_follower_that_sleeps_loses_nothing_and_slows_nobody(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it hasn't asked for waits on the disk: it holds one piece of the store's events, and appends don't wait."""
    monkeypatch.setattr(following_module, "READ_BYTES", 10_000)
    async with await runtime.create_session() as session:
        await append(session, 0, 1)
        async with sleeper(runtime) as following:
            for n in range(1, 2001, 100):
                await append(session, n, 100)
                assert len(following._found) < 200
            with anyio.fail_after(SECONDS_MAX):
                rest = await take(following, 2000)
    assert [event.data["n"] for event in rest] == list(range(1, 2001))


@asynccontextmanager
async def sleeper(runtime: Runtime) -> AsyncIterator[Following]:
    """Give a follower that has taken one event."""
    following = runtime.follow(after=0)
    assert (await anext(following)).data["n"] == 0
    yield following
