"""The other side of writer_program.py: starts it, hears what its clients were told, and says what must be found."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.benchmarks.demonstration.oracle import NotedEvent, digest, judge, read_journal
from turnkeeper.storage import lock, store
from turnkeeper.storage.backend import Backend, open_backend, open_reader
from turnkeeper.storage.exact_json import decode_event
from turnkeeper.storage.sqlite import DATABASE_FILE
from turnkeeper.storage.store import BackendName
from turnkeeper.storage.verify import verify

from .writer_program import STREAMS, Job, line_of

SECONDS_MAX = 60.0
"""How long a writer may say nothing, on a machine that is busy with other things."""

ROOT = Path(__file__).resolve().parents[2]


class Told:
    """What a store's clients were told: the store may have more of what they sent, never less."""

    def __init__(self, text_bytes_max: int = 1500, backend: BackendName = "journal") -> None:
        self.text_bytes_max = text_bytes_max
        self.backend = backend
        self.heads: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.opened: list[list[str]] = []
        self.refused = 0
        self.failed = ""

    def hear(self, message: dict[str, Any]) -> None:
        """Take note of a message."""
        if "stream" in message:
            self.heads[message["stream"]] = message["head"]
            self.epochs[message["stream"]] = message["epoch"]
        self.refused += "refused" in message
        self.failed = message.get("failed", self.failed)
        if "opened" in message:
            self.opened.append(message["opened"])

    def job(self, job: Job) -> Job:
        """Make a job whose clients go on from what they were told."""
        told = replace(job, heads=dict(self.heads), epochs=dict(self.epochs))
        return replace(told, backend=self.backend, text_bytes_max=self.text_bytes_max)

    def check(self, path: Path, boot: str, *, findings: Sequence[str] = ("torn tail",)) -> None:
        """See that everything told is there, once, in its place and as it was sent; of a journal without index too.

        Leaves the store cleanly closed.
        """
        with opened_backend(path, boot) as backend:
            assert {finding.kind for finding in backend.report.findings} <= set(findings), backend.report.findings
            epochs = {stream: backend.row(stream).epoch for stream in self.heads}
            heads = self._check_events(path, backend)
        assert all(epochs[stream] >= epoch for stream, epoch in self.epochs.items()), (epochs, self.epochs)
        if self.backend == "journal":
            verification = verify(str(path))
            assert (verification.damaged, verification.torn_tail, verification.index_why) == ([], None, "")
            verdict = judge(self._noted(), read_journal(path))
            assert verdict.is_clean, verdict
            shutil.rmtree(path / "index")
        else:
            with contextlib.closing(sqlite3.connect(path / DATABASE_FILE)) as database:
                assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with opened_backend(path, boot) as backend:
            assert bool(backend.report.rebuilt) == (self.backend == "journal")
            assert backend.report.findings == []
            assert self._check_events(path, backend) == heads
            assert {stream: backend.row(stream).epoch for stream in self.heads} == epochs

    def _noted(self) -> Iterator[NotedEvent]:
        for stream, head in self.heads.items():
            for seq in range(head):
                event = decode_event(line_of(stream, seq, self.text_bytes_max))
                yield NotedEvent(stream, seq, event["type"], digest(event["data"]))

    def _check_events(self, path: Path, backend: Backend) -> dict[str, int]:
        with contextlib.closing(open_reader(str(path), backend.index_directory)) as reader:
            heads = {}
            for row in reader.rows(100):
                page = reader.read(row.id, limit=1_000_000)
                assert page.missing == []
                sent = [line_of(row.id, seq, self.text_bytes_max) for seq in range(page.head)]
                assert [stored.line + b"\n" for stored in page.events] == sent
                heads[row.id] = page.head
        assert heads.keys() <= set(STREAMS)
        assert all(heads[stream] >= head for stream, head in self.heads.items()), (heads, self.heads)
        return heads


@contextlib.contextmanager
def opened_backend(path: Path, boot: str) -> Iterator[Backend]:
    """Open a store in this process, and close it cleanly."""
    descriptor = store.open_store_file(str(path), create=False)
    try:
        assert lock.take(descriptor), "somebody else writes to this store"
        backend = open_backend(str(path), boot=boot, is_gone=lambda who: True, holder={})
        try:
            yield backend
        finally:
            backend.close()
    finally:
        os.close(descriptor)


class KilledWriter:
    """The process that carries out jobs, each in a child that may be killed."""

    def __init__(self, *wrapper: str) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / ".import"), "PYTHONDONTWRITEBYTECODE": "1"}
        program = str(Path(__file__).with_name("writer_program.py"))
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-P", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands = self._process.stdin
        self._said = self._process.stdout
        self._buffer = b""
        self._child: int | None = None
        self.pid = 0

    def start(self, job: Job) -> None:
        """Give it a job, and hold on to the child that has it: `pid` is that one's, for looking at it."""
        self._commands.write(job.as_line())
        self.pid = self.hear()["pid"]
        with contextlib.suppress(ProcessLookupError):
            self._child = os.pidfd_open(self.pid)

    def step(self) -> None:
        """Let a paced job take its next step."""
        self._commands.write(b"\n")

    def hear(self) -> dict[str, Any]:
        """Wait for the next thing it says."""
        while b"\n" not in self._buffer:
            self._receive(SECONDS_MAX)
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def hear_present(self) -> Iterator[dict[str, Any]]:
        """Give what it has said up to now, without waiting."""
        while select.select([self._said], [], [], 0)[0]:
            self._receive(0)
        while b"\n" in self._buffer:
            yield self.hear()

    def _receive(self, seconds: float) -> None:
        assert select.select([self._said], [], [], seconds)[0], "the writer says nothing"
        content = self._said.read(65536)
        assert content, "the writer has ended"
        self._buffer += content

    def hear_end(self, told: Told | None = None) -> int:
        """Wait until the job's child has ended, and give its exit code, negative for a signal's number."""
        while True:
            message = self.hear()
            if "ended" in message:
                self._let_go()
                code: int = message["ended"]
                return code
            if told is not None:
                told.hear(message)

    def run(self, job: Job, told: Told) -> int:
        """Carry out a job to its end, however it ends; give its exit code."""
        self.start(told.job(job))
        return self.hear_end(told)

    def run_and_kill(self, job: Job, told: Told, rng: random.Random) -> int:
        """Begin with a job, and kill its child a moment after some of its steps; give the exit code."""
        self.start(told.job(job))
        for _ in range(rng.randrange(1, 100)):
            message = self.hear()
            if "ended" in message:
                raise AssertionError(f"the job came to its end before it was killed: {message}")
            told.hear(message)
        time.sleep(rng.random() * 0.002)  # into whatever the writer is at then
        self.kill()
        return self.hear_end(told)

    def kill(self) -> None:
        """Kill the job's child, if it hasn't ended."""
        self._send_signal(signal.SIGKILL)

    def go_on(self) -> None:
        """Let a child go on that was stopped."""
        self._send_signal(signal.SIGCONT)

    def _send_signal(self, number: int) -> None:
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._child, number)

    def _let_go(self) -> None:
        if self._child is not None:
            os.close(self._child)
            self._child = None

    def end(self) -> None:
        """End the child and the process, and wait until the child has let go of its files."""
        self.kill()
        if self._child is not None:
            select.select([self._child], [], [], SECONDS_MAX)
        self._let_go()
        self._said.close()
        self._commands.close()  # it ends by itself then, and a wrapper with it
        try:
            self._process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise


@contextlib.contextmanager
def killed_writer(*wrapper: str) -> Iterator[KilledWriter]:
    """Start the process, and end it afterwards; `wrapper` is a command that runs it."""
    writer = KilledWriter(*wrapper)
    try:
        yield writer
    finally:
        writer.end()


def strace(*options: str) -> list[str]:
    """Give the command that runs a program with faults injected into its system calls; skip where that can't be."""
    why = _strace_refusal()
    if why:
        pytest.skip(why)
    return ["strace", "-f", "-qqq", "-o", "/dev/null", *options]


@functools.cache
def _strace_refusal() -> str:
    if shutil.which("strace") is None:
        return "needs strace"
    tried = subprocess.run(["strace", "-qqq", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    return f"strace can't trace here: {tried.stderr.strip()}" if tried.returncode else ""
