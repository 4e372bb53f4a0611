"""What a measurement was made on: machine, file system, cost of a sync, versions, commit; and its caches.

All of it stands in every result: two results of different machines are no comparison, and on a tmpfs a sync is free.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from turnkeeper import __version__

from .runs import SEED

SYSTEM_CACHES = Path("/proc/sys/vm/drop_caches")
VIRTUAL_DEVICES = Path("/sys/bus/virtio/devices")

LIBRARIES: Final = ("anyio", "trio", "msgpack", "lmdb", "orjson", "zlib-ng")
"""What takes part in whatever is measured of ours."""

IN_MEMORY: Final = ("tmpfs", "ramfs")
"""File systems whose files are in memory."""

_BALLOON: Final = "0x0005"
_REPORTING: Final = 5
"""Of the features of a virtio balloon, as its specification numbers them: free pages are reported to the host."""

SYNCED_BYTES: Final = 512
_SYNCS = 101
_GIT_SECONDS = 5.0


def describe_machine(directory: Path) -> dict[str, Any]:
    """Say what a measurement in `directory` is made on, and of what; a file is written there for a moment."""
    kind = file_system(directory)
    facts = {
        "turnkeeper": __version__,
        "commit": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        **({"free_memory": "given back to the host"} if gives_memory_back() else {}),
        "file_system": kind,
        "fdatasync_us": sync_microseconds(directory),
        "load_before": round(os.getloadavg()[0], 2),
        "seed": SEED,
        "versions": {**{name: _version(name) for name in LIBRARIES}, "sqlite": sqlite3.sqlite_version},
    }
    if kind in IN_MEMORY:
        facts["warning"] = f"{kind}: a sync costs nothing here, so nothing that syncs can be judged by this"
    return facts


def gives_memory_back() -> bool:
    """Say whether this is a virtual machine whose host takes pages back that lie free.

    Such a page takes some 10 µs when it is written first, in place of 1, whoever writes it: what is measured depends on
    how much memory was in use before.
    """
    try:
        for device in VIRTUAL_DEVICES.iterdir():
            if (device / "device").read_text().strip() == _BALLOON:
                return (device / "features").read_text()[_REPORTING] == "1"
    except (OSError, IndexError):
        pass
    return False


def sync_microseconds(directory: Path) -> float:
    """Give the median time of an fdatasync behind each of a hundred small appends to a file in the directory."""
    path = directory / "synced"
    taken = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(file, b"\n" * SYNCED_BYTES)
            began = time.perf_counter()
            os.fdatasync(file)
            taken.append(time.perf_counter() - began)
    finally:
        os.close(file)
        path.unlink()
    return round(statistics.median(taken) * 1e6, 1)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Name the commit of the checkout that this runs from, "-dirty" if files were changed; None where it is none."""
    here = Path(__file__).resolve()
    git = ["git", "-C", str(here.parent)]
    known = [*git, "ls-files", "--error-unmatch", here.name]  # it may lie in a checkout of something else
    asked = [*git, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        subprocess.run(known, check=True, capture_output=True, timeout=_GIT_SECONDS)
        return subprocess.run(asked, check=True, capture_output=True, text=True, timeout=_GIT_SECONDS).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def file_system(path: Path) -> str:
    """Name the type of the file system that holds `path`: ext4, xfs, tmpfs; "unknown" where nothing tells."""
    device = os.stat(path).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    found = "unknown"
    try:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return found
    for line in mounts:
        # Fields, then " - ", then type and source; the third field is the device (proc_pid_mountinfo(5)).
        place, _, kind = line.partition(" - ")
        if place.split()[2] == wanted:
            found = kind.split()[0]
    return found


def drop_caches(directory: Path) -> str:
    """Make the next reading of the directory's files come from the disk as far as this user can; say by what means."""
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            if not path.is_file():  # a socket that its node left behind
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)  # pages that wait to be written can't be dropped
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    if sys.platform == "linux" and os.geteuid() == 0:
        try:
            SYSTEM_CACHES.write_text("3\n")
        except OSError:  # read-only in many containers
            pass
        else:
            return "posix_fadvise and drop_caches"
    return "posix_fadvise"
