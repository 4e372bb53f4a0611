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


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("told", [0, 1])
def test_an_event_that_a_follower_was_told_to_be_missing_is_reported_and_one_that_it_was_not_is_lost(
    is_named: bool, told: int
) -> None:
    """By its stream and number, or by its position where nobody knows whose it was; another's doesn't count for it."""
    made = read_by_all(clean_round())
    due = made.readable()
    missing = next(place for place in range(3, len(due) - 1) if due[place].stream == due[place + 1].stream)
    told_of = due[missing + told]
    stream, seqs = (told_of.stream, [(told_of.seq, 1)]) if is_named else (None, [])
    book = made.notebook("told")
    book.following("told", 0)
    book.followed("told", due[:missing])
    book.told_missing("told", stream, seqs, (told_of.position, 1))
    book.followed("told", due[missing + 1 :])
    book.awaited("told", due[-1].position)
    assert list(made.broken()) == (["followers"] if told else [])
