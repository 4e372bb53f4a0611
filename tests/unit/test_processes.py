"""Contract of children: waited for on any loop, reaped exactly once, told apart by their ends, never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import anyio
import pytest

from turnkeeper.runtime import processes
from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.processes import (
    ChildProcess,
    describe_exit,
    died_by_signal,
    open_pidfd,
    read_line,
    wait_exit,
    write_all,
)

pytestmark = pytest.mark.anyio

SHUTDOWN_SECONDS = 0.05
DEADLINE_SECONDS = 20


@pytest.fixture
def started() -> Iterator[list[ChildProcess]]:
    """The children that a test started; each is killed and closed at its end, if the test has not seen to that."""
    children: list[ChildProcess] = []
    yield children
    for child in children:
        child.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not child.poll() and time.monotonic() < deadline:
            time.sleep(0.01)
        child.close()


def popen(shell: str) -> subprocess.Popen[bytes]:
    """Start a shell program in a session of its own."""
    command = ["/bin/sh", "-c", shell]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)


def take_exit_code(pid: int) -> None:
    """Wait for the child and reap it, as another part of the program might."""
    os.waitid(os.P_PID, pid, os.WEXITED)


async def start(started: list[ChildProcess], shell: str) -> ChildProcess:
    """Start a shell program in a session of its own and return once it has said that it is up."""
    child, line = await start_and_listen(started, shell)
    assert line == b"up\n"
    return child


async def start_and_listen(started: list[ChildProcess], shell: str) -> tuple[ChildProcess, bytes]:
    """Start a shell program in a session of its own; return it and its first line."""
    process = popen(shell)
    child = ChildProcess(process)
    started.append(child)
    assert process.stdout is not None
    with anyio.fail_after(DEADLINE_SECONDS):
        return child, await read_line(process.stdout.fileno())


async def test_a_child_is_waited_for_and_reaped(started: list[ChildProcess]) -> None:
    """Waiting returns the exit code, and afterwards there is no zombie."""
    child = await start(started, "echo up; read line; exit 3")
    assert not child.poll()
    child.close_stdin()
    assert await child.wait() == 3
    assert (child.ended, child.returncode, process_state(child.pid)) == (True, 3, "gone")
    assert await child.wait() == 3


async def test_many_tasks_wait_for_one_child(started: list[ChildProcess]) -> None:
    """Each of several waiting tasks is told the same code; cancelling one disturbs no other."""
    child = await start(started, "echo up; exec sleep 60")
    codes: list[int | None] = []

    async def wait() -> None:
        codes.append(await child.wait())

    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            group.start_soon(wait)
            with anyio.move_on_after(0.01):
                await child.wait()
            child.send_signal(signal.SIGKILL)
    assert codes == [-signal.SIGKILL, -signal.SIGKILL]


async def test_any_process_is_waited_for_not_only_a_child() -> None:
    """A pidfd tells the end of a process that belongs to somebody else, and may be closed while a task waits."""
    parent = popen("sleep 60 & echo $!; wait")
    assert parent.stdin is not None
    assert parent.stdout is not None
    grandchild = int(parent.stdout.readline())
    pidfd = open_pidfd(grandchild)
    assert pidfd is not None
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(wait_exit, pidfd)
            await anyio.wait_all_tasks_blocked()
            os.close(pidfd)
            os.kill(grandchild, signal.SIGKILL)
    parent.stdin.close()
    parent.stdout.close()
    parent.wait(DEADLINE_SECONDS)
    assert open_pidfd(grandchild) is None or process_state(grandchild) == "zombie"


async def test_a_child_that_obeys_ends_by_itself(started: list[ChildProcess]) -> None:
    """Within the shutdown time no signal is sent."""
    child = await start(started, "trap 'exit 9' TERM; echo up; read line; exit 4")
    child.close_stdin()
    assert await child.end(shutdown_seconds=DEADLINE_SECONDS) == 4


async def test_a_child_that_does_not_listen_gets_a_term(started: list[ChildProcess]) -> None:
    """After the shutdown time comes SIGTERM, which the child may handle."""
    child = await start(started, "trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done")
    assert await child.end(shutdown_seconds=SHUTDOWN_SECONDS, terminate_seconds=DEADLINE_SECONDS) == 9


async def test_a_child_that_ignores_term_is_killed_with_its_group(started: list[ChildProcess]) -> None:
    """SIGKILL has the last word, for the child and for what it started in its group."""
    child, line = await start_and_listen(started, "trap '' TERM; sleep 60 & echo $!; while :; do sleep 0.01; done")
    assert await child.end(shutdown_seconds=0, terminate_seconds=SHUTDOWN_SECONDS) == -signal.SIGKILL
    await wait_gone(int(line))


async def test_what_a_child_left_in_its_group_ends_with_it(started: list[ChildProcess]) -> None:
    """A child that ends in order, leaving a process of its group behind, does not leave it to the system."""
    child, line = await start_and_listen(started, "sleep 60 >/dev/null & echo $!; exit 0")
    assert await child.wait() == 0
    await wait_gone(int(line))


async def wait_gone(pid: int) -> None:
    """Wait until nobody, or only a zombie, has the pid."""
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        with anyio.fail_after(DEADLINE_SECONDS):
            await wait_exit(pidfd)
        os.close(pidfd)


async def test_ending_goes_on_when_cancelled(started: list[ChildProcess]) -> None:
    """Cancellation does not interrupt the ending: the child is reaped when the scope is left."""
    child = await start(started, "echo up; exec sleep 60")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await child.end(shutdown_seconds=SHUTDOWN_SECONDS)
    assert child.returncode == -signal.SIGTERM
    assert process_state(child.pid) == "gone"


async def test_a_return_code_that_somebody_took_is_not_invented(started: list[ChildProcess]) -> None:
    """A child reaped by another part of the program has ended, with a code that nobody here knows."""
    child = await start(started, "echo up; exit 5")
    take_exit_code(child.pid)
    assert await child.wait() is None
    assert child.ended
    child.send_signal(signal.SIGKILL)
    assert describe_exit(child.returncode) == "ended, and its exit code was taken by somebody else"


async def test_a_child_that_was_left_is_reaped_when_it_ends(started: list[ChildProcess]) -> None:
    """Who leaves a child closes it at once; a daemon thread takes the zombie later."""
    child = await start(started, "echo up; exec sleep 60")
    started.remove(child)
    (reaper,) = set_of_threads_after(child.leave)
    assert process_state(child.pid) == "running"
    os.kill(child.pid, signal.SIGKILL)
    reaper.join(DEADLINE_SECONDS)
    assert process_state(child.pid) == "gone"
    assert reaper.daemon


def set_of_threads_after(action: object) -> set[threading.Thread]:
    """Return the threads that a call started."""
    before = set(threading.enumerate())
    assert callable(action)
    action()
    return set(threading.enumerate()) - before


async def test_a_running_child_cannot_be_closed(started: list[ChildProcess]) -> None:
    """Closing is refused, and changes nothing, as long as somebody would have to reap the child."""
    child = await start(started, "echo up; exec sleep 60")
    with pytest.raises(RuntimeError, match=f"process {child.pid} has not ended"):
        child.close()
    assert process_state(child.pid) in ("running", "disk sleep")


async def test_a_forgotten_child_warns() -> None:
    """A ChildProcess that was never closed says so and gives its descriptors back."""
    forgotten = [ChildProcess(popen("exit 0"))]
    await forgotten[0].wait()
    pidfd = forgotten[0]._pidfd
    assert pidfd is not None
    with pytest.warns(ResourceWarning, match=f"unclosed child process {forgotten[0].pid}"):
        forgotten.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(pidfd)


async def test_no_descriptor_is_left() -> None:
    """Starting, ending and closing gives every descriptor back."""
    before = sorted(os.listdir("/proc/self/fd"))
    children: list[ChildProcess] = []
    for _ in range(5):
        child = await start(children, "echo up; exec sleep 60")
        await child.end(shutdown_seconds=0)
        child.close()
    assert sorted(os.listdir("/proc/self/fd")) == before


async def test_writing_waits_for_a_slow_reader_and_reading_for_the_newline() -> None:
    """More than a pipe holds is written whole, and a line that comes in pieces is read whole."""
    read_end, write_end = os.pipe()
    line = b"x" * (processes.LINE_BYTES_MAX - 1) + b"\n"
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(write_all, write_end, line[:10])
            await anyio.wait_all_tasks_blocked()
            group.start_soon(write_all, write_end, line[10:])
            assert await read_line(read_end) == line
        async with anyio.create_task_group() as group:
            group.start_soon(write_all, write_end, bytes(200_000))
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(ValueError, match="more than 65,536 bytes without a newline"):
                await read_line(read_end)
            group.cancel_scope.cancel()
    os.close(read_end)
    with pytest.raises(BrokenPipeError):
        await write_all(write_end, b"nobody")
    os.close(write_end)


async def test_a_writer_that_ended_leaves_its_last_words() -> None:
    """A line without its newline is what was said before the end; nothing at all is an empty one."""
    read_end, write_end = os.pipe()
    await write_all(write_end, b"half a li")
    os.close(write_end)
    assert await read_line(read_end) == b"half a li"
    assert await read_line(read_end) == b""
    os.close(read_end)


@pytest.mark.parametrize(
    ("returncode", "killer", "words"),
    [
        (0, None, "ended with exit code 0"),
        (137, None, "ended with exit code 137"),
        (-9, 9, "was killed by SIGKILL"),
        (-35, 35, "was killed by signal 35"),
        (None, None, "ended, and its exit code was taken by somebody else"),
    ],
)
def test_an_end_is_told_in_words(returncode: int | None, killer: int | None, words: str) -> None:
    """Exit codes and signals are different ends, and an unknown one stays unknown."""
    assert died_by_signal(returncode) == killer
    assert describe_exit(returncode) == words
