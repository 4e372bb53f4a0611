"""Contract of the oracle of chaos about readers: what is read, listed and followed is held against what is stored."""

from __future__ import annotations

import pytest

from ..chaos_histories import MadeRound
from ..chaos_rounds import Plant, Plants, clean_round, read_by_all, said

PLANTS = Plants()


@PLANTS.breaking("readings")
def read_too_little(made: MadeRound) -> None:
    """A reading lacks the last event."""
    said(made, "read", session="s")["events"].pop()


@PLANTS.breaking("readings")
def read_another_parent_event(made: MadeRound) -> None:
    """A reading of a fork has another event of its parent."""
    said(made, "read", session="f")["events"][1][2] = "0" * 32


@PLANTS.breaking("readings")
def read_beyond_the_head(made: MadeRound) -> None:
    """A reading said that there are more events than there are."""
    said(made, "read", session="s")["head"] += 1


@PLANTS.breaking("lists")
def list_too_little(made: MadeRound) -> None:
    """A session isn't listed."""
    said(made, "listed")["sessions"].remove("f")


@PLANTS.breaking("lists")
def list_what_is_deleted(made: MadeRound) -> None:
    """A deleted session is listed, and another one twice."""
    said(made, "listed")["sessions"] += ["g", "s"]


@PLANTS.breaking("followers")
def follow_with_a_gap(made: MadeRound) -> None:
    """A follower missed an event at a seam."""
    said(made, "followed", follower="from-the-start")["events"].pop()


@PLANTS.breaking("followers")
def follow_with_a_repeat(made: MadeRound) -> None:
    """A follower was given an event twice."""
    seen = said(made, "followed", follower="one-stream")["events"]
    seen.append(seen[-1])


@PLANTS.breaking("followers")
def follow_in_another_order(made: MadeRound) -> None:
    """A follower was given two events in the other order."""
    said(made, "followed", follower="killed")["events"].reverse()


@PLANTS.breaking("followers")
def follow_another_stream(made: MadeRound) -> None:
    """A follower of one stream was given another's event."""
    other = said(made, "followed", follower="killed")["events"][0]
    said(made, "followed", follower="one-stream")["events"][0] = [other[0], "f", *other[2:]]


@PLANTS.breaking("followers")
def follow_another_content(made: MadeRound) -> None:
    """A follower was given another content."""
    said(made, "followed", follower="from-the-start")["events"][2][4] = "0" * 32


@PLANTS.breaking("followers")
def follow_not_to_the_end(made: MadeRound) -> None:
    """A follower was waited for, and never got the last events."""
    made.notes.remove([note for note in made.notes if note.get("follower") == "from-the-start"][-2])


@PLANTS.breaking("followers")
def go_on_elsewhere(made: MadeRound) -> None:
    """A follower went on behind what it had seen."""
    made.follow("killed", 12, count=2)


@pytest.mark.parametrize(("plant", "broken"), PLANTS, ids=PLANTS.names)
def test_what_readers_were_given_wrongly_is_found(plant: Plant, broken: str) -> None:
    """What was read, listed or followed is held against what is stored."""
    made = read_by_all(clean_round())
    plant(made)
    assert made.broken() == {broken: made.broken()[broken]}
