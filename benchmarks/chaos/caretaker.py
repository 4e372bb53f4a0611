"""Puts right what a runner of chaos leaves that was killed itself: nobody can catch SIGKILL, and it has stopped others.

The runner starts this as a process of its own before anything else, with a pipe to it (`taken_care_of`). Where the pipe
ends without a word, the runner is dead: everybody who carries the mark of one of its rounds is killed, stopped or not,
and who traces them; what libfaketime shares is removed, and so are the directories of rounds that nobody wanted to
keep. Mounts need no care: they are those of the runner and its children alone, and go with the last of these; limits
and clocks are those of the killed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ..measuring.marked_processes import kill_left_behind, left_behind
from .faults import remove_clocks
from .stage import MARK
from .store_processes import Process

PLAN: Final = "plan.json"
"""The file in the directory of a round that is to be kept, by which it was played."""

TEMPORARY: Final = "turnkeeper-chaos-"
"""How the name begins of a directory that was made for the rounds of one run."""

PATIENCE_SECONDS = 30.0
_DONE = b"done"
_ENDING_SECONDS = 10.0


@contextmanager
def taken_care_of(place: Path) -> Iterator[None]:
    """Have a caretaker for the rounds below a directory; whoever comes out of this has put right everything himself."""
    caretaker = subprocess.Popen(
        [sys.executable, "-P", "-m", __name__, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the runner
    )
    assert caretaker.stdin is not None
    try:
        yield
    finally:
        with suppress(OSError):  # somebody has killed it
            caretaker.stdin.write(_DONE)
            caretaker.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            caretaker.wait(_ENDING_SECONDS)
        caretaker.kill()
        caretaker.wait()


def put_right(place: Path, since: float) -> None:
    """Do what the runner of the rounds below a directory, begun at a time of the day, would have done at its end."""
    mark = f"{MARK}={place}/"
    _kill_tracers(left_behind(mark))
    kill_left_behind(mark, PATIENCE_SECONDS)
    remove_clocks(since)
    for round in place.glob("round-*"):
        if not (round / PLAN).exists():
            shutil.rmtree(round, ignore_errors=True)
    if place.name.startswith(TEMPORARY):
        with suppress(OSError):  # something is kept there
            place.rmdir()


def _kill_tracers(traced: Iterable[int]) -> None:
    """Kill who traces these processes: who is held by a tracer can't die."""
    for pid in traced:
        with suppress(OSError):
            tracer = _tracer_of(pid)
            if tracer:
                process = Process(tracer)
                if _tracer_of(pid) == tracer:
                    process.send(signal.SIGKILL)
                process.close()


def _tracer_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])


def main() -> None:
    """Wait for the runner's end."""
    began = time.time()
    if sys.stdin.buffer.read() != _DONE:
        put_right(Path(sys.argv[1]), began)


if __name__ == "__main__":
    main()
