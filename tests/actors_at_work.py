"""Actors for tests, which run them in the loop and, by importing this module there, in worker processes.

Some of them block their loop, and print: that is what they are for.
"""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, ASYNC240, ASYNC251, T201

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from turnkeeper.runtime.errors import register_error


@register_error
class Refusal(Exception):
    """An answer of an actor that is not a failure, with fields."""

    def __init__(self, wanted: str, left: int) -> None:
        super().__init__(wanted, left)
        self.wanted = wanted
        self.left = left

    def __str__(self) -> str:
        return f"no {self.wanted}, {self.left} left"


class Mishap(Exception):
    """A failure of an actor: nobody registered it."""


class Clerk:
    """Does what it is told, one thing at a time, and keeps a list of it."""

    def __init__(self, *done: str) -> None:
        self.done = list(done)

    async def note(self, what: str) -> int:
        """Note it, and say how much was noted."""
        self.done.append(what)
        return len(self.done)

    async def notes(self) -> list[str]:
        """Tell all that was noted."""
        return self.done

    async def note_slowly(self, what: str, *, turns: int = 20) -> None:
        """Note the beginning and the end, with many turns of the loop in between."""
        self.done.append(f"{what} begins")
        for _ in range(turns):
            await checkpoint()
        self.done.append(f"{what} ends")

    async def echo(self, *arguments: Any, **keywords: Any) -> list[Any]:
        """Give back what came."""
        return [list(arguments), keywords]

    async def refuse(self, wanted: str, left: int) -> None:
        """Raise a registered error."""
        raise Refusal(wanted, left)

    async def fail(self, why: str = "by mishap") -> None:
        """Raise an error that is not registered."""
        raise Mishap(why)

    async def hold(self, mark: str) -> str:
        """Make the file and wait until somebody removes it."""
        Path(mark).touch()
        while Path(mark).exists():
            await anyio.sleep(0.005)
        return "released"

    async def block(self, mark: str) -> None:
        """Make the file and block the loop."""
        Path(mark).touch()
        time.sleep(600)

    async def nap(self, seconds: float) -> int:
        """Block the loop for so long, and tell the process."""
        time.sleep(seconds)
        return os.getpid()

    async def pid(self) -> int:
        """Tell the process."""
        return os.getpid()

    async def loops_loaded(self) -> list[str]:
        """Tell which event loops this process has imported."""
        return [name for name in ("asyncio", "trio") if name in sys.modules]

    async def end_process(self, how: str, value: int) -> None:
        """End this process by a signal or by an exit code, from inside."""
        if how == "signal":
            os.kill(os.getpid(), value)
        else:
            os._exit(value)

    async def start_sleeper(self) -> int:
        """Leave a program running in this process's group, and tell its pid."""
        return subprocess.Popen(["sleep", "600"]).pid

    async def fork_sleeper(self) -> int:
        """Leave a fork of this process, which does nothing, and tell its pid."""
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        return child

    async def signal_dispositions(self) -> list[str]:
        """Tell how a program that is started here finds SIGINT, and what it reads on its standard input."""
        code = "import signal, sys; print(signal.getsignal(signal.SIGINT), repr(sys.stdin.read()))"
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.split()

    async def interrupt(self) -> int:
        """Send this process a SIGINT and live on."""
        os.kill(os.getpid(), signal.SIGINT)
        await checkpoint()
        return os.getpid()

    async def twice(self, text: str) -> list[str]:
        """Give it back two times."""
        return [text, text]

    async def unplain(self) -> Any:
        """Return what can't cross between processes."""
        return {1, 2}

    async def say_to_host(self, words: bytes) -> str:
        """Say something to the host in the runtime's place, and go on."""
        for number in sorted(map(int, os.listdir("/proc/self/fd"))):  # the one to the host was there before the loop's
            with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
                connection.getpeername()
                connection.send(words)
                break
        await anyio.sleep_forever()
        return "unreachable"

    async def print_both(self, words: str) -> None:
        """Say it on standard output and standard error."""
        print(words, flush=True)
        print(words, file=sys.stderr, flush=True)

    def _hidden(self) -> None:
        """Not a handler, by its name."""

    def plain(self) -> None:
        """Not a handler: not async."""


class Doorkeeper(Clerk):
    """A clerk that marks in a file when it enters and leaves, and with which error."""

    def __init__(self, marks: str, trouble: str = "") -> None:
        super().__init__()
        self._marks = Path(marks)
        self._trouble = trouble

    def mark(self, what: str) -> None:
        """Add a line to the file."""
        with self._marks.open("a") as marks:
            marks.write(f"{what}\n")

    async def __aenter__(self) -> Doorkeeper:
        if self._trouble == "fails to enter":
            raise Mishap("at the door")
        if self._trouble == "refuses to enter":
            raise Refusal("seat", 0)
        if self._trouble == "never enters":
            self.mark("waits")
            await anyio.sleep_forever()
        if self._trouble == "dies at the door":
            os._exit(7)
        self.mark("entered")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.mark(f"left with {kind.__name__ if kind else 'nothing'}")
        if self._trouble == "fails to leave":
            raise Mishap("on the way out")


class Courier:
    """Opens the store where it is, and asks named actors there."""

    def __init__(self, store: str) -> None:
        self._store = store

    async def carry(self, name: str, method: str, *arguments: Any) -> Any:
        """Ask the actor of this name, and give back what it said."""
        from turnkeeper.actors.runtime_opening import open_runtime  # other workers needn't load it

        async with open_runtime(self._store) as runtime:
            return await runtime.actor(name).ask(method, *arguments)
