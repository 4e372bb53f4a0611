"""Say what became of a task, by its directory and by who is alive; the order of the looks is the point.

The lock is asked first and the files are read after it: whoever held the lock wrote the end before giving it back, so
what is missing then stays missing. The other way round, a task that ends between the two looks would be called lost.
A look takes nothing and writes nothing, so anybody may look at any time; only with `settle`, the node's, is the lock
taken and the loss of a task written down.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

from . import directory, tree

COPIED = "this store is a copy, and the task runs on where it was copied from"
"""Why a task is lost here whose shim lives: what it does isn't this store's to know, and its processes aren't."""

Stage = Literal["unstarted", "running", "left", "ended"]


@dataclass(frozen=True, slots=True)
class Look:
    """What one look found.

    `stage` is "unstarted" (no shim ever had it), "running", "left" (the command has ended, processes of its live on)
    or "ended". `shim` and `leader` are identities, as far as they are known: {"boot", "pid", "start", ...} and
    {"pid", "start", ...}. `end` is the end's map, or {"lost": why}. `is_tree_empty` is only true if that is proven.
    `gone` says which files another program took away, while the task still runs.
    """

    stage: Stage
    shim: Mapping[str, Any] | None = None
    leader: Mapping[str, Any] | None = None
    end: Mapping[str, Any] | None = None
    is_tree_empty: bool = False
    gone: str | None = None

    @property
    def is_lost(self) -> bool:
        """Whether nobody knows how it ended."""
        return self.end is not None and "lost" in self.end


def look(path: str, shim: Mapping[str, Any] | None = None, *, settle: bool = False) -> Look:
    """Look at the task whose directory is `path`; `shim` is its shim's identity, where another source knows it.

    With `settle` a task that is lost stays so, as that is written into its directory: a shim that still waits for the
    lock leaves it alone. Its environment is removed.

    Raises:
        OSError: A file is there and can't be read.
    """
    held = directory.is_lock_held(path)
    if held is None:
        return _look_by_identity(path, shim, "files deleted")
    if held:
        return _look_at_held(path, shim)
    found = _look_at_free(path, shim)
    if found is None:
        # It had a shim and has no end. Either the shim is dead, or it took the lock and wrote run.json after the
        # first question, or the lock is not the file any more that the shim has locked.
        if directory.is_lock_held(path):
            return _look_at_held(path, shim)
        found = _look_at_free(path, shim) or _look_by_identity(path, shim, "files replaced")
    if settle and found.is_lost:
        return _settle(path, shim)
    return found


def _settle(path: str, shim: Mapping[str, Any] | None) -> Look:
    """Take the lock, look once more, and write down that the task is lost if it still is."""
    lock = directory.open_lock(path)
    try:
        if not directory.take_lock(lock):
            return _look_at_held(path, shim)
        found = _look_at_free(path, shim) or _look_by_identity(path, shim, "files replaced")
        if found.end is not None and found.is_lost and not os.path.lexists(f"{path}/{directory.EXIT}"):
            with contextlib.suppress(OSError):
                directory.write_exit(path, found.end)
        return found
    finally:
        os.close(lock)


def forestall(path: str, end: Mapping[str, Any]) -> bool:
    """Write the end of a task that no shim has begun, so that none will begin it; False if one has it, or had it.

    Raises:
        OSError: The end can't be written, or the directory is gone; a shim may begin the task.
    """
    lock = directory.open_lock(path)
    try:
        if not directory.take_lock(lock):
            return False
        if any(os.path.lexists(f"{path}/{name}") for name in (directory.RUN, directory.EXIT)):
            return False
        directory.write_exit(path, end)
        return True
    finally:
        os.close(lock)


def _look_at_held(path: str, shim: Mapping[str, Any] | None) -> Look:
    run = directory.read_map(f"{path}/{directory.RUN}")
    end = _end_in(f"{path}/{directory.EXIT}")
    if end is not None:
        return _ended(end, run, shim)
    known, leader = _identities(run, shim)
    left = _end_in(f"{path}/{directory.LEADER}")
    return Look("running" if left is None else "left", known, leader, left)


def _look_at_free(path: str, shim: Mapping[str, Any] | None) -> Look | None:
    """Look at a task whose lock was free before; None if a shim had begun with it and there is no end."""
    run = directory.read_map(f"{path}/{directory.RUN}")
    end = _read_end(path)
    if end is not None:
        return _ended(end, run, shim)
    if run is not None or shim is not None or os.path.lexists(f"{path}/{directory.RUN}"):
        return None
    spec = directory.read_map(f"{path}/{directory.SPEC}")
    if spec is None:
        return Look("ended", end={"lost": "its files are damaged"}, is_tree_empty=True)
    if spec.get("boot") != directory.boot_id():
        # Files that weren't synced may be missing after a power cut: it is not known that it never began.
        return Look("ended", end={"lost": "the machine went down"}, is_tree_empty=True)
    return Look("unstarted")


def _look_by_identity(path: str, shim: Mapping[str, Any] | None, gone: str) -> Look:
    """Look at a task whose lock tells nothing: is its shim alive?"""
    run = directory.read_map(f"{path}/{directory.RUN}")
    known, leader = _identities(run, shim)
    alive = known is not None and is_shim_alive(known)
    if known is not None and alive and _is_another_stores(path, known["pid"]):
        return Look("ended", known, leader, {"lost": COPIED}, is_tree_empty=True)
    end = _end_in(f"{path}/{directory.EXIT}") if alive else _read_end(path)
    if end is not None:
        return _ended(end, run, shim)
    if alive:
        left = _end_in(f"{path}/{directory.LEADER}")
        return Look("running" if left is None else "left", known, leader, left, gone=gone)
    if known is not None and known.get("boot") != directory.boot_id():
        why = "the machine went down"
    elif directory.is_lock_held(path) is None:
        why = "files deleted" if os.path.isdir(path) else "directory deleted"
    else:
        why = "its shim was killed"
    return _ended({"lost": why}, run, shim)


def _read_end(path: str) -> Mapping[str, Any] | None:
    """Read how a task ended that nobody runs any more: the last thing that its shim could still write."""
    for name in (directory.EXIT, directory.EXIT + directory.TEMPORARY, directory.LEADER):
        end = _end_in(f"{path}/{name}")
        if end is not None:
            return {**end, "is_partial": True} if name == directory.LEADER else end
    end = _end_in(f"{path}/{directory.LEADER}{directory.TEMPORARY}")
    return None if end is None else {**end, "is_partial": True}


def _end_in(path: str) -> Mapping[str, Any] | None:
    """Read an end; None if the file is missing, or says neither how the task ended nor that it is lost."""
    end = directory.read_map(path)
    return end if end is not None and (isinstance(end.get("how"), dict) or "lost" in end) else None


def _ended(end: Mapping[str, Any], run: Mapping[str, Any] | None, shim: Mapping[str, Any] | None) -> Look:
    known, leader = _identities(run, shim)
    is_final = "lost" not in end and not end.get("is_partial")
    went_down = known is not None and known.get("boot") != directory.boot_id()
    end = {name: value for name, value in end.items() if name != "is_partial"}
    return Look("ended", known, leader, end, is_tree_empty=is_final or went_down)


def _identities(
    run: Mapping[str, Any] | None, shim: Mapping[str, Any] | None
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """Give the identities of shim and leader; what the caller knows counts more than a file that could be another's."""
    known = shim if shim is not None else run
    if not is_identity(known):
        return None, None
    leader = run.get("leader") if run is not None and all(run.get(name) == known[name] for name in _IDENTITY) else None
    if not isinstance(leader, dict) or not all(isinstance(leader.get(name), int) for name in ("pid", "start")):
        leader = None
    return {name: known[name] for name in known if name != "leader"}, leader


_IDENTITY = {"boot": str, "pid": int, "start": int}


def _is_another_stores(path: str, shim: int) -> bool:
    """Say whether a living shim has its directory in another store, of which this one is a copy then."""
    try:
        place = os.readlink(f"/proc/{shim}/cwd").removesuffix(" (deleted)")
        theirs = os.stat(os.path.dirname(os.path.dirname(place)))
    except OSError:
        return False
    return not os.path.samestat(theirs, os.stat(os.path.dirname(os.path.dirname(path)) or "."))


def is_identity(shim: Any) -> TypeGuard[Mapping[str, Any]]:
    """Say whether this is a shim's identity: anybody may have written it."""
    return isinstance(shim, Mapping) and all(isinstance(shim.get(name), kind) for name, kind in _IDENTITY.items())


def is_shim_alive(shim: Mapping[str, Any]) -> bool:
    """Say whether the shim of this identity runs."""
    return shim["boot"] == directory.boot_id() and tree.is_alive(shim["pid"], shim["start"])
