"""A follower of a round: it follows everything in the store, fast or slowly, and notes what it was given."""

from __future__ import annotations

import anyio

from turnkeeper import Corrupt, Event, Runtime, TurnkeeperError

from .notes import Notebook
from .plan import FollowerPlan

BATCH_EVENTS = 200
BATCH_SECONDS = 0.1
"""What is given within this time, and no more than so many events, is one note."""

AGAIN_SECONDS = 0.1


async def follow(
    runtime: Runtime, plan: FollowerPlan, reached: dict[str, int], notebook: Notebook, leaving: anyio.Event
) -> None:
    """Follow until `leaving` is set, from the position on that it has reached by its name, and keep that up to date.

    After an error it goes on behind what was noted; so does who follows for it when this runtime has ended.
    """
    while not leaving.is_set():
        after = reached.get(plan.name, 0)
        notebook.following(plan.name, after)
        following = runtime.follow(after=after)
        try:
            while not leaving.is_set():
                events: list[Event] = []
                loss: Corrupt | None = None
                with anyio.move_on_after(BATCH_SECONDS):
                    while len(events) < BATCH_EVENTS and loss is None:
                        try:
                            events.append(await anext(following))
                        except Corrupt as error:
                            loss = error
                        await anyio.sleep(plan.pace_ms / 1000)
                if events:
                    notebook.followed(plan.name, events)
                    reached[plan.name] = events[-1].position
                if loss is not None:
                    reached[plan.name] = note_loss(plan.name, loss, notebook)
        except TurnkeeperError as error:
            notebook.failed("follow", error)
            await anyio.sleep(AGAIN_SECONDS)
        finally:
            await following.aclose()


def note_loss(follower: str, loss: Corrupt, notebook: Notebook) -> int:
    """Note what a follower was told to be lost; give the position that it has reached. Raises any other damage."""
    first, count = loss.positions
    if not count:
        raise loss
    notebook.told_missing(follower, loss.stream if loss.missing else None, loss.missing, loss.positions)
    return first + count - 1
