"""Tellers: processes that tell stories beside each other, so that all cores are used.

A teller is forked, asks for one seed after another, and ends with who asked it, however that one ends. What comes of
the stories is given in the order of their seeds, whoever was told first.
"""

from __future__ import annotations

import signal
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from .story import Outcome, memory, tell

AHEAD = 50
"""How many stories may be told, for each teller, while the oldest one isn't yet."""


@dataclass(frozen=True, slots=True)
class Telling:
    """How stories are told: their steps, which faults are named, and whether their lines are wanted in any case."""

    steps: int
    faults: Collection[str]
    is_whole: bool

    def tell(self, seed: int, root: Path) -> Outcome:
        """Tell one story; `root` is a directory for it."""
        outcome = tell(seed, root, self.steps, self.faults)
        return outcome if outcome.violations or self.is_whole else replace(outcome, told=[])


def tell_all(telling: Telling, seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Tell the stories of these seeds, in so many processes; with one, in this one."""
    with tempfile.TemporaryDirectory(dir=memory(), prefix="turnkeeper-stories-") as name:
        if processes > 1:
            yield from _Tellers(telling, Path(name)).tell_all(iter(seeds), processes)
        else:
            for seed in seeds:
                yield telling.tell(seed, Path(name))


class _Tellers:
    """The tellers that live, by their connections, and which story each one tells."""

    def __init__(self, telling: Telling, root: Path) -> None:
        self._telling = telling
        self._root = root
        self._living: dict[Connection, BaseProcess] = {}
        self._under_way: dict[Connection, tuple[int, int]] = {}
        self._told: dict[int, Outcome] = {}

    def tell_all(self, seeds: Iterator[int], processes: int) -> Iterator[Outcome]:
        """Tell the stories of these seeds, by so many tellers."""
        due: deque[int] = deque()
        numbered = enumerate(seeds)
        with ExitStack() as ending:
            ending.callback(self._end)
            while True:
                while len(self._under_way) < processes and len(due) < processes * AHEAD:
                    if (handed := next(numbered, None)) is None:
                        break
                    self._hand_out(handed)
                    due.append(handed[0])
                if not due:
                    return
                ready = wait(self._under_way)
                for connection in [each for each in self._under_way if each in ready]:
                    self._take(connection)
                while due and due[0] in self._told:
                    yield self._told.pop(due.popleft())

    def _hand_out(self, numbered: tuple[int, int]) -> None:
        idle = [each for each in self._living if each not in self._under_way]
        connection = idle[0] if idle else self._start()
        self._under_way[connection] = numbered
        connection.send(numbered[1])

    def _start(self) -> Connection:
        context = get_context("fork")
        own, others = context.Pipe()
        number = len(list(self._root.iterdir()))
        directory = self._root / str(number)
        directory.mkdir()
        process = context.Process(target=_be_teller, args=(self._telling, directory, others, [*self._living, own]))
        process.start()
        others.close()
        self._living[own] = process
        return own

    def _take(self, connection: Connection) -> None:
        """Take what a teller says of its story, or that it has died of it."""
        number, seed = self._under_way.pop(connection)
        try:
            self._told[number] = connection.recv()
        except (EOFError, ConnectionError):
            process = self._living.pop(connection)
            process.join()
            connection.close()
            self._told[number] = Outcome(seed, violations=[f"whoever told it ended with {process.exitcode}"])

    def _end(self) -> None:
        for process in self._living.values():
            process.kill()
        for connection, process in self._living.items():
            process.join()
            connection.close()


def _be_teller(telling: Telling, directory: Path, connection: Connection, others: Iterable[Connection]) -> None:
    """Tell one story after another, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks says when it is over
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()  # else the end of who asks wouldn't be seen
    try:
        while True:
            connection.send(telling.tell(connection.recv(), directory))
    except (EOFError, ConnectionError):
        return
