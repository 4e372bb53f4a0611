"""Run as a process: a backend's writer, together with its clients, made to be killed.

Reads jobs from stdin, a line of JSON each, and carries out each in a forked child, so that a death costs one fork and
no start of Python. The child says on stdout what its clients were told, a line of JSON at a time, as soon as they are;
what it said survives its death. The process itself then says how the child ended and waits for the next job.

A job is a `Job`'s fields. Which requests its clients make follows from its seed alone, and an event's bytes from
stream and number alone, so whoever listens knows what must be found.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import resource
import select
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage import lock, opening, store
from turnkeeper.storage.backend import Backend, open_backend
from turnkeeper.storage.errors import Fenced, StorageError, StoreFull
from turnkeeper.storage.exact_json import encode_event
from turnkeeper.storage.filesystem import LocalFileSystem
from turnkeeper.storage.requests import Append, Appended, Grant, Granted
from turnkeeper.storage.sqlite import writing as sqlite_writing
from turnkeeper.storage.store import BackendName

STREAMS = ("a", "b", "c")
EXIT_FAILED = 70
"""How a writer ends that can't go on, or can't tell what was stored."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a child does.

    `heads` and `epochs` are what the clients were told before; they send everything behind it again, or with
    `takeover` leave it to new owners. `paced` waits for a line on stdin before each step. `scatter` is the step whose
    batch reaches the disk in parts and is never synced. `kill_at` is the number of the operation on the disk at which
    the process kills itself, `how` says whether before, in the middle or after it; or it is `stop`, and the process
    stops itself before it. `file_bytes_max` limits the length of files until the first refusal. The store's file
    file system may be full up to the last byte if `reserve` is False. What is about operations and filling concerns a
    journal, as SQLite goes to the disk by itself; it moves its log into the database where a journal begins a segment.
    """

    path: str
    seed: int
    steps: int
    backend: BackendName = "journal"
    boot: str = "boot 1"
    heads: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    takeover: bool = False
    paced: bool = False
    scatter: int = -1
    kill_at: int = 0
    how: str = "before"
    file_bytes_max: int = 0
    reserve: bool = True
    segment_bytes: int = 60_000
    filling_bytes: int = 16_384
    text_bytes_max: int = 1500

    def as_line(self) -> bytes:
        """Give it as the process reads it."""
        return json.dumps(asdict(self)).encode() + b"\n"


def line_of(stream: str, seq: int, text_bytes_max: int) -> bytes:
    """Make the one event that a stream's client ever sends under a number."""
    text = f"{stream} {seq} " + "x" * (seq * 7919 % text_bytes_max)
    return encode_event(stream, seq, 1_700_000_000_000 + seq, "user/message", {"text": text})


def owner_of(stream: str, token: str) -> dict[str, Any]:
    """Make an owner who is gone as soon as anybody asks."""
    return {"boot": "any", "pid": 1, "start": 1, "host": "here", "token": f"{stream}-{token}"}


class WatchedFileSystem(LocalFileSystem):
    """Does what changes the disk within `_operation`, by which a subclass sees it; it has `write` for itself."""

    def _operation(self) -> contextlib.AbstractContextManager[Any]:
        raise NotImplementedError

    def sync(self, handle: int) -> None:
        """Sync."""
        with self._operation():
            super().sync(handle)

    def sync_directory(self, path: str) -> None:
        """Sync a directory."""
        with self._operation():
            super().sync_directory(path)

    def truncate(self, handle: int, length: int) -> None:
        """Cut."""
        with self._operation():
            super().truncate(handle, length)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        with self._operation():
            super().rename(source, target)

    def replace(self, source: str, target: str) -> None:
        """Replace."""
        with self._operation():
            super().replace(source, target)

    def remove(self, path: str) -> None:
        """Remove."""
        with self._operation():
            super().remove(path)


class DyingFileSystem(WatchedFileSystem):
    """Counts the operations that change the disk, and kills or stops its own process at one of them."""

    def __init__(self, root: str, kill_at: int, how: str) -> None:
        super().__init__(root)
        self.kill_at = kill_at
        self.how = how
        self.operations = 0

    @contextlib.contextmanager
    def _operation(self) -> Any:
        self.operations += 1
        dies = self.operations == self.kill_at
        if dies and self.how == "before":
            _die()
        if dies and self.how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        yield dies and self.how == "half"
        if dies and self.how != "stop":
            _die()

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write all of it, or half of it as the last thing."""
        with self._operation() as half:
            super().write(handle, offset, content[: len(content) // 2] if half else content)


class ScatteringFileSystem(DyingFileSystem):
    """Once armed, brings only some pages of the next batch to the disk, and waits at its sync for what comes."""

    armed = False

    def __init__(self, root: str, rng: random.Random) -> None:
        super().__init__(root, 0, "before")
        self._rng = rng

    def write(self, handle: int, offset: int, content: bytes) -> None:
        """Write in pieces to pages that aren't in memory, and let the system write some of them back at once."""
        if not self.armed:
            super().write(handle, offset, content)
            return
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        begin = 0
        while begin < len(content):
            size = self._rng.randrange(100, 3000)
            os.pwrite(handle, content[begin : begin + size], offset + begin)
            begin += size
        pages = range(offset // 4096, (offset + len(content) - 1) // 4096 + 1)
        for page in self._rng.sample(pages, self._rng.randrange(len(pages))):
            _write_back(handle, page * 4096, 4096)

    def sync(self, handle: int) -> None:
        """Sync, or never get to it."""
        if self.armed:
            say({"scattered": True})
            read_line()
        super().sync(handle)


def _write_back(handle: int, offset: int, length: int) -> None:
    """Let the system write a part of a file's pages to the disk, without any promise: sync_file_range(2)."""
    libc = ctypes.CDLL(None, use_errno=True)
    wait_write_wait = 7
    done = libc.sync_file_range(handle, ctypes.c_int64(offset), ctypes.c_int64(length), wait_write_wait)
    if done != 0:
        raise OSError(ctypes.get_errno(), "sync_file_range")


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("alive after SIGKILL")


class Writer:
    """One life of the writer and its clients."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.rng = random.Random(job.seed)
        self.heads = dict.fromkeys(STREAMS, 0) | job.heads
        self.epochs = dict.fromkeys(STREAMS, 1) | job.epochs
        self.fs = (
            DyingFileSystem(job.path, job.kill_at, job.how)
            if job.scatter < 0
            else ScatteringFileSystem(job.path, self.rng)
        )
        store.make_directory(job.path)
        descriptor = store.open_store_file(job.path, create=True)
        if not lock.take(descriptor):
            raise BlockingIOError("somebody else writes to this store")
        store.finish(descriptor, job.path, backend=job.backend)
        self.backend = self._open()

    def _open(self) -> Backend:
        backend = open_backend(self.job.path, boot=self.job.boot, is_gone=_is_gone, holder={}, fs=self.fs)
        report = backend.report
        say({"opened": [finding.kind for finding in report.findings], "rebuilt": report.rebuilt})
        return backend

    def run(self) -> None:
        """Take all steps, and close."""
        if self.job.file_bytes_max:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.job.file_bytes_max, resource.RLIM_INFINITY))
        if self.job.takeover:
            for stream in STREAMS:
                self._take(stream)
        for step in range(self.job.steps):
            if self.job.paced:
                read_line()
            if step == self.job.scatter:
                assert isinstance(self.fs, ScatteringFileSystem)
                self.fs.armed = True
            elif step % 50 == 49:
                self._take(self.rng.choice(STREAMS))
            elif step % 120 == 119:
                self.backend.close()
                self.backend = self._open()
            self._send()
            say({"step": step})
        self.backend.close()
        say({"done": self.fs.operations})

    def _send(self) -> None:
        """Let some of the clients send some lines, in one commit."""
        requests = [self._append(stream, self.rng.randrange(1, 4)) for stream in STREAMS if self.rng.random() < 0.6]
        for request, answer in zip(requests, self.backend.commit(requests), strict=True):
            if isinstance(answer, Appended):
                self._told(request.stream, answer.head)
            elif isinstance(answer, Fenced):
                self._take(request.stream)  # by a grant of before, whose answer nobody heard
            elif isinstance(answer, StoreFull):
                say({"refused": type(answer).__name__})
                resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            else:
                raise AssertionError(answer)
        self.backend.between_commits()

    def _append(self, stream: str, events: int) -> Append:
        first = self.heads[stream]
        lines = b"".join(line_of(stream, seq, self.job.text_bytes_max) for seq in range(first, first + events))
        if first == 0:
            return Append(stream, 1, 0, lines, {"kind": "session", "owner": owner_of(stream, "first")}, create=True)
        return Append(stream, self.epochs[stream], first, lines)

    def _take(self, stream: str) -> None:
        """Give a stream to a new owner, who goes on from the head that it is told."""
        (answer,) = self.backend.commit([Grant(stream, owner_of(stream, self.rng.randbytes(4).hex()))])
        if isinstance(answer, Granted):
            self.epochs[stream] = answer.epoch
            self._told(stream, answer.head)

    def _told(self, stream: str, head: int) -> None:
        self.heads[stream] = head
        say({"stream": stream, "head": head, "epoch": self.epochs[stream]})


def _is_gone(who: Mapping[str, Any]) -> bool:
    return True


def say(message: dict[str, Any]) -> None:
    """Say something, at once."""
    os.write(1, json.dumps(message).encode() + b"\n")


def read_line() -> bytes:
    """Read a line from stdin, and nothing behind it: that is another process's. Empty at the end."""
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


def _run(job: Job) -> NoReturn:
    try:
        say({"pid": os.getpid()})
        writer = Writer(job)
        if not job.reserve:
            vars(journal_module).update(RESERVE_BYTES=0, RESERVE_BATCHES=0)
        writer.run()
    except (StorageError, OSError) as error:
        say({"failed": str(error)})
        os._exit(EXIT_FAILED)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Carry out jobs until stdin ends."""
    while line := read_line():
        job = Job(**json.loads(line))
        filling = {"FILLING_AHEAD_BYTES": job.filling_bytes, "FILLING_STEP_BYTES": job.filling_bytes}
        vars(journal_module).update(filling, SEGMENT_BYTES=job.segment_bytes)
        vars(sqlite_writing).update(CHECKPOINT_BYTES=job.segment_bytes)
        vars(opening).update(filling)
        child = os.fork()
        if child == 0:
            _run(job)
        _, status = os.waitpid(child, 0)
        while select.select([0], [], [], 0)[0] and os.read(0, 1024):
            pass  # steps that the child didn't live to take
        say({"ended": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    main()
