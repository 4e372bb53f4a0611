"""The course of a round: who lived when, what was done to whom, and how soon it served again, for somebody to look at.

Made of notes, and of the runner's alone where a moment counts: it strikes, and it looks at everybody now and then, and
nobody sets its clock back. So a life begins when its process was born, as the runner was told, or was seen first; it
ends by a strike that killed it, or where it was seen last. Moments are seconds from the runner's first note.

Pure; it neither judges nor counts what is stored.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .notes import Note
from .times import Times

RUNNER: Final = "runner.jsonl"

STORE: Final = "store"
"""The lane of what is done to the disk, the clock, the index, a copy, or to all at once."""

_ROLES: Final = {"host": "hosts", "node": "node", "writer": "writer", "spawner": "spawner"}
"""The lanes of those whose lives are shown, and of a host that nobody knows by name."""

_STRUCK: Final = {"shim": "shims", "worker": "workers", "node.sock": "node", "writer.sock": "writer"}
"""The lanes of others that are struck: of shims and workers there are too many, and too short-lived, to show them."""

_SERVING: Final = ("node", "writer", "spawner")

_TOLD: Final = ("what", "at", "kind", "target", "pids", "fault", "tried", "file", "line", "died")
"""Members of a strike that a mark has by itself."""

_LIFTS: Final = ("lift", "continue")

Kind = Literal["kill", "arm", "fault", "missed"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A process from its birth to its end: when it was killed, or else when it was seen last."""

    pid: int
    begin: float
    end: float
    is_killed: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """Those who did one job, one after another."""

    name: str
    lifetimes: tuple[Lifetime, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done. `name` is what: kill, a fault's name, the one that a failpoint was armed for.

    `until` is when a fault was ended, None for what has no duration. `recovery` are the seconds until something new was
    acknowledged, where that was waited for. `says` are the rest of its note's members.
    """

    at: float
    kind: Kind
    name: str
    lane: str
    target: str
    pids: tuple[int, ...]
    says: Mapping[str, Any]
    until: float | None = None
    recovery: float | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """What happened in a round, from its first moment to `seconds`; `began` is that moment, in the runner's time.

    `borders` are when another life of the store began, but the first. `flushes` are the times that agents waited for
    one, those too that waited until the store served again.
    """

    began: float
    seconds: float
    lanes: tuple[Lane, ...]
    marks: tuple[Mark, ...]
    borders: tuple[float, ...] = ()
    flushes: Times = field(default_factory=Times)

    @property
    def kills(self) -> Counter[str]:
        """Count the processes that were killed, by their role."""
        total: Counter[str] = Counter()
        for mark in self.marks:
            if mark.kind == "kill":
                total[mark.target] += len(mark.pids)
        return total

    def counted(self, kind: Kind) -> Counter[str]:
        """Count what was done of one kind, by its name."""
        return Counter(mark.name for mark in self.marks if mark.kind == kind)


def course_of(notes: Sequence[Note], recoveries: Iterable[tuple[Note, float]] = ()) -> Course:
    """Find a round's course in all its notes; `recoveries` are strikes, and the seconds until each was overcome."""
    runner = [note for note in notes if note["file"] == RUNNER]
    if not runner:
        return Course(0.0, 0.0, (), ())
    began = runner[0]["at"]
    names = _host_names(notes)
    marks = _Marks(began, names, {_place(note): seconds for note, seconds in recoveries})
    for note in runner:
        if note["what"] == "strike":
            marks.take(note)
    seconds = max(note["at"] for note in runner) - began
    flushes = Times.of(note["seconds"] for note in notes if note["what"] == "acknowledged" and "seconds" in note)
    borders = tuple(note["at"] - began for note in runner if note["what"] == "life" and note["number"] > 1)
    in_time = tuple(sorted(marks.found, key=lambda mark: mark.at))
    return Course(began, seconds, _lanes(runner, began, names), in_time, borders, flushes)


def _place(note: Note) -> tuple[str, int]:
    return note["file"], note["line"]


def _moment(note: Note, word: str) -> float:
    """Give the moment that a note tells by this word, or else the one that it was written at."""
    moment: float = note[word] if word in note else note["at"]
    return moment


def _host_names(notes: Iterable[Note]) -> dict[int, str]:
    """Give the hosts' names by their pids, which they note themselves, in files named NAME.RUN.jsonl."""
    names: dict[int, str] = {}
    for note in notes:
        parts = note["file"].split(".")
        if len(parts) == 3 and "pid" in note:
            names[note["pid"]] = parts[0]
    return names


# -- Marks


class _Marks:
    """Takes the runner's strikes, in their order, into `found`."""

    def __init__(self, began: float, hosts: Mapping[int, str], recoveries: Mapping[tuple[str, int], float]) -> None:
        self.found: list[Mark] = []
        self._began = began
        self._hosts = hosts
        self._recoveries = recoveries

    def take(self, note: Note) -> None:
        """Take the next strike."""
        kind = note["kind"]
        if kind in _LIFTS:
            self._lift(note)
        elif kind == "spoiled":
            self._say_more(note)
        elif kind == "missed":
            if note["tried"]:
                self.found.pop()  # which was noted before it was tried, right before this
            self._add(note, "missed", note["fault"])
        elif kind == "arm":
            self._add(note, "arm", note["point"])
        elif kind == "kill":
            if "with_host" not in note:  # it was its host that was struck
                self._add_kill(note)
        else:
            self._add(note, "fault", kind)

    def _add_kill(self, note: Note) -> None:
        """Add a mark for each lane that it hits."""
        lanes: dict[str, list[int]] = {}
        for pid in note["pids"]:
            lanes.setdefault(_lane_of(note["target"], pid, self._hosts), []).append(pid)
        for lane, pids in lanes.items():
            self._add({**note, "pids": pids}, "kill", "kill", lane)

    def _add(self, note: Note, kind: Kind, name: str, lane: str | None = None) -> None:
        pids = tuple(note["pids"])
        self.found.append(
            Mark(
                at=_moment(note, "died") - self._began,
                kind=kind,
                name=name,
                lane=lane or _lane_of(note["target"], pids[0] if pids else None, self._hosts),
                target=note["target"],
                pids=pids,
                says={name: value for name, value in note.items() if name not in _TOLD},
                recovery=self._recoveries.get(_place(note)),
            )
        )

    def _lift(self, note: Note) -> None:
        """End the first fault of this kind that lasts."""
        for place, mark in enumerate(self.found):
            if (mark.kind, mark.name, mark.target, mark.until) == ("fault", note["fault"], note["target"], None):
                self.found[place] = dataclasses.replace(mark, until=note["at"] - self._began)
                return

    def _say_more(self, note: Note) -> None:
        """Say of the last thing that was done to a target how it was done."""
        for place in reversed(range(len(self.found))):
            mark = self.found[place]
            if mark.target == note["target"]:
                self.found[place] = dataclasses.replace(mark, says={**mark.says, "how": note["how"]})
                return


def _lane_of(target: str, pid: int | None, hosts: Mapping[int, str]) -> str:
    if target == "host" and pid is not None and pid in hosts:
        return hosts[pid]
    return _ROLES.get(target) or _STRUCK.get(target) or STORE


# -- Lives


def _lanes(runner: Iterable[Note], began: float, hosts: Mapping[int, str]) -> tuple[Lane, ...]:
    """Give the lanes, with whoever lived: the hosts' by their names, then the node's, the writer's, the spawner's."""
    lanes: dict[str, list[Lifetime]] = {}
    for role, lifetime in _lifetimes(runner, began):
        lanes.setdefault(_lane_of(role, lifetime.pid, hosts), []).append(lifetime)
    names = [*sorted(lanes.keys() - {*_SERVING}), *(name for name in _SERVING if name in lanes)]
    return tuple(Lane(name, tuple(lanes[name])) for name in names)


def _lifetimes(runner: Iterable[Note], began: float) -> list[tuple[str, Lifetime]]:
    """Give each process that was seen or killed, in that order, with its role."""
    found: dict[int, tuple[str, Lifetime]] = {}
    for note in runner:
        at = _moment(note, "died") - began
        if note["what"] == "process" and note["role"] in _ROLES:
            born = max(0.0, _moment(note, "born") - began)
            role, life = found.get(note["pid"], (note["role"], Lifetime(note["pid"], born, at, is_killed=False)))
            found[life.pid] = role, life if life.is_killed else dataclasses.replace(life, end=at)
        elif note["what"] == "strike" and note["kind"] == "kill" and note["target"] in _ROLES:
            for pid in note["pids"]:
                role, life = found.get(pid, (note["target"], Lifetime(pid, at, at, is_killed=True)))
                found[pid] = role, dataclasses.replace(life, begin=min(life.begin, at), end=at, is_killed=True)
    return list(found.values())
