"""Unit: latest values on their way from sources over the node to listeners, with frames carried by hand."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, cast

import pytest

from turnkeeper.actors.client.bus import Bus, Listener, Source
from turnkeeper.actors.latest_values import (
    TOPICS_MAX,
    VALUE_BYTES_MAX,
    VALUES_MAX,
    LatestValues,
    Topics,
    topics_from_wire,
    united,
)
from turnkeeper.actors.node.switchboard import Place, Switchboard
from turnkeeper.actors.peers import Peer
from turnkeeper.runtime.frames import FrameDecoder, FrameError


class TextSource:
    """A source whose value is set by hand."""

    type = "my/type"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.tell: Callable[[Source], object] | None = None
        self._value: dict[str, Any] | None = None

    def value(self) -> dict[str, Any] | None:
        """Give the value."""
        return self._value

    def say(self, text: str | None) -> None:
        """Have a new value, or none any more."""
        self._value = None if text is None else {"text": text}
        if self.tell is not None:
            tell, self.tell = self.tell, None
            tell(self)


class FakePeer:
    """A peer at the switchboard that is behind when that is wanted."""

    def __init__(self) -> None:
        self.is_behind = False
        self.decoder = FrameDecoder()
        self.told: list[dict[str, Any]] = []

    def tell(self, frame: bytes) -> None:
        """Take a frame."""
        self.told += self.decoder.feed(frame)


class Joined:
    """A bus that is joined to a switchboard; `carry` does what the connection between them does."""

    def __init__(self, board: Switchboard) -> None:
        self.bus = Bus()
        self.peer = FakePeer()
        self.sent: list[dict[str, Any]] = []
        self._decoder = FrameDecoder()
        self.join(board)

    def join(self, board: Switchboard) -> None:
        """Have a place at a node's switchboard, and none elsewhere."""
        self._board = board
        self.place = Place(cast(Peer, self.peer))
        board.join(self.place)
        self.bus.join()

    def listen(self, *topics: str) -> Listener:
        """Listen to topics, or to all."""
        listener = Listener(frozenset(topics) or None, lambda topic, type: True)
        self.bus.listen(listener)
        return listener

    def source(self, topic: str) -> TextSource:
        """Add a source."""
        source = TextSource(topic)
        self.bus.add_source(source)
        return source

    def carry(self) -> None:
        """Carry what each side has for the other."""
        for message in self._decoder.feed(self.bus.next_output()):
            self.sent.append(message)
            if message["op"] == "listen":
                self._board.listen(self.place, message["topics"])
            else:
                self._board.publish(message["topic"], message["type"], message["value"])
        told, self.peer.told = self.peer.told, []
        for message in told:
            self.bus.receive(message)


class World:
    """Two clients of one node."""

    def __init__(self) -> None:
        self.board = Switchboard()
        self.writing, self.reading = Joined(self.board), Joined(self.board)

    def settle(self) -> None:
        """Carry everything everywhere."""
        for _ in range(4):
            self.writing.carry()
            self.reading.carry()


@pytest.fixture
def world() -> World:
    """Two clients that know nothing of each other."""
    return World()


def values(listener: Listener) -> list[tuple[str, str]]:
    """Take what waits for a listener: topics and texts."""
    waiting = listener.values.items()
    for name, value in waiting:
        listener.values.take(name, value)
    return [(topic, value["text"]) for (topic, _), value in waiting]


def test_nothing_is_published_while_nobody_listens(world: World) -> None:
    """The source isn't even asked to tell of its values."""
    source = world.writing.source("a")
    source.say("unheard")
    world.settle()
    assert (source.tell, world.writing.sent) == (None, [])


def test_a_listener_hears_what_there_is_and_then_what_is_new(world: World) -> None:
    """Whether source or listener came first; of several values between two looks only the last."""
    source = world.writing.source("a")
    source.say("before")
    listener = world.reading.listen("a")
    world.settle()
    assert (listener.has_news, values(listener)) == (True, [("a", "before")])
    for text in ("one", "two", "three"):
        source.say(text)
    world.settle()
    assert values(listener) == [("a", "three")]
    later = world.writing.source("a")
    later.say("later")
    world.settle()
    assert values(listener) == [("a", "later")]


def test_a_second_listener_hears_at_once_what_there_is(world: World) -> None:
    """Although the topic was wanted before, and nothing new was said; the first isn't told again."""
    source = world.writing.source("a")
    source.say("said before it came")
    world.settle()
    first = world.reading.listen()
    world.settle()
    assert values(first) == [("a", "said before it came")]
    second = world.writing.listen("a")
    world.settle()
    assert values(second) == [("a", "said before it came")]
    assert values(first) == []


def test_only_what_is_wanted_is_published(world: World) -> None:
    """Topics by name; a listener takes only what fits it."""
    sources = [world.writing.source(topic) for topic in "abc"]
    listener = world.reading.listen("a", "c")
    picky = Listener(None, lambda topic, type: topic == "c" and type == "my/type")
    world.settle()
    for source in sources:
        source.say("hello")
    world.settle()
    assert {message["topic"] for message in world.writing.sent} == {"a", "c"}
    assert values(listener) == [("a", "hello"), ("c", "hello")]
    world.reading.bus.listen(picky)
    world.settle()
    assert values(picky) == [("c", "hello")]


def test_a_source_without_a_value_is_silent(world: World) -> None:
    """What was cut before it could be published is seen as an event; the next value is told of again."""
    source = world.writing.source("a")
    listener = world.reading.listen("a")
    world.settle()
    source.say("gone")
    source.say(None)
    world.settle()
    assert values(listener) == []
    source.say("here")
    world.settle()
    assert values(listener) == [("a", "here")]


def test_a_value_that_is_too_large_is_not_published(world: World) -> None:
    """The listener keeps the connection, and hears the next one."""
    source = world.writing.source("a")
    listener = world.reading.listen("a")
    world.settle()
    source.say("x" * VALUE_BYTES_MAX)
    world.settle()
    assert values(listener) == []
    source.say("small")
    world.settle()
    assert values(listener) == [("a", "small")]


@pytest.mark.parametrize("how", ["forgotten", "dropped"])
def test_when_the_last_listener_is_gone_publishing_ends(world: World, how: str) -> None:
    """By its own word, or because nobody has it any more, which the next value shows."""
    source = world.writing.source("a")
    listener: Listener | None = world.reading.listen("a")
    world.settle()
    if how == "forgotten":
        assert listener is not None
        world.reading.bus.forget(listener)
    listener = None
    gc.collect()
    source.say("one more")
    world.settle()
    assert source.tell is None
    world.writing.sent.clear()
    source.say("unheard")
    world.settle()
    assert world.writing.sent == []


def test_a_listening_client_that_leaves_is_not_published_to(world: World) -> None:
    """The node tells those who publish; whoever else listens still hears."""
    source = world.writing.source("a")
    world.reading.listen("a")
    other = Joined(world.board)
    listener = other.listen("a")
    other.carry()
    world.settle()
    world.board.leave(world.reading.place)
    world.settle()
    source.say("hello")
    world.writing.carry()
    other.carry()
    assert values(listener) == [("a", "hello")]
    world.board.leave(other.place)
    world.settle()
    assert source.tell is None


def test_a_client_that_comes_later_is_told_what_is_wanted(world: World) -> None:
    """It publishes from the beginning; where nothing is wanted it is told nothing."""
    assert world.writing.peer.told == []
    listener = world.reading.listen("a")
    world.settle()
    newcomer = Joined(world.board)
    newcomer.carry()
    newcomer.source("a").say("hello")
    newcomer.carry()
    world.settle()
    assert values(listener) == [("a", "hello")]


def test_a_new_node_learns_who_listens_and_what_there_is(world: World) -> None:
    """After a restart both sides come again, in whatever order; what was said meanwhile is heard."""
    source = world.writing.source("a")
    listener = world.reading.listen("a")
    world.settle()
    for clients in ((world.writing, world.reading), (world.reading, world.writing)):
        world.board = Switchboard()
        source.say(f"said while there was no node, before {clients[0]}")
        for joined in clients:
            joined.join(world.board)
        world.settle()
        assert values(listener) == [("a", f"said while there was no node, before {clients[0]}")]


def test_who_is_behind_gets_the_newest_of_each_when_it_has_caught_up(world: World) -> None:
    """A slow listener costs one value a topic, and hears no old ones; neither does it miss what is wanted."""
    sources = [world.writing.source(topic) for topic in "ab"]
    listener = world.reading.listen()
    world.settle()
    world.reading.peer.is_behind = True
    for number in range(100):
        for source in sources:
            source.say(f"{number}")
        world.writing.carry()
    second = world.writing.listen("b")
    world.writing.carry()
    assert world.reading.peer.told == []
    world.reading.peer.is_behind = False
    world.reading.place.catch_up()
    assert [message["op"] for message in world.reading.peer.told] == ["wanted", "value", "value"]
    world.settle()
    assert sorted(values(listener)) == [("a", "99"), ("b", "99")]
    assert values(second) == [("b", "99")]


def test_who_never_takes_its_values_keeps_a_bounded_number_of_them() -> None:
    """The newest of each, and where there are too many, the oldest go."""
    latest: LatestValues[int] = LatestValues()
    for number in range(VALUES_MAX + 10):
        latest.put((f"{number}", "t"), number)
    assert len(latest) == VALUES_MAX
    latest.put(("500", "t"), -1)
    assert latest.items()[0] == (("10", "t"), 10)
    assert latest.items()[-1] == (("500", "t"), -1)
    assert not latest.take(("500", "t"), 500)
    assert latest.take(("500", "t"), -1)
    assert not latest.take(("500", "t"), -1)
    assert len(latest.take_all()) == VALUES_MAX - 1
    assert len(latest) == 0


def test_topics_are_all_when_they_are_too_many_to_be_named() -> None:
    """Nobody wants nothing, and one who wants all decides for all."""
    many = frozenset(str(number) for number in range(TOPICS_MAX))
    cases: list[tuple[list[Topics], Topics]] = [
        ([], frozenset()),
        ([frozenset("a"), frozenset("b")], frozenset("ab")),
        ([frozenset("a"), None], None),
        ([many], many),
        ([many, frozenset("a")], None),
    ]
    for wanted, expected in cases:
        assert united(wanted) == expected


@pytest.mark.parametrize("found", ["a", [1], {"a": 1}, ["x"] * (TOPICS_MAX + 1)])
def test_what_are_no_topics_ends_the_connection(found: Any) -> None:
    """A peer that sends anything else isn't listened to."""
    with pytest.raises(FrameError):
        topics_from_wire(found)
    with pytest.raises(FrameError):
        Bus().receive({"op": "wanted", "topics": found})


def test_a_value_over_the_limit_is_refused_by_the_node() -> None:
    """Whoever sends one anyway is cut off."""
    with pytest.raises(FrameError, match="over the limit"):
        Switchboard().publish("a", "my/type", {"text": "x" * VALUE_BYTES_MAX})
