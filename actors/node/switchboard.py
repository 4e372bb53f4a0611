"""The node's side of the bus: passes each latest value on to those who listen to its topic, and keeps none.

A value reaches a listener at once while it reads. For one that is behind only the newest of each waits until it has
caught up: so it costs nobody anything, and hears no old news. Who publishes is told what is wanted, and told again when
somebody new listens.
"""

from __future__ import annotations

from typing import Any

from turnkeeper.runtime.frames import FrameError, encode_frame

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
from ..peers import Peer
from ..protocol import VALUE, WANTED


class Place:
    """A client's place at the switchboard: the topics that it listens to, and what waits while it is behind."""

    def __init__(self, peer: Peer) -> None:
        self.topics: Topics = NOTHING
        self._peer = peer
        self._values: LatestValues[bytes] = LatestValues()
        self._wanted: bytes | None = None

    def tell_wanted(self, frame: bytes) -> None:
        """Tell it which topics are wanted; behind, it is told the last of these when it has caught up."""
        if self._peer.is_behind:
            self._wanted = frame
        else:
            self._peer.tell(frame)

    def hand(self, topic: str, type: str, frame: bytes) -> None:
        """Hand it a value; behind, it gets the newest when it has caught up."""
        if self._peer.is_behind:
            self._values.put((topic, type), frame)
        else:
            self._peer.tell(frame)

    def catch_up(self) -> None:
        """Hand it what has waited."""
        wanted, self._wanted = self._wanted, None
        for frame in ([] if wanted is None else [wanted]) + self._values.take_all():
            self._peer.tell(frame)


class Switchboard:
    """The places of all clients."""

    def __init__(self) -> None:
        self._places: set[Place] = set()
        self._wanted: Topics = NOTHING

    def join(self, place: Place) -> None:
        """Give a client its place, if it has none yet, and tell it what is wanted."""
        if place in self._places:
            return
        self._places.add(place)
        if self._wanted != NOTHING:
            place.tell_wanted(self._wanted_frame())

    def leave(self, place: Place) -> None:
        """Take the place of a client that is gone, or that never had one."""
        self._places.discard(place)
        self._tell_if_changed()

    def listen(self, place: Place, topics: Any) -> None:
        """Note which topics a client listens to from now on. Raises FrameError for what aren't any."""
        place.topics = topics_from_wire(topics)
        if place.topics == NOTHING:
            self._tell_if_changed()
        else:
            self._tell_wanted()

    def is_wanted(self, topic: str) -> bool:
        """Say whether anybody listens to a topic."""
        return includes(self._wanted, topic)

    def publish(self, topic: str, type: str, value: dict[str, Any]) -> None:
        """Pass a value on to who listens. Raises FrameError for one that is too large."""
        frame = encode_frame({"op": VALUE, "topic": topic, "type": type, "value": value})
        if len(frame) > VALUE_BYTES_MAX:
            raise FrameError(f"a value of {len(frame):,} bytes is over the limit of {VALUE_BYTES_MAX:,}")
        for place in self._places:
            if includes(place.topics, topic):
                place.hand(topic, type, frame)

    def _tell_if_changed(self) -> None:
        if united(place.topics for place in self._places) != self._wanted:
            self._tell_wanted()

    def _tell_wanted(self) -> None:
        self._wanted = united(place.topics for place in self._places)
        frame = self._wanted_frame()
        for place in self._places:
            place.tell_wanted(frame)

    def _wanted_frame(self) -> bytes:
        return encode_frame({"op": WANTED, "topics": topics_to_wire(self._wanted)})
