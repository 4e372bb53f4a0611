"""What it costs to import session files of another program: one large session, and a folder of many small ones.

What is measured is the command as people run it, into a new store each time: with its start, that of the node and the
writer, and all of it durable at the end. Memory is the most that the three had of their own together.

Beside it: parsing every line with orjson, which is the least that a program does that reads such files, and copying
the files so that they are durable, which reads nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from .measuring.durability import POWER_LOSS
from .measuring.measured_process import ANSWER_SECONDS, child_environment
from .measuring.process_memory import PeakMemory
from .measuring.room import require_space
from .measuring.runs import Figures, Run, Tell, be_quiet, interleaved, run_of
from .stores.session_files import write_large, write_many
from .workplace import Workplace, run_alone

_OURS, _PARSED, _COPIED = "turnkeeper", "orjson alone", "cp and fsync"
_SURVIVES = {_PARSED: "nothing, as nothing is kept", _COPIED: POWER_LOSS}
_FILE_BYTES = 30_000
_FORMS = 4  # the files, a copy, and the store with what it fills ahead


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is imported: a session of so many bytes, and so many small ones."""

    large_bytes: int
    files: int
    rounds: int = 5


QUICK = Sizes(large_bytes=3_000_000, files=40)
FULL = Sizes(large_bytes=40_000_000, files=800)


def run_import(
    quick: bool,
    out: Path | None = None,
    *,
    megabytes: int | None = None,
    files: int | None = None,
    tell: Tell = be_quiet,
) -> dict[str, Any]:
    """Write session files and import them again and again; report medians and ratios.

    The large session has `megabytes`, 40 if nothing is said, 3 if `quick`, and there are `files` small ones, 800 or 40.
    All of it lies in `out`, or else in the current directory, and is removed; with `out` the result is kept there as
    import.json. Raises OSError where that isn't free.
    """
    sizes = QUICK if quick else FULL
    if megabytes is not None:
        sizes = replace(sizes, large_bytes=megabytes * 1_000_000)
    if files is not None:
        sizes = replace(sizes, files=files)
    return run_alone("import", partial(measure, sizes), out, tell)


def measure(sizes: Sizes, place: Workplace) -> list[Run]:
    """Measure with these sizes."""
    large, many = place.directory / "large.jsonl", place.directory / "many"
    require_space(place.directory, _FORMS * max(sizes.large_bytes, sizes.files * _FILE_BYTES))
    place.tell("writing session files")
    runs = []
    for name, path, files, size in (
        ("large", large, 1, write_large(large, sizes.large_bytes)),
        ("many", many, sizes.files, write_many(many, sizes.files)),
    ):
        runs += _compare(name, _Imported(path, files, size, place.directory), sizes.rounds, place.tell)
    return runs


def _compare(name: str, imported: _Imported, rounds: int, tell: Tell) -> list[Run]:
    subjects: dict[str, Callable[[], Figures]] = {
        _OURS: imported.store,
        _PARSED: imported.parse,
        _COPIED: imported.copy,
    }
    imported.parse()  # so that all of it is in memory
    measured = interleaved(rounds, subjects, lambda line: tell(f"import {name}: {line}"))
    mine = measured.pop(_OURS)
    params = {"files": imported.files, "bytes": imported.size, "cache": "warm"}
    return [
        run_of(
            f"import {name} seconds",
            {**params, "against": other, "survives": _SURVIVES[other]},
            mine,
            theirs,
            compared="seconds",
        )
        for other, theirs in measured.items()
    ]


@dataclass(frozen=True, slots=True)
class _Imported:
    """A file, or a folder of so many, and how it is imported, parsed and copied."""

    path: Path
    files: int
    size: int
    directory: Path

    def store(self) -> Figures:
        """Import it into a new store. Raises RuntimeError where not all of it was imported."""
        root = self.directory / "store"
        began = time.perf_counter()
        result, memory = _run_import(self.path, root)
        seconds = time.perf_counter() - began
        shutil.rmtree(root)
        if result["sessions"] != self.files or result["damaged_lines"]:
            raise RuntimeError(f"of {self.files} sessions {result['sessions']} were imported whole: {result}")
        return {**self._figures(seconds), "events_per_second": result["events"] / seconds, "memory_mb": memory / 1e6}

    def parse(self) -> Figures:
        """Parse its lines in one process."""
        began = time.perf_counter()
        records = sum(map(_parse_file, self._files()))
        seconds = time.perf_counter() - began
        return {**self._figures(seconds), "events_per_second": records / seconds}

    def copy(self) -> Figures:
        """Copy its files, and sync each."""
        copies = self.directory / "copies"
        copies.mkdir()
        began = time.perf_counter()
        for file in self._files():
            copy = shutil.copyfile(file, copies / file.name)
            with copy.open("rb") as copied:
                os.fsync(copied)
        seconds = time.perf_counter() - began
        shutil.rmtree(copies)
        return self._figures(seconds)

    def _files(self) -> list[Path]:
        return sorted(self.path.iterdir()) if self.path.is_dir() else [self.path]

    def _figures(self, seconds: float) -> Figures:
        return {"mb_per_second": self.size / seconds / 1e6, "seconds": seconds}


def _parse_file(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for line in file if orjson.loads(line))


def _run_import(path: Path, store: Path) -> tuple[dict[str, Any], int]:
    """Run the command; give what it told, and how many bytes of memory it took. Raises RuntimeError if it failed."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "turnkeeper", "session", "import", path, "--store", store, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(),
        start_new_session=True,
    )
    try:
        with PeakMemory(process.pid) as memory:
            out, err = process.communicate(timeout=ANSWER_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode:
        raise RuntimeError(f"the import ended with {process.returncode}: {err.decode(errors='replace').strip()}")
    result: dict[str, Any] = orjson.loads(out)
    return result, memory.bytes
