"""End to end: hosts that are killed with SIGKILL at each step of a turn, and what the next opening makes of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.actors.blocking import BlockingRuntime, connect
from turnkeeper.actors.errors import NotFound
from turnkeeper.actors.records import Event

from ..closed_logs import assert_closed, reason_of, results_of
from ..served import SECONDS_MAX
from .killed_agents import CALLS

ROOT = Path(__file__).resolve().parents[2]

STEPS_MIN = 25
"""In so many steps at least an agent must have been killed; a harness that counts fewer sees nothing."""

EFFECTS = {**CALLS, "flat": "once"}


def kill_agents(store: Path, loop: str) -> tuple[int, dict[int, set[str]]]:
    """Let agents be killed; give their number, and the calls of each whose bodies ran."""
    ran = store.with_name("ran")
    program = [sys.executable, "-m", "tests.end_to_end.killed_agents", str(store), str(ran), loop]
    environment = {"PYTHONPATH": f"{ROOT / '.import'}:{ROOT}"}
    done = subprocess.run(
        program, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=4 * SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    count = int(done.stdout)
    bodies: dict[int, set[str]] = {number: set() for number in range(1, count + 2)}
    for line in ran.read_text().splitlines():
        number, call = line.split()
        assert call not in bodies[int(number)], "a body ran twice"
        bodies[int(number)].add(call)
    return count, bodies


@pytest.mark.parametrize(("loop", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")])
def test_a_host_killed_at_any_step_of_a_turn_leaves_what_the_next_opening_tells_and_closes(
    store: Path, loop: str
) -> None:
    """Looking shows the closing before it is written; the opening writes just that, once, and tells each call's fate.

    A call whose body ran is never called one that hasn't begun. Its real result, should it come, is kept as a late one.
    """
    with connect(store) as runtime:
        count, bodies = kill_agents(store, loop)
        assert count > STEPS_MIN
        outcomes = [check(runtime, f"agent-{number}", ran) for number, ran in bodies.items()]
        fates = {fate for outcome in outcomes for fate in outcome.items()}
        assert fates >= {("reads", "retry"), ("repeats", "retry"), ("writes", "unknown"), ("never", "not_started")}
        assert fates >= {("flat", "unknown"), ("reads", "not_started"), ("writes", "not_started")}
        assert outcomes[-1] == {}
        assert reason_of(runtime.read(f"agent-{count + 1}")) == "completed"


def check(runtime: BlockingRuntime, key: str, ran: set[str]) -> dict[str, str]:
    """See what became of a killed agent's session; give the fates that its opening tells."""
    try:
        shown = runtime.read(key)
    except NotFound:
        assert not ran
        return {}
    with runtime.open_session(key) as session:
        log = session.read()
        fates: dict[str, str] = {}
        if session.interrupted is not None:
            fates |= {id: fate for id, _, fate in session.interrupted.calls}
        assert (session.interrupted is not None) == (reason_of(log) == "interrupted")
        assert fates == expected_fates(shown)
        late = [id for id, fate in fates.items() if fate in ("unknown", "retry")]
        for id in late:
            session.tool_finished(id, f"{id} done late")
        session.flush()
    assert_closed(log)
    assert contents(log) == contents(shown)
    durable = [event for event in shown if event.position]
    assert ran <= {event.data["id"] for event in durable if event.type == "tool/started"}
    assert not ran & {id for id, fate in fates.items() if fate == "not_started"}
    with runtime.open_session(key) as session:
        left = [] if session.interrupted is None else session.interrupted.calls
        assert {id: fate for id, _, fate in left} == {id: fate for id, fate in fates.items() if id not in late}
        again = session.read()
    assert again[: len(log)] == log
    assert [(event.type, event.data["output"]) for event in again[len(log) :]] == [
        ("tool/late-result", f"{id} done late") for id in late
    ]
    assert results_of(again) == results_of(log)
    return fates


def expected_fates(shown: list[Event]) -> dict[str, str]:
    """Say what must be told of each call that was unanswered, going by the events that the host itself has stored."""
    fates: dict[str, str] = {}
    for event in shown:
        if event.position and event.type == "assistant/message":
            fates = {call["id"]: "not_started" for call in event.data["tool_calls"]}
        elif event.position and event.type == "tool/started":
            fates[event.data["id"]] = "unknown" if EFFECTS[event.data["id"]] == "once" else "retry"
        elif event.position and event.type == "tool/finished":
            del fates[event.data["id"]]
    return fates


def contents(log: list[Event]) -> list[Event]:
    """Give events without what only a durable one has."""
    return [Event(0, event.stream, event.seq, event.type, event.data, event.time) for event in log]
