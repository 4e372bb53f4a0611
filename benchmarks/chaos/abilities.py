"""What this machine can be made to do: which faults are impossible here, and why, in one line each."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from .plan import Fault

LIBRARY = "libfaketime.so.1"
_LIBRARY_PLACES = ("/usr/lib/*/faketime", "/usr/lib/faketime", "/usr/local/lib/faketime", "/usr/lib64/faketime")

TRACED: tuple[Fault, ...] = ("eio", "enospc", "slow")
"""The faults that are injected by strace."""

POWER_TRIAL = (sys.executable, "-P", "-m", "turnkeeper.benchmarks.chaos.cut_disk")
"""The program that tries to cut the power of a disk; it leaves nothing, however it ends."""


def impossible() -> Mapping[str, str]:
    """Say which faults can't be made here, and why."""
    found: dict[str, str] = {}
    if why := _why_no_strace():
        found |= dict.fromkeys(TRACED, why)
    if why := _why_no_power_cut():
        found["power"] = why
    if faketime_library() is None:
        found["clock"] = "libfaketime is not installed"
    return found


@functools.cache
def _why_no_strace() -> str | None:
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(
        ["strace", "-qqq", "-o", "/dev/null", "-e", "inject=fdatasync:delay_enter=1", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"strace can't trace here: {_last_line(tried.stderr)}" if tried.returncode else None


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


@functools.cache
def _why_no_power_cut() -> str | None:
    if os.geteuid() != 0:
        return "only root can mount a disk whose power is cut"
    for program in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run(POWER_TRIAL, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return f"no disk can be mounted and cut here: {_last_line(tried.stderr)}" if tried.returncode else None


@functools.cache
def faketime_library() -> Path | None:
    """Find the library by which a process has a clock of its own."""
    for pattern in _LIBRARY_PLACES:
        for folder in sorted(Path("/").glob(pattern.lstrip("/"))):
            if (folder / LIBRARY).exists():
                return folder / LIBRARY
    return None
