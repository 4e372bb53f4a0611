"""Contract of the oracle of tasks: each promise, broken alone, is seen; it knows the store without the product."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.demonstration import task_oracle
from turnkeeper.benchmarks.demonstration.task_oracle import (
    FoundTask,
    NotedTask,
    TaskEnd,
    TaskNotebook,
    TaskVerdict,
    judge_tasks,
    output_digest,
    read_journal_tasks,
    read_logs,
    read_task_notes,
    read_witnesses,
)

DIGEST = output_digest(b"a line 1\n")
END = TaskEnd({"code": 3}, "itself")
NOTED = NotedTask("a", END, DIGEST, ends_itself=True, session="s", is_acknowledged=True)
WITNESS = {"a": ["began", "code 3"]}
GOOD = FoundTask(ends=[END], outputs=[DIGEST], told=["s"])


def counted(verdict: TaskVerdict) -> dict[str, int]:
    """Give what is wrong, by kind."""
    kinds = ("wrong_exits", "wrong_runs", "wrong_outputs", "wrong_notices", "orphans")
    return {kind: count for kind in kinds if (count := getattr(verdict, kind))}


def test_a_task_that_ended_as_it_had_to_is_clean() -> None:
    """One end, one run, one output, one notice, and nothing left."""
    verdict = judge_tasks([NOTED], WITNESS, [{"a": GOOD}])
    assert verdict == TaskVerdict(tasks=1)
    assert verdict.is_clean


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        pytest.param(replace(GOOD, ends=[TaskEnd({"code": 0}, "itself")]), {"wrong_exits": 1}, id="another code"),
        pytest.param(replace(GOOD, ends=[TaskEnd({"signal": 3}, "itself")]), {"wrong_exits": 1}, id="a signal"),
        pytest.param(replace(GOOD, ends=[TaskEnd({"code": 3}, "stop")]), {"wrong_exits": 1}, id="by somebody else"),
        pytest.param(replace(GOOD, ends=[TaskEnd(None, "unknown")]), {"wrong_exits": 1}, id="lost"),
        pytest.param(replace(GOOD, ends=[]), {"wrong_exits": 1}, id="no terminal record"),
        pytest.param(replace(GOOD, ends=[END, END]), {"wrong_exits": 1}, id="two terminal records"),
        pytest.param(replace(GOOD, outputs=[output_digest(b"a li")]), {"wrong_outputs": 1}, id="output cut"),
        pytest.param(replace(GOOD, outputs=[]), {"wrong_outputs": 1}, id="no output"),
        pytest.param(replace(GOOD, outputs=[DIGEST, DIGEST]), {"wrong_outputs": 1}, id="two tasks of one key"),
        pytest.param(replace(GOOD, told=[]), {"wrong_notices": 1}, id="nobody was told"),
        pytest.param(replace(GOOD, told=["s", "s"]), {"wrong_notices": 1}, id="told twice"),
        pytest.param(replace(GOOD, told=["other"]), {"wrong_notices": 1}, id="somebody else was told"),
    ],
)
def test_each_broken_promise_is_counted(found: FoundTask, broken: dict[str, int]) -> None:
    """What is wrong is counted where it belongs, described, and nothing else is; whichever reading shows it."""
    for readings in ([{"a": found}], [{"a": GOOD}, {"a": found}], [{"a": found}, {"a": GOOD}]):
        verdict = judge_tasks([NOTED], WITNESS, readings)
        assert counted(verdict) == broken
        assert not verdict.is_clean
        assert len(verdict.violations) == 1


@pytest.mark.parametrize(
    "witness",
    [
        pytest.param(["began", "began", "code 3"], id="began twice"),
        pytest.param(["began", "code 3", "began", "code 3"], id="ran twice"),
        pytest.param([], id="never ran"),
        pytest.param(["began"], id="never came to its end"),
        pytest.param(["began", "code 4"], id="ended otherwise"),
    ],
)
def test_a_command_that_did_not_run_exactly_once_is_seen(witness: list[str]) -> None:
    """Its own witness says so, whatever is recorded."""
    assert counted(judge_tasks([NOTED], {"a": witness}, [{"a": GOOD}])) == {"wrong_runs": 1}


def test_what_lasts_until_it_is_stopped_witnesses_its_beginning_alone() -> None:
    """It has no end of its own to write down."""
    lasting = NOTED._replace(ends_itself=False)
    assert judge_tasks([lasting], {"a": ["began"]}, [{"a": GOOD}]).is_clean
    assert counted(judge_tasks([lasting], WITNESS, [{"a": GOOD}])) == {"wrong_runs": 1}


def test_a_task_that_nobody_recorded_is_wrong_once_it_was_acknowledged_or_ran() -> None:
    """A start that was asked for, and neither acknowledged nor done, promised nothing."""
    unanswered = NOTED._replace(is_acknowledged=False)
    assert judge_tasks([unanswered], {}, [{}]) == TaskVerdict()
    assert judge_tasks([unanswered], WITNESS, [{}]).wrong_exits == 1
    assert judge_tasks([NOTED], {}, [{}]).wrong_exits == 1


def test_a_task_that_nobody_asked_for_is_seen() -> None:
    """In the journal as in the witnesses."""
    assert counted(judge_tasks([], {}, [{"a": GOOD}])) == {"wrong_runs": 1}
    assert counted(judge_tasks([], WITNESS, [{}])) == {"wrong_runs": 1}


def test_without_supervision_only_how_it_ended_is_compared() -> None:
    """Programs without a store record no `by`, and tell nobody."""
    noted = NOTED._replace(end=TaskEnd({"code": 3}, None), session=None)
    assert judge_tasks([noted], WITNESS, [{"a": FoundTask([TaskEnd({"code": 3}, None)], [DIGEST])}]).is_clean


def test_notes_come_back_and_an_unfinished_one_says_nothing(tmp_path: Path) -> None:
    """A note counts once its line is whole; a start counts as acknowledged once that is noted."""
    notebook = TaskNotebook(tmp_path / "notes")
    asked = NOTED._replace(is_acknowledged=False)
    notebook.note(asked)
    notebook.note(asked._replace(name="b"))
    notebook.note_acknowledged("a")
    notebook.close()
    with (tmp_path / "notes").open("ab") as file:
        file.write(b'{"acknowledged": "b')
    assert read_task_notes([tmp_path / "notes"]) == [NOTED, asked._replace(name="b")]


def journal_of(store: Path, *records: tuple[str, str, dict[str, Any]]) -> None:
    """Write a journal of these streams, types and data."""
    (store / "journal").mkdir(exist_ok=True)
    lines = [json.dumps({"$batch": 1})]
    lines += [json.dumps({"stream": stream, "type": type, "data": data}) for stream, type, data in records]
    (store / "journal" / "00000001.jsonl").write_text("\n".join(lines) + "\n")


REQUESTED = ("task-1", "task/requested", {"key": "a"})
ENDED = ("task-1", "task/ended", {"how": {"code": 3}, "by": "itself"})
TOLD = ("inbox-s", "inbox/message", {"type": "task/ended", "data": {"task": "task-1"}, "sender": "task-1"})


def test_the_journal_and_the_output_are_read_as_anybody_may_read_them(tmp_path: Path) -> None:
    """A task is known by its key; its ends, its output's file and the notices of it are found."""
    (tmp_path / "tasks" / "task-1").mkdir(parents=True)
    (tmp_path / "tasks" / "task-1" / "output.log").write_bytes(b"a line 1\n")
    journal_of(tmp_path, ("s", "note", {}), REQUESTED, ENDED, TOLD)
    assert read_journal_tasks(tmp_path) == {"a": GOOD}
    journal_of(tmp_path, REQUESTED, ENDED, ENDED, TOLD, TOLD)
    assert read_journal_tasks(tmp_path) == {"a": replace(GOOD, ends=[END, END], told=["s", "s"])}


def test_two_tasks_of_one_key_are_found_as_such(tmp_path: Path) -> None:
    """Both ends and both outputs count, so the task ended wrongly."""
    journal_of(tmp_path, REQUESTED, ENDED, *[("task-2", type, data) for _, type, data in (REQUESTED, ENDED)])
    (found,) = read_journal_tasks(tmp_path).values()
    assert (found.ends, found.outputs) == ([END, END], ["no file", "no file"])


def test_a_lost_task_s_end_is_unknown_and_one_without_a_request_a_stranger(tmp_path: Path) -> None:
    """Nothing of what is recorded makes the oracle fail."""
    journal_of(tmp_path, ("task-1", "task/ended", {"state": "lost", "why": "its shim died"}), TOLD)
    assert read_journal_tasks(tmp_path) == {"task-1": FoundTask([TaskEnd(None, None)], [], ["s"])}


def test_the_log_of_a_program_of_today_is_read(tmp_path: Path) -> None:
    """What it wrote down is its record; an end that it never saw is none."""
    (tmp_path / "outputs").mkdir()
    for name in ("a", "b"):
        (tmp_path / "outputs" / name).write_bytes(b"a line 1\n")
    (tmp_path / "log").write_text(json.dumps({"task": "a", "end": {"code": 3}}) + "\n")
    found = read_logs([tmp_path / "log"], tmp_path / "outputs")
    assert found == {"a": FoundTask([TaskEnd({"code": 3}, None)], [DIGEST]), "b": FoundTask([], [DIGEST])}


def test_witnesses_are_read_by_name(tmp_path: Path) -> None:
    """Each file is one task's own."""
    (tmp_path / "a").write_text("began\ncode 3\n")
    assert read_witnesses(tmp_path) == WITNESS


def test_the_oracle_shares_no_code_with_the_product() -> None:
    """It imports nothing of ours but the events' oracle, which imports nothing of ours."""
    assert task_oracle.__file__ is not None
    tree = ast.parse(Path(task_oracle.__file__).read_text())
    imported = ["." * node.level + (node.module or "") for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    assert [name for name in imported if name.startswith((".", "turnkeeper"))] == [".oracle"]
