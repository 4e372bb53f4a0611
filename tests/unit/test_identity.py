"""Contract of identities: the same process is known again, every other is told from it, and doubt is never "gone"."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.runtime import identity
from turnkeeper.runtime.identity import Identity, boot_id, identity_of, is_gone, own_identity, process_state


@contextmanager
def running(program: str | Path = "/bin/cat", **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that copies its input, from when it surely is up; it is ended at the end of the block."""
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, **options)
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(b"up")
            process.stdout.read(2)
            yield process
        finally:
            process.kill()


@pytest.fixture
def idle() -> Iterator[subprocess.Popen[bytes]]:
    """A process that is up and waits."""
    with running() as process:
        yield process


def unused_pid() -> int:
    """Return the pid of a process that has ended and was reaped."""
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    return process.pid


def test_a_living_process_is_known_again(idle: subprocess.Popen[bytes]) -> None:
    """Two looks at one process give the same identity, which survives its map and is not gone."""
    first = identity_of(idle.pid)
    assert first is not None
    assert first == identity_of(idle.pid) == Identity.from_map({**first.as_map(), "token": "other"})
    assert not is_gone(first)
    assert not is_gone(first.as_map())


def test_a_process_that_was_reaped_is_gone() -> None:
    """Nobody has the pid: gone, in every form of the question."""
    pid = unused_pid()
    assert identity_of(pid) is None
    assert is_gone(replace(own_identity(), pid=pid))
    assert process_state(pid) == "gone"


def test_a_zombie_is_gone(idle: subprocess.Popen[bytes]) -> None:
    """A process that ended counts as gone although its parent has not reaped it and its pid answers to kill."""
    alive = identity_of(idle.pid)
    assert alive is not None
    idle.kill()
    os.waitid(os.P_PID, idle.pid, os.WEXITED | os.WNOWAIT)
    os.kill(idle.pid, 0)
    assert is_gone(alive)
    assert process_state(idle.pid) == "zombie"


def test_a_stranger_with_the_same_pid_is_not_the_process() -> None:
    """The pid was reused: another start means that the one asked for is gone."""
    assert is_gone(replace(own_identity(), start=own_identity().start + 1))


def test_a_process_from_before_a_reboot_is_gone() -> None:
    """Another boot of this host means gone, whoever has pid and start now."""
    assert is_gone(replace(own_identity(), boot="00000000-0000-4000-8000-000000000000"))


def test_a_process_of_another_host_is_never_called_gone() -> None:
    """From here nobody can tell, whatever its boot and pid."""
    assert not is_gone(Identity("some-boot", unused_pid(), 1, "another-host"))


@pytest.mark.root
def test_a_process_of_another_user_is_seen() -> None:
    """Permission to signal a process plays no part in whether it is there."""
    with running(user=65534) as process:
        found = identity_of(process.pid)
        assert found is not None
        assert not is_gone(found)


@pytest.mark.parametrize("fields", [{}, {"boot": "b", "pid": "7", "start": 1, "host": "h"}, {"pid": 7}])
def test_what_is_no_identity_is_refused_and_never_called_gone(fields: dict[str, object]) -> None:
    """A damaged map can't be read as an identity, and proves nobody dead."""
    with pytest.raises(ValueError, match="not the identity of a process"):
        Identity.from_map(fields)
    assert not is_gone(fields)


def test_a_stopped_process_says_so(idle: subprocess.Popen[bytes]) -> None:
    """SIGSTOP shows as stopped, SIGCONT as running, and neither as gone."""
    alive = identity_of(idle.pid)
    assert alive is not None
    idle.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, idle.pid, os.WSTOPPED)
    assert process_state(idle.pid) == "stopped"
    assert not is_gone(alive)
    idle.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, idle.pid, os.WCONTINUED)
    assert process_state(idle.pid) == "running"


def test_a_name_with_spaces_and_parentheses_is_read_right(tmp_path: Path) -> None:
    """The kernel writes a program's name unescaped; it moves no other field."""
    odd = tmp_path / "a) Z 1 (b"
    odd.symlink_to("/bin/cat")
    with running(odd) as process:
        assert process_state(process.pid) == "running"
        found = identity_of(process.pid)
        assert found is not None
        assert found.start >= own_identity().start


def test_a_forked_child_is_somebody_else() -> None:
    """The cached identity belongs to one pid: after a fork the child finds its own."""
    parent = own_identity()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write_end, str(own_identity().pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    assert os.read(read_end, 64) == str(child).encode()
    os.close(read_end)
    assert own_identity() == parent
    assert parent.pid == os.getpid()
    assert parent.boot == boot_id()


@pytest.mark.parametrize("pid", [0, -1])
def test_no_process_has_a_pid_below_one(pid: int) -> None:
    """Zero and negative numbers, which mean groups to the kernel, name no process."""
    assert identity_of(pid) is None
    assert process_state(pid) == "gone"


def test_without_proc_the_same_answers_come_from_psutil(
    idle: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where /proc is missing, living, stopped and ended processes are still told apart."""
    monkeypatch.setattr(identity, "_PROC", tmp_path)
    monkeypatch.setattr(identity, "_boot", None)
    alive = identity_of(idle.pid)
    assert alive is not None
    assert alive == identity_of(idle.pid)
    assert alive.boot.startswith("boot-")
    assert not is_gone(alive)
    idle.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, idle.pid, os.WSTOPPED)
    assert process_state(idle.pid) == "stopped"
    idle.kill()
    os.waitid(os.P_PID, idle.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(alive)
    assert process_state(unused_pid()) == "gone"
