"""What tests say in sessions, and what they compare of what these tell."""

from __future__ import annotations

from typing import Any, TypeAlias

from turnkeeper.actors.records import Event
from turnkeeper.actors.session.session import Session

Told: TypeAlias = list[tuple[int, str, dict[str, Any]]]


async def say(session: Session, *words: str) -> int:
    """Append a message for each word and flush once."""
    for word in words:
        await session.append("user/message", {"text": word})
    return await session.flush()


def told(events: list[Event]) -> Told:
    """Give number, type and data of events."""
    return [(event.seq, event.type, event.data) for event in events]


def texts(events: list[Event]) -> list[str]:
    """Give the texts of messages."""
    return [event.data["text"] for event in events]
