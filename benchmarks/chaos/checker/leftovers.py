"""What no note tells: processes, zombies, locks, sockets, descriptors and files that are left, and memory taken.

`look_for_leftovers` looks at /proc and at the store's directory once nobody should be there any more; the promises are
functions of what it saw, and of the notes of what each process held meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from ...measuring.marked_processes import left_behind
from ..notes import Note
from ..store_processes import all_pids, state_and_parent
from .violations import Violation

MIB: Final = 1 << 20
_LOOK_SECONDS: Final = 0.05
_COMMAND_CHARACTERS: Final = 120


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left of a round whose processes have all ended; empty where nobody has looked.

    `processes` and `zombies` are commands by pid; `descriptors` are (pid, path) of files of the store that are open;
    `locks`, `sockets` (those that still answer) and `files` (temporary ones, and what else should be gone) are paths.
    """

    processes: Mapping[int, str] = field(default_factory=dict)
    zombies: Mapping[int, str] = field(default_factory=dict)
    locks: Sequence[str] = ()
    sockets: Sequence[str] = ()
    descriptors: Sequence[tuple[int, str]] = ()
    files: Sequence[str] = ()

    @property
    def is_nothing(self) -> bool:
        """Say whether nothing is left."""
        return not (self.processes or self.zombies or self.locks or self.sockets or self.descriptors or self.files)


def look_for_leftovers(store: Path, mark: str, parents: Iterable[int] = (), patience: float = 0.0) -> Leftovers:
    """Look for what is left, until nothing is or `patience` seconds have passed: what is ending may take that long.

    Processes are known by the mark, with which a variable of their environment begins, or as they work in the store;
    zombies as children of this process or of `parents`. This process itself counts for its descriptors alone.
    """
    deadline = time.monotonic() + patience
    while not (found := _look(store, mark, {os.getpid(), *parents})).is_nothing and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    return found


def nothing_is_left(leftovers: Leftovers) -> Iterator[Violation]:
    """No process, zombie, lock, listening socket, open file or temporary file of the store is left."""
    for pid, command in leftovers.processes.items():
        yield Violation("nothing is left", f"process {pid}", f"it lives on: {command}")
    for pid, command in leftovers.zombies.items():
        yield Violation("nothing is left", f"process {pid}", f"it was never reaped: {command}")
    for path in leftovers.locks:
        yield Violation("nothing is left", path, "somebody holds a lock of it")
    for path in leftovers.sockets:
        yield Violation("nothing is left", path, "somebody answers there")
    for pid, path in leftovers.descriptors:
        yield Violation("nothing is left", path, f"process {pid} has it open")
    for path in leftovers.files:
        yield Violation("nothing is left", path, "it should have been removed")


# -- Memory and descriptors


class Bound(NamedTuple):
    """What a process of a role may hold at most: so much, and more for each client, session, task and segment."""

    base: float
    client: float = 0
    session: float = 0
    task: float = 0
    segment: float = 0

    def of(self, note: Note) -> float:
        """Give the bound for a process as it was observed."""
        segments = min(note.get("segments", 0), SEGMENTS_OPEN_MAX)
        counts = (note.get("clients", 0), note.get("sessions", 0), note.get("tasks", 0), segments)
        return self.base + float(sum(share * count for share, count in zip(self[1:], counts, strict=True)))


SEGMENTS_OPEN_MAX: Final = 64
"""So many segments a reader keeps open."""

MEMORY_BOUNDS: Final[Mapping[str, Bound]] = {
    "node": Bound(48 * MIB, client=MIB, task=MIB / 4),
    "writer": Bound(64 * MIB, client=8 * MIB),
    "spawner": Bound(16 * MIB),
    "shim": Bound(16 * MIB),
    "host": Bound(128 * MIB, session=16 * MIB, task=MIB / 4),
    "worker": Bound(128 * MIB, session=16 * MIB),
}
"""Bytes of memory, shared pages by their share.

In rounds with everything, in undisturbed ones, and in lives of a minute and a half with twenty thousand events, a node
was seen to have 22 to 24 MiB, whatever it had to do, and a writer 18 to 22: twice that, and what they may hold for a
moment: a little for each client and task, and in a writer a batch of 8 MiB, twice, and a frame as large from each
client. What they keep beside grew by one or two MiB a minute, as the index in their memory does, so nothing is learned
of growth within the seconds that a process lives in a round. A spawner had 2 to 9 and a shim 2 to 9, which is how much
they share with others: alone it is all theirs. A host with eight sessions and a worker with one had up to 75 and 31 in
rounds, and 151 and 115 in the long ones, with nothing that Python knew of behind it: it is what was needed at once for
events of a megabyte and a half, and what the allocator keeps of that.
"""

DESCRIPTOR_BOUNDS: Final[Mapping[str, Bound]] = {
    "node": Bound(32, client=3, task=2, segment=1),
    "writer": Bound(48, client=3, segment=1),
    "spawner": Bound(12),
    "shim": Bound(12),
    "host": Bound(48, session=4, task=2, segment=2),
    "worker": Bound(48, session=4, segment=2),
}
"""Open descriptors.

Seen were 26 to 46 in a node with up to eight clients and eighteen tasks, up to 22 in a writer, 7 in a spawner or a shim
and 35 in a host or a worker, over any time. A reader keeps segments open, and a host may have another one for a moment;
a writer that starts processes to scan them has some pipes more.
"""


def processes_stay_small(notes: Iterable[Note]) -> Iterator[Violation]:
    """No process was ever seen to hold more memory or descriptors than its role may, with what it had to serve."""
    worst: dict[tuple[int, str], tuple[float, Violation]] = {}
    measures = (("pss_bytes", MEMORY_BOUNDS, _bytes_text), ("descriptors", DESCRIPTOR_BOUNDS, _count_text))
    for note in notes:
        for name, bounds, text in measures:
            bound = bounds.get(note["role"])
            over = 0.0 if bound is None else note[name] - bound.of(note)
            if bound is None or over <= worst.get((note["pid"], name), (0.0,))[0]:
                continue
            says = f"the {note['role']} held {text(note[name])}, more than {text(bound.of(note))}"
            violation = Violation("bounded", f"process {note['pid']}", says, note=note)
            worst[note["pid"], name] = over, violation
    for _, violation in worst.values():
        yield violation


def _bytes_text(value: float) -> str:
    return f"{value / MIB:.1f} MiB"


def _count_text(value: float) -> str:
    return f"{value:.0f} descriptors"


# -- Looking


def _look(store: Path, mark: str, parents: set[int]) -> Leftovers:
    root = str(store.resolve())
    descriptors, working = _opened_below(root)
    pids = {pid for pid in {*left_behind(mark), *working} if pid != os.getpid()}
    states = {pid: state_and_parent(pid) for pid in all_pids()}
    return Leftovers(
        processes={pid: _command(pid) for pid in sorted(pids) if states.get(pid, ("", 0))[0] not in ("", "Z")},
        zombies={pid: _name(pid) for pid, (state, parent) in states.items() if state == "Z" and parent in parents},
        locks=tuple(_locks(root)),
        sockets=tuple(str(path) for path in sorted(store.rglob("*.sock")) if _answers(path)),
        descriptors=tuple(descriptors),
        files=tuple(sorted(_files(store))),
    )


def _command(pid: int) -> str:
    return _read(lambda: Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))[:_COMMAND_CHARACTERS]


def _name(pid: int) -> str:
    return _read(lambda: Path(f"/proc/{pid}/comm").read_text().strip())


def _read(read: Callable[[], str]) -> str:
    try:
        return read()
    except OSError:
        return "(gone)"


def _opened_below(root: str) -> tuple[list[tuple[int, str]], list[int]]:
    """Give what processes have open below the directory, and which of them work in it."""
    opened: list[tuple[int, str]] = []
    working: list[int] = []
    for pid in all_pids():
        try:
            if _is_below(os.readlink(f"/proc/{pid}/cwd"), root):
                working.append(pid)
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        targets = [_read(partial(os.readlink, f"/proc/{pid}/fd/{name}")) for name in names]
        opened += [(pid, target) for target in sorted(targets) if _is_below(target, root)]
    return opened, working


def _is_below(path: str, root: str) -> bool:
    path = path.removesuffix(" (deleted)")
    return path == root or path.startswith(f"{root}/")


def _locks(root: str) -> list[str]:
    """Give the files below the directory of which somebody holds a lock, or waits for one."""
    locked: dict[tuple[int, int], None] = {}
    for line in Path("/proc/locks").read_text().splitlines():
        major, minor, inode = next(word for word in line.split() if word.count(":") == 2).split(":")
        locked[os.makedev(int(major, 16), int(minor, 16)), int(inode)] = None
    found = []
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            try:
                status = os.lstat(path)
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) in locked:
                found.append(path)
    return sorted(found)


def _answers(path: Path) -> bool:
    """Say whether somebody listens at a socket, however long its path is."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.setblocking(False)
            asking.connect(f"/proc/self/fd/{directory}/{path.name}")
    except BlockingIOError:
        return True  # its backlog is full
    except OSError:
        return False
    finally:
        os.close(directory)
    return True


def _files(store: Path) -> Iterator[str]:
    """Find what an opening or an end should have removed. A blob that was never finished is kept for an hour."""
    for place in (".", "journal", "index"):
        yield from map(str, (store / place).glob("*.tmp"))
    for path in (store / "tasks").glob("*/env.json"):
        if (path.parent / "exit.json").exists():
            yield str(path)
    record = store / "index.json"
    if record.exists():
        kept = json.loads(record.read_bytes())["directory"]
        yield from (str(path) for path in (store / "index").iterdir() if path != store / kept)
