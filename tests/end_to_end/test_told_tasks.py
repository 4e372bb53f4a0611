"""End to end: what is told of tasks, to their sessions and to who follows them, is durable, whole and told once."""

from __future__ import annotations

import signal
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.blocking import BlockingRuntime, connect

from ..served import SECONDS_MAX, end_all, kill, node_of, read_line, start_python, writer_of
from ..served_tasks import no_task_left

AT_ONCE = 40

HOST = """
import sys
from turnkeeper import connect
with connect(sys.argv[1]) as runtime:
    with runtime.open_session("agent", create=True) as session:
        if len(sys.argv) > 2:
            runtime.start_task(["sh", "-c", "exit 7"], session=session, key="told")
        message = next(session.inbox())
        print(message.seq, message.type, message.sender, message.data["how"]["code"], flush=True)
        sys.stdin.read()
"""


def test_a_notice_that_was_not_accepted_comes_again_whoever_is_killed(tmp_path: Path) -> None:
    """The host is killed with it in its hands, the node and the writer too: the next one gets the same message."""
    store = tmp_path / "store"
    hosts = [start_python(HOST, str(store), "starts")]
    try:
        first = read_line(hosts[0])
        for pid in (hosts[0].pid, writer_of(store), node_of(store)):
            kill(pid)
        hosts.append(start_python(HOST, str(store)))
        assert read_line(hosts[1]) == first
        kill(hosts[1].pid)
    finally:
        end_all(hosts)
    with connect(store) as runtime:
        task = runtime.task("told").state()
        assert first == f"0 task/ended {task.id} 7"
        with runtime.open_session("agent") as session:
            message = next(session.inbox())
            assert (message.seq, message.data["task"]) == (0, task.id)
            message.accept()
        with runtime.open_session("agent") as session:
            runtime.send(session.id, "my/fence", {})
            assert next(session.inbox()).type == "my/fence"


def test_tasks_that_end_at_once_are_told_of_one_by_one(tmp_path: Path) -> None:
    """Each notice is there once, and says what the record says."""
    gate = tmp_path / "gate"
    with connect(tmp_path / "store") as runtime, runtime.open_session("agent", create=True) as session:
        script = f"until test -e {gate}; do sleep 0.05; done; exit 3"
        tasks = [runtime.start_task(["sh", "-c", script], session=session).id for _ in range(AT_ONCE)]
        gate.touch()
        told = list(islice(session.inbox(), AT_ONCE))
        assert {message.sender for message in told} == set(tasks)
        for message in told:
            end = runtime.read(message.sender or "")[-1]
            assert (end.type, {"task": message.sender, **end.data}) == (message.type, message.data)
        runtime.send(session.id, "my/fence", {})
        assert [message.type for message in islice(session.inbox(), AT_ONCE, AT_ONCE + 1)] == ["my/fence"]


def test_who_follows_a_task_finds_in_the_journal_what_it_hears(tmp_path: Path) -> None:
    """Each event is durable before it is told: whoever acts on it reads it, and the state that it makes."""
    states = {"task/requested": "queued", "task/started": "running", "task/stopping": "stopping", "task/ended": "ended"}
    with connect(tmp_path / "store") as runtime:
        events = runtime.follow("*", types=["task/*"], after=0)
        for number in range(5):
            task = runtime.start_task(["sh", "-c", f"exit {number}"] if number < 4 else ["sleep", "100"])
            if number == 4:
                task.stop()
        for _ in range(4 * 3 + 4):
            event = next(events)
            found = runtime.read(event.stream)
            assert found[event.seq] == event
            reached = list(states).index(event.type)
            assert list(states.values()).index(runtime.task(event.stream).state().state) >= reached


def test_progress_is_told_a_few_times_a_second_and_the_last_of_it_always(tmp_path: Path) -> None:
    """However often a bar is drawn; what was drawn stays in the output."""
    bar = "i=0; while [ $i -le 100 ]; do printf '\\r%3d%%|##| %d/100' $i $i; i=$((i+1)); sleep 0.01; done; read go <{}"
    gate = tmp_path / "gate"
    with connect(tmp_path / "store") as runtime:
        runtime.start_task(["mkfifo", str(gate)]).wait(timeout=SECONDS_MAX)
        task = runtime.start_task(["sh", "-c", bar.format(gate)])
        told = []
        for event in runtime.follow(task.id, types=["task/progress"], ephemeral=True):
            told.append((event.time, event.data["percent"]))
            if event.data["percent"] == 100:
                break
        gate.write_text("go\n")
        assert task.wait(timeout=SECONDS_MAX).progress == {
            "current": 100,
            "percent": 100,
            "reported": False,
            "total": 100,
        }
        assert [percent for _, percent in told] == sorted({percent for _, percent in told})
        seconds = (told[-1][0] - told[0][0]) / 1000
        assert len(told) <= 5 * (seconds + 1)
        assert task.output().data.count(b"\r") == 101


def ends_of(runtime: BlockingRuntime, place: Path) -> dict[str, tuple[Any, Any]]:
    """Let seven tasks end in seven ways, and give what is recorded of each."""
    script = place / "script"
    script.write_text("echo no first line\n")
    script.chmod(0o755)
    tasks = {
        "ends in &": runtime.start_task(["sh", "-c", "sleep 100 & exit 0"]),
        "exit 143": runtime.start_task(["sh", "-c", "exit 143"]),
        "another's signal": runtime.start_task(["sh", "-c", "kill -TERM $$"]),
        "our stop": runtime.start_task(["sleep", "100"]),
        "our timeout": runtime.start_task(["sleep", "100"], timeout=0.2),
        "output limit": runtime.start_task(["yes"], limit=1000),
        "not started": runtime.start_task([str(script)]),
    }
    tasks["our stop"].stop()
    runtime.wait_tasks(*tasks.values(), timeout=SECONDS_MAX)
    found: dict[str, tuple[Any, Any]] = {}
    for name, task in tasks.items():
        state, record = task.state(), runtime.read(task.id)[-1].data
        assert (state.how, state.by, len(state.survivors)) == (record["how"], record["by"], len(record["survivors"]))
        found[name] = (state.how, (state.by, len(state.survivors), state.output))
    tasks["ends in &"].stop(grace=1)
    return found


def test_seven_ends_are_seven_different_records(tmp_path: Path) -> None:
    """Side by side in one store: how, by whom, and with what left, no two are alike, and state and record agree."""
    with no_task_left(tmp_path / "store"), connect(tmp_path / "store") as runtime:
        found = ends_of(runtime, tmp_path)
    (never, by_itself) = found.pop("not started")
    assert (by_itself, list(never)) == (("itself", 0, None), ["not_started"])
    term = {"signal": signal.SIGTERM.value}
    assert found == {
        "ends in &": ({"code": 0}, ("itself", 1, None)),
        "exit 143": ({"code": 143}, ("itself", 0, None)),
        "another's signal": (term, ("unknown", 0, None)),
        "our stop": (term, ("stop", 0, None)),
        "our timeout": (term, ("timeout", 0, None)),
        "output limit": (term, ("output limit", 0, "cut")),
    }


@pytest.mark.parametrize("how", ["deleted", "emptied", "truncated", "replaced"])
def test_a_task_whose_files_are_taken_away_is_seen_and_stopped(tmp_path: Path, how: str) -> None:
    """Its directory, or what is in it: state, output and stop answer, and say what is gone; nothing of it is left."""
    store = tmp_path / "store"
    with no_task_left(store), connect(store) as runtime:
        task = runtime.start_task(["sh", "-c", "echo printed; sleep 100"])
        pieces = task.follow()
        assert next(pieces).data == b"printed\n"
        pieces.close()
        place = store / "tasks" / task.id
        kept = place.with_name("kept")
        place.rename(kept)
        if how != "deleted":
            place.mkdir()
        if how == "truncated":
            for file in kept.iterdir():
                with file.open("w"):
                    pass
            place.rmdir()
            kept.rename(place)
        elif how == "replaced":
            for file in kept.iterdir():
                (place / file.name).write_bytes(file.read_bytes())
        state = task.state()
        gone = {"deleted": "files deleted", "emptied": "files deleted", "replaced": "files replaced", "truncated": None}
        assert (state.state, state.why) == ("running", gone[how])
        assert task.output().data == (b"printed\n" if how == "replaced" else b"")
        assert (task.output().note is not None) == (how in ("deleted", "emptied"))
        state = task.stop(grace=1)
        assert state.is_over
        assert (state.by, state.state) == (("stop", "ended") if how == "truncated" else ("unknown", "lost"))
        assert runtime.read(task.id)[-1].type == "task/ended"
