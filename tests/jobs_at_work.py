"""Functions for CPU work: what tests have done in the processes that are kept for that."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from turnkeeper.runtime.errors import register_error


@register_error
class Unsolvable(Exception):
    """An answer that isn't a result."""


class Stamper:
    """Has a method, which no other process finds for an object of it."""

    def stamp(self) -> str:
        """Do nothing much."""
        return "stamped"


def add(first: int, second: int) -> int:
    """Be a job that takes no time."""
    return first + second


def pids() -> list[int]:
    """Give the process that this is, and the one that keeps it."""
    return [os.getpid(), os.getppid()]


def echo(value: Any) -> Any:
    """Give back what came."""
    return value


def describe(first: Any, second: Any) -> list[Any]:
    """Say what has come, and give it back in parts."""
    owner = type(first.obj).__name__ if isinstance(first, memoryview) else ""
    return [type(first).__name__, owner, len(first), bytes(first[-2:]), second]


def reverse(book: memoryview) -> bytes:
    """Make as many other bytes."""
    return bytes(book[::-1])


def memories() -> list[str]:
    """Name the memory that this process, and the one that keeps it, hold by descriptors."""
    found = []
    for pid in pids():
        for each in os.listdir(f"/proc/{pid}/fd"):
            try:
                name, size = os.readlink(f"/proc/{pid}/fd/{each}"), os.stat(f"/proc/{pid}/fd/{each}").st_size
            except FileNotFoundError:
                continue  # the descriptor of the listing itself
            if "large bytes" in name and size:
                found.append(f"{pid} {name}")
    return found


def loops_loaded() -> list[str]:
    """Name the event loops that are loaded here."""
    return sorted({"trio", "anyio", "asyncio"} & sys.modules.keys())


def wait_for(fifo: str, began: str) -> str:
    """Write into a file that this has begun, and be at work until somebody writes into the other one."""
    with open(began, "a") as marks:
        marks.write(f"{os.getpid()}\n")
    return Path(fifo).read_text()


def hang() -> NoReturn:
    """Never end, whatever it is asked."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(600)


def die(number: int) -> NoReturn:
    """Die of a signal."""
    os.kill(os.getpid(), number)
    raise AssertionError("it lives")


def end(code: int) -> NoReturn:
    """End without another word."""
    os._exit(code)


def leave(code: int) -> NoReturn:
    """Want to end the program."""
    sys.exit(code)


def divide(first: int, second: int) -> float:
    """Fail for some."""
    return first / second


def give_up(reason: str) -> NoReturn:
    """Answer with an error."""
    raise Unsolvable(reason)


def unplain() -> Any:
    """Return what can't cross."""
    return {"found": {1, 2}}


def huge() -> list[bytes]:
    """Return more than a message holds."""
    return [bytes(9 * 1024 * 1024)] * 2


def spoil() -> str:
    """Write into every pipe that is open here, as if it were one's own."""
    for each in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{each}").startswith("pipe:") and int(each) > 2:
                os.write(int(each), b"\x00\x00\x00\x04junk")
        except OSError:
            continue
    return "written"


def close_all() -> str:
    """Close all but the standard streams, as programs do that go into the background."""
    os.closerange(3, 1024)
    return "closed"


def fork() -> int:
    """Return in two processes."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
    return pid


def say(words: str) -> None:
    """Print words."""
    sys.stdout.write(f"{words}\n")


async def rest() -> None:
    """Be no plain function."""


def maker() -> Callable[[], str]:
    """Make a function that no other process finds."""

    def local() -> str:
        return "found"

    return local
