"""What every benchmark here measures by: one machine described, subjects interleaved, medians and ratios reported.

A ratio within one run is the result; absolute times are context, since they change with the machine and its mood. So
subjects that are compared take turns within one run, each round in another order. A benchmark fills a directory on the
disk under test and says which file system that is: a tmpfs would make every sync free.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from turnkeeper import __version__
from turnkeeper.actors.client.asking import ask_stop
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.lock import store_is_held

Figures: TypeAlias = dict[str, float]
Tell: TypeAlias = Callable[[str], None]
"""Takes one line for people on what is being done."""

Measured = TypeVar("Measured")

SPARE_BYTES = 512 * 1024 * 1024
"""What has to be left on the disk beside what a benchmark writes."""

SYSTEM_CACHES = Path("/proc/sys/vm/drop_caches")

NODE_END_SECONDS = 10.0
"""How long a node that nobody needs any more may take to end before its store is removed all the same."""

_STOP_SECONDS = 1.0


@dataclass(slots=True)
class Run:
    """One result: `figures` are ours, `base` those compared with, `ratio` ours over base or as the name says."""

    name: str
    params: dict[str, Any]
    figures: Figures
    base: Figures = field(default_factory=dict)
    ratio: float | None = None


def report(machine: Mapping[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    """Give a benchmark's result as plain values."""
    return {"machine": dict(machine), "runs": [asdict(run) for run in runs]}


def save(result: Mapping[str, Any], name: str, out: Path | None) -> None:
    """Write a benchmark's result to `name`.json in `out`, if that is given."""
    if out is not None:
        (out / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")


def be_quiet(line: str) -> None:
    """Tell nobody."""


# -- taking turns


def turns(rounds: int, names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Give the order in which subjects are measured: each once a round, each round beginning with the next one."""
    for number in range(rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            yield number, name


def interleaved(
    rounds: int, subjects: Mapping[str, Callable[[], Measured]], tell: Tell = be_quiet
) -> dict[str, list[Measured]]:
    """Measure every subject once a round, in turns; give each one's measurements."""
    measured: dict[str, list[Measured]] = {name: [] for name in subjects}
    for number, name in turns(rounds, list(subjects)):
        tell(f"round {number + 1} of {rounds}: {name}")
        measured[name].append(subjects[name]())
    return measured


def percentile(values: Sequence[float], percent: float) -> float:
    """Give the smallest value that at least `percent` of a hundred of the values don't exceed."""
    if not values:
        raise ValueError("no values to take a percentile of")
    ordered = sorted(values)
    place = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(place) - 1)]


def medians(rounds: Sequence[Mapping[str, float]]) -> Figures:
    """Give the median of each figure over the rounds."""
    return {name: round(statistics.median(each[name] for each in rounds), 4) for name in rounds[0]}


# -- where it is measured


@contextmanager
def measured_directory(out: Path | None) -> Iterator[Path]:
    """Make a directory to fill, in `out` or else the current directory, and remove it afterwards.

    Raises OSError where that can't be written to.
    """
    parent = Path.cwd() if out is None else out
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="turnkeeper-bench-", dir=parent))
    try:
        yield directory
    finally:
        _stop_nodes(directory)
        shutil.rmtree(directory)


def _stop_nodes(directory: Path) -> None:
    """Stop what still serves a store in the directory: a node whose client was killed, or never came."""
    deadline = time.monotonic() + NODE_END_SECONDS
    for store in (str(file.parent) for file in directory.glob("*/store.json")):
        while store_is_held(store) and time.monotonic() < deadline:
            with contextlib.suppress(StorageError, OSError):
                ask_stop(store, _STOP_SECONDS)
            time.sleep(0.01)


def require_space(directory: Path, size: int) -> None:
    """Raise OSError with ENOSPC, before anything is written, if so many bytes don't fit on the directory's disk."""
    found = os.statvfs(directory)
    free = found.f_bavail * found.f_frsize
    if free < size + SPARE_BYTES:
        room = f"this takes {(size + SPARE_BYTES) / 1e9:,.1f} GB of disk and {free / 1e9:,.1f} GB are free"
        raise OSError(errno.ENOSPC, f"{room}; make space, measure less of it, or elsewhere with --out", str(directory))


def describe_machine(directory: Path) -> dict[str, Any]:
    """Say what a measurement in `directory` was made on."""
    return {
        "turnkeeper": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "file_system": file_system(directory),
        "load_before": round(os.getloadavg()[0], 2),
    }


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
