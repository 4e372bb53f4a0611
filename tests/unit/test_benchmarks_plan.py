"""Contract of the demo's plan: the seed decides everything, and what it decides makes sense."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.benchmarks.demonstration.plan import WORKERS_MAX, make_plan

TRANSCRIPTS = [3, 1, 7]
SEEDS = st.integers(0, 2**32)
SESSIONS = st.integers(1, 40)


@given(SEEDS, SESSIONS)
def test_the_same_seed_plans_the_same(seed: int, sessions: int) -> None:
    """Turns, kills and mischief are the same, to the millisecond."""
    once = make_plan(seed, sessions, 2.0, TRANSCRIPTS, kill=True)
    assert once == make_plan(seed, sessions, 2.0, TRANSCRIPTS, kill=True)
    assert once.as_map() == make_plan(seed, sessions, 2.0, TRANSCRIPTS, kill=True).as_map()


def test_another_seed_plans_something_else() -> None:
    """The seed is not only written down."""
    assert make_plan(1, 8, 5.0, TRANSCRIPTS, kill=True) != make_plan(2, 8, 5.0, TRANSCRIPTS, kill=True)


@given(SEEDS, SESSIONS, st.floats(0.1, 10))
def test_kills_fall_into_the_middle_of_the_run(seed: int, sessions: int, seconds: float) -> None:
    """Writer and spawner die twice, and the node once, in between, while agents still have turns to replay."""
    plan = make_plan(seed, sessions, seconds, TRANSCRIPTS, kill=True)
    assert [kill.victim for kill in plan.kills] == ["writer", "spawner", "node", "spawner", "writer"]
    moments = [kill.at_ms / 1000 / seconds for kill in plan.kills]
    assert moments == sorted(moments)
    assert all(0.1 < moment < 0.9 for moment in moments)
    assert all(0 <= kill.session < sessions for kill in plan.kills)


@given(SEEDS, SESSIONS)
def test_the_first_turn_after_each_kill_starts_a_task(seed: int, sessions: int) -> None:
    """There is a spawner to kill, and each kill is followed by a task that shows what still works."""
    plan = make_plan(seed, sessions, 2.0, TRANSCRIPTS, kill=True)
    turns = sorted((turn for turns in plan.turns for turn in turns), key=lambda turn: turn.at_ms)
    for moment in (0, *(kill.at_ms for kill in plan.kills)):
        first = [turn for turn in turns if turn.at_ms >= moment][:1] or turns[-1:]
        assert any(turn.task for turn in turns if turn.at_ms == first[0].at_ms)


@given(SEEDS)
def test_some_turns_start_a_task(seed: int) -> None:
    """Enough of them that tasks run at any moment, and few enough that agents do other things."""
    plan = make_plan(seed, 8, 5.0, TRANSCRIPTS, kill=True)
    turns = [turn for turns in plan.turns for turn in turns]
    assert len(turns) / 6 < sum(turn.task is not None for turn in turns) < len(turns) / 2


@given(SEEDS, SESSIONS)
def test_sessions_walk_through_whole_transcripts(seed: int, sessions: int) -> None:
    """Turns come in the transcript's order, one transcript after the other, at growing times; everybody has one."""
    plan = make_plan(seed, sessions, 2.0, TRANSCRIPTS, kill=True)
    assert plan.sessions == sessions
    assert plan.workers == min(sessions, WORKERS_MAX)
    for session, turns in enumerate(plan.turns):
        transcript, turn = session % len(TRANSCRIPTS), 0
        for planned in turns:
            assert (planned.transcript, planned.turn) == (transcript, turn)
            turn += 1
            if turn == TRANSCRIPTS[transcript]:
                transcript, turn = (transcript + 1) % len(TRANSCRIPTS), 0
        times = [planned.at_ms for planned in turns]
        assert times == sorted(times)
        assert times


@given(SEEDS)
def test_without_kills_nothing_dies(seed: int) -> None:
    """The turns are the same ones, and no process is killed."""
    calm, wild = (make_plan(seed, 4, 2.0, TRANSCRIPTS, kill=kill) for kill in (False, True))
    assert calm.turns == wild.turns
    assert (calm.kills, calm.torn_write) == ((), None)
