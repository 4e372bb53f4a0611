"""Contract of the oracle of chaos: a round without a fault is clean, and each promise that is broken alone is named."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos import checker
from turnkeeper.benchmarks.chaos.checker.judging import SHOWN_MAX, judge
from turnkeeper.benchmarks.chaos.checker.openings import UnusableNotes

from ..chaos_histories import MadeAgent, MadeRound, MadeRun
from ..chaos_rounds import Plant, Plants, clean_round, place_of, read_by_all, renumbered, run_of, said

PLANTS = Plants()


@PLANTS.breaking("acknowledged is found, found is sent, accepted, turns")
def lose_an_acknowledged_event(made: MadeRound) -> None:
    """The first flush lost an event, and what is behind it closed up."""
    run = run_of(made, "my/note")
    del run.lines[place_of(run, "my/note")]
    renumbered(run, run.seq)
    for later in made.runs[made.runs.index(run) + 1 :]:
        if later.stream == "s":
            later.seq -= 1
            renumbered(later, later.seq)


@PLANTS.breaking("numbers, epochs")
def leave_a_hole(made: MadeRound) -> None:
    """A number is missing among what nobody acknowledged."""
    run = next(run for run in made.runs if run.stream == "s" and run.epoch == 2 and run.lines)
    run.seq += 1
    renumbered(run, run.seq)


@PLANTS.breaking("found is sent, acknowledged is found, accepted")
def store_a_resent_event_twice(made: MadeRound) -> None:
    """What was sent again after a lost answer was stored again, under the next number."""
    run = next(run for run in made.runs if run.stream == "s" and run.lines and run.lines[0][1] == "inbox/accepted")
    again = run_of(made, "my/note").lines[1]
    made.runs.insert(made.runs.index(run), MadeRun("s", 1, run.seq, [(run.seq, *again[1:])]))
    for later in made.runs[made.runs.index(run) :]:
        if later.stream == "s":
            later.seq += 1
            renumbered(later, later.seq)


@PLANTS.breaking("found is sent, acknowledged is found, turns")
def swap_two_events(made: MadeRound) -> None:
    """Two events of one flush are in the other order."""
    run = run_of(made, "tool/started")
    place = place_of(run, "tool/started")
    one, other = run.lines[place : place + 2]
    run.lines[place : place + 2] = [(one[0], *other[1:]), (other[0], *one[1:])]


@PLANTS.breaking("acknowledged is found, found is sent")
def lose_text(made: MadeRound) -> None:
    """A chunk lost its end."""
    run = run_of(made, "assistant/chunk")
    place = place_of(run, "assistant/chunk")
    run.lines[place] = (run.lines[place][0], "assistant/chunk", {"text": "some"})


@PLANTS.breaking("epochs, found is sent")
def go_on_under_a_former_epoch(made: MadeRound) -> None:
    """A late owner's event was stored behind the next one's."""
    head = made.head("s")
    made.runs.append(MadeRun("s", 1, head, [(head, "my/late", {"n": 1})]))


@PLANTS.breaking("one owner")
def grant_an_epoch_twice(made: MadeRound) -> None:
    """Two openings were given the same epoch."""
    other = dict(said(made, "opened", epoch=2), file="third", line=1, pid=13)
    made.notes.append(other)


@PLANTS.breaking("turns")
def end_a_turn_twice(made: MadeRound) -> None:
    """A successor closed a turn that was closed."""
    made.commit("s", 2, [("turn/end", {"turn": 2, "reason": "interrupted"})])


@PLANTS.breaking("turns")
def leave_a_turn_open(made: MadeRound) -> None:
    """Nobody closed what a killed agent left."""
    made.commit("s", 2, [("turn/start", {"turn": 3})])
    made.notes.append(said(made, "opened", epoch=2) | {"file": "third", "epoch": 3, "pid": 13, "head": made.head("s")})
    made.grant("s", 13)


@PLANTS.breaking("turns, found is sent, acknowledged is found")
def leave_a_call_unanswered(made: MadeRound) -> None:
    """A call's result is a plain event."""
    run = run_of(made, "tool/finished")
    place = place_of(run, "tool/finished")
    run.lines[place] = (run.lines[place][0], "my/note", run.lines[place][2])


@PLANTS.breaking("turns")
def tell_of_an_end_that_is_not_there(made: MadeRound) -> None:
    """A turn ended otherwise than its agent saw."""
    said(made, "turn", turn=1, phase="end")["reason"] = "aborted"


@PLANTS.breaking("delivered")
def lose_a_message(made: MadeRound) -> None:
    """A delivered message isn't there; the task's notice has its number."""
    run = next(run for run in made.runs if run.stream == "inbox-s" and run.seq == 1)
    made.runs.remove(run)
    for later in made.runs:
        if later.stream == "inbox-s" and later.seq > 1:
            later.seq -= 1
            renumbered(later, later.seq)


@PLANTS.breaking("sent once")
def deliver_twice(made: MadeRound) -> None:
    """A message that was sent again is there twice."""
    run = next(run for run in made.runs if run.stream == "inbox-s" and run.seq == 1)
    made.commit("inbox-s", 0, [run.lines[0][1:]])


@PLANTS.breaking("sent once")
def invent_a_message(made: MadeRound) -> None:
    """There is a message that nobody sent."""
    made.commit("inbox-s", 0, [("inbox/message", {"type": "my/message", "data": {"n": 1}, "sender": None})])


@PLANTS.breaking("accepted once")
def accept_twice(made: MadeRound) -> None:
    """Two events accept one message."""
    made.commit("s", 2, [("inbox/accepted", {"inbox": 0})])


@PLANTS.breaking("accepted once")
def forget_an_acceptance(made: MadeRound) -> None:
    """The event that accepted is there, and the summary doesn't know it."""
    run_of(made, "inbox/accepted").patch.clear()


@PLANTS.breaking("accepted")
def lose_an_acceptance(made: MadeRound) -> None:
    """An acceptance that was flushed is another event, and so is what the summary says."""
    run = run_of(made, "inbox/accepted")
    run.patch["inbox"] = {"next": 0, "ahead": [[1, 1]]}
    run.lines[0] = (run.lines[0][0], "inbox/accepted", {"inbox": 1})


@PLANTS.breaking("forks")
def fork_off_by_one(made: MadeRound) -> None:
    """A fork has one event less than was asked for, and says so everywhere."""
    runs = [run for run in made.runs if run.stream == "f"]
    runs[0].patch["parent_seq"] = 2
    runs[0].lines[0] = (3, "session/forked", {"parent": "s", "at": 2})
    for run in runs:
        run.seq -= 1
        renumbered(run, run.seq)
    for note in made.notes:
        if note.get("session") == "f" and "head" in note:
            note["head"] -= 1
            note["seqs"] = [seq - 1 for seq in note.get("seqs", ())]


@PLANTS.breaking("forks")
def fork_less_than_all(made: MadeRound) -> None:
    """A fork of all that a session had has less than its owner knew of."""
    said(made, "forked", session="f").update(parent_seq=None, least=4)


@PLANTS.breaking("forks")
def fork_another_place_than_recorded(made: MadeRound) -> None:
    """The fork's record says another place than its header."""
    run_of(made, "session/forked", "f").lines[0][2]["at"] = 2


@PLANTS.breaking("forks")
def fork_what_was_not_there_yet(made: MadeRound) -> None:
    """A fork begins with events that its parent got later."""
    runs = [run for run in made.runs if run.stream == "f"]
    made.runs[:] = [run for run in made.runs if run.stream != "f"]
    made.runs[:0] = runs


@PLANTS.breaking("deletion")
def keep_a_deleted_session(made: MadeRound) -> None:
    """A deletion that returned isn't there."""
    next(run for run in made.runs if "deleted" in run.patch).patch.clear()


@PLANTS.breaking("refused is not stored, found is sent")
def store_what_was_refused(made: MadeRound) -> None:
    """An append that raised has stored its event."""
    note = said(made, "sent", file="second")
    made.notes.append({**note, "what": "refused", "line": 90})


@PLANTS.breaking("fenced")
def store_what_a_fenced_owner_was_told_is_lost(made: MadeRound) -> None:
    """An owner that was overtaken was told that an event isn't stored, which is."""
    note = said(made, "opened", file="first")
    made.notes.append({**note, "what": "fenced", "line": 90, "not_stored": [9, 12]})


@PLANTS.breaking("fenced")
def tell_an_owner_that_nobody_overtook(made: MadeRound) -> None:
    """An owner lost its session to nobody."""
    note = said(made, "opened", file="second")
    made.notes.append({**note, "what": "fenced", "line": 90, "not_stored": [0, 0]})


@PLANTS.breaking("one owner")
def grant_to_another_process(made: MadeRound) -> None:
    """An epoch that one process works under was granted to another."""
    next(run for run in made.runs if run.stream == "s" and run.epoch == 2).patch["owner"]["pid"] = 99


@PLANTS.breaking("acknowledged is found")
def acknowledge_more_than_there_is(made: MadeRound) -> None:
    """A flush told a head beyond what is there."""
    [note for note in made.notes if note["what"] == "acknowledged" and note["session"] == "s"][-1]["head"] += 50


@PLANTS.breaking("rewinds")
def rewind_without_a_record(made: MadeRound) -> None:
    """A rewind returned, and the log doesn't know it."""
    made.notes.append({**said(made, "opened", file="second"), "what": "rewound", "line": 90, "to": 1})


@PLANTS.breaking("rewinds")
def break_the_chain_of_rewinds(made: MadeRound) -> None:
    """A rewind names another one before it than there is."""
    made.commit("s", 2, [("session/rewound", {"to": 0, "previous": 1})])


def test_a_round_without_a_fault_is_clean() -> None:
    """Nothing is wrong, and what was judged is counted."""
    judgement = judge(read_by_all(clean_round()).evidence())
    assert not judgement.violations
    assert judgement.is_clean
    assert (judgement.sessions, judgement.messages, judgement.tasks) == (3, 2, 1)
    assert judgement.acknowledged == judgement.found == 8


@pytest.mark.parametrize(("plant", "broken"), PLANTS, ids=PLANTS.names)
def test_each_broken_promise_is_found(plant: Plant, broken: str) -> None:
    """What is broken in the store, or beside it, is told by name, with what follows from it, and nothing that isn't."""
    made = clean_round()
    plant(made)
    assert made.broken().keys() == set(broken.split(", "))


def test_an_owner_that_is_asked_for_again_goes_on_under_the_epoch_that_it_is_granted() -> None:
    """A new session whose first group's answer was lost is granted once more, to the same owner."""
    made = MadeRound()
    agent = MadeAgent(made, "first", 11).create("s")
    agent.send()
    agent.flush()
    made.commit("s", 2, [], {"owner": {"pid": 11, "token": "token-1"}})
    agent.epoch = 2
    agent.send()
    agent.flush()
    agent.close()
    assert made.broken() == {}
    made.runs[1].patch["owner"] = {"pid": 11, "token": "token-2"}
    assert made.broken().keys() == {"acknowledged is found", "found is sent"}


def test_of_two_who_began_a_session_in_turn_one_has_its_events() -> None:
    """An opening whose session was never stored left nothing, so the next one begins it anew, under the same epoch."""
    made = MadeRound()
    first = MadeAgent(made, "first", 11).create("s")
    first.send()
    first.die(stored=0)
    second = MadeAgent(made, "second", 12).create("s")
    second.send()
    second.flush()
    second.close()
    assert made.broken() == {}


def test_an_event_that_its_key_made_a_known_one_is_not_missed() -> None:
    """What is sent again under a key is stored once, by whichever opening."""
    made = MadeRound()
    agent = MadeAgent(made, "first", 11).create("s")
    agent.book.sent_once("s", "key", "my/once", {"n": 1})
    agent.append("my/once", {"n": 1})
    agent.commit()
    agent.book.acknowledged("s", 1, [0])
    agent.die(0)
    second = MadeAgent(made, "second", 12).open("s")
    second.book.sent_once("s", "key", "my/once", {"n": 1})
    second.seqs.append(0)
    second.send()
    second.flush()
    second.close()
    assert made.broken() == {}
    made.runs[0].lines.clear()
    assert "acknowledged is found" in made.broken()


def test_a_fenced_owners_number_may_be_stored_by_the_one_who_sent_the_same_under_its_key() -> None:
    """What both send under a key is stored by one, and counts for the other; without a key it would be missing."""
    for key in ("key", None):
        made = MadeRound()
        first = MadeAgent(made, "first", 11).create("s")
        first.send()
        first.flush()
        if key is None:
            first.book.sent("s", [("my/once", {"n": 1})])
        else:
            first.book.sent_once("s", key, "my/once", {"n": 1})
        first.book.sent("s", [("my/note", {"n": 2})])
        second = MadeAgent(made, "second", 12).open("s")
        second.book.sent_once("s", "key", "my/once", {"n": 1})
        second.append("my/once", {"n": 1})
        second.flush()
        first.book.fenced("s", range(2, 3))
        second.close()
        assert made.broken() == ({} if key else {"fenced": 1})


def test_a_violation_comes_with_the_lines_around_it() -> None:
    """Events beside it, notes of the same file beside its note, and the strikes before."""
    made = clean_round()
    strike = {"what": "strike", "kind": "kill", "target": "node", "pids": [5], "at": -1.0, "file": "runner", "line": 1}
    made.notes.insert(0, strike)
    lose_text(made)
    violation = judge(made.evidence()).violations[0]
    assert violation.promise == "acknowledged is found"
    assert violation.note is not None
    assert violation.note["what"] == "wrote"
    assert any('"what":"strike"' in line and "node" in line for line in violation.notes)
    assert any('"what":"wrote"' in line and line.startswith("first:") for line in violation.notes)
    assert any("tool/started" in line for line in judge(made.evidence()).violations[1].journal)
    assert violation.as_map()["file"] == "first"


def test_a_fork_of_all_may_have_what_another_owner_stored_meanwhile() -> None:
    """Whoever lost the session, and doesn't know it yet, knows of fewer events than it has."""
    made = clean_round()
    said(made, "forked", session="f").update(parent_seq=None, least=2)
    assert made.broken() == {}


def test_many_violations_are_counted_and_some_described() -> None:
    """A report stays legible, whatever went wrong."""
    made = MadeRound()
    for number in range(3 * SHOWN_MAX):
        made.commit("inbox-s", 0, [("inbox/message", {"type": "my/message", "data": {"n": number}, "sender": None})])
    judgement = judge(made.evidence())
    assert judgement.counts == {"sent once": 3 * SHOWN_MAX}
    assert len(judgement.violations) == SHOWN_MAX


def test_notes_that_nobody_can_have_written_are_refused() -> None:
    """Notes of a session that was never noted as opened, or of a refusal of what was never sent, judge nothing."""
    made = MadeRound()
    made.notebook("agent").acknowledged("s", 1)
    with pytest.raises(UnusableNotes, match="agent, line 1: s was never noted as opened"):
        made.evidence()
    made = MadeRound()
    book = made.notebook("agent")
    book.opened("s", 1, 0)
    book.refused("s", [("my/note", {})])
    with pytest.raises(UnusableNotes, match="what was refused was never noted as sent"):
        made.evidence()


def test_the_oracle_shares_no_code_with_the_product() -> None:
    """What judges the product imports nothing but the standard library and benchmarks, in which nothing of it is."""
    place = Path(checker.__file__).parent
    files = [
        *place.glob("*.py"),
        *(place.parent / name for name in ("notes.py", "store_processes.py")),
        *(place.parents[1] / "demonstration" / f"{name}oracle.py" for name in ("", "task_")),
    ]
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [str(node.module)]
            assert not any(name.startswith(("turnkeeper", "orjson", "lmdb", "psutil")) for name in names), path
    assert len(files) > 15
