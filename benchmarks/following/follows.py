"""What programs see of each other over a store: how soon a follower has an event, an owner a message; what tokens cost.

Live following, catching up, deliveries and tokens are modules of their own, which say what is measured. What is live is
in a store that is new; who catches up follows one that holds many events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..measuring.room import require_space
from ..measuring.runs import Run, Tell, be_quiet
from ..workplace import Workplace, run_alone
from .catching_up import compare_catching_up
from .deliveries import compare_deliveries
from .followed_stores import Pace
from .live import compare_live
from .token_writing import TOKENS, compare_tokens

_EVENT_BYTES = 2_200  # in the store, the file and the table


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured: a timetable and how many follow it, events to catch up with, messages, tokens a second."""

    pace: Pace
    crowds: tuple[int, ...]
    catching_up: int
    messages: int
    tokens_per_second: int
    tokens: int = TOKENS
    rounds: int = 5


QUICK = Sizes(Pace(100, 200, 20), crowds=(10,), catching_up=50_000, messages=20, tokens_per_second=20_000)
FULL = Sizes(Pace(100, 200, 100), crowds=(1, 10, 100), catching_up=1_000_000, messages=200, tokens_per_second=1_000)


def run_follow(quick: bool, out: Path | None = None, *, tell: Tell = be_quiet) -> dict[str, Any]:
    """Let events be followed, messages sent and tokens written; report medians and ratios.

    All of it lies in `out`, or else in the current directory, and is removed; with `out` the result is kept there as
    follow.json. Raises OSError where that isn't free.
    """
    return run_alone("follow", partial(measure, QUICK if quick else FULL), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    require_space(place.directory, sizes.catching_up * _EVENT_BYTES)
    store = place.directory / "store"
    return [
        *compare_live(place.directory, sizes.pace, sizes.crowds, sizes.rounds, place.tell),
        *compare_catching_up(sizes.catching_up, sizes.rounds, place),
        *compare_deliveries(store, sizes.messages, sizes.rounds, place.tell),
        *compare_tokens(store, sizes.tokens_per_second, sizes.rounds, place.tell, tokens=sizes.tokens),
    ]
