"""Measured processes: what they say arrives, what they raise is raised here, and none outlives its use."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.measured_process import MeasuredProcess, receive_from_any
from turnkeeper.benchmarks.measuring.process_memory import PeakMemory, anonymous_bytes, family

from ..serving import eventually

# What a measured process runs is pickled by its module's name, and this module has none that another process knows.
MODULE = "measured_process_functions"
FUNCTIONS = """
import os, shutil, signal, subprocess, sys, time

def echo(starter, *words):
    starter.send(words)
    while True:
        starter.send(starter.recv())

def fail(starter):
    raise OSError(28, "no room", "there")

def fail_together(starter):
    raise ExceptionGroup("sessions", [ExceptionGroup("one", [OSError(28, "no room", "there")]), ValueError("second")])

def fail_to_copy(starter):
    with os.scandir("/proc/self") as entries:
        raise shutil.Error([(next(entries), "there", "[Errno 2] No such file")])

def vanish(starter):
    os._exit(3)

def kill_itself(starter):
    os.kill(os.getpid(), signal.SIGKILL)

def end_slowly(starter, path):
    starter.send("ready")
    try:
        starter.recv()
    except EOFError:
        time.sleep(0.2)
        open(path, "w").close()

def start_another(starter, size):
    child = subprocess.Popen([sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"],
                             stdout=subprocess.PIPE, process_group=0)
    child.stdout.readline()
    starter.send(child.pid)
    starter.recv()
    kept = bytearray(os.urandom(1024)) * (size // 1024)
    starter.send("it is there")
    starter.recv()
    del kept
    starter.send("freed")
    starter.recv()
"""


@pytest.fixture(autouse=True)
def _functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the functions importable, here and in the processes."""
    (tmp_path / f"{MODULE}.py").write_text(FUNCTIONS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)


def start(name: str, *arguments: object, ending_seconds: float = 0.0) -> MeasuredProcess:
    """Start one of the functions."""
    function = getattr(__import__(MODULE), name)
    return MeasuredProcess(function, *arguments, ending_seconds=ending_seconds)


def is_gone(pid: int) -> bool:
    """Say whether a process has ended, reaped or not."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_words_go_both_ways() -> None:
    """Arguments arrive, and answers."""
    with start("echo", "one", 2) as process:
        assert process.receive() == ("one", 2)
        process.send({"three": 3})
        assert process.receive() == {"three": 3}


def test_whoever_speaks_first_is_heard_first() -> None:
    """One that is silent doesn't keep the others waiting."""
    with start("end_slowly", "") as silent, start("echo") as speaking:
        assert silent.receive() == "ready"
        assert receive_from_any([silent, speaking]) is speaking


@pytest.mark.parametrize("function", ["fail", "fail_together"])
def test_what_it_raises_is_raised_by_whoever_receives(function: str) -> None:
    """A full disk is told as such, and not as a broken pipe; also where many sessions meet with it at a time."""
    with start(function) as process, pytest.raises(OSError, match="no room") as raised:
        process.receive()
    assert (raised.value.errno, raised.value.filename) == (28, "there")


def test_an_error_that_cannot_cross_arrives_in_words() -> None:
    """Such as one of copying a directory, which holds an open one's entries."""
    with start("fail_to_copy") as process, pytest.raises(RuntimeError, match=r"^Error: .*No such file"):
        process.receive()


def test_an_end_without_a_word_is_an_error() -> None:
    """Nobody waits for a process that is gone."""
    with start("vanish") as process, pytest.raises(RuntimeError, match="ended without a word"):
        process.receive()


def test_a_kill_is_told_from_another_end() -> None:
    """A victim that ended by itself was never killed, and what is measured after it means nothing."""
    with start("kill_itself") as process:
        process.wait_killed()
    with start("vanish") as process, pytest.raises(RuntimeError, match="ended with 3"):
        process.wait_killed()


def test_one_that_is_given_time_ends_in_order(tmp_path: Path) -> None:
    """It sees the pipe's end, and is waited for."""
    with start("end_slowly", str(tmp_path / "ended"), ending_seconds=30.0) as process:
        assert process.receive() == "ready"
    assert (tmp_path / "ended").exists()


def test_one_that_is_left_by_an_exception_is_killed_at_once(tmp_path: Path) -> None:
    """Whoever presses Ctrl-C doesn't wait for what is no longer wanted."""

    def be_interrupted() -> None:
        with start("end_slowly", str(tmp_path / "ended"), ending_seconds=30.0) as process:
            assert process.receive() == "ready"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert not (tmp_path / "ended").exists()


def test_nothing_that_it_started_is_left_and_its_memory_counts() -> None:
    """All of its process session is killed with it, in whatever group.

    While they live, what both have is counted together, at its greatest.
    """
    with start("start_another", 50_000_000) as process:
        child = process.receive()
        assert set(family(process.pid)) == {process.pid, child}
        with PeakMemory(process.pid) as memory:
            process.send("take memory")
            assert process.receive() == "it is there"
            eventually(lambda: memory.bytes > 50_000_000)
            process.send("free it")
            assert process.receive() == "freed"
        assert anonymous_bytes(process.pid) + anonymous_bytes(child) < 50_000_000
        assert 50_000_000 + anonymous_bytes(child) < memory.bytes < 150_000_000
    assert is_gone(process.pid)
    eventually(lambda: is_gone(child))  # it isn't ours to reap
    assert anonymous_bytes(process.pid) == 0
