"""Tell one process from every other that ever had its pid: by boot, pid and start.

A start is counted in clock ticks since the boot, not in wall-clock time, so setting the clock makes nobody a stranger
(where /proc is missing, psutil's creation time must do). A zombie counts as gone: it does nothing any more, and who
should reap it may take its time. What runs on another host can't be seen from here and is never called gone. Nothing
here sends a signal.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PROC = Path("/proc")

_STATE_WORDS = {"D": "disk sleep", "T": "stopped", "t": "stopped", "X": "gone", "x": "gone", "Z": "zombie"}
_GONE_STATES = ("X", "Z", "x")


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of one host; `start` in clock ticks since that boot."""

    boot: str
    pid: int
    start: int
    host: str

    def as_map(self) -> dict[str, Any]:
        """Return the identity as plain values, for a frame or a record."""
        return asdict(self)

    @classmethod
    def from_map(cls, fields: Mapping[str, Any]) -> Identity:
        """Read back what `as_map` gave; other keys are ignored.

        Raises:
            ValueError: A field is missing or of another type.
        """
        boot, pid, start, host = (fields.get(name) for name in ("boot", "pid", "start", "host"))
        if isinstance(boot, str) and isinstance(pid, int) and isinstance(start, int) and isinstance(host, str):
            return cls(boot, pid, start, host)
        raise ValueError(f"not the identity of a process: {dict(fields)!r:.200}")


def boot_id() -> str:
    """Return what tells this boot of this machine from every other."""
    global _boot
    if _boot is None:
        try:
            _boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            import psutil

            _boot = f"boot-{psutil.boot_time():.0f}"
    return _boot


def own_identity() -> Identity:
    """Return the identity of this process; after a fork, the child's own."""
    global _own
    if _own is None or _own.pid != os.getpid():
        _own = identity_of(os.getpid())
        if _own is None:
            raise RuntimeError(f"process {os.getpid()} does not find itself in {_PROC}")
    return _own


def identity_of(pid: int) -> Identity | None:
    """Return the identity of the process that has this pid now, a zombie too; None if there is none."""
    found = _look_at(pid)
    return found and Identity(boot_id(), pid, found[1], socket.gethostname())


def is_gone(process: Identity | Mapping[str, Any]) -> bool:
    """Say whether the process has certainly ended. Of another host's process, or of no identity at all, nobody can."""
    try:
        wanted = process if isinstance(process, Identity) else Identity.from_map(process)
    except ValueError:
        return False
    if wanted.host != socket.gethostname():
        return False
    if wanted.boot != boot_id():
        return True
    found = _look_at(wanted.pid)
    return found is None or found[1] != wanted.start or found[0] in _GONE_STATES


def process_state(pid: int) -> str:
    """Say in words what the process does: running, stopped, disk sleep, zombie or gone."""
    found = _look_at(pid)
    return "gone" if found is None else _STATE_WORDS.get(found[0], "running")


def _look_at(pid: int) -> tuple[str, int] | None:
    """Return the state letter and start of a process; None if no process has this pid."""
    if pid <= 0:
        return None
    try:
        line = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None if (_PROC / "self").exists() else _ask_psutil(pid)
    # The name stands in parentheses and may itself hold spaces and parentheses: count from the last one.
    fields = line[line.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[19])


def _ask_psutil(pid: int) -> tuple[str, int] | None:
    # Imported only where it is needed: it costs 15 ms of every start.
    import psutil

    letters = {
        psutil.STATUS_DEAD: "X",
        psutil.STATUS_DISK_SLEEP: "D",
        psutil.STATUS_STOPPED: "T",
        psutil.STATUS_TRACING_STOP: "t",
        psutil.STATUS_ZOMBIE: "Z",
    }
    try:
        process = psutil.Process(pid)
        return letters.get(process.status(), "R"), int(process.create_time() * 1_000_000)
    except psutil.NoSuchProcess:
        return None


_boot: str | None = None
_own: Identity | None = None
