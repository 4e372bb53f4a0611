"""The examples, killed at any moment and run again until they come to their end."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from turnkeeper import connect

from ..served import end_all, finish, wait_unserved

EXAMPLES = Path(__file__).parents[2] / "examples"
TOPICS = ("tides", "moss", "salt", "rust", "ferns")
ROLES = ("editor", "researcher", "writer", "checker", "publisher")
RUN_SECONDS = 1.0
"""About what a whole run takes: kills come within this time."""

both = pytest.mark.parametrize("loop", ["trio", "asyncio"])


def start(loop: str, desk: Path) -> subprocess.Popen[str]:
    """Start the newsroom on one of the loops."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"newsroom_{loop}.py"), str(desk)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


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
