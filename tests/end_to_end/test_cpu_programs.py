"""End to end: whole programs that have CPU work done, on trio and on asyncio: guarded or not, and killed over it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.runtime.processes import open_pidfd
from turnkeeper.runtime.workers.main_module import UnguardedMain

from ..served import end_all, read_line

DEADLINE_SECONDS = 30
ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import os, sys, time, anyio
from turnkeeper.runtime.cpu.work import CpuWork

def answer():
    return 42

def hang():
    print(os.getpid(), os.getppid(), flush=True)
    time.sleep(600)

async def main():
    async with anyio.create_task_group() as group:
        work = CpuWork(group, 1)
        try:
            print(await work.run(FUNCTION), "trio" in sys.modules, flush=True)
        except Exception as error:
            if __name__ != "__main__":
                raise
            print(f"{type(error).__name__}: {error}", flush=True)
        await work.aclose()

GUARDanyio.run(main, backend=sys.argv[1])
"""
GUARDED = "if __name__ == '__main__':\n    "

both = pytest.mark.parametrize("loop", ["trio", "asyncio"])


def start(folder: Path, loop: str, function: str, *, guard: str = GUARDED, by: str = "") -> subprocess.Popen[str]:
    """Start a program that has a function done, from a file or in another way."""
    source = PROGRAM.replace("FUNCTION", function).replace("GUARD", guard)
    (folder / "program.py").write_text(source)
    given = {"": ["program.py"], "-m": ["-m", "program"], "-c": ["-c", source]}[by]
    return subprocess.Popen(
        [sys.executable, "-W", "error", *given, loop],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / ".import")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_by(program: subprocess.Popen[str]) -> str:
    """Wait for the end of a program that complains about nothing, and give what it said."""
    try:
        said, complaints = program.communicate(timeout=DEADLINE_SECONDS)
    finally:
        end_all([program])
    assert (complaints, program.returncode) == ("", 0)
    return said


@both
@pytest.mark.parametrize(
    ("function", "by"), [("answer", ""), ("answer", "-m"), ("__import__('os').getpriority, 0, 0", "-c")]
)
def test_a_program_has_its_own_functions_done(tmp_path: Path, loop: str, function: str, by: str) -> None:
    """Those of its main module, however it was started, and without a file those of other modules."""
    first = "42" if function == "answer" else "0"
    assert said_by(start(tmp_path, loop, function, by=by)) == f"{first} {loop == 'trio'}\n"


@both
def test_a_program_that_isnt_guarded_is_told_so(tmp_path: Path, loop: str) -> None:
    """Once, in the one process in which it runs; with a function of another module it needs no guard."""
    assert said_by(start(tmp_path, loop, "answer", guard="")) == f"UnguardedMain: {UnguardedMain()}\n"
    assert said_by(start(tmp_path, loop, "abs, -7", guard="")) == f"7 {loop == 'trio'}\n"


@both
def test_a_function_of_a_program_without_a_file_is_refused(tmp_path: Path, loop: str) -> None:
    """No other process can import it."""
    said = said_by(start(tmp_path, loop, "answer", by="-c"))
    assert said.startswith(
        "WorkerStartError: the worker process for __main__:answer can't be started: it is defined in"
    )


@both
def test_the_processes_of_a_killed_program_end_at_once(tmp_path: Path, loop: str) -> None:
    """The one that was at work, and the one that kept it."""
    program = start(tmp_path, loop, "hang")
    try:
        pidfds = [open_pidfd(int(pid)) for pid in read_line(program).split()]
        program.send_signal(signal.SIGKILL)
        for pidfd in pidfds:
            assert pidfd is not None
            assert select.select([pidfd], [], [], DEADLINE_SECONDS)[0]
            os.close(pidfd)
    finally:
        end_all([program])
