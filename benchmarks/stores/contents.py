"""What is appended while flushes are measured: events of one size, of sizes between two, or as agents' are.

A size is that of an event's whole line, within a few bytes, which its numbers and the session's name take. Sizes are
drawn from a fixed seed and depend on the session and the event's number alone: whoever is measured gets the same events
in the same order, in however many processes.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from turnkeeper.storage.exact_json import encode_event

from ..measuring.runs import SEED

EVENT_TYPE: Final = "assistant/message"
EVENT_DATA: Final = {
    "text": "I read the file and will change the test first, then the function that it calls. " * 4 + "." * 25
}
"""What is appended where nothing else is said: with it an event's line has about 460 bytes."""

EVENT_BYTES: Final = 460

EVENT_BYTES_MIN: Final = 128
EVENT_BYTES_MAX: Final = 250_000
"""Between these an event may be: room for its members, and what is still a line of the journal.

Something larger is a blob there, and of blobs with the same content only the first is written: that would flatter.
"""

AGENT: Final = "agent"
"""The word for sizes as the events of the shipped transcripts have them."""

DRAWS_MAX: Final = 1_000
DRAWN_BYTES_MAX: Final = 32 * 1024 * 1024
"""So many sizes are drawn, of so many bytes together; then the first one comes again."""

_SESSION_STEP = 7_919
"""Sessions begin at places of the drawn sizes that are so far from each other, so that they don't go in step."""

Mix: TypeAlias = Literal["one size", "log-uniform", "agent"]


@dataclass(frozen=True, slots=True)
class EventSizes:
    """How large events are: of `least` to `most` bytes, in which `mix`."""

    least: int
    most: int
    mix: Mix

    @classmethod
    def parse(cls, words: str) -> EventSizes:
        """Read `N`, `N-M` (each octave as often as any other) or `agent`. Raises ValueError, which says what it is."""
        if words == AGENT:
            sizes = _transcript_sizes()
            return cls(min(sizes), max(sizes), "agent")
        found = re.fullmatch(r"([0-9]{1,12})(?:-([0-9]{1,12}))?", words)
        if found is None:
            raise ValueError(f"{words!r} is no size of events: N, N-M or {AGENT}, as 460 or 200-4000")
        least, most = int(found[1]), int(found[2] or found[1])
        if least < EVENT_BYTES_MIN or most > EVENT_BYTES_MAX:
            wrong = f"{most:,} bytes are more" if most > EVENT_BYTES_MAX else f"{least:,} bytes are fewer"
            raise ValueError(f"{wrong} than an event may have here, {EVENT_BYTES_MIN} to {EVENT_BYTES_MAX:,}")
        if least > most:
            raise ValueError(f"{words} begins above its end; {most}-{least} is meant")
        return cls(least, most, "one size" if least == most else "log-uniform")

    @property
    def words(self) -> str:
        """Give what `parse` reads."""
        return {"one size": f"{self.least}", "log-uniform": f"{self.least}-{self.most}", "agent": AGENT}[self.mix]

    @property
    def params(self) -> dict[str, Any]:
        """Say it as a run's parameters do."""
        if self.mix == "one size":
            return {"event_bytes": self.least}
        drawn = self.drawn()
        words = f"{self.least}-{self.most} {'as transcripts have them' if self.mix == AGENT else self.mix}"
        return {"event_bytes": words, "event_bytes_mean": round(sum(drawn) / len(drawn)), "seed": SEED}

    def drawn(self) -> list[int]:
        """Draw sizes; the same ones each time."""
        if self.mix == "one size":
            return [self.least]
        draw = random.Random(SEED)
        if self.mix == AGENT:
            sizes = _transcript_sizes()
            draw.shuffle(sizes)
            return sizes
        sizes, left = [], DRAWN_BYTES_MAX
        while len(sizes) < DRAWS_MAX and left > 0:
            sizes.append(round(math.exp(draw.uniform(math.log(self.least), math.log(self.most)))))
            left -= sizes[-1]
        return sizes


USUAL: Final = EventSizes(EVENT_BYTES, EVENT_BYTES, "one size")
"""What the suites measure with."""


class Contents:
    """Gives each session's next events, as what they say: all of `EVENT_TYPE`."""

    def __init__(self, sizes: EventSizes = USUAL) -> None:
        frame = len(_line({"text": ""}))
        self._drawn = [{"text": _text(size - frame)} for size in sizes.drawn()]
        self._next: dict[int, int] = {}

    def take(self, session: int, count: int) -> list[dict[str, str]]:
        """Give the session's next events; what is given may be given again, and is to be left as it is."""
        first = self._next.get(session, session * _SESSION_STEP)
        self._next[session] = first + count
        return [self._drawn[place % len(self._drawn)] for place in range(first, first + count)]


def _text(length: int) -> str:
    sentence = EVENT_DATA["text"]
    return (sentence * (length // len(sentence) + 1))[:length]


def _line(data: dict[str, Any], event_type: str = EVENT_TYPE) -> bytes:
    return encode_event("session-00000000", 0, 1_700_000_000_000, event_type, data)


def _transcript_sizes() -> list[int]:
    """Give the sizes of all events of the shipped transcripts; one that is too small counts as the smallest."""
    from .transcripts import shipped  # hosts of all suites load this module, and few need what that one loads

    steps = [step for transcript in shipped() for turn in transcript.turns for step in turn]
    return [max(EVENT_BYTES_MIN, len(_line(step.data, step.type))) for step in steps]
