"""End to end: `turnkeeper demo`, the main job to be watched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ..command_line import CommandLine
from ..session_files import conversation, encoded, rollout

ZEROS = ("lost", "repeated", "holes", "open_turns")


def test_nothing_acknowledged_is_lost(cli: CommandLine, tmp_path: Path) -> None:
    """Processes die, everything is found again, and neither the user's store nor a temporary one is left."""
    cli.environment["TMPDIR"] = str(tmp_path)
    result = cli.succeed("demo", "--json", "--seed", "1", "--seconds", "2", "--sessions", "4").object
    assert [result[name] for name in ZEROS] == [0, 0, 0, 0]
    assert result["kills"] == {"writer": 2, "spawner": 2, "node": 1}
    assert (result["sessions"], result["plan"]["seed"]) == (4, 1)
    assert result["found"] >= result["acknowledged"] > 0
    assert (result["wrong_exits"], result["orphans"]) == (0, 0)
    assert result["plain"]["tasks"] >= result["tasks"] / 2 > 5
    assert result["flush_ms"]["p99"] > 0
    assert len(result["recovery_ms"]["writer"]) == 2
    assert os.listdir(tmp_path) == []


def test_other_programs_sessions_can_be_replayed_into_a_given_store(cli: CommandLine, tmp_path: Path) -> None:
    """Those of Claude Code and of Codex stand in for the demo's own transcripts; a store that is given stays."""
    recorded, store = tmp_path / "recorded", tmp_path / "given"
    recorded.mkdir()
    (recorded / "claude.jsonl").write_bytes(encoded(conversation()))
    (recorded / "codex.jsonl").write_bytes(encoded(rollout()))
    options = ("--seconds", "0.5", "--sessions", "2", "--no-kill", "--store", store)
    result = cli.succeed("demo", "--json", *options, "--from", recorded).object
    assert [result[name] for name in ZEROS] == [0, 0, 0, 0]
    assert len(cli.succeed_here("session", "list", "--json", "--store", store).objects) == 2
    journal = (store / "journal" / "00000001.jsonl").read_bytes()
    assert b"Anna and Bertha" in journal
    assert b"Which is older?" in journal
    refused = cli.here("demo", "--json", *options)
    assert (refused.code, refused.error["kind"]) == (2, "usage")
    assert "not empty" in refused.err
    assert not cli.store.exists()


def test_what_cannot_be_replayed_is_named(cli: CommandLine, tmp_path: Path) -> None:
    """A missing path is not found, a file that holds no session a failure, and nothing is started for either."""
    assert cli.here("demo", "--from", tmp_path / "missing").code == 3
    (tmp_path / "empty").write_text("")
    outcome = cli.here("demo", "--json", "--from", tmp_path / "empty")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert str(tmp_path / "empty") in outcome.err
    assert cli.here("demo", "stray").code == 2


def test_people_get_a_table_of_both_columns(cli: CommandLine) -> None:
    """The end shows what was found in either, what was killed, and what is proven and what not."""
    told = cli.succeed("demo", "--seconds", "1", "--sessions", "2").out
    for name in ("acknowledged", "lost", "repeated", "holes", "second owners", "flush p99", "writer killed", "seed "):
        assert name in told
    assert re.search(r"wrong ends +0 +\d", told)
    assert re.search(r"orphans +0 +\d", told)
    assert re.search(r"spawner killed, there again after \d+ ms, the next task ran after \d+ ms", told)
    assert told.splitlines()[-1].startswith("Proven: the death of processes")
    assert "Not proven: power loss" in told
