"""End to end: the commands that start, run, list, show, wait for and stop tasks, on real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors.client.asking import node_pid
from turnkeeper.storage.lock import store_is_held

from ..command_line import DEADLINE_SECONDS, CommandLine
from ..served_tasks import marked_processes, no_task_left
from ..serving import eventually, served_store

SESSION = "a-session"


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[CommandLine]:
    """The command line of a store that isn't there yet, of whose tasks nothing is left in the end."""
    cli = CommandLine(tmp_path / "store", tmp_path)
    with no_task_left(cli.store):
        try:
            yield cli
        finally:
            if marked_processes(cli.store):
                rows = cli.here("task", "list", "--limit", "100", "--json").objects
                cli.here("task", "stop", "--grace", "1s", *(row["id"] for row in rows))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """The command line of a store that is served all the time."""
    home = tmp_path_factory.mktemp("served")
    cli = CommandLine(home / "store", home)
    with served_store(cli.store), no_task_left(cli.store):
        yield cli


def start(cli: CommandLine, *words: str) -> str:
    """Start a task and give its id."""
    id: str = cli.succeed_here("task", "start", "--json", *words).object["id"]
    return id


def test_start_prints_what_is_known(cli: CommandLine) -> None:
    """Id, state and process; a missing store is made, and the task goes on when the command has ended."""
    started = cli.succeed("task", "start", "--json", "--", "sleep", "60").object
    assert started == {"id": started["id"], "state": "running", "pid": started["pid"]}
    assert started["id"].startswith("task-")
    assert Path(f"/proc/{started['pid']}/cmdline").read_bytes() == b"sleep\0" + b"60\0"
    outcome = cli.succeed("task", "start", "--keep", "sleep", "60")
    id, state, pid = outcome.out.split()
    assert state == "running"
    assert {row["id"]: row["pid"] for row in cli.succeed_here("task", "list", "--json").objects} == {
        started["id"]: started["pid"],
        id: int(pid),
    }


def test_a_key_starts_once(cli: CommandLine) -> None:
    """Again with the key it is the same task, also when it has ended; with other arguments it is refused."""
    id = start(cli, "--key", "nightly", "--", "sh", "-c", "exit 3")
    cli.succeed_here("task", "wait", "nightly")
    assert start(cli, "--key", "nightly", "--", "sh", "-c", "exit 3") == id
    assert cli.here("task", "run", "--key", "nightly", "--", "sh", "-c", "exit 3").code == 1  # kept is another argument
    outcome = cli.here("task", "start", "--key", "nightly", "--json", "--", "sh", "-c", "exit 4")
    assert (outcome.code, outcome.error["kind"]) == (1, "conflict")
    assert "'nightly'" in outcome.err
    assert len(cli.succeed_here("task", "list", "--json").objects) == 1


def test_what_stands_behind_the_command_is_the_commands(cli: CommandLine) -> None:
    """Its options are its own, with and without `--`; environment and directory are what was given."""
    assert cli.here("task", "run", "echo", "--timeout", "--json").out == "--timeout --json\n"
    assert cli.here("task", "run", "--", "echo", "--", "-x").out == "-- -x\n"
    script = 'echo "$A|$B|$PWD"; read line || echo "nothing to read"'
    (cli.store.parent / "here").mkdir()
    outcome = cli.here(
        "task", "run", "--env", "A=b=c", "--env", "B=", "--cwd", str(cli.store.parent / "here"), "sh", "-c", script
    )
    assert outcome.out == f"b=c||{cli.store.parent}/here\nnothing to read\n"


def test_run_prints_what_the_command_prints(cli: CommandLine) -> None:
    """The bytes of both its streams as they are, and ends with its code."""
    process = cli.start("task", "run", "sh", "-c", r"printf 'a\000b\377\r\033[1mc'; echo error >&2; exit 7")
    out, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, out, err) == (7, b"a\0b\xff\r\033[1mcerror\n", b"")


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (["sh", "-c", "exit 143"], 143, ""),
        (["sh", "-c", "kill -TERM $$"], 143, ": SIGTERM\n"),
        (["sh", "-c", "kill -KILL $$"], 137, ": SIGKILL\n"),
        (["--timeout", "200ms", "sleep", "60"], 124, ": SIGTERM, by timeout\n"),
        (
            ["--timeout", "200ms", "--grace", "100ms", "sh", "-c", "trap '' TERM; sleep 60 & wait; wait"],
            124,
            ", by timeout\n",
        ),
        (["--limit", "1MB", "yes"], 153, ": SIGTERM, by output limit\n"),
        (["./no-interpreter"], 126, ": not started: "),
    ],
)
def test_run_tells_each_end_by_its_code(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], code: int, line: str
) -> None:
    """What isn't the command's own exit code has one of its own, and a line on stderr."""
    monkeypatch.chdir(tmp_path)
    Path("no-interpreter").write_text("#!/no/such/interpreter\n")
    Path("no-interpreter").chmod(0o755)
    outcome = served.here("task", "run", *words)
    assert (outcome.code, outcome.err.count("\n")) == (code, 1 if line else 0), outcome
    assert line in outcome.err
    if "yes" in words:
        assert len(outcome.out) < 1_001_000
        assert outcome.out.endswith("\n[turnkeeper: cut here, at the output limit of 1000000 bytes]\n")


def test_run_tells_scripts_pieces_and_the_end(cli: CommandLine) -> None:
    """With --json stdout has the output in pieces, and the task's row behind them."""
    outcome = cli.here("task", "run", "--json", "sh", "-c", r"printf '\rx\ry\n'; exit 3")
    *pieces, row = outcome.objects
    assert (outcome.code, outcome.err) == (3, "")
    assert "".join(piece["text"] for piece in pieces) == "y\n"
    assert pieces[-1]["end"] == 5
    assert (row["state"], row["how"], row["by"], row["output_bytes"]) == ("ended", {"code": 3}, "itself", 5)


def test_ctrl_c_stops_what_runs(cli: CommandLine) -> None:
    """It ends with 130, and nothing of the command is left, children in sessions of their own neither."""
    process = cli.start("task", "run", "sh", "-c", "setsid sleep 60 & echo ready; wait")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert (process.returncode, err) == (130, b"")
    eventually(lambda: marked_processes(cli.store) == [])
    eventually(lambda: cli.succeed_here("task", "list", "--json").object["state"] == "ended")
    assert cli.succeed_here("task", "list", "--json").object["by"] == "owner"


def test_a_killed_run_leaves_nothing(cli: CommandLine) -> None:
    """So it is when the command has no time to say anything."""
    process = cli.start("task", "run", "sh", "-c", "echo ready; sleep 60 & wait")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.communicate(timeout=DEADLINE_SECONDS)
    eventually(lambda: marked_processes(cli.store) == [])


def test_run_ends_with_its_reader(cli: CommandLine) -> None:
    """Whoever has read enough ends it, as `head` does: no error, and the task is stopped."""
    process = cli.start("task", "run", "yes")
    assert process.stdout is not None
    assert process.stdout.readline() == b"y\n"
    process.stdout.close()
    assert process.stderr is not None
    assert (process.wait(DEADLINE_SECONDS), process.stderr.read()) == (0, b"")
    process.stderr.close()
    assert process.stdin is not None
    process.stdin.close()
    eventually(lambda: marked_processes(cli.store) == [])


def test_list_filters_and_pages(cli: CommandLine) -> None:
    """By group, session and state; newest first, and on from a row. Rows have all that is promised."""
    session = cli.new_session()
    ended = start(cli, "--group", "one", "--session", session, "sh", "-c", "exit 5")
    cli.succeed_here("task", "wait", ended)
    running = start(cli, "--group", "two", "sh", "-c", "echo 3/10 tests; exec sleep 60")
    eventually(lambda: cli.succeed_here("task", "show", running, "--json").object["progress"] is not None)
    rows = cli.succeed_here("task", "list", "--json").objects
    assert [row["id"] for row in rows] == [running, ended]
    assert {name: rows[1][name] for name in ("state", "how", "by", "command", "session", "group", "output_bytes")} == {
        "state": "ended",
        "how": {"code": 5},
        "by": "itself",
        "command": ["sh", "-c", "exit 5"],
        "session": session,
        "group": "one",
        "output_bytes": 0,
    }
    assert {name: rows[0][name] for name in ("state", "how", "survivors", "ended", "progress", "output_bytes")} == {
        "state": "running",
        "how": None,
        "survivors": [],
        "ended": None,
        "progress": {"percent": 30.0, "current": 3, "total": 10, "unit": "tests", "reported": False},
        "output_bytes": 11,
    }
    for words, found in (
        (["--group", "one"], [ended]),
        (["--session", session[:-1]], [ended]),
        (["--state", "running"], [running]),
        (["--state", "lost"], []),
        (["--limit", "1"], [running]),
        (["--after", running], [ended]),
    ):
        assert [row["id"] for row in cli.succeed_here("task", "list", "--json", *words).objects] == found, words
    text = cli.succeed_here("task", "list").out
    assert "exit 5" in text
    assert "30%  3/10 tests" in text
    assert text.splitlines()[1].endswith("sh -c 'echo 3/10 tests; exec sleep 60'")


def test_looking_needs_nobody_and_changes_nothing(cli: CommandLine) -> None:
    """With the node killed, list and show still tell what is: one runs, one has ended meanwhile; no file changes."""
    running = start(cli, "sleep", "60")
    gate = cli.store.parent / "gate"
    ending = start(cli, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; exit 9")
    node = node_pid(str(cli.store))
    assert node is not None
    os.kill(node, signal.SIGKILL)
    gate.touch()
    eventually(lambda: cli.here("task", "show", ending, "--json").object["state"] == "ended")
    eventually(lambda: not store_is_held(str(cli.store)))  # the writer leaves a clean index, and nobody else is there
    before = files(cli.store)
    assert cli.succeed_here("task", "show", ending, "--json").object["how"] == {"code": 9}
    assert {row["id"]: row["state"] for row in cli.succeed_here("task", "list", "--json").objects} == {
        running: "running",
        ending: "ended",
    }
    assert cli.succeed_here("task", "output", running).out == ""
    assert cli.succeed_here("task", "follow", ending).out == ""
    assert files(cli.store) == before
    assert cli.here("status").code == 3


def files(store: Path) -> dict[str, tuple[int, int]]:
    """Give size and time of every file of a store."""
    found = ((path, path.lstat()) for path in store.rglob("*"))
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found if not path.is_dir()}


def test_show_tells_people_what_is_left(cli: CommandLine) -> None:
    """A command that ends and leaves a process behind has ended, and the process is named until it is stopped."""
    id = start(cli, "sh", "-c", "sleep 60 & echo $!; exit 2")
    row = cli.succeed_here("task", "wait", id, "--json").object
    pid = int(cli.succeed_here("task", "output", id).out)
    assert (row["state"], row["how"], row["survivors"]) == ("ended", {"code": 2}, [pid])
    text = cli.succeed_here("task", "show", id).out
    assert "how        exit 2, 1 process left\n" in text
    assert f"survivors  {pid}\n" in text
    assert cli.here("task", "wait", id, "--tree", "--timeout", "50ms").code == 1
    stopped = cli.succeed_here("task", "stop", id, "--json").object
    assert stopped["left"] == {}
    assert [*stopped["stopped"], *stopped["already_ended"]] == [id]
    assert cli.succeed_here("task", "wait", id, "--tree", "--json").object["survivors"] == []


def test_wait_is_met_or_not(cli: CommandLine) -> None:
    """0 when what was waited for has come, whatever the codes; 1 when the time is over, or one has failed."""
    failed = start(cli, "sh", "-c", "exit 5")
    good = start(cli, "true")
    long = start(cli, "sleep", "60")
    assert {row["id"] for row in cli.succeed_here("task", "wait", failed, good, "--json").objects} == {failed, good}
    cli.succeed_here("task", "wait", long, good, "--any")
    cli.succeed_here("task", "wait", good, "--first-failure")
    outcome = cli.here("task", "wait", long, failed, "--first-failure", "--json")
    assert (outcome.code, [row["state"] for row in outcome.objects]) == (1, ["running", "ended"])
    assert f"{failed} has failed (exit 5)" in outcome.err
    outcome = cli.here("task", "wait", long, good, "--timeout", "100ms", "--json")
    assert (outcome.code, [row["state"] for row in outcome.objects]) == (1, ["running", "ended"])
    assert f"not over within 0.1s: {long}" in outcome.err
    assert cli.succeed_here("task", "show", long, "--json").object["state"] == "running"


def test_stop_says_what_became_of_each(cli: CommandLine) -> None:
    """By ids, a group, or a session with its children; what had ended stays as it ended."""
    parent = cli.new_session()
    child = cli.succeed_here("session", "fork", parent, "--json").object["id"]
    of_child = start(cli, "--session", child, "--group", "a", "sleep", "60")
    of_group = start(cli, "--group", "a", "sleep", "60")
    alone = start(cli, "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    ended = start(cli, "sh", "-c", "exit 5")
    cli.succeed_here("task", "wait", ended)
    eventually(lambda: cli.succeed_here("task", "output", alone).out == "ready\n")
    assert cli.succeed_here("task", "stop", "--session", parent, "--group", "b", "--json").object["stopped"] == []
    assert cli.succeed_here("task", "stop", "--session", parent, "--json").object["stopped"] == [of_child]
    assert cli.succeed_here("task", "stop", "--group", "a", "--json").object["stopped"] == [of_group]
    outcome = cli.succeed_here("task", "stop", "--grace", "100ms", alone, ended, ended)
    assert sorted(outcome.out.splitlines()) == sorted([f"{alone}  stopped", f"{ended}  had ended"])
    rows = {row["id"]: (row["how"], row["by"]) for row in cli.succeed_here("task", "list", "--json").objects}
    assert rows == {
        of_child: ({"signal": signal.SIGTERM}, "stop"),
        of_group: ({"signal": signal.SIGTERM}, "stop"),
        alone: ({"signal": signal.SIGKILL}, "stop"),
        ended: ({"code": 5}, "itself"),
    }
    assert cli.succeed_here("task", "stop", "--group", "a").out == "nothing to stop\n"


def test_a_task_tells_its_session(cli: CommandLine) -> None:
    """Stopping the session stops its tasks, and status counts what is unfinished."""
    session = cli.new_session()
    id = start(cli, "--session", session, "sleep", "60")
    figures = cli.succeed_here("status", "--json").object
    assert (figures["tasks"], len(figures["pids"]["shims"])) == (1, 1)
    assert figures["pids"]["spawner"] is not None
    assert "tasks     1 unfinished  (shims: " in cli.succeed_here("status").out
    cli.succeed_here("session", "stop", session)
    assert cli.succeed_here("task", "show", id, "--json").object["by"] == "stop"


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["start", "no-such-program"], 2, "the program 'no-such-program' isn't in the task's PATH"),
        (["run", "./no-such-program"], 2, "isn't there"),
        (["start", "/"], 2, "is a directory"),
        (["start", "/etc/passwd"], 2, "isn't executable"),
        (["start", "--cwd", "/no/such/place", "true"], 2, "'/no/such/place' isn't there"),
        (["start", "--timeout", "-5s", "true"], 2, "'-5s' is no duration"),
        (["start", "--timeout", "30", "true"], 2, "write a number with its unit"),
        (["start", "--timeout", "0s", "true"], 2, "is no time at all"),
        (["start", "--limit", "0B", "true"], 2, "is less than a byte"),
        (["start", "--limit", "100", "true"], 2, "write a number with its unit"),
        (["start", "--env", "A", "true"], 2, "is no variable"),
        (["start", "--session", "nobody", "true"], 3, "no session 'nobody'"),
        (["start", "--key", "", "true"], 2, "key"),
        (["start", "true", "x" * 200_000], 2, "has 200,000 bytes"),
        (["start"], 2, "Missing argument"),
        (["show", "nobody"], 3, "no task 'nobody'"),
        (["output", "nobody"], 3, "no task 'nobody'"),
        (["follow", "nobody"], 3, "no task 'nobody'"),
        (["wait", "nobody"], 3, "no task 'nobody'"),
        (["stop", "nobody"], 3, "no task 'nobody'"),
        (["list", "--after", "nobody"], 3, "no task 'nobody'"),
        (["list", "--session", "nobody"], 3, "no session 'nobody'"),
        (["stop", "--session", "nobody"], 3, "no session 'nobody'"),
        (["show", "SESSION"], 3, "is no task but of the kind 'session'"),
        (["stop", "SESSION"], 3, "is no task but of the kind 'session'"),
        (["stop"], 2, "nothing to stop"),
        (["clean", "--older", "1Y"], 2, "'1Y' is no duration"),
        (["output", "SESSION", "--raw", "--json"], 2, "--raw goes without --json"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_bad_input_is_one_line(filled: CommandLine, words: list[str], code: int, part: str) -> None:
    """It says what is wrong, scripts are told the same, and nothing was recorded or started."""
    command, *arguments = words
    outcome = filled.here("task", command, "--json", *(SESSION if word == "SESSION" else word for word in arguments))
    assert outcome.code == code, outcome
    assert outcome.err.startswith("turnkeeper: ")
    assert outcome.err.count("\n") == 1
    assert part in outcome.err
    assert f"turnkeeper: {outcome.error['message']}\n" == outcome.err
    assert not list(filled.store.glob("tasks/*"))


def test_bad_input_left_no_record(filled: CommandLine) -> None:
    """After all of these there is no task."""
    assert filled.succeed_here("task", "list", "--json").objects == []


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """The command line of a store with one session and no task, that stays so."""
    home = tmp_path_factory.mktemp("filled")
    cli = CommandLine(home / "store", home)
    cli.new_session("--key", SESSION)
    return cli


def test_ambiguous_beginnings_are_told(cli: CommandLine) -> None:
    """The beginning of several ids names none, and the line has them; a unique one is enough."""
    ids = sorted(start(cli, "--key", key, "true") for key in ("same-1", "same-2"))
    outcome = cli.here("task", "show", "task-same", "--json")
    assert (outcome.code, outcome.error["kind"], sorted(outcome.error["candidates"])) == (3, "ambiguous", ids)
    assert cli.succeed_here("task", "show", ids[0][:-3], "--json").object["id"] == ids[0]


def test_a_shell_completes_ids(cli: CommandLine) -> None:
    """The ids of tasks, with their commands, are offered where one is asked for."""
    id = start(cli, "--key", "nightly", "true")
    variables = {"_TURNKEEPER_COMPLETE": "zsh_complete", "COMP_WORDS": "turnkeeper task show task-n", "COMP_CWORD": "3"}
    process = subprocess.run(
        cli.line(), env={**cli.environment, **variables}, capture_output=True, timeout=DEADLINE_SECONDS, check=True
    )
    assert process.stdout.decode().split("\n")[:3] == ["plain", id, "true"]
    assert json.loads(json.dumps(process.stderr.decode())) == ""
