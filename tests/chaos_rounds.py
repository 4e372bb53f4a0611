"""A made round with all that there is in it, ways to find one's way in it, and what tests plant there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .chaos_histories import MadeAgent, MadeRound, MadeRun, run_task, send_message

Plant = Callable[[MadeRound], None]


class Plants(list[tuple[Plant, str]]):
    """Faults to plant in a round, each with the promises that it breaks, those that follow from it included."""

    def breaking(self, promises: str) -> Callable[[Plant], Plant]:
        """Add a function that plants a fault."""

        def add(plant: Plant) -> Plant:
            self.append((plant, promises))
            return plant

        return add

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return [plant.__name__ for plant, _ in self]


def clean_round() -> MadeRound:
    """Make a round in which a session `s` does all that there is, has a fork `f`, and `g` is deleted."""
    made = MadeRound()
    book = made.notebook("sender")
    agent = MadeAgent(made, "first", 11).create("s")
    agent.start_turn()
    agent.send()
    agent.write("some text ")
    agent.send("tool/started", id="call")
    agent.send("tool/finished", id="call", output="done")
    agent.flush()
    agent.end_turn()
    send_message(made, book, "s", "key-0")
    send_message(made, book, "s", "key-1")
    agent.accept()
    agent.fork("f", 3)
    agent.fork("g", 2)
    agent.start_turn()
    agent.send()
    agent.flush()
    agent.send()
    agent.send()
    agent.die(stored=1)
    last = MadeAgent(made, "second", 12).open("s")
    last.send()
    last.flush()
    run_task(made, book, "job", "s", code=3)
    last.close()
    book.deleting("g")
    made.commit("g", 1, [], {"deleted": 1})
    book.deleted("g")
    return made


def read_by_all(made: MadeRound) -> MadeRound:
    """Have a round read, listed and followed."""
    made.read_all()
    made.follow("from-the-start")
    made.follow("one-stream", 4, ["s"])
    made.follow("killed", 2, count=5)
    return made


# -- Where things are in it


def run_of(made: MadeRound, type: str, stream: str = "s") -> MadeRun:
    """Give the first run of a stream that has an event of a type."""
    return next(run for run in made.runs if run.stream == stream and any(line[1] == type for line in run.lines))


def place_of(run: MadeRun, type: str) -> int:
    """Give where the first event of a type stands in a run."""
    return next(place for place, line in enumerate(run.lines) if line[1] == type)


def said(made: MadeRound, what: str, **members: Any) -> dict[str, Any]:
    """Give the first note of a word that has these members."""
    return next(note for note in made.notes if note["what"] == what and members.items() <= note.items())


def renumbered(run: MadeRun, first: int) -> None:
    """Give a run's lines numbers one by one."""
    run.lines[:] = [(first + place, type, data) for place, (_, type, data) in enumerate(run.lines)]
