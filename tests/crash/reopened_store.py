"""The second half of a round: the store is opened again by this process, which sees all of its tasks through.

What killed hosts never saw acknowledged is started once more under its key. Everything that ends by itself has to, and
everything of a host that is gone but what it kept; the rest is stopped here. Then nothing may be left: no process, no
zombie, no descriptor, no notice that wasn't delivered.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from turnkeeper.actors.blocking import BlockingRuntime, BlockingSession, connect
from turnkeeper.benchmarks.chaos.store_processes import (
    descriptors,
    is_alive,
    marked_processes,
    processes_by_role,
    state_of,
    zombies_below,
)
from turnkeeper.storage.store import BackendName

from ..stores import make_store
from .judging_tasks import Facts, Journal, is_finished, judge_notices, judge_tasks, label_of
from .mixed_tasks import notes_of

if TYPE_CHECKING:
    from .killed_supervisors import Round
    from .started_hosts import Host

WAIT_SECONDS: Final = 30.0
"""How long tasks may take for their ends, ..."""

OWNER_SECONDS: Final = 15.0
"""... those of hosts that are gone, ..."""

LEFT_SECONDS: Final = 10.0
"""... and whatever is to be gone then: processes, descriptors, zombies that process 1 reaps."""

FENCE: Final = "round/fence"
"""The type of a message behind which no other is expected."""


def judge_reopened(round: Round) -> Iterator[str]:
    """Open the store again, see its tasks through, and find what is wrong."""
    own = descriptors(os.getpid())
    with connect(round.store) as runtime:
        yield from _Reopened(round, runtime).judge()
    yield from _await_none("processes of the store", lambda: _living(round.store))
    yield from _await_none("descriptors of this process", lambda: _more(descriptors(os.getpid()), own))
    yield from _await_none("zombies of this process", lambda: zombies_below([os.getpid()]))


class _Reopened:
    def __init__(self, round: Round, runtime: BlockingRuntime) -> None:
        self._round = round
        self._facts: Facts = round.facts
        self._store: Path = round.store
        self._runtime = runtime
        self._sessions: dict[str, str] = {}
        self._retried: set[str] = set()
        self._rng = round.randomness("the second life")

    def judge(self) -> Iterator[str]:
        for host in self._round.hosts:
            if host.is_killed:
                yield from self._take_over(host)
        self._round.strike_again()
        self._round.hear_to_the_end()
        for host in self._round.hosts:
            complaint = host.close()
            if complaint is not None:
                yield complaint
            if not host.is_killed:
                self._facts.may_lose_owner |= {label for label in host.labels if self._facts.planned[label].is_endless}
                with self._session(host) as session:
                    if session.interrupted is not None:
                        yield f"{host.session} was closed, and its opening tells of {session.interrupted}"
        yield from self._see_through()
        yield from self._judge_processes()
        journal = Journal(self._store)
        yield from judge_tasks(self._store, journal, self._facts)
        yield from judge_notices(journal, self._facts, self._sessions)
        for host in self._round.hosts:
            yield from self._judge_deliveries(host)
        for lines in journal.tasks().values():
            ends = [line.data for line in lines if line.type == "task/ended"]
            self._round.result.ends.update(end["by"] if end["state"] == "ended" else "lost" for end in ends)

    @contextlib.contextmanager
    def _session(self, host: Host) -> Iterator[BlockingSession]:
        with self._runtime.open_session(host.session, create=True) as session:
            self._sessions.update(dict.fromkeys(host.labels, session.id))
            yield session

    # -- Taking over

    def _take_over(self, host: Host) -> Iterator[str]:
        """Open a killed host's session, and start what it never saw acknowledged."""
        before = Journal(self._store)
        with self._session(host) as session:
            if not host.is_closing:
                yield from self._judge_interrupted(session, before)
            session.append("round/began", {})
            session.flush()
            for label in sorted(host.labels):
                planned = self._facts.planned[label]
                if "key" not in planned.options:
                    continue
                was_acknowledged = label in self._facts.tasks
                if was_acknowledged and self._rng.random() < 0.5:
                    continue
                owner = session if planned.has_session else None
                task = self._runtime.start_task(planned.argv, session=owner, **planned.options)
                if was_acknowledged and task.id != self._facts.tasks[label]:
                    yield f"{label} is {self._facts.tasks[label]}, and its key gives {task.id}"
                self._facts.tasks[label] = task.id
                self._retried.add(label)

    def _judge_interrupted(self, session: BlockingSession, before: Journal) -> Iterator[str]:
        """See that the opening tells of each task whose end the killed host can't have seen, and of no other."""
        told = set() if session.interrupted is None else set(session.interrupted.tasks)
        last = max([line.place for line in before.streams.get(session.id, [])], default=0)
        of_session = {id: lines for id, lines in before.tasks().items() if lines[0].data.get("session") == session.id}
        expected = {
            id
            for id, lines in of_session.items()
            if all(line.place > last for line in lines if line.type == "task/ended")
        }
        if not expected <= told:
            yield f"the opening of {session.id} tells of {sorted(told)}, and not of {sorted(expected - told)}"
        finished = {id for id, lines in of_session.items() if id not in expected and is_finished(lines)}
        if told & finished:
            yield f"the opening of {session.id} tells of {sorted(told & finished)}, finished before its last event"

    # -- Seeing the tasks through

    def _see_through(self) -> Iterator[str]:
        states = {state.id: state for state in self._runtime.tasks(limit=1000)}
        requests = {id: lines[0] for id, lines in Journal(self._store).tasks().items()}
        labels = {id: label_of(line) for id, line in requests.items()}
        if states.keys() != labels.keys():
            yield f"these are listed or stored, but not both: {sorted(states.keys() ^ labels.keys())}"
        lost = [id for id in labels if id in self._facts.lost]
        others = {id: label for id, label in labels.items() if id not in self._facts.lost}
        ending, ownerless, endless = [], [], []
        for id, label in others.items():
            planned = self._facts.planned[label]
            if not planned.is_endless:
                ending.append(id)
            elif planned.is_kept or label in self._retried:
                endless.append(id)
            else:
                ownerless.append(id)
        yield from self._await_ends("doesn't end", ending, WAIT_SECONDS)
        yield from self._await_ends("outlives its owner", ownerless, OWNER_SECONDS)
        yield from self._await_ends("its shim was killed, and it isn't over", lost, WAIT_SECONDS)
        yield from self._judge_survivors(labels)
        self._facts.stopped |= {labels[id] for id in endless}
        stopped = self._runtime.stop_tasks(*endless, *self._with_survivors(labels), grace=0.3)
        if stopped.left:
            yield f"a stop leaves {stopped.left}"
        for state in self._runtime.wait_tasks(*labels, tree=True, timeout=WAIT_SECONDS):
            if not state.is_over or state.survivors:
                yield f"{state.id} was stopped, and isn't finished: {state}"
        if unfinished := [state.id for live in ("queued", "running", "stopping") for state in self._in(live)]:
            yield f"listed as unfinished: {unfinished}"

    def _in(self, state: Any) -> list[Any]:
        return self._runtime.tasks(state=state, limit=1000)

    def _await_ends(self, what: str, tasks: list[str], seconds: float) -> Iterator[str]:
        if tasks:
            for state in self._runtime.wait_tasks(*tasks, timeout=seconds):
                if not state.is_over:
                    yield f"{state.id} {what}: {state}"

    def _with_survivors(self, labels: Iterable[str]) -> list[str]:
        return sorted(set(marked_processes(labels).values()))

    def _judge_survivors(self, labels: dict[str, str]) -> Iterator[str]:
        """See that what lives on is named, and only where it may."""
        kept = {label for label in labels.values() if self._facts.planned[label].is_kept}
        ownerless = [id for id, label in labels.items() if label not in kept | self._retried]
        yield from _await_none("processes that outlive their owner", lambda: marked_processes(ownerless))
        states = {state.id: state for state in self._runtime.tasks(limit=1000)}
        marked = marked_processes(labels)
        for id, label in labels.items():
            noted = notes_of(self._facts.planned[label], self._facts.notes)
            pids = {int(line.split()[1]) for line in noted if line.startswith(("start ", "left "))}
            living = {pid for pid in pids if marked.get(pid) == id}
            if states[id].is_over and not living <= set(states[id].survivors):
                yield f"{label} ({id}): {sorted(living)} live on, and named are {states[id].survivors}"

    # -- What is left

    def _judge_processes(self) -> Iterator[str]:
        journal = Journal(self._store)
        yield from _await_none("processes of tasks", lambda: marked_processes(journal.tasks()))
        started = [line.data for lines in journal.tasks().values() for line in lines if line.type == "task/started"]
        known = {each["pid"] for each in started} | {each["shim"]["pid"] for each in started}
        for planned in self._facts.planned.values():
            known |= {int(line.split()[1]) for line in notes_of(planned, self._facts.notes) if " " in line}
        yield from _await_none("zombies", lambda: [pid for pid in known if state_of(pid) == "Z"])
        yield from _await_none("processes", lambda: [pid for pid in known if is_alive(pid)])
        yield from _await_none("shims", lambda: processes_by_role(self._store)["shim"])
        for role, most in calm_descriptors(self._round.kept_by).items():
            (pid,) = processes_by_role(self._store)[role]
            yield from _await_none(f"zombies of the {role}", lambda pid=pid: zombies_below([pid]))  # type: ignore[misc]
            yield from _await_none(
                f"descriptors of the {role}",
                lambda pid=pid, most=most: _more(descriptors(pid), most),  # type: ignore[misc]
            )

    def _judge_deliveries(self, host: Host) -> Iterator[str]:
        """See that each message comes until it is accepted, and not again then."""
        with self._session(host) as session:
            first = self._deliver(session)
            journal = Journal(self._store)
            stored = {line.seq: line.data for line in journal.inbox(session.id) if line.data["type"] != FENCE}
            taken = {line.data["inbox"] for line in journal.streams[session.id] if "inbox" in line.data}
            if first != {seq: data for seq, data in stored.items() if seq not in taken}:
                yield f"{session.id} is given {sorted(first)} of {sorted(stored)}, and accepted were {sorted(taken)}"
            if first.keys() & host.accepted:
                yield f"{session.id} is given {sorted(first.keys() & host.accepted)} again, which it had accepted"
            accepted = {seq for seq in first if self._rng.random() < 0.5}
            self._deliver(session, accepted)
        with self._session(host) as session:
            second = self._deliver(session)
            if second != {seq: data for seq, data in first.items() if seq not in accepted}:
                yield f"{session.id} is given {sorted(second)} of {sorted(first)}, and accepted were {sorted(accepted)}"

    def _deliver(self, session: BlockingSession, accepted: Iterable[int] = ()) -> dict[int, dict[str, Any]]:
        """Give the messages that the session is given now, and accept some."""
        self._runtime.send(session.id, FENCE, {})
        delivered = {}
        for message in session.inbox():
            if message.seq in accepted or message.type == FENCE:
                message.accept()
            if message.type == FENCE:
                break
            found = {"type": message.type, "data": message.data, "sender": message.sender}
            delivered[message.seq] = found
        session.flush()
        return delivered


# -- Waiting for nothing


def _living(store: Path) -> dict[str, list[int]]:
    return {role: pids for role, pids in processes_by_role(store).items() if pids}


def _await_none(what: str, found: Callable[[], Any]) -> Iterator[str]:
    """See that in a moment nothing of this is left."""
    deadline = time.monotonic() + LEFT_SECONDS
    while left := found():
        if time.monotonic() > deadline:
            yield f"{what} are left: {left}"
            return
        time.sleep(0.02)


def _more(found: Counter[str], most: Counter[str]) -> dict[str, str]:
    return {kind: f"{count}, not {most[kind]}" for kind, count in found.items() if count > most[kind]}


@functools.cache
def calm_descriptors(kept_by: BackendName) -> dict[str, Counter[str]]:
    """Count what node and writer have open at most when one client is there, and tasks and messages have been.

    A node that adopted this client's tasks holds on to its process until that ends, and node and writer to the
    journal's file if they had to read it.
    """
    with tempfile.TemporaryDirectory(prefix="turnkeeper-calm-") as place:
        store = Path(place) / "store"
        make_store(store, kept_by)
        with connect(store) as runtime:
            for _ in range(3):
                with runtime.open_session("calm", create=True) as session:
                    runtime.start_task(["/bin/true"], session=session).wait(tree=True)
                    next(session.inbox()).accept()
                runtime.send(session.id, "round/message", {})
            pids = processes_by_role(store)
            calm = {role: descriptors(pids[role][0]) for role in ("node", "writer")}
    calm["node"]["anon_inode:[pidfd]"] += 1
    for found in calm.values():
        found[".jsonl"] += 1
    return calm
