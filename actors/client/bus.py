"""The client's side of the bus: latest values on their way from sources here to listeners anywhere. No I/O.

What is durable needs no bus: followers read it from the files. This carries what isn't, and never will be in this form:
text that is still being written, say. A source is asked for its value at most once in `PUBLISH_SECONDS`, only when it
has told that there is a new one, and only while somebody listens: the node says which topics are wanted, and says it
again for each new listener, who so hears at once what there is. The node keeps no value, so none outlives its source,
and after a restart of the node listeners and sources find each other again.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from turnkeeper.runtime.frames import encode_frame

from ..latest_values import (
    NOTHING,
    VALUE_BYTES_MAX,
    LatestValues,
    Topics,
    includes,
    topics_from_wire,
    topics_to_wire,
    united,
)
from ..protocol import LISTEN, PUBLISH, VALUE, WANTED

PUBLISH_SECONDS: Final = 0.05
"""Between two values of one source."""


class Source(Protocol):
    """What has a latest value that others may want to see.

    While it is wanted `tell` is set. When its value changes the source takes that away and calls it with itself.
    """

    tell: Callable[[Source], object] | None

    @property
    def topic(self) -> str:
        """The stream's id that the value belongs to."""

    @property
    def type(self) -> str:
        """The type of the value, as of an event."""

    def value(self) -> dict[str, Any] | None:
        """Give the value as it is now, None if there is none."""


class Listener:
    """Who wants to see values of some topics. `has_news` is set when one has come to be among its `values`."""

    def __init__(self, topics: Topics, fits: Callable[[str, str], object]) -> None:
        self.topics = topics
        self.values: LatestValues[dict[str, Any]] = LatestValues()
        self.has_news = False
        self._heard: LatestValues[dict[str, Any]] = LatestValues()
        self._fits = fits

    def take(self, topic: str, type: str, value: dict[str, Any]) -> None:
        """Keep a value if it is one of those that are wanted, and was not said again for somebody else only."""
        if includes(self.topics, topic) and self._fits(topic, type) and self._heard.get((topic, type)) != value:
            self._heard.put((topic, type), value)
            self.values.put((topic, type), value)
            self.has_news = True


class Bus:
    """What one client publishes and listens to. Sources and listeners are forgotten when nobody else has them.

    `wanted` are the topics that somebody listens to, here or elsewhere.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], object] | None = None
        self.wake_listeners: Callable[[], object] | None = None
        self._sources: weakref.WeakSet[Source] = weakref.WeakSet()
        self._changed: dict[Source, None] = {}
        self.wanted: Topics = NOTHING
        self._listeners: list[weakref.ref[Listener]] = []
        self._is_listening_told = True

    # -- What sources and listeners do

    def add_source(self, source: Source) -> None:
        """Publish what this source has from now on."""
        self._sources.add(source)
        if includes(self.wanted, source.topic):
            source.tell = self._note

    def listen(self, listener: Listener) -> None:
        """Hand values to this listener from now on, and at once those that there are."""
        self._listeners.append(weakref.ref(listener))
        self._tell_listening()

    def forget(self, listener: Listener) -> None:
        """Hand nothing more to this listener."""
        self._listeners = [each for each in self._listeners if each() is not listener]
        self._tell_listening()

    # -- What the driver does

    def join(self) -> None:
        """Begin with a new node, where nobody listens yet and this client's listeners aren't known."""
        self._want(NOTHING)
        if self._listeners:
            self._tell_listening()

    def receive(self, message: dict[str, Any]) -> None:
        """Take what the node says, if it is about values. Raises FrameError if it is and can't be read."""
        match message:
            case {"op": op, "topics": topics} if op == WANTED:
                self._want(topics_from_wire(topics))
            case {"op": op, "topic": str(topic), "type": str(type), "value": dict(value)} if op == VALUE:
                self._hand_out(topic, type, value)

    def next_output(self) -> bytes:
        """Give the bytes to send next, empty if there are none; new values go `PUBLISH_SECONDS` later."""
        parts = [] if self._is_listening_told else [self._listening()]
        changed, self._changed = self._changed, {}
        for source in changed:
            if includes(self.wanted, source.topic):
                source.tell = self._note
                parts.append(_frame_of(source))
        return b"".join(parts)

    # -- Within

    def _note(self, source: Source) -> None:
        self._changed[source] = None
        self._wake_up()

    def _want(self, topics: Topics) -> None:
        """Take note of what is wanted now. Who wants it may be new, so each value that there is goes once more."""
        self.wanted = topics
        for source in list(self._sources):
            source.tell = None
            if includes(topics, source.topic):
                self._changed[source] = None
        self._wake_up()

    def _hand_out(self, topic: str, type: str, value: dict[str, Any]) -> None:
        listeners = self._living_listeners()
        for listener in listeners:
            listener.take(topic, type, value)
        if len(listeners) < len(self._listeners):
            self._tell_listening()
        if self.wake_listeners is not None:
            self.wake_listeners()

    def _living_listeners(self) -> list[Listener]:
        return [listener for each in self._listeners if (listener := each()) is not None]

    def _tell_listening(self) -> None:
        self._is_listening_told = False
        self._wake_up()

    def _listening(self) -> bytes:
        listeners = self._living_listeners()
        self._listeners = [weakref.ref(each) for each in listeners]
        self._is_listening_told = True
        return encode_frame({"op": LISTEN, "topics": topics_to_wire(united(each.topics for each in listeners))})

    def _wake_up(self) -> None:
        if self.wake is not None:
            self.wake()


def _frame_of(source: Source) -> bytes:
    """Make the frame that publishes a source's value; empty if there is none, or it is too large."""
    value = source.value()
    if value is None:
        return b""
    frame = encode_frame({"op": PUBLISH, "topic": source.topic, "type": source.type, "value": value})
    return frame if len(frame) <= VALUE_BYTES_MAX else b""
