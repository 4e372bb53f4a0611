"""End to end: text that is seen while it is written, beside what is durable, on both loops and both backends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.client.asking import ask_hello
from turnkeeper.actors.client.bus import PUBLISH_SECONDS
from turnkeeper.actors.client.reads import StoreReads
from turnkeeper.actors.protocol import NODE_SOCKET
from turnkeeper.actors.reading.following import Following
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.backend import BackendReader

from ..command_line import CommandLine
from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, writer_of
from ..serving import FrameClient, ServedStore, eventually, served_store

CHUNK = "assistant/chunk"


async def live(following: Following) -> Event:
    """Wait for the next event that isn't durable."""
    with anyio.fail_after(SECONDS_MAX):
        while (event := await anext(following)).position:
            pass
    return event


@pytest.fixture
def long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be stored that isn't flushed: what is seen is live for sure."""
    monkeypatch.setattr("turnkeeper.actors.client.link.WINDOW_SECONDS", 60.0)


class Seen:
    """What a follower is shown, checked as it comes: nothing durable is lost, repeated or overtaken."""

    def __init__(self) -> None:
        self.durable: list[Event] = []
        self.live: list[Event] = []

    def take(self, event: Event) -> None:
        """Take the next event."""
        if event.position:
            assert event.position == (self.durable[-1].position + 1 if self.durable else 1)
            before = self.live[-1] if self.live else None
            if before is not None and before.seq == event.seq and event.type == CHUNK:
                assert event.data["text"].startswith(before.data["text"])
                assert (event.type, event.time) == (before.type, before.time)
            self.durable.append(event)
        else:
            assert event.seq == len(self.durable)
            self.live.append(event)


# -- One session and its followers


@pytest.mark.anyio
@LOOPS_AND_STORES
async def test_a_follower_sees_text_grow_and_then_the_event(runtime: Runtime, store: Path, long_windows: None) -> None:
    """As the event that it will be, whole as it stands, without a position; in another process's runtime as well."""
    async with await runtime.create_session() as session, open_runtime(store) as other:
        await session.append("user/message", {"text": "go"})
        await session.flush()
        followings = [each.follow(session.id, after=0, ephemeral=True) for each in (runtime, other)]
        session.write("to")
        seen = [await live(following) for following in followings]
        expected = (session.id, 1, CHUNK, {"text": "to"})
        assert [(event.stream, event.seq, event.type, event.data) for event in seen] == [expected] * 2
        session.write("ken")
        assert [(await live(following)).data for following in followings] == [{"text": "token"}] * 2
        session.write("hm", channel="thinking")
        position = await session.flush()
        with anyio.fail_after(SECONDS_MAX):
            for following, live_one in zip(followings, seen, strict=True):
                first, second = await anext(following), await anext(following)
                assert [first.position, second.position] == [position - 1, position]
                assert [first.data, second.data] == [{"text": "token"}, {"text": "hm", "channel": "thinking"}]
                assert first.time == live_one.time


@pytest.mark.anyio
@LOOPS_AND_STORES
async def test_live_text_never_overtakes_what_is_before_it(
    runtime: Runtime, long_windows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind an event that isn't stored yet it isn't shown, and costs nothing; once that is, it is, and behind it."""
    looks = 0
    call = StoreReads.call

    async def count(self: StoreReads, function: Callable[[BackendReader], object]) -> object:
        nonlocal looks
        looks += 1
        return await call(self, function)

    monkeypatch.setattr(StoreReads, "call", count)
    async with await runtime.create_session() as session:
        following = runtime.follow(after=0, ephemeral=True)
        await session.append("user/message", {"text": "unflushed"})
        session.write("early")
        with anyio.move_on_after(0.2) as scope:
            await anext(following)
        assert scope.cancelled_caught
        assert looks < 10
        await session.flush()
        session.write("late")
        with anyio.fail_after(SECONDS_MAX):
            shown = [await anext(following) for _ in range(3)]
    assert [(event.seq, bool(event.position), event.data["text"]) for event in shown] == [
        (0, True, "unflushed"),
        (1, True, "early"),
        (2, False, "late"),
    ]


@pytest.mark.anyio
@LOOPS_AND_STORES
async def test_live_text_waits_for_a_follower_that_is_behind(runtime: Runtime, long_windows: None) -> None:
    """What was stored before comes first, however much that is; text that was stored meanwhile isn't shown again."""
    async with await runtime.create_session() as session:
        for number in range(50):
            await session.append("my/type", {"number": number, "filling": "x" * 20_000})
        position = await session.flush()
        behind, ahead = runtime.follow(after=0, ephemeral=True), runtime.follow(after=position, ephemeral=True)
        with anyio.fail_after(SECONDS_MAX):
            assert (await anext(behind)).seq == 0
            session.write("live")
            await live(ahead)
            assert [(await anext(behind)).seq for _ in range(49)] == list(range(1, 50))
            shown = await anext(behind)
            assert (shown.position, shown.seq, shown.data) == (0, 50, {"text": "live"})
            session.write("stored")
            await live(ahead)
            await session.flush()
            assert (await anext(behind)).position == position + 1
        with anyio.move_on_after(0.1) as scope:
            await anext(behind)
        assert scope.cancelled_caught
        assert behind._listener is not None
        assert len(behind._listener.values) == 0


@pytest.mark.anyio
async def test_a_value_of_another_form_is_not_shown(runtime: Runtime, store: Path, long_windows: None) -> None:
    """Whatever another process publishes for a session, its followers go on."""
    async with await runtime.create_session() as session:
        following = runtime.follow(after=0, ephemeral=True)
        session.write("to")
        await live(following)
        with FrameClient(store, NODE_SOCKET) as stranger:
            assert stranger.ask({"op": "attach", "name": "stranger"}) == {"op": "attached"}
            assert stranger.receive() == {"op": "wanted", "topics": None}
            for value in ({}, {"seq": "0", "time": 0, "data": {}}, {"seq": 0, "time": 0, "data": None}):
                stranger.send({"op": "publish", "topic": session.id, "type": "my/type", "value": value})
            assert stranger.ask({"op": "status"})["op"] == "status"
        session.write("ken")
        assert (await live(following)).data == {"text": "token"}


@pytest.mark.anyio
async def test_a_session_is_seen_twenty_times_a_second_at_most(runtime: Runtime, long_windows: None) -> None:
    """However many tokens are written, and although the follower could take more."""
    seen: list[Event] = []

    async def follow() -> None:
        async for event in runtime.follow(after=0, ephemeral=True):
            seen.append(event)

    async with await runtime.create_session() as session, anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        while not seen:
            session.write("x")
            await anyio.sleep(0.001)
        begun = anyio.current_time()
        seen.clear()
        while anyio.current_time() < begun + 0.4:
            session.write("x")
            await anyio.sleep(0.001)
        assert 2 <= len(seen) <= (anyio.current_time() - begun) / PUBLISH_SECONDS + 1
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("state", ["serving", "opening"])
async def test_who_opens_the_store_later_is_heard_too(
    runtime: Runtime, store: Path, long_windows: None, state: str
) -> None:
    """Somebody listens already: the newcomer is told so, also while it waits for a writer that is being replaced."""
    async with await runtime.create_session() as session:
        following = runtime.follow("*", ephemeral=True)
        session.write("x")
        await live(following)
        if state == "opening":
            kill(writer_of(store))
            eventually(lambda: (ask_hello(str(store)) or {})["state"] == state)
        async with open_runtime(store) as newcomer, await newcomer.create_session() as other:
            other.write("hello")
            assert (await live(following)).data == {"text": "hello"}


@pytest.mark.anyio
async def test_types_and_ids_choose_live_text_too(runtime: Runtime, long_windows: None) -> None:
    """Another session's isn't shown, nor text where other types are wanted; without `ephemeral` there is none."""
    async with await runtime.create_session(key="k") as session, await runtime.create_session() as other:
        wanted = [
            runtime.follow("k", after=0, types=["assistant/*"], ephemeral=True),
            runtime.follow(f"{session.id[:4]}*", session.id, after=0, ephemeral=True),
        ]
        unwanted = [
            runtime.follow(other.id, after=0, types=["user/*"], ephemeral=True),
            runtime.follow("k", after=0, types=["user/*"], ephemeral=True),
            runtime.follow("k", after=0),
        ]
        with anyio.move_on_after(0.05):
            async with anyio.create_task_group() as tasks:
                for following in unwanted:
                    tasks.start_soon(anext, following)
        other.write("of the other")
        session.write("wanted")
        for following in wanted:
            assert (await live(following)).data == {"text": "wanted"}
        for following in unwanted:
            with anyio.move_on_after(0.1) as scope:
                await anext(following)
            assert scope.cancelled_caught


@pytest.mark.anyio
async def test_a_follower_that_sleeps_gets_only_the_latest_and_slows_nobody(
    runtime: Runtime, long_windows: None
) -> None:
    """Meanwhile another one sees the text grow; nothing old is shown to the sleeper when it wakes."""
    async with await runtime.create_session() as session:
        sleeper = runtime.follow(session.id, after=0, ephemeral=True)
        awake = runtime.follow(session.id, after=0, ephemeral=True)
        session.write("0")
        assert (await live(sleeper)).data == {"text": "0"}
        for number in range(1, 10):
            session.write(f" {number}")
            while (await live(awake)).data["text"] != " ".join(map(str, range(number + 1))):
                pass
        assert (await live(sleeper)).data == {"text": "0 1 2 3 4 5 6 7 8 9"}
        with anyio.move_on_after(0.1) as scope:
            await anext(sleeper)
        assert scope.cancelled_caught


@pytest.mark.anyio
async def test_text_is_published_only_while_somebody_listens(runtime: Runtime, long_windows: None) -> None:
    """A follower that is closed, or that nobody has any more, ends it; a new one begins it again."""
    bus = runtime._client.bus

    async def write_until_unheard() -> None:
        with anyio.fail_after(SECONDS_MAX):
            while bus.wanted != frozenset():
                session.write("x")
                await anyio.sleep(0.01)

    async with await runtime.create_session() as session:
        session.write("x")
        assert (bus.wanted, session._chunks.tell) == (frozenset(), None)
        following = runtime.follow(session.id, ephemeral=True)
        await live(following)
        assert bus.wanted == frozenset([session.id])
        await following.aclose()
        with anyio.fail_after(SECONDS_MAX):
            while bus.wanted != frozenset():  # noqa: ASYNC110
                await anyio.sleep(0.001)
        dropped = runtime.follow(ephemeral=True)
        await live(dropped)
        del dropped
        await write_until_unheard()


@pytest.mark.anyio
@LOOPS_AND_STORES
@pytest.mark.parametrize("victim", ["writer", "node"])
async def test_live_text_goes_on_when_what_serves_dies(runtime: Runtime, store: Path, victim: str) -> None:
    """Text is seen live after each death, and what is durable comes once and in order all the while."""
    seen = Seen()
    was_seen = anyio.Event()

    async def follow(other: Runtime) -> None:
        async for event in other.follow(after=0, ephemeral=True):
            seen.take(event)
            was_seen.set()

    async def write_until_live() -> None:
        nonlocal was_seen
        before = len(seen.live)
        while len(seen.live) < before + 3:
            session.write("token ")
            with anyio.move_on_after(0.02):
                was_seen = anyio.Event()
                await was_seen.wait()
        await session.append("my/mark", {})

    with anyio.fail_after(SECONDS_MAX):
        async with open_runtime(store) as other, await runtime.create_session() as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(follow, other)
                await write_until_live()
                for _ in range(2):
                    await anyio.to_thread.run_sync(kill, writer_of(store) if victim == "writer" else node_of(store))
                    await write_until_live()
                await session.flush()
                while len(seen.durable) < session.head:
                    was_seen = anyio.Event()
                    await was_seen.wait()
                tasks.cancel_scope.cancel()
            written = await runtime.read(session.id, limit=1_000_000)
    assert seen.durable == written
    assert [event.type for event in written].count("my/mark") == 3


# -- The node


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedStore]:
    """A served store of its own."""
    with served_store(tmp_path / "store") as made:
        yield made


def attached(served: ServedStore, topics: list[str] | None = None) -> FrameClient:
    """Become one more client of the node, which listens to topics if there are any."""
    client = served.visit()
    assert client.ask({"op": "attach", "name": "one more"}) == {"op": "attached"}
    if topics is not None:
        client.send({"op": "listen", "topics": topics})
    return client


def test_a_process_that_reads_nothing_holds_up_nobody_and_gets_the_latest(served: ServedStore) -> None:
    """A hundred megabytes for it go to another one in time, and cost neither the node nor who publishes."""
    value = {"op": "publish", "topic": "a", "type": "t", "value": {"text": "x" * 50_000}}
    publisher = attached(served)
    slow, quick = attached(served, ["a"]), attached(served, ["a"])
    try:
        while publisher.receive_answer() != {"op": "wanted", "topics": ["a"]}:
            pass
        for number in range(2_000):
            publisher.send({**value, "value": {"number": number, **value["value"]}})  # type: ignore[dict-item]
            if number % 100 == 99:
                while True:
                    message = quick.receive_answer()
                    if message["op"] == "value" and message["value"]["number"] == number:
                        break
        heard: list[int] = []
        while not heard or heard[-1] != 1_999:
            message = slow.receive_answer()
            if message["op"] == "value":
                heard.append(message["value"]["number"])
        assert heard == sorted(set(heard))
        assert len(heard) < 50
    finally:
        for client in (publisher, slow, quick):
            client.close()


def test_a_listener_that_dies_is_not_published_to(served: ServedStore) -> None:
    """It said no goodbye: the end of its connection is enough."""
    with attached(served) as publisher, attached(served, ["a"]):
        assert publisher.receive_answer() == {"op": "wanted", "topics": ["a"]}
    with attached(served) as publisher:
        with attached(served, ["b"]):
            while publisher.receive_answer() != {"op": "wanted", "topics": ["b"]}:
                pass
        assert publisher.receive_answer() == {"op": "wanted", "topics": []}


def test_what_is_no_value_ends_its_own_connection_with_a_reason(served: ServedStore) -> None:
    """Whoever sends it is told so and cut off; others notice nothing."""
    for message in (
        {"op": "listen", "topics": "a"},
        {"op": "listen", "topics": [1]},
        {"op": "publish", "topic": 1, "type": "t", "value": {}},
        {"op": "publish", "topic": "a", "type": "t", "value": None},
        {"op": "publish", "topic": "a", "type": "t", "value": {"text": "x" * 65_536}},
    ):
        with attached(served) as client:
            client.send(message)
            assert client.receive_answer()["op"] == "error", message
            client.wait_for_end()
    assert served.node.ask({"op": "status"})["state"] == "serving"


def test_values_of_who_only_visits_are_not_heard(served: ServedStore) -> None:
    """Listening is for clients: who only looks at the node is told that it is no request."""
    with served.visit() as visitor:
        visitor.send({"op": "listen", "topics": None})
        assert visitor.receive_answer()["op"] == "error"


# -- Plain programs, and the command line


def test_a_plain_program_writes_and_follows_text(tmp_path: Path, long_windows: None) -> None:
    """The same names without `await`: what is live, and then the event."""
    with connect(tmp_path / "store") as runtime, runtime.create_session() as session:
        session.write("thinking of ", channel="thinking")
        session.write("nothing", channel="thinking")
        following = runtime.follow(after=0, ephemeral=True)
        shown = next(following)
        position = session.flush()
        stored = next(following)
    assert (shown.position, stored.position) == (0, position)
    assert (shown.seq, shown.data, shown.time) == (stored.seq, stored.data, stored.time)
    assert shown.data == {"text": "thinking of nothing", "channel": "thinking"}


def test_follow_prints_text_that_is_being_written_without_a_position(tmp_path: Path, long_windows: None) -> None:
    """With --ephemeral, for scripts as a null and for people as a dash; then the event, with its position."""
    cli = CommandLine(tmp_path / "store", tmp_path)
    with connect(cli.store) as runtime, runtime.create_session() as session:
        session.append("user/message", {"text": "go"})
        after = session.flush()
        session.write("token")
        command = ("follow", session.id, "--after", str(after), "--ephemeral")
        with cli.running(*command) as for_people, cli.running(*command, "--json") as for_scripts:
            assert for_people.stdout is not None
            assert for_scripts.stdout is not None
            assert for_people.stdout.readline().decode().startswith(f"-  {session.id} 1  ")
            shown = json.loads(for_scripts.stdout.readline())
            assert (shown["position"], shown["seq"], shown["data"]) == (None, 1, {"text": "token"})
            position = session.flush()
            assert for_people.stdout.readline().decode().startswith(f"{position}  {session.id} 1  ")
            assert json.loads(for_scripts.stdout.readline()) == {**shown, "position": position}
