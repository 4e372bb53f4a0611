"""Be one task's shim: take its lock, start its command, and see it through to its end.

A shim is a fork of the spawner that leads a process session and adopts what the command leaves behind, so its own list
of children says what is left. It holds the task's lock from before it writes anything until the end stands, so of two
shims of one task only one runs it. It has no descriptor of anybody else's and waits for nobody. No Python runs in a
child between fork and exec, where a kill would leave half a command that holds the lock for ever: `posix_spawn` starts
the command, and is back when that runs or can't.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from . import directory, tree
from .bell import Bell
from .output import Output
from .running import Running

REHEARSALS = 12
"""CPython settles on how it runs a function in its eighth call."""

REHEARSED_SECONDS = 0.001
"""How long what is rehearsed with runs, so that it is waited for."""

UMASK = 0o022
"""The command's, if its starter's is not known."""

_DEFAULT_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_PR_GET_DUMPABLE = 3
_PR_SET_CHILD_SUBREAPER = 36

# Looked up before the fork: ctypes makes a function when it is first asked for, which would be a copy for each shim.
_LIBC = ctypes.CDLL(None, use_errno=True)
_prctl, _signal = _LIBC.prctl, _LIBC.signal
_SIGCHLD, _SIG_DFL = int(signal.SIGCHLD), int(signal.SIG_DFL)


class _NotStarted(Exception):
    """The command doesn't run: why, in one line, and by whose doing."""

    def __init__(self, why: str, by: str = "itself") -> None:
        super().__init__(why, by)
        self.why = why
        self.by = by


def run(task: str) -> None:
    """Be the task's shim, in a fork that blocks all signals and whose present directory is the store.

    Raises:
        OSError: There is no such task, or this process can't be a shim. Nothing was written.
    """
    _leave_spawner()
    os.chdir(f"tasks/{task}")
    # Another shim of this task may have it, or a node that settles its fate: what they leave behind decides.
    lock = directory.open_lock(".")
    directory.take_lock(lock, wait=True)
    if os.access(directory.EXIT, os.F_OK) or os.access(directory.RUN, os.F_OK):
        return
    bell = Bell(task)
    try:
        running = _start(task)
    except _NotStarted as refusal:
        end = {"how": {"not_started": refusal.why}, "by": refusal.by, "ended": time.time_ns() // 1_000_000}
        end |= {"survivors": [], "output_bytes": 0, "output": None}
    else:
        bell.ring("started")
        end = running.supervise(bell)
    with contextlib.suppress(OSError):
        directory.write_exit(".", end)
    # Given back first: who is woken by the bell finds it free.
    os.close(lock)
    bell.ring("ended")


def rehearse(tasks: str) -> None:
    """Do in this process what shims do, with a task below `tasks` that can't be started, and remove it.

    The interpreter writes down what it learns of code that runs, next to the code. What it learns before the forks is
    shared by all shims; what it learns afterwards is a copy for each, and takes two fifths of a shim's memory.

    Raises:
        OSError: The disk is full, say. Shims will be larger.
    """
    home = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    path = f"{tasks}/rehearsal"
    own = _identity()
    spec = {"argv": [""], "program": os.devnull, "cwd": "/", "timeout": None, "grace": 0.0, "limit": 1, "owner": own}
    environment = {name: "x" * len(value) for name, value in os.environ.items()}  # as large, and no secret
    try:
        for _ in range(REHEARSALS):
            _signal(_SIGCHLD, _SIG_DFL)
            _prctl(_PR_GET_DUMPABLE, 0, 0, 0, 0)
            directory.make(tasks, "rehearsal", spec, environment)
            os.chdir(path)
            with contextlib.suppress(_NotStarted):
                _start("rehearsal")
            _rehearse_running(own)
            os.fchdir(home)
    finally:
        os.fchdir(home)
        os.close(home)
        directory.discard(path)


def _rehearse_running(own: Mapping[str, Any]) -> None:
    """See a child through that only waits a moment."""
    output, owner = Output(1), _open_owner(own)
    os.chdir("/")  # where no node listens
    bell = Bell("rehearsal")
    bell.ring("started")
    leader = os.fork()
    if leader == 0:
        signal.sigtimedwait((), REHEARSED_SECONDS)
        os._exit(0)
    Running(leader, output, owner, timeout=None, grace=0.0).supervise(bell)
    output.close()
    if owner is not None:
        os.close(owner)


def _leave_spawner() -> None:
    """Give up what is the spawner's: its socket, its process session, its children's fate."""
    _signal(_SIGCHLD, _SIG_DFL)  # Python's own call would copy some 100 KB of enums from the spawner
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    os.setsid()
    if _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def _start(task: str) -> Running:
    """Start the command, whose environment's file is gone then, whether that succeeds or not. Raises _NotStarted."""
    spec = directory.read_map(directory.SPEC)
    environment = directory.read_map(directory.ENVIRONMENT)
    try:
        if spec is None or environment is None:
            raise _NotStarted(f"{directory.SPEC} or {directory.ENVIRONMENT} is missing or damaged")
        identity = _identity()
        directory.write_whole(directory.RUN, identity)
        # From here on no other shim runs this task, so none needs its environment.
        os.unlink(directory.ENVIRONMENT)
        directory.keep_space(directory.RUN)
        owner = _open_owner(spec.get("owner"))
        output = Output(spec["limit"])
        try:
            leader = _spawn(spec, {**environment, **directory.marks(task, identity)}, output)
        except BaseException:
            output.close()
            if owner is not None:
                os.close(owner)
            raise
    except OSError as error:
        raise _NotStarted(f"its files can't be written ({error.strerror or error})") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _NotStarted(f"{directory.SPEC} or {directory.ENVIRONMENT} makes no sense ({error!r})") from error
    began = time.time_ns() // 1_000_000
    started = tree.process_of(leader)
    if started is not None:
        known = {"pid": leader, "start": started.start, "time": began}
        with contextlib.suppress(OSError):
            directory.write_kept(directory.RUN, {**identity, "leader": known})
    return Running(leader, output, owner, timeout=spec["timeout"], grace=spec["grace"])


def _identity() -> dict[str, Any]:
    own = tree.process_of(os.getpid())
    if own is None:
        raise OSError(errno.ENOSYS, "/proc doesn't show this process")
    pid_namespace = os.stat("/proc/self/ns/pid").st_ino
    return {"boot": directory.boot_id(), "pid": own.pid, "start": own.start, "pidns": pid_namespace}


def _open_owner(owner: Mapping[str, Any] | None) -> int | None:
    """Open the process with which the task is to end, if there is one; a pid alone may be another's by now."""
    if owner is None:
        return None
    pidfd = tree.open_process(owner["pid"], owner["start"]) if owner["boot"] == directory.boot_id() else None
    if pidfd is None:
        raise _NotStarted("the process that asked for it ended before it began", by="owner")
    return pidfd


def _spawn(spec: Mapping[str, Any], environment: Mapping[str, str], output: Output) -> int:
    program = directory.as_bytes(spec["program"])
    argv = [directory.as_bytes(argument) for argument in spec["argv"]]
    variables = {directory.as_bytes(name): directory.as_bytes(value) for name, value in environment.items()}
    own_directory = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.chdir(directory.as_bytes(spec["cwd"]))
    except OSError as error:
        os.close(own_directory)
        raise _NotStarted(f"its directory {spec['cwd']} can't be entered ({error.strerror})") from error
    own_umask = os.umask(spec.get("umask", UMASK))
    try:
        return os.posix_spawn(
            program,
            argv,
            variables,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, output.file, 1),
                (os.POSIX_SPAWN_DUP2, output.file, 2),
            ],
            setpgroup=0,
            setsigmask=[],
            setsigdef=_DEFAULT_SIGNALS,
        )
    except OSError as error:
        raise _NotStarted(_describe(spec["program"], error)) from error
    finally:
        os.umask(own_umask)
        os.fchdir(own_directory)
        os.close(own_directory)


def _describe(program: str, error: OSError) -> str:
    """Say why a program that should have been started was not."""
    if error.errno == errno.ENOENT and os.path.exists(directory.as_bytes(program)):
        why = "the interpreter that its first line names is missing"
    elif error.errno == errno.ENOEXEC:
        why = "is neither a program of this system nor a script whose first line says what runs it"
    else:
        why = error.strerror or str(error)
    return f"{program}: {why}"
