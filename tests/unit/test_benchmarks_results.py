"""Contract of results on disk: what was written is read again, and what is no result is told in words."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from turnkeeper.benchmarks.report.results import NotAResult, Result, read_result, save_result, save_texts

from ..bench_results import flush_runs, memory_run, open_run, result_of


def test_a_result_survives_being_written_and_read(tmp_path: Path) -> None:
    """Nothing that a report or a comparison needs is lost, also of a suite that was left out."""
    result = result_of(*flush_runs(), open_run("warm"), memory_run(), left_out={"tasks": "a full disk"})
    save_result(result.as_map(), "report", tmp_path)
    found = read_result(tmp_path)
    assert found.as_map() == result.as_map()
    assert found.runs == result.runs
    assert found.measured[1].left_out == "a full disk"


def test_a_signal_while_files_are_written_is_raised_behind_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No half of a result lies where a whole one was asked for; one that came before keeps all from being written."""
    write = Path.write_text

    def write_interrupted(path: Path, text: str, encoding: str) -> int:
        os.kill(os.getpid(), signal.SIGINT)
        return write(path, text, encoding)

    monkeypatch.setattr(Path, "write_text", write_interrupted)
    texts = {tmp_path / name: name * 1000 for name in ("one", "two")}
    with pytest.raises(KeyboardInterrupt):
        save_texts(texts)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == texts


def test_a_directory_gives_the_result_of_all_or_the_only_one(tmp_path: Path) -> None:
    """Of several single ones it would be a guess."""
    save_result(result_of().as_map(), "flush", tmp_path)
    assert read_result(tmp_path).command == "turnkeeper bench all --out results"
    save_result(result_of().as_map(), "tasks", tmp_path)
    with pytest.raises(NotAResult) as raised:
        read_result(tmp_path)
    assert (raised.value.why, raised.value.advice) == ("2 JSON files are in it", "name the file")
    save_result(result_of(*flush_runs()).as_map(), "report", tmp_path)
    assert read_result(tmp_path).runs != []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "this is no JSON"),
        (b"\xff\xfe", "this is no JSON"),
        (b"[1, 2]", "this is no result of a benchmark"),
        (b'"text"', "this is no result of a benchmark"),
        (b'{"runs": 3}', "this is no result of a benchmark"),
        (b'{"machine": {}, "runs": [{"name": "open"}]}', "another version of turnkeeper has made this result"),
        (
            json.dumps({**result_of(*flush_runs()).as_map(), "runs": [{"suite": "flush", "name": "open"}]}).encode(),
            "another version of turnkeeper has made this result",
        ),
    ],
)
def test_what_is_no_result_is_told(content: bytes, why: str, tmp_path: Path) -> None:
    """An empty file, another program's JSON and an older version's result each by their own words, with the path."""
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(NotAResult) as raised:
        read_result(tmp_path)
    assert (raised.value.why, raised.value.path) == (why, str(tmp_path / "report.json"))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """A path that isn't there, and a directory with nothing in it."""
    with pytest.raises(NotAResult, match="there is no such file"):
        read_result(tmp_path / "none")
    with pytest.raises(NotAResult, match="no result of a benchmark is in it"):
        read_result(tmp_path)


def test_more_members_than_are_known_are_no_harm() -> None:
    """A later version may add some."""
    plain = result_of(*flush_runs()).as_map()
    plain["more"] = 1
    plain["runs"][0]["more"] = 1
    assert Result.from_map(plain).as_map() == result_of(*flush_runs()).as_map()
