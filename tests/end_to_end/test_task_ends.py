"""One task with its spawner and shim, without any node: how it begins, what its command finds, and how it ends.

Real processes throughout; the test plays the node.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.runtime.tasks import directory, spawner

from ..shims import Shims, own_identity, until


def test_a_command_that_ends_by_itself_gives_its_code_and_output(shims: Shims) -> None:
    """The end has the exit code, who ended it, and the size of the output, which has stdout and stderr in order."""
    task = shims.shell("echo out; echo err >&2; echo end; exit 7")
    end = task.wait()
    assert {**end, "ended": 0} == {
        "how": {"code": 7},
        "by": "itself",
        "survivors": [],
        "ended": 0,
        "output_bytes": 12,
        "output": None,
    }
    assert task.output() == b"out\nerr\nend\n"
    assert abs(end["ended"] - time.time() * 1000) < 60_000


def test_seven_ends_are_seven_records(shims: Shims, tmp_path: Path) -> None:
    """Left running, 143 by exit, another's signal, our stop, a timeout, too much output, not started: all differ."""
    script = tmp_path / "script"
    script.write_text("echo nothing says what runs this\n")
    script.chmod(0o700)
    left = shims.shell("sleep 60 & exit 0")
    until(lambda: left.look().stage == "left")
    by_exit = shims.shell("exit 143")
    by_signal = shims.shell("echo ready; exec sleep 60")
    by_signal.said()
    os.kill(by_signal.leader, signal.SIGTERM)
    stopped = shims.shell("echo ready; exec sleep 60")
    stopped.said()
    stopped.stop()
    timed_out = shims.start("/bin/sleep", "60", timeout=0.05)
    limited = shims.start("/usr/bin/yes", limit=1000)
    not_started = shims.start(str(script))
    left_end = left.look().end
    assert left_end is not None
    left.stop(0.0)
    ends = [left_end, *(task.wait() for task in (by_exit, by_signal, stopped, timed_out, limited, not_started))]
    assert [(end["by"], next(iter(end["how"])), len(end["survivors"])) for end in ends] == [
        ("itself", "code", 1),
        ("itself", "code", 0),
        ("unknown", "signal", 0),
        ("stop", "signal", 0),
        ("timeout", "signal", 0),
        ("output limit", "signal", 0),
        ("itself", "not_started", 0),
    ]
    assert (ends[1]["how"], ends[2]["how"]) == ({"code": 143}, {"signal": 15})


def test_a_command_that_catches_the_stop_ends_with_its_own_code(shims: Shims) -> None:
    """Who ended it is the stop, how is what the command made of it."""
    task = shims.shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.02; done")
    task.said()
    task.stop()
    end = task.wait()
    assert (end["how"], end["by"]) == ({"code": 5}, "stop")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda root: str(root / "missing"), "No such file"),
        (lambda root: _file(root / "locked", "#!/bin/sh\n", 0o600), "Permission denied"),
        (lambda root: str(root), "Permission denied"),
        (lambda root: _file(root / "bare", "echo hello\n", 0o700), "neither a program of this system nor a script"),
        (lambda root: _file(root / "orphan", "#!/no/such/interpreter\n", 0o700), "interpreter"),
    ],
    ids=["missing", "not executable", "a directory", "no first line", "no interpreter"],
)
def test_what_cannot_run_says_why(shims: Shims, tmp_path: Path, make: Any, says: str) -> None:
    """A program that the system refuses is an end of its own with one line that names it, and no environment stays."""
    program = make(tmp_path)
    task = shims.start(program)
    end = task.wait()
    assert end["by"] == "itself"
    assert end["how"]["not_started"].startswith(f"{program}: ")
    assert says in end["how"]["not_started"]
    assert "\n" not in end["how"]["not_started"]
    assert sorted(os.listdir(task.path)) == ["exit.json", "lock", "output.log", "run.json", "spec.json"]


def _file(path: Path, content: str, mode: int) -> str:
    path.write_text(content)
    path.chmod(mode)
    return str(path)


def test_arguments_that_are_too_long_and_a_directory_that_went_away_say_so(shims: Shims, tmp_path: Path) -> None:
    """Both are found when the command is to run, and are its end."""
    too_long = shims.start("/bin/true", "x" * (1 << 20))
    assert "Argument list too long" in too_long.wait()["how"]["not_started"]
    gone = tmp_path / "gone"
    gone.mkdir()
    task = shims.make(["/bin/true"], cwd=str(gone))
    gone.rmdir()
    shims.hand_over(task)
    assert f"{gone} can't be entered" in task.wait()["how"]["not_started"]


@pytest.mark.parametrize(("name", "content"), [("env.json", b""), ("env.json", b"[]"), ("spec.json", b'{"argv": 3}')])
def test_damaged_files_are_an_end_and_no_silence(shims: Shims, name: str, content: bytes) -> None:
    """A shim that can't make sense of what it is to run writes that down."""
    task = shims.make(["/bin/true"])
    Path(task.path, name).write_bytes(content)
    shims.hand_over(task)
    assert name in until(lambda: directory.read_map(f"{task.path}/exit.json"))["how"]["not_started"]


def test_a_command_begins_with_a_clean_slate(shims: Shims) -> None:
    """It has descriptors 0, 1 and 2 alone, no input, a group of its own, its umask, directory and variables."""
    spec = {"cwd": "/", "umask": 0o026, "env": {"SECRET": "s3cret"}}
    task = shims.start(sys.executable, "-I", "-S", "-c", _SELF_PORTRAIT, "\udcff\n", **spec)
    assert task.wait()["how"] == {"code": 0}, task.output()
    assert json.loads(task.output()) == {
        "descriptors": {"0": "/dev/null", "1": f"{task.path}/output.log", "2": f"{task.path}/output.log"},
        "appends": [True, True],
        "input": "",
        "leads_group": True,
        "session_is_shims": True,
        "umask": 0o026,
        "cwd": "/",
        "variables": {"PATH": "/usr/bin:/bin", "SECRET": "s3cret", **directory.marks(task.id, task.shim)},
        "arguments": ["-c", "\udcff\n"],
    }


_SELF_PORTRAIT = """
import fcntl, json, os, sys
files = {name: f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
mask = os.umask(0)
print(json.dumps({
    "descriptors": {name: os.readlink(path) for name, path in sorted(files.items()) if os.path.lexists(path)},
    "appends": [bool(fcntl.fcntl(output, fcntl.F_GETFL) & os.O_APPEND) for output in (1, 2)],
    "input": sys.stdin.read(),
    "leads_group": os.getpgrp() == os.getpid(),
    "session_is_shims": os.getsid(0) == os.getppid(),
    "umask": mask,
    "cwd": os.getcwd(),
    "variables": {name: value for name, value in os.environ.items() if name != "LC_CTYPE"},
    "arguments": sys.argv,
}))
"""


def test_a_command_has_every_signal_as_the_system_gives_it(shims: Shims) -> None:
    """No signal is blocked or ignored in it, not even those that Python ignores."""
    task = shims.start("/bin/grep", "-E", "Sig(Blk|Ign)", "/proc/self/status")
    task.wait()
    reserved = 0b11 << 31  # the two that the C library keeps to itself: it ignores them in what it spawns
    assert [int(line.split()[1], 16) & ~reserved for line in task.output().splitlines()] == [0, 0]


def test_no_value_of_the_environment_is_left_once_the_command_runs(shims: Shims) -> None:
    """Whether it runs, or could not: no file of the task has what its environment had."""
    running = shims.start("/bin/sleep", "60", env={"SECRET": "s3cret"})
    failed = shims.start("/no/such/program", env={"SECRET": "s3cret"})
    for task in (running, failed):
        names = os.listdir(task.path)
        assert "env.json" not in names
        assert not any(b"s3cret" in Path(task.path, name).read_bytes() for name in names)
    assert stat.S_IMODE(os.stat(running.path).st_mode) == 0o700
    assert {stat.S_IMODE(os.stat(f"{running.path}/{name}").st_mode) for name in os.listdir(running.path)} == {0o600}
    running.stop(0.0)
    running.wait()


def test_the_node_is_woken_at_each_step(shims: Shims) -> None:
    """It hears when the command runs, when it has ended with something left, and when nothing is left."""
    task = shims.shell("sleep 60 & exit 0")
    until(lambda: task.look().stage == "left")
    task.stop(0.0)
    task.wait()
    until(lambda: len(shims.heard()) == 3)
    assert shims.heard() == [f"{word} {task.id}" for word in ("started", "leader", "ended")]


def test_a_node_that_does_not_listen_keeps_nothing_waiting(shims: Shims) -> None:
    """With the node's socket full or gone, tasks end all the same; what had no room is said again later."""
    first = shims.shell("until [ -e go ]; do sleep 0.01; done; sleep 60 & exit 0")
    for _ in range(8):
        shims.shell("exit 0").wait()
    (shims.root / "go").touch()
    until(lambda: first.look().stage == "left")
    assert f"leader {first.id}" in until(lambda: f"leader {first.id}" in shims.heard() and shims.heard())
    os.unlink(shims.root / "task.sock")
    assert shims.shell("exit 3").wait()["how"] == {"code": 3}
    first.stop(0.0)
    first.wait()


def test_an_owner_that_ends_takes_its_task_along(shims: Shims) -> None:
    """A task that is to end with a process is stopped when that has ended, though nobody tells its shim."""
    owner = subprocess.Popen(["/bin/sleep", "60"])
    task = shims.start("/bin/sleep", "60", owner=own_identity(owner.pid))
    kept = shims.start("/bin/sleep", "60", owner=own_identity())
    owner.kill()
    end = task.wait()
    assert (end["by"], end["how"]) == ("owner", {"signal": signal.SIGTERM})
    owner.wait()
    assert kept.look().stage == "running"
    kept.stop(0.0)
    kept.wait()


@pytest.mark.parametrize("changed", [{"pid": 2**22 + 1}, {"start": 1}, {"boot": "another"}], ids=str)
def test_an_owner_that_is_gone_already_starts_nothing(shims: Shims, changed: dict[str, Any], tmp_path: Path) -> None:
    """Not a process any more, another one with its pid, or of another boot: the command never runs, by the owner."""
    task = shims.start("/bin/touch", str(tmp_path / "ran"), owner={**own_identity(), **changed})
    end = task.wait()
    assert end["by"] == "owner"
    assert "ended before it began" in end["how"]["not_started"]
    assert not (tmp_path / "ran").exists()


def test_a_task_handed_over_twice_runs_once(shims: Shims, tmp_path: Path) -> None:
    """While it runs and after it has ended, another shim of the same task does nothing."""
    task = shims.make(["/bin/sh", "-c", f"echo ran >>{tmp_path}/runs; sleep 0.1"])
    for _ in range(5):
        shims.hand_over(task)
    task.wait()
    shims.hand_over(task)
    shims.catch_up()
    assert (tmp_path / "runs").read_text() == "ran\n"


def test_terminal_signals_change_nothing(shims: Shims) -> None:
    """SIGHUP, SIGINT and SIGQUIT neither end the spawner nor a shim, and SIGTERM doesn't end the spawner."""
    task = shims.shell("sleep 0.2; exit 3")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        os.kill(shims.process.pid, number)
        os.kill(task.shim["pid"], number)
    os.kill(shims.process.pid, signal.SIGTERM)
    end = task.wait()
    assert (end["how"], end["by"]) == ({"code": 3}, "itself")
    assert shims.shell("exit 4").wait()["how"] == {"code": 4}


def test_a_spawner_has_loaded_little_of_the_standard_library_and_nothing_else(tmp_path: Path) -> None:
    """Its forks share what it has: of ours what a shim needs, and no module that starts threads or an event loop."""
    script = f"""
import sys
sys.argv = [{spawner.__file__!r}]
exec(compile(open(sys.argv[0]).read(), sys.argv[0], "exec"), {{"__name__": "__main__", "__file__": sys.argv[0]}})
print(*sys.modules)
"""
    command = [sys.executable, "-I", "-S", "-P", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    ours = {name for name in loaded if name.split(".")[0] == "turnkeeper"}
    modules = ("bell", "control", "directory", "output", "running", "shim", "tree")
    package = "turnkeeper.runtime.tasks"
    parents = {"turnkeeper", "turnkeeper.runtime", "turnkeeper.runtime.failpoints", package}
    assert ours == parents | {f"{package}.{name}" for name in modules}
    others = {name.split(".")[0] for name in loaded - ours}
    assert others <= sys.stdlib_module_names | {"__main__"}
    assert others.isdisjoint({"asyncio", "dataclasses", "inspect", "logging", "pathlib", "subprocess", "threading"})
    assert len(loaded) < 100


def test_a_spawner_gives_its_tasks_the_limit_of_files_that_it_was_told(tmp_path: Path) -> None:
    """Whoever starts it may have raised its own; a command may not be ready for that many."""
    shims = Shims(tmp_path, arguments=["77"])
    task = shims.shell("ulimit -Sn")
    task.wait()
    shims.close()
    assert task.output() == b"77\n"


def test_a_rehearsal_leaves_nothing_behind(tmp_path: Path) -> None:
    """What a spawner does before its first task to be small leaves no file, child or directory of its behind."""
    (tmp_path / "tasks").mkdir()
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(spawner.__file__).parents[3])!r})
from turnkeeper.runtime.tasks import shim
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
before = sorted(os.listdir("/proc/self/fd"))
shim.rehearse("tasks")
print(sorted(os.listdir("/proc/self/fd")) == before, os.getcwd(), os.listdir("tasks"))
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("no child")
"""
    command = [sys.executable, "-I", "-S", "-P", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"True {tmp_path} []", "no child"]
