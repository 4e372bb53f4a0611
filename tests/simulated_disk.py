"""A disk in memory behind the journal's file-system seam, which can lose whatever wasn't synced.

Each file has the bytes that processes see and those that are durable; a write dirties 4 KiB pages, a sync makes its
pages and length durable, a sync of a directory its names. `crash` keeps a part of what was dirty: any subset of pages,
each whole or torn at a sector, and any prefix of the changes of names. The index's own files are real ones below
`index_root`: after a crash they belong to a machine that went down, and the journal may not open them.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from turnkeeper.storage.filesystem import LocalFileSystem

PAGE = 4096
SECTOR = 512

Chooser = Callable[[str, int], str]
"""Says of a dirty page (file name, page number) what a crash leaves: `old`, `new` or `torn`."""


class Death(BaseException):
    """The machine or the process ends in the middle of an operation."""


class SimulatedFile:
    """One inode: what processes see, what is durable, and which pages differ."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        self.modified = 0.0

    def write(self, offset: int, content: bytes) -> None:
        """Write into the page cache."""
        end = offset + len(content)
        if len(self.content) < end:
            self.content.extend(bytes(end - len(self.content)))
        self.content[offset:end] = content
        self.dirty.update(range(offset // PAGE, (end - 1) // PAGE + 1))

    def sync(self) -> None:
        """Make what is dirty durable; pages whose write failed before stay as the disk has them."""
        if len(self.durable) < len(self.content):
            self.durable.extend(bytes(len(self.content) - len(self.durable)))
        del self.durable[len(self.content) :]
        for page in self.dirty:
            self.durable[page * PAGE : (page + 1) * PAGE] = self.content[page * PAGE : (page + 1) * PAGE]
        self.dirty.clear()

    def crash(self, name: str, choose: Chooser, rng: random.Random) -> None:
        """Lose what isn't durable, but for the pages that the disk happened to have written."""
        image = bytearray(self.durable)
        for page in sorted(self.dirty):
            fate = choose(name, page)
            if fate == "old":
                continue
            begin = page * PAGE
            new = self.content[begin : begin + PAGE]
            if fate == "torn":
                new = new[: rng.randrange(SECTOR, PAGE, SECTOR)]
            if len(image) < begin + len(new):
                image.extend(bytes(begin + len(new) - len(image)))
            image[begin : begin + len(new)] = new
        self.content = bytearray(image)
        self.durable = image
        self.dirty.clear()


class SimulatedDisk:
    """A file system for one store. `fail_at` is the number of the operation at which the process dies, 0 for never.

    With `sync_fails`, that operation fails with EIO instead if it is a sync, and its pages count as clean from then on.
    """

    def __init__(self, index_root: Path) -> None:
        self.index_root = index_root
        self.operations = 0
        self.fail_at = 0
        self.sync_fails = False
        self.free = 1 << 40
        self.clock: Callable[[], float] = lambda: 0.0
        self._names: dict[str, SimulatedFile] = {}
        self._durable_names: dict[str, SimulatedFile] = {}
        self._changes: list[tuple[str, str, SimulatedFile | None]] = []
        self._handles: dict[int, SimulatedFile] = {}
        self._next_handle = 100_000

    # -- failing

    def _step(self) -> None:
        self.operations += 1
        if self.operations == self.fail_at:
            raise Death

    def crash(self, rng: random.Random, choose: Chooser | None = None) -> None:
        """End the machine: keep a part of what wasn't synced, and close every handle."""
        fates = choose or (lambda name, page: rng.choice(("old", "new", "new", "torn")))
        kept = rng.randrange(len(self._changes) + 1) if choose is None else 0
        for kind, path, file in self._changes[:kept]:
            self._apply(self._durable_names, kind, path, file)
        self._changes.clear()
        self._names = dict(self._durable_names)
        seen: set[int] = set()
        for name, file in self._names.items():
            if id(file) not in seen:
                seen.add(id(file))
                file.crash(name, fates, rng)
        self.close_all()

    def close_all(self) -> None:
        """Close every handle, as the end of the process does."""
        self._handles.clear()

    def contents(self) -> dict[str, bytes]:
        """Give what processes see of every file, by its name."""
        return {name: bytes(file.content) for name, file in self._names.items()}

    def spoil(self, name: str, offset: int) -> None:
        """Change a byte of a file behind everybody's back."""
        file = self._names[name]
        file.content[offset] ^= 0x20
        if offset < len(file.durable):
            file.durable[offset] = file.content[offset]

    # -- the seam

    def path(self, relative: str) -> str:
        """Give the real path of a directory of the index."""
        return str(self.index_root / relative)

    def identity(self, path: str) -> tuple[int, int, int]:
        """Give the identity of a real file of the index."""
        return LocalFileSystem(str(self.index_root)).identity(path)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """Open a simulated file."""
        if create:
            if path in self._names:
                raise FileExistsError(errno.EEXIST, "exists", path)
            self._change("put", path, SimulatedFile())
            self.touch(path)
        file = self._named(path)
        self._next_handle += 1
        self._handles[self._next_handle] = file
        return self._next_handle

    def close(self, handle: int) -> None:
        """Close a handle."""
        self._handles.pop(handle, None)

    def size(self, handle: int) -> int:
        """Give a file's length."""
        return len(self._handles[handle].content)

    def read(self, handle: int, offset: int, length: int) -> bytes:
        """Read what processes see."""
        return bytes(self._handles[handle].content[offset : offset + length])

    def prefetch(self, handle: int, offset: int, length: int) -> None:
        """Do nothing: all of it is in memory."""

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write, or die with half of it written."""
        self.operations += 1
        if self.operations == self.fail_at:
            self._handles[handle].write(offset, content[: len(content) // 2] or b"\n")
            raise Death
        self._handles[handle].write(offset, content)

    def sync(self, handle: int) -> None:
        """Sync a file; after a failure its pages aren't tried again, as Linux does it."""
        if self.sync_fails and self.operations + 1 == self.fail_at:
            self.operations += 1
            self._handles[handle].dirty.clear()
            raise OSError(errno.EIO, "injected")
        self._step()
        self._handles[handle].sync()

    def allocate(self, path: str, offset: int, length: int) -> None:
        """Do nothing: of the space only the reserve is played, and no write lacks any."""

    def truncate(self, handle: int, length: int) -> None:
        """Cut a file; what is behind is gone at the next sync."""
        self._step()
        file = self._handles[handle]
        del file.content[length:]
        file.dirty = {page for page in file.dirty if page * PAGE < length}

    def sync_directory(self, path: str) -> None:
        """Make the names of a directory durable; after a failure they wait for the next sync."""
        if self.sync_fails and self.operations + 1 == self.fail_at:
            self.operations += 1
            raise OSError(errno.EIO, "injected")
        self._step()
        rest = []
        for change in self._changes:
            if os.path.dirname(change[1]) == path.strip("/"):
                self._apply(self._durable_names, *change)
            else:
                rest.append(change)
        self._changes = rest

    def make_directory(self, path: str) -> None:
        """Make a directory: only the index's are real."""
        if path.startswith("index"):
            (self.index_root / path).mkdir(exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """Rename without replacing."""
        if target in self._names:
            raise FileExistsError(errno.EEXIST, "exists", target)
        self.replace(source, target)

    def exchange(self, one: str, other: str) -> None:
        """Let two files change names, atomically."""
        self._step()
        self._change(f"swap {one}", other, self._names[one])

    def replace(self, source: str, target: str) -> None:
        """Rename over whatever is there, atomically."""
        self._step()
        file = self._names[source]
        self._change(f"from {source}", target, file)

    def remove(self, path: str) -> None:
        """Remove a name; one that is gone is no error."""
        if path in self._names:
            self._step()
            self._change("drop", path, None)

    def remove_tree(self, path: str) -> None:
        """Remove a real directory of the index."""
        shutil.rmtree(self.index_root / path, ignore_errors=True)

    def names(self, path: str) -> list[str]:
        """List a directory."""
        if path == "index":
            return os.listdir(self.index_root / "index")
        return [os.path.basename(name) for name in self._names if os.path.dirname(name) == path]

    def exists(self, path: str) -> bool:
        """Say whether something has this name."""
        return path in self._names

    def modified(self, path: str) -> float:
        """Give when a file was made, or touched last, by the disk's clock."""
        return self._named(path).modified

    def touch(self, path: str) -> None:
        """Let a file count as written now."""
        self._named(path).modified = self.clock()

    def free_bytes(self) -> int:
        """Give the free space that the test wants."""
        return self.free

    def _named(self, path: str) -> SimulatedFile:
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "missing", path)
        return self._names[path]

    def _change(self, kind: str, path: str, file: SimulatedFile | None) -> None:
        self._apply(self._names, kind, path, file)
        self._changes.append((kind, path, file))

    @staticmethod
    def _apply(names: dict[str, SimulatedFile], kind: str, path: str, file: SimulatedFile | None) -> None:
        if kind == "drop":
            names.pop(path, None)
        elif kind.startswith("swap "):
            other = kind.removeprefix("swap ")
            names[path], names[other] = names[other], names[path]
        else:
            assert file is not None
            names[path] = file
            if kind.startswith("from "):
                names.pop(kind.removeprefix("from "), None)
