"""Contract of the oracle of chaos about processes: a wrong end, run or output of a task is found, and what is left."""

from __future__ import annotations

import pytest

from turnkeeper.benchmarks.chaos.checker.evidence import Output
from turnkeeper.benchmarks.chaos.checker.leftovers import MIB, Leftovers

from ..chaos_histories import MadeRound
from ..chaos_rounds import Plant, Plants, clean_round, run_of, said

PLANTS = Plants()


@PLANTS.breaking("task runs")
def run_a_task_twice(made: MadeRound) -> None:
    """Two shims ran one task."""
    made.witnesses["job"] += made.witnesses["job"]


@PLANTS.breaking("task ends, task runs")
def make_up_an_exit_code(made: MadeRound) -> None:
    """A task's end is another than it had, in its record and in the notice."""
    for stream in ("task-job", "inbox-s"):
        end = next(run for run in reversed(made.runs) if run.stream == stream).lines[0][2]
        end.get("data", end)["how"] = {"code": 0}
    said(made, "ended")["how"] = {"code": 0}


@PLANTS.breaking("task ends")
def call_a_task_lost(made: MadeRound) -> None:
    """A task whose shim lived is called lost."""
    end = {"state": "lost", "by": "unknown", "why": "its shim was killed", "survivors": []}
    next(run for run in made.runs if run.lines and run.lines[0][1] == "task/ended").lines[0] = (2, "task/ended", end)
    notice = next(run for run in reversed(made.runs) if run.stream == "inbox-s").lines[0][2]
    notice["data"] = {"task": "task-job", **end}
    said(made, "ended").update(state="lost", how=None, by="unknown")


@PLANTS.breaking("task ends")
def end_a_task_twice(made: MadeRound) -> None:
    """A task has two ends."""
    made.commit("task-job", 0, [run_of(made, "task/ended", "task-job").lines[0][1:]])


@PLANTS.breaking("one task, task notices")
def start_a_task_twice(made: MadeRound) -> None:
    """A start that was asked for twice is two tasks."""
    for run in [run for run in made.runs if run.stream == "task-job"]:
        made.commit("task-job-2", 0, [line[1:] for line in run.lines], run.patch)
    made.outputs["task-job-2"] = made.outputs["task-job"]


@PLANTS.breaking("one task, task runs")
def forget_a_task(made: MadeRound) -> None:
    """A task that was started, and ran, isn't in the journal; nor is its notice."""
    tell_nobody_of_an_end(made)
    made.runs[:] = [run for run in made.runs if run.stream != "task-job"]


@PLANTS.breaking("task runs")
def run_a_task_that_nobody_asked_for(made: MadeRound) -> None:
    """A command ran that is no task of the round's."""
    made.witnesses["stranger"] = ["began"]


@PLANTS.breaking("task outputs")
def lose_output(made: MadeRound) -> None:
    """A task's output isn't what it printed, though the size is."""
    made.outputs["task-job"] = Output("0" * 32, made.outputs["task-job"].size)


@PLANTS.breaking("task notices")
def tell_nobody_of_an_end(made: MadeRound) -> None:
    """A task's session was never told."""
    made.runs.remove(next(run for run in reversed(made.runs) if run.stream == "inbox-s"))


@PLANTS.breaking("task ends")
def tell_a_waiter_something_else(made: MadeRound) -> None:
    """A wait returned another end than the recorded one."""
    said(made, "ended")["how"] = {"code": 4}


@PLANTS.breaking("task ends")
def stop_a_task_that_nobody_stopped(made: MadeRound) -> None:
    """A task was ended as if its owner had gone, which is there."""
    end = {"state": "ended", "by": "owner", "how": {"signal": 15}, "output_bytes": 9, "survivors": []}
    run_of(made, "task/ended", "task-job").lines[0] = (2, "task/ended", end)
    notice = next(run for run in reversed(made.runs) if run.stream == "inbox-s").lines[0][2]
    notice["data"] = {"task": "task-job", **end}
    made.witnesses["job"] = ["began"]
    said(made, "ended").update(how={"signal": 15}, by="owner")


@PLANTS.breaking("nothing is left")
def leave_a_shim(made: MadeRound) -> None:
    """A process lives on, another was never reaped, and both show in what is open."""
    made.leftovers = Leftovers(
        processes={5: "a shim"},
        zombies={6: "a host"},
        locks=["tasks/t/lock"],
        sockets=["node.sock"],
        descriptors=[(5, "tasks/t/lock")],
        files=["journal/00000002.tmp"],
    )


@PLANTS.breaking("bounded")
def grow_without_end(made: MadeRound) -> None:
    """A writer takes more and more memory, a node descriptors."""
    book = made.notebook("runner")
    for turn in range(1, 6):
        book.process("writer", 3, 10, turn * 100 * MIB, clients=2)
        book.process("node", 4, 30 * turn, 40 * MIB, clients=2)


@pytest.mark.parametrize(("plant", "broken"), PLANTS, ids=PLANTS.names)
def test_what_is_wrong_with_tasks_and_processes_is_found(plant: Plant, broken: str) -> None:
    """What is broken in the store, or beside it, is told by name, with what follows from it, and nothing that isn't."""
    made = clean_round()
    plant(made)
    assert made.broken().keys() == set(broken.split(", "))


def test_a_task_may_end_otherwise_if_that_was_done_to_it() -> None:
    """An owner that was killed, and a shim that was killed: each allows its end, and no other."""
    stopped = clean_round()
    stop_a_task_that_nobody_stopped(stopped)
    stopped.notebook("runner").strike("kill", "host", [1, said(stopped, "starting")["pid"]])
    assert stopped.broken() == {}
    lost = clean_round()
    call_a_task_lost(lost)
    lost.notebook("runner").strike("kill", "shim", [76])
    assert lost.broken() == {}
    other = clean_round()
    call_a_task_lost(other)
    other.notebook("runner").strike("kill", "writer", [76])
    assert other.broken().keys() == {"task ends"}


def test_a_task_without_a_record_of_its_start_is_lost_with_the_shim_that_began_it() -> None:
    """That shim has written down who it is; another one's death excuses nothing."""

    def lost(killed: int, shims: dict[str, int] | None) -> set[str]:
        made = clean_round()
        call_a_task_lost(made)
        made.runs[:] = [run for run in made.runs if not run.lines or run.lines[0][1] != "task/started"]
        end = next(run for run in made.runs if run.lines and run.lines[0][1] == "task/ended")
        end.seq, end.lines[0] = 1, (1, *end.lines[0][1:])
        made.shims = shims
        made.notebook("runner").strike("kill", "shim", [killed])
        return {*made.broken()}

    assert lost(75, {"task-job": 75, "task-other": 74}) == set()
    assert lost(74, {"task-job": 75, "task-other": 74}) == {"task ends"}
    assert lost(74, {"task-other": 74}) == {"task ends"}
    assert lost(74, None) == set()


@pytest.mark.parametrize(
    ("told", "is_right"),
    [("/a/long/path is no program", True), ("/a/long/pa…", True), ("/another/pa…", False), ("/a/long/pa", False)],
)
def test_a_wait_may_be_told_the_beginning_of_a_long_reason(told: str, is_right: bool) -> None:
    """Why a command can't be started names its path, which has any length; what was cut ends with "…"."""
    made = clean_round()
    why = "/a/long/path is no program"
    end = {"state": "ended", "by": "itself", "how": {"not_started": why}, "output_bytes": 9, "survivors": []}
    run_of(made, "task/ended", "task-job").lines[0] = (2, "task/ended", end)
    notice = next(run for run in reversed(made.runs) if run.stream == "inbox-s").lines[0][2]
    notice["data"] = {"task": "task-job", **end}
    made.witnesses.pop("job")
    said(made, "starting")["expect"].update(how={"not_started": why}, ends_itself=False)
    said(made, "ended")["how"] = {"not_started": told}
    assert made.broken().keys() == (set() if is_right else {"task ends"})


def test_what_nobody_syncs_of_a_task_may_go_with_the_power() -> None:
    """A task that had begun before a cut may be lost, and what it printed; one that began behind it may not."""
    cut = clean_round()
    call_a_task_lost(cut)
    cut.notebook("runner").strike("power", "disk")
    assert cut.broken() == {}
    before = clean_round()
    call_a_task_lost(before)
    before.notebook("runner").strike("power", "disk")
    said(before, "strike")["at"] = said(before, "starting")["at"] - 1
    assert before.broken().keys() == {"task ends"}
