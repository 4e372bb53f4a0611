"""End to end: programs of every kind that have an actor in a worker process, run whole, on trio and on asyncio.

None of them may hang, leave a process, or run twice; what can't work says why in one line.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.processes import open_pidfd
from turnkeeper.runtime.workers.main_module import UnguardedMain

DEADLINE_SECONDS = 30
AT_ONCE_SECONDS = 5
"""What "at once" may mean on a busy machine; the deaths themselves take milliseconds."""

ROOT = Path(__file__).resolve().parents[2]

AGENT = """\
import os, pathlib, sys, time

class Agent:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
    async def __aenter__(self):
        (self.folder / "pid").write_text(str(os.getpid()))
        return self
    async def __aexit__(self, *error):
        (self.folder / "left").touch()
    async def answer(self):
        return 42
    async def complain(self):
        print("complaint", file=sys.stderr, flush=True)
        return os.readlink("/proc/self/fd/2")
    async def block(self):
        (self.folder / "blocked").touch()
        time.sleep(600)
"""

MAIN = """\
import sys, anyio
from turnkeeper.runtime.workers.worker import spawn_in_process

async def main():
    async with anyio.create_task_group() as group:
        agent = await spawn_in_process(group, ACTOR, sys.argv[1])
        print("answer", await agent.ask("answer"), flush=True)
        await agent.stop()

def begin(function, loop):
    try:
        anyio.run(function, backend=loop)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None
"""


@pytest.fixture(params=["asyncio", "trio"])
def loop(request: pytest.FixtureRequest) -> str:
    """The event loop on which the host runs."""
    name: str = request.param
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the module `agents`, in which a program finds its worker's marks too."""
    (tmp_path / "agents.py").write_text(AGENT)
    return tmp_path


def run(folder: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in the folder, with its name as the last argument, to its end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".import"), "PYTHONWARNINGS": "error", "PYTHONDEVMODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
    )


def program(loop: str, *, actor: str = '"agents:Agent"', guard: str = 'if __name__ == "__main__":\n    ') -> str:
    """Give the source of a program that asks an actor once."""
    return f"{MAIN.replace('ACTOR', actor)}\n{guard}begin(main, {loop!r})\n"


def assert_worked(done: subprocess.CompletedProcess[str]) -> None:
    """The program printed its answer once, and nothing else."""
    assert (done.stdout, done.stderr, done.returncode) == ("answer 42\n", "", 0)


def assert_failed(done: subprocess.CompletedProcess[str], words: str) -> None:
    """The program did nothing but to end with an error whose message has these words."""
    assert (done.stdout, done.returncode) == ("", 1)
    errors = [line for line in done.stderr.splitlines() if line.startswith("turnkeeper.")]
    assert len(errors) == 1, done.stderr
    assert words in errors[0]


# -- Programs of every kind


def test_a_guarded_script_works_with_a_class_of_its_own(folder: Path, loop: str) -> None:
    """The worker imports the script for the class, and the guard keeps the program from running there."""
    (folder / "script.py").write_text(AGENT + program(loop, actor="Agent"))
    assert_worked(run(folder, "script.py", str(folder)))


def test_an_unguarded_script_works_with_a_class_of_a_module(folder: Path, loop: str) -> None:
    """Nothing of the script is needed in the worker, so it is not imported there."""
    (folder / "script.py").write_text(program(loop, guard=""))
    assert_worked(run(folder, "script.py", str(folder)))


def test_an_unguarded_script_with_a_class_of_its_own_is_told_so(folder: Path, loop: str) -> None:
    """Importing it would run it again: that ends with one clear error, at once, in the one process."""
    (folder / "script.py").write_text(AGENT + program(loop, actor="Agent", guard=""))
    begun = time.monotonic()
    assert_failed(run(folder, "script.py", str(folder)), f"UnguardedMain: {UnguardedMain()}")
    assert time.monotonic() - begun < 10, "it took as long as a worker that is not ready in time"


def test_a_script_that_ends_itself_when_it_is_imported_is_told_so(folder: Path, loop: str) -> None:
    """An exit without a guard is an error of the start, not a worker that vanished."""
    source = AGENT + program(loop, actor="Agent") + "if __name__ != '__main__':\n    raise SystemExit('imported')\n"
    (folder / "script.py").write_text(source)
    words = "WorkerStartError: the worker process for __main__:Agent could not import it: SystemExit: imported"
    assert_failed(run(folder, "script.py", str(folder)), words)


def test_a_module_run_by_name_works(folder: Path, loop: str) -> None:
    """With `python -m` the class may be in the module itself, in a package or not."""
    package = folder / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    for path, name in ((folder / "alone.py", "alone"), (package / "inside.py", "package.inside")):
        path.write_text(AGENT + program(loop, actor="Agent"))
        assert_worked(run(folder, "-m", name, str(folder)))


def test_a_program_given_by_c_or_on_standard_input_works_with_a_class_of_a_module(folder: Path, loop: str) -> None:
    """No file is needed for the program, with or without a guard."""
    for guard in ("", 'if __name__ == "__main__":\n    '):
        source = program(loop, guard=guard)
        assert_worked(run(folder, "-c", source, str(folder)))
        assert_worked(run(folder, "-", str(folder), stdin=source))


def test_a_class_that_no_other_process_can_import_is_told_so(folder: Path, loop: str) -> None:
    """A class in a program without a file, or in a package's __main__, can't be found by a worker."""
    source = AGENT + program(loop, actor="Agent")
    package = folder / "package"
    package.mkdir()
    (package / "__main__.py").write_text(source)
    for done in (
        run(folder, "-c", source, str(folder)),
        run(folder, "-", str(folder), stdin=source),
        run(folder, "-m", "package", str(folder)),
    ):
        assert_failed(done, "can't be started: it is defined in a program that no other process can import")


def test_an_interactive_session_works(folder: Path, loop: str) -> None:
    """What is typed at the prompt can start a worker, with a class of a module."""
    typed = program(loop, guard="").replace("\nbegin", "\n\nbegin")
    done = run(folder, "-i", "-q", "-", str(folder), stdin=typed)
    assert "answer 42\n" in done.stdout
    assert done.returncode == 0


def test_a_host_without_standard_streams_works(folder: Path, loop: str) -> None:
    """One that has closed them, with their numbers free for others, gets a worker that says its errors to nobody."""
    source = program(loop).replace("agent =", "os.close(0); os.close(2); agent =").replace('"answer")', '"complain")')
    done = run(folder, "-c", f"import os\n{source}", str(folder))
    assert (done.stdout, done.stderr, done.returncode) == ("answer /dev/null\n", "", 0)


def test_an_asyncio_host_never_loads_trio(folder: Path) -> None:
    """Nothing of the runtime that a host uses imports the other loop."""
    source = program("asyncio", guard="") + "print([name for name in ('trio', 'psutil') if name in sys.modules])\n"
    assert run(folder, "-c", source, str(folder)).stdout == "answer 42\n[]\n"


# -- Ends of every kind

WAITING = """
async def wait():
    async with anyio.create_task_group() as group:
        agent = await spawn_in_process(group, "agents:Agent", sys.argv[1])
        {told}
        print("up", flush=True)
        await anyio.sleep_forever()

begin(wait, {loop!r})
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """The hosts that a test started; each is killed at its end, and reaped."""
    hosts: list[subprocess.Popen[str]] = []
    yield hosts
    for host in hosts:
        host.kill()
        host.communicate()


def start_waiting(
    started: list[subprocess.Popen[str]], folder: Path, loop: str, told: str = "pass"
) -> tuple[subprocess.Popen[str], int]:
    """Start a host in a session of its own, with a worker that is up; return it and a pidfd of the worker."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".import"), "PYTHONWARNINGS": "error"}
    host = subprocess.Popen(
        [sys.executable, "-c", MAIN + WAITING.format(told=told, loop=loop), str(folder)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    started.append(host)
    assert host.stdout is not None
    assert host.stdout.readline() == "up\n"
    pidfd = open_pidfd(int((folder / "pid").read_text()))
    assert pidfd is not None
    return host, pidfd


def assert_ends_at_once(pidfd: int) -> None:
    """The process ends, within a time that allows for a busy machine; the pidfd is closed."""
    ended, _, _ = select.select([pidfd], [], [], AT_ONCE_SECONDS)
    os.close(pidfd)
    assert ended


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("pass", id="idle"),
        pytest.param('await agent.tell("block"); await anyio.sleep(0.2)', id="blocked"),
        pytest.param("import os; os.fork() or os.execvp('sleep', ['sleep', '60'])", id="beside a forked child"),
    ],
)
def test_the_worker_of_a_killed_host_ends_at_once(
    started: list[subprocess.Popen[str]], folder: Path, loop: str, told: str
) -> None:
    """Nothing of a host that was SIGKILLed lives on, whatever the worker does and whoever else holds the lifeline."""
    host, pidfd = start_waiting(started, folder, loop, told)
    host.kill()
    assert_ends_at_once(pidfd)
    os.killpg(host.pid, signal.SIGKILL)
    assert not (folder / "left").exists()


def test_an_interrupt_reaches_the_host_alone_and_everything_ends_in_order(
    started: list[subprocess.Popen[str]], folder: Path, loop: str
) -> None:
    """Ctrl-C goes to the foreground group: the host ends its worker, the actor leaves, and no worker says anything."""
    host, pidfd = start_waiting(started, folder, loop)
    os.killpg(host.pid, signal.SIGINT)
    said = host.communicate(timeout=DEADLINE_SECONDS)
    assert_ends_at_once(pidfd)
    assert host.returncode == -signal.SIGINT
    assert said[0] == ""
    assert said[1].splitlines()[-1] == "KeyboardInterrupt"
    assert said[1].count("Traceback (most recent call last)") <= 2, said[1]
    assert (folder / "left").exists()


def test_no_process_outlives_a_program_that_ended(folder: Path, loop: str) -> None:
    """When the host's process is gone, so is the worker's."""
    (folder / "script.py").write_text(program(loop))
    assert_worked(run(folder, "script.py", str(folder)))
    assert process_state(int((folder / "pid").read_text())) == "gone"
