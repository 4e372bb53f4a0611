"""How long it took after a kill until something new was durable, as notes say it."""

from __future__ import annotations

from typing import Any

from turnkeeper.benchmarks.chaos.recovering import recoveries


def note(what: str, at: float, session: str = "s", file: str = "host", **members: Any) -> dict[str, Any]:
    """Make a note as it is read."""
    return {"what": what, "at": at, "file": file, "line": 1, "session": session, **members}


def kill(at: float, target: str = "writer", **members: Any) -> dict[str, Any]:
    """Make the note of a kill."""
    return {"what": "strike", "kind": "kill", "at": at, "target": target, "pids": [1], "file": "runner", **members}


def test_it_is_what_was_asked_for_behind_the_kill_that_counts() -> None:
    """An answer to what was asked before it may have been on its way."""
    notes = [note("sent", 1.0), kill(2.0), note("acknowledged", 2.1), note("sent", 2.2), note("acknowledged", 5.0)]
    assert [seconds for _, seconds in recoveries(notes)] == [3.0]


def test_what_the_victim_answers_itself_is_no_recovery() -> None:
    """Between the note of a kill and the death some time passes, in which everything is as before."""
    notes = [
        kill(2.0) | {"pids": [7]},
        note("sent", 2.1),
        note("acknowledged", 2.2),
        {"what": "died", "at": 2.3, "pids": [6, 7]},
        note("sent", 2.4),
        note("acknowledged", 3.3),
    ]
    assert [seconds for _, seconds in recoveries(notes)] == [1.0]


def test_the_first_answer_counts_whoever_gets_it() -> None:
    """One agent waits long, another one is answered soon; and of several that are sent together the first counts."""
    notes = [
        kill(2.0),
        note("sent", 2.1, "slow"),
        note("sent", 2.5, "quick"),
        note("wrote", 2.9, "quick"),
        note("acknowledged", 3.0, "quick"),
        note("acknowledged", 9.0, "slow"),
    ]
    assert [seconds for _, seconds in recoveries(notes)] == [1.0]


def test_a_kill_that_nothing_comes_behind_has_no_time() -> None:
    """Nor has one that hit nobody, or a host."""
    asked = [note("sent", 3.0), note("acknowledged", 4.0)]
    assert recoveries([*asked, kill(5.0)]) == []
    assert recoveries([kill(1.0, target="host"), kill(1.0) | {"pids": []}, *asked]) == []


def test_a_death_is_overcome_in_the_life_of_the_store_that_it_came_in() -> None:
    """Between two lives nobody asks for anything, so what comes behind says nothing of it."""
    lives = [{"what": "life", "at": at, "number": number} for number, at in ((1, 0.0), (2, 4.0))]
    overcome = [kill(1.0), note("sent", 2.0), note("acknowledged", 3.5)]
    late = [kill(3.8), note("sent", 5.0), note("acknowledged", 6.0)]
    assert [seconds for _, seconds in recoveries([*lives, *overcome, *late])] == [2.5]


def test_who_killed_itself_died_when_it_did() -> None:
    """The note of it may come much later."""
    notes = [note("sent", 3.0), note("acknowledged", 4.0), kill(9.0, target="node", died=2.5)]
    assert [seconds for _, seconds in recoveries(notes)] == [1.5]
