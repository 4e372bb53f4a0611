"""End to end: the commands that show, follow and remove what tasks have printed, whatever the tasks do to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..command_line import DEADLINE_SECONDS, CommandLine
from ..served_tasks import marked_processes, no_task_left
from ..serving import eventually, served_store

TQDM = r"""for i in $(seq 0 5 100); do
printf '\r%3d%%|%-20s| %d/100 [00:01<00:02, 9.1it/s]' $i '#' $i; done; echo; echo end"""
NESTED = r"""for e in 1 2; do for i in 0 50 100; do
printf '\rEpoch %d/2: %d%%\n\r  batch: %d%%|##| %d/100\033[A' $e $((e*50-50)) $i $i; done; done; printf '\n\n'"""
ANSI = r"printf '\033[31mred\033[0m \033]8;;http://x\007link\033]8;;\007 \033[2K\033[1G\033[?25l done\n'"


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line of a served store, of whose tasks nothing is left in the end."""
    home = tmp_path_factory.mktemp("output")
    cli = CommandLine(home / "store", home)
    with served_store(cli.store), no_task_left(cli.store):
        yield cli
        if marked_processes(cli.store):
            rows = cli.here("task", "list", "--limit", "100", "--json").objects
            cli.here("task", "stop", "--grace", "1s", *(row["id"] for row in rows))


def start(cli: CommandLine, script: str, *words: str) -> str:
    """Start a shell's script as a task and give its id; it finds its own output's file as `$OUTPUT`."""
    own = f'OUTPUT="{cli.store}/tasks/$TURNKEEPER_TASK/output.log"; '
    id: str = cli.succeed_here("task", "start", "--json", *words, "sh", "-c", own + script).object["id"]
    return id


def finished(cli: CommandLine, script: str, *words: str) -> str:
    """Start a script and wait for its end."""
    id = start(cli, script, *words)
    cli.succeed_here("task", "wait", id)
    return id


def path_of(cli: CommandLine, id: str) -> Path:
    """Name the file of a task's output."""
    return cli.store / "tasks" / id / "output.log"


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (TQDM, "100%|#                   | 100/100 [00:01<00:02, 9.1it/s]\nend\n"),
        (NESTED, "Epoch 2/2: 50%\n  batch: 100%|##| 100/100\n"),
        (ANSI, " done\n"),
        (r"printf 'caf\351 100%%\n'", "caf\ufffd 100%\n"),
        (r"printf 'rocket \360\237'", "rocket \ufffd\n"),
        (r"printf 'a\000b\n'; printf '\377\376 tail\n'", "ab\n\ufffd\ufffd tail\n"),
        ("true", ""),
    ],
    ids=["bar", "nested bars", "escapes", "latin1", "half a character", "binary", "nothing"],
)
def test_output_is_readable(cli: CommandLine, script: str, text: str) -> None:
    """As a terminal would leave it, as JSON too, and the bytes as they are on demand; the task's state is known."""
    id = finished(cli, script)
    assert cli.succeed_here("task", "output", id).out == text
    assert cli.succeed_here("task", "output", id, "--tail", "5").out == text
    assert cli.succeed_here("task", "follow", id).out == text
    raw = path_of(cli, id).read_bytes()
    piece = cli.succeed_here("task", "output", id, "--json").object
    assert piece == {
        "text": text if raw.endswith(b"\n") else text[:-1],
        "offset": 0,
        "end": len(raw),
        "truncated": False,
        "note": None,
    }
    process = subprocess.run(
        cli.line("task", "output", id, "--raw"), env=cli.environment, capture_output=True, timeout=DEADLINE_SECONDS
    )
    assert (process.returncode, process.stdout) == (0, raw)
    assert cli.succeed_here("task", "show", id, "--json").object["how"] == {"code": 0}


def test_lines_at_either_end(cli: CommandLine) -> None:
    """The first lines, the last ones, both with what is left out between them, and from a place on."""
    id = finished(cli, "seq 1000 1999")
    assert cli.succeed_here("task", "output", id, "--head", "2").out == "1000\n1001\n"
    assert cli.succeed_here("task", "output", id, "--tail", "2").out == "1998\n1999\n"
    outcome = cli.here("task", "output", id, "--head", "1", "--tail", "1")
    assert (outcome.code, outcome.out) == (0, "1000\n1999\n")
    assert outcome.err == "turnkeeper: 4,990 bytes left out\n"
    assert cli.succeed_here("task", "output", id, "--head", "1", "--tail", "1", "--json").object == {
        "text": "1000\n… 4,990 bytes left out …\n1999\n",
        "offset": 0,
        "end": 5000,
        "truncated": True,
        "note": None,
    }
    both = cli.succeed_here("task", "output", id, "--head", "600", "--tail", "600")
    assert both.out == "".join(f"{number}\n" for number in range(1000, 2000))
    assert cli.succeed_here("task", "output", id, "--from", "4990").out == "1998\n1999\n"
    assert cli.succeed_here("task", "output", id, "--from", "4980", "--head", "1", "--json").object == {
        "text": "1996\n",
        "offset": 4980,
        "end": 4985,
        "truncated": True,
        "note": None,
    }


def test_much_output_is_printed_whole(cli: CommandLine) -> None:
    """In pieces, so that it doesn't matter how much it is; with --json one piece, and where the next one begins."""
    id = finished(cli, "seq 1000000 1499999")
    assert cli.succeed_here("task", "output", id).out.splitlines() == [str(each) for each in range(1000000, 1500000)]
    piece = cli.succeed_here("task", "output", id, "--json").object
    assert (piece["end"], piece["truncated"]) == (1024 * 1024, True)
    assert cli.succeed_here("task", "output", id, "--json", "--from", piece["end"]).object["offset"] == piece["end"]


def test_a_deleted_file_is_said(cli: CommandLine) -> None:
    """Whatever looks at a task whose output's file was removed says so, and doesn't fail."""
    id = finished(cli, 'echo one; rm "$OUTPUT"; echo two')
    outcome = cli.here("task", "output", id, "--tail", "5")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "turnkeeper: the output's file is not there\n")
    assert cli.here("task", "output", id, "--json").object["note"] == "the output's file is not there"
    outcome = cli.here("task", "follow", id)
    assert (outcome.code, outcome.err) == (0, "turnkeeper: the output's file is not there\n")
    assert cli.succeed_here("task", "show", id, "--json").object["how"] == {"code": 0}


def test_a_directory_removed_under_a_task_is_said(cli: CommandLine) -> None:
    """State and stop still work, and say what is gone."""
    id = start(cli, "echo one; exec sleep 60")
    eventually(lambda: path_of(cli, id).read_bytes() == b"one\n")
    shutil.rmtree(path_of(cli, id).parent)
    row = cli.succeed_here("task", "show", id, "--json").object
    assert (row["state"], row["why"]) == ("running", "files deleted")
    assert cli.here("task", "output", id).err == "turnkeeper: the output's file is not there\n"
    assert cli.succeed_here("task", "stop", id, "--json").object == {"stopped": [id], "already_ended": [], "left": {}}
    row = cli.succeed_here("task", "show", id, "--json").object
    assert (row["state"], row["why"]) == ("lost", "directory deleted")


def followed(cli: CommandLine, id: str, gate: Path, *expected: bytes) -> tuple[bytes, bytes]:
    """Follow a task's raw output, and open the gate at which it waits when the first lines were seen."""
    process = cli.start("task", "follow", id, "--raw")
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in expected] == list(expected)
    gate.touch()
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 0
    return b"".join(expected) + out, err


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (': > "$OUTPUT"', b"the output was truncated, and is read from its beginning"),
        ('mv "$OUTPUT" "$OUTPUT.1"', b"another file stands in the output's place, and is read, too"),
        ('rm "$OUTPUT"', b"another file stands in the output's place, and is read, too"),
    ],
    ids=["emptied", "renamed", "removed"],
)
def test_follow_sees_each_line_once(cli: CommandLine, tmp_path: Path, change: str, note: bytes) -> None:
    """The task empties, renames or removes its output's file and writes on there: that is said, nothing is missed."""
    gate = tmp_path / "gate"
    script = f"""for i in 1 2 3; do echo "line $i" >> "$OUTPUT"; done; while [ ! -e {gate} ]; do sleep 0.02; done
    {change}; for i in 4 5; do echo "line $i" >> "$OUTPUT"; done; exec sleep 0.3"""
    out, err = followed(cli, start(cli, script), gate, b"line 1\n", b"line 2\n", b"line 3\n")
    assert out == b"".join(b"line %d\n" % number for number in range(1, 6))
    assert note in err
    assert err.count(b"\n") <= 2


def test_follow_goes_on_when_the_file_is_gone(cli: CommandLine, tmp_path: Path) -> None:
    """What the command itself writes behind the removal of its output's file is seen all the same."""
    gate = tmp_path / "gate"
    script = f"""echo one; while [ ! -e {gate} ]; do sleep 0.02; done; rm "$OUTPUT"; echo two; exec sleep 0.3"""
    assert followed(cli, start(cli, script), gate, b"one\n") == (
        b"one\ntwo\n",
        b"turnkeeper: the output's file is not there\n",
    )


def test_follow_shows_lines_as_they_end(cli: CommandLine, tmp_path: Path) -> None:
    """Readable lines come while the task runs, the unfinished one at its end; from a place on, and as JSON."""
    gate = tmp_path / "gate"
    id = start(cli, f"printf '\\033[1mone\\033[0m\\nhalf'; while [ ! -e {gate} ]; do sleep 0.02; done; printf ' two'")
    process = cli.start("task", "follow", id)
    assert process.stdout is not None
    assert process.stdout.readline() == b"one\n"
    gate.touch()
    assert process.communicate(timeout=DEADLINE_SECONDS) == (b"half two\n", b"")
    pieces = cli.succeed_here("task", "follow", id, "--from", "11", "--json").objects
    assert "".join(piece["text"] for piece in pieces) == "\nhalf two"
    assert (pieces[0]["offset"], pieces[-1]["end"]) == (11, os.path.getsize(path_of(cli, id)))


def test_clean_removes_what_ended_tasks_left(cli: CommandLine) -> None:
    """Their directories, not their records; only what ended long enough ago and left no process behind."""
    ended = finished(cli, "echo some output")
    running = start(cli, "exec sleep 60")
    surviving = start(cli, "sleep 60 & exit 0")
    cli.succeed_here("task", "wait", surviving)
    assert ended not in cli.succeed_here("task", "clean", "--json").object["removed"]
    planned = cli.succeed_here("task", "clean", "--older", "0s", "--dry-run", "--json").object
    assert ended in planned["removed"]
    assert planned["dry_run"] is True
    assert planned["bytes"] > 0
    assert path_of(cli, ended).exists()
    removed = cli.succeed_here("task", "clean", "--older", "0s", "--json").object
    assert (set(removed["removed"]), removed["dry_run"]) == (set(planned["removed"]), False)
    assert sorted(os.listdir(cli.store / "tasks")) == sorted([running, surviving])
    assert cli.succeed_here("task", "show", ended, "--json").object["how"] == {"code": 0}
    assert cli.here("task", "output", ended).err == "turnkeeper: the output's file is not there\n"
    assert cli.succeed_here("task", "clean", "--older", "0s").out == "0 tasks, 0 B removed\n"
    cli.succeed_here("task", "stop", "--grace", "1s", running, surviving)
    assert running in cli.succeed_here("task", "clean", "--older", "0s").out
