"""The real command, run as users and scripts run it: a process, its output, its exit code. With deadlines.

Each command has a test that runs it so. What only prepares, looks, or tells one refusal from another runs in the test's
own process: half of the time of a command goes into starting Python.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

from turnkeeper.runtime.cli.program import run

DEADLINE_SECONDS = 30.0
"""For a command to end; a quiet machine needs a fraction of a second."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command ended with."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[Any]:
        """The JSON values on stdout, one a line; fails if there is anything else."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> Any:
        """The one JSON value on stdout."""
        (value,) = self.objects
        return value

    @property
    def error(self) -> dict[str, Any]:
        """The error that a failed command told scripts, which is the last value on stdout."""
        error: dict[str, Any] = self.objects[-1]["error"]
        return error


class CommandLine:
    """The command, for one store; `home` keeps the user's own out of it."""

    def __init__(self, store: Path, home: Path) -> None:
        self.store = store
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("TURNKEEPER_", "XDG_"))},
            "HOME": str(home),
            "TURNKEEPER_STORE": str(store),
            "PYTHONWARNINGS": "error",
            "TERM": "dumb",
        }

    def run(
        self,
        *arguments: str | Path,
        stdin: str | bytes = b"",
        environment: Mapping[str, str | None] | None = None,
        seconds: float = DEADLINE_SECONDS,
    ) -> Outcome:
        """Run a command to its end, which has to come within so many seconds."""
        process = self.start(*arguments, environment=environment)
        given = stdin.encode() if isinstance(stdin, str) else stdin
        try:
            out, err = process.communicate(given, timeout=seconds)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return Outcome(process.returncode, out.decode(), err.decode())

    def succeed(self, *arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        """Run a command that must end with 0 and say nothing on stderr."""
        outcome = self.run(*arguments, stdin=stdin)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return outcome

    def here(self, *arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        """Run a command in this process, which costs a fraction of one of its own: to prepare, to look, and again."""
        with io.TextIOWrapper(io.BytesIO(), "utf-8") as out, io.TextIOWrapper(io.BytesIO(), "utf-8") as err:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _standard_input(stdin):
                code = run(["--store", self.environment["TURNKEEPER_STORE"], *map(str, arguments)])
            out.flush()
            err.flush()
            return Outcome(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())

    def succeed_here(self, *arguments: str | Path, stdin: str | bytes = b"") -> Outcome:
        """Run a command in this process that must end with 0 and say nothing on stderr."""
        outcome = self.here(*arguments, stdin=stdin)
        assert (outcome.code, outcome.err) == (0, ""), outcome
        return outcome

    def start(
        self,
        *arguments: str | Path,
        stdin: int | IO[bytes] = subprocess.PIPE,
        stdout: int | IO[bytes] = subprocess.PIPE,
        environment: Mapping[str, str | None] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command, in a process group of its own as a shell does."""
        variables = {**self.environment, **(environment or {})}
        return subprocess.Popen(
            self.line(*arguments),
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env={name: value for name, value in variables.items() if value is not None},
            process_group=0,
        )

    @staticmethod
    def line(*arguments: str | Path) -> Sequence[str]:
        """Give the command line of a command."""
        return [sys.executable, "-m", "turnkeeper", *map(str, arguments)]

    @contextlib.contextmanager
    def running(self, *arguments: str | Path) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command beside the body, and end it with Ctrl-C."""
        process = self.start(*arguments)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=DEADLINE_SECONDS)
            except BaseException:
                process.kill()
                process.communicate()
                raise

    def new_session(self, *arguments: str) -> str:
        """Make a session and give its id."""
        return self.succeed_here("session", "new", *arguments).out.strip()


@contextlib.contextmanager
def _standard_input(given: str | bytes) -> Iterator[None]:
    """Have this process read what is given, from a descriptor."""
    with tempfile.TemporaryFile() as file, mock.patch.object(sys, "stdin", file):
        file.write(given.encode() if isinstance(given, str) else given)
        file.seek(0)
        yield


def event_line(type: str, **data: Any) -> str:
    """Make a line of input for `session append`."""
    return json.dumps({"type": type, "data": data}) + "\n"
