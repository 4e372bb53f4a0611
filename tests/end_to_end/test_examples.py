"""The examples: run to their end, and those that promise it killed at any moment and run again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from turnkeeper import connect

from ..served import SECONDS_MAX, end_all, finish, wait_unserved

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPICS = ("tides", "moss", "salt", "rust", "ferns")
ROLES = ("editor", "researcher", "writer", "checker", "publisher")
AGENTS = ("anna", "bert", "carl")
RUN_SECONDS = 1.0
"""About what a whole run takes: kills come within this time."""

both = pytest.mark.parametrize("loop", ["trio", "asyncio"])
one = pytest.mark.parametrize("loop", ["trio", pytest.param("asyncio", marks=pytest.mark.long)])
"""For an example whose actors live in processes of their own, whatever the loop of its host is."""


def start(loop: str, desk: Path) -> subprocess.Popen[str]:
    """Start the newsroom on one of the loops."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"newsroom_{loop}.py"), str(desk)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run_actors(name: str, loop: str, store: Path) -> list[str]:
    """Run one of the examples of actors, which ends by itself and leaves no process; give the lines that it said."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), str(store), loop]
    # Several processes print at once, and without a buffer Python writes a line and its end one by one.
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, env=buffered, capture_output=True, text=True, timeout=2 * SECONDS_MAX, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wait_unserved(store, 5.0)
    return done.stdout.splitlines()


def run_to_the_end(loop: str, desk: Path) -> str:
    """Run the newsroom until it ends by itself; give what it said."""
    newsroom = start(loop, desk)
    try:
        return finish(newsroom)
    finally:
        end_all([newsroom])


def kill_after(loop: str, desk: Path, seconds: float) -> bool:
    """Start the newsroom and kill it after so many seconds; say whether it was still at work."""
    newsroom = start(loop, desk)
    try:
        newsroom.wait(seconds)
    except subprocess.TimeoutExpired:
        newsroom.kill()
        newsroom.wait()
        return True
    finally:
        end_all([newsroom])
    return False


def assert_all_is_well(desk: Path) -> None:
    """Hold what the example promises: turns ended once, messages accepted once, nothing done twice that mustn't be."""
    accepted: Counter[tuple[str, int]] = Counter()
    unknown = set()
    answers = []
    with connect(desk / "store") as runtime:
        for role in ROLES:
            is_open = False
            for event in runtime.read(role, limit=100_000):
                if event.type == "turn/start":
                    assert not is_open
                    is_open = True
                elif event.type == "turn/end":
                    assert is_open
                    is_open = False
                elif event.type == "user/message" and "inbox" in event.data:
                    accepted[role, event.data["inbox"]] += 1
                elif event.type == "assistant/message":
                    answers.append(event.data["text"])
                elif event.type == "tool/finished" and event.data.get("error") == "TOOL_OUTCOME_UNKNOWN":
                    unknown.add(event.data["id"])
            assert not is_open
    assert accepted == Counter({(role, number): 1 for role in ROLES for number in range(len(TOPICS))})
    lines = (desk / "traces.jsonl").read_text().splitlines()
    traces = Counter((trace["tool"], trace["topic"]) for trace in map(json.loads, lines))
    for topic in TOPICS:
        assert traces["look_up", topic] >= 1
        assert traces["format", topic] >= 1
        published, was_cut_off = traces["publish", topic], f"publish-{topic}" in unknown
        assert published == 1 or (published == 0 and was_cut_off)
        if was_cut_off:
            assert any(text.endswith("publisher (unknown)") for text in answers)


@both
def test_the_newsroom_comes_to_its_end(tmp_path: Path, loop: str) -> None:
    """Everything is published once, and nothing is left running."""
    told = run_to_the_end(loop, tmp_path)
    assert told == ""
    assert_all_is_well(tmp_path)
    wait_unserved(tmp_path / "store", 5.0)


@both
def test_a_killed_newsroom_goes_on_where_it_was(tmp_path: Path, loop: str) -> None:
    """SIGKILL at five random moments, each followed by another run, the last one to the end."""
    _kill_and_go_on(tmp_path, loop, random.Random(5), kills=5)


@both
def test_a_crashing_actor_is_started_again_until_its_supervisors_give_up(tmp_path: Path, loop: str) -> None:
    """Those behind it with it, those before it not; a tree within a tree is started again as a whole."""
    said = run_actors("supervised", loop, tmp_path / "store")
    failed = "second failed: ZeroDivisionError: division by zero"
    reason = "it failed: ZeroDivisionError: division by zero"
    assert sorted(said[:2]) == [f"monitor: second is down, {reason}", failed]
    assert said[2:5] == ["second has read 1", "first has read 2", "third has read 1"]
    restarts = [f"clock up, 0 restarts; readers up, {number} restarts;" for number in (0, 0, 1, 1, 1)]
    assert said[5:-2] == [line for each in restarts for line in (failed, each)]
    gave_up = f"root/readers gave up child 'second': {reason}, and it ended again after 2 restarts within 60 s"
    assert said[-2] == f"second.read was not started: it failed: {gave_up}"
    assert said[-1].startswith(
        f"root: it failed: root gave up child 'readers': it failed: {gave_up}, and it ended again"
    )


@one
def test_session_actors_outlive_their_processes(tmp_path: Path, loop: str) -> None:
    """Killed in their turns, they go on: each job is done once, each turn that was cut short is closed.

    Run again they find all done.
    """
    store = tmp_path / "store"
    said = run_actors("session_pool", loop, store)
    killed = sum(line.endswith("was killed by SIGKILL") for line in said)
    assert 1 <= killed <= len(AGENTS)
    assert sum(line.endswith("was started again 1 times") for line in said[-len(AGENTS) :]) >= killed
    assert not any("SIGKILL" in line or "cut short" in line for line in run_actors("session_pool", loop, store))
    done: list[str] = []
    reasons: Counter[str] = Counter()
    with connect(store) as runtime:
        for agent in AGENTS:
            events = runtime.read(agent, limit=1_000)
            done += [event.data["job"] for event in events if event.type == "pool/done"]
            turns = [event for event in events if event.type in ("turn/start", "turn/end")]
            assert [event.type for event in turns] == ["turn/start", "turn/end"] * (len(turns) // 2)
            reasons.update(event.data["reason"] for event in turns[1::2])
    assert sorted(done) == [f"chapter {number}" for number in range(1, 10)]
    # One that is killed in the last moment of its turn has done its job.
    assert len(done) - killed <= reasons["completed"] <= len(done)
    assert reasons.keys() == {"completed", "interrupted"}
    assert reasons["interrupted"] == sum("was cut short" in line for line in said) <= len(AGENTS)


@one
def test_a_pool_of_workers_outlives_what_it_is_given(tmp_path: Path, loop: str) -> None:
    """A job that fails and one that never ends cost a restart each; the others are done."""
    said = run_actors("worker_pool", loop, tmp_path / "store")
    primes = {5_000: 669, 10_000: 1229, 15_000: 1754, 20_000: 2262}
    assert {f"{count} primes below {below}" for below, count in primes.items()} < set(said)
    assert "-1 failed: ValueError: -1 is no number to count to" in said
    # On a busy machine its time may be over before its worker is up again: then nobody began with it.
    (given_up,) = (line for line in said if line.startswith(("0 was given up: ", "0 is left: ")))
    assert "no answer within" in given_up or "was up within" in given_up
    assert said[-1] == ("2 restarts" if "given up" in given_up else "1 restarts")
    assert len(said) == 7


@pytest.mark.long
@pytest.mark.timeout(600)
@both
def test_a_newsroom_killed_fifty_times_goes_on_where_it_was(tmp_path: Path, loop: str) -> None:
    """Fifty SIGKILLs, each of a newsroom that was at work, over as many newsrooms as that takes."""
    chance = random.Random(50)
    kills = rounds = 0
    while kills < 50:
        desk = tmp_path / str(rounds)
        desk.mkdir()
        kills += _kill_and_go_on(desk, loop, chance, kills=min(5, 50 - kills))
        rounds += 1


def _kill_and_go_on(desk: Path, loop: str, chance: random.Random, kills: int) -> int:
    """Run the newsroom to its end with up to so many kills on the way; give how many there were."""
    killed = 0
    for _ in range(kills):
        if not kill_after(loop, desk, chance.uniform(0.15, RUN_SECONDS)):
            break
        killed += 1
    run_to_the_end(loop, desk)
    assert_all_is_well(desk)
    return killed
