"""One unfinished task, as the node knows it: from its request until nothing is left of what it started.

One coroutine does all that is done for a task, so nothing of it overlaps: it looks what has become of it, records that,
hands it to the spawner, orders its shim to stop it. Everybody else only rings, or wishes, and waits. A look is the
truth; whatever rings (a shim's datagram, its pidfd, a tick) says no more than that there may be something to see. So a
node that starts in the middle of a task goes on with it as the one before would have.

Whoever waits for an end isn't kept waiting by a full disk, which the record has to wait for: how the task ended stands
in its directory. Part of the node, on trio; paths are relative to the store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import trio

from turnkeeper.runtime.tasks import control, directory, looking, survivors, tree
from turnkeeper.runtime.tasks.looking import Look
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.requests import Post

from ...errors import TaskRefused
from ...node_log import log
from ...protocol import TASKS_DIRECTORY
from ...tasks import records
from ..switchboard import Switchboard
from .latest_news import LatestNews
from .ledger import Ledger
from .leftovers import Leftovers
from .output_watch import OutputWatch
from .recorder import Recorder
from .requests import Start
from .spawner_keeper import SpawnerKeeper
from .stop_wish import By, StopWish, Wish

HAND_OVER_SECONDS_FIRST: Final = 2.0
HAND_OVER_SECONDS_MAX: Final = 60.0
"""How long to wait for a shim before the spawner is told again: its shim may have been killed before it could write."""

LEADER_SECONDS: Final = 1.0
"""How long to wait for the file that tells the command's pid, before the shim's child is taken for it."""

GRACE_SECONDS: Final = 5.0
"""The grace of a task whose files don't tell."""

_FORESTALLED: Final = {"stop": "it was stopped before it began", "owner": "its owner ended before it began"}


class Desk(NamedTuple):
    """What all tasks have in common."""

    recorder: Recorder
    spawner: SpawnerKeeper
    switchboard: Switchboard


class LiveTask:
    """A task that has not finished. `stall` is after how many seconds of silence its session is told, or None.

    `seen` is set by the first look; `requested`, `begun`, `ended` and `finished` when that has come, and all when there
    is a `refusal`.
    """

    def __init__(self, id: str, desk: Desk, summary: Mapping[str, Any], head: int = 0, *, stall: float | None) -> None:
        self.id = id
        self.path = f"{TASKS_DIRECTORY}/{id}"
        self.ledger = Ledger(id, desk.recorder, summary, head)
        self.look = Look("unstarted")
        self.survivors: Sequence[Mapping[str, Any]] = []
        self.refusal: StorageError | None = None
        self.seen, self.requested, self.begun, self.ended, self.finished = (trio.Event() for _ in range(5))
        self._spawner = desk.spawner
        self._news = LatestNews(id, desk.switchboard, lambda: self.ledger.head)
        self._stall = stall
        self._output: OutputWatch | None = None
        self._silence: float | None = None
        self._bell = trio.Event()
        self._is_troubled = False
        self._wish = StopWish()
        self._failure: str | None = None
        self._pidfd: int | None = None
        self._leftovers = Leftovers(id, self.ring)
        self._leader_awaited_since: float | None = None
        self._next_hand_over = 0.0
        self._hand_over_seconds = HAND_OVER_SECONDS_FIRST
        if self.summary.get("state") in ("ended", "lost"):
            self.begun.set()
            self.ended.set()

    # -- What others see

    @property
    def summary(self) -> dict[str, Any]:
        """What is recorded of it."""
        return self.ledger.summary

    @property
    def is_kept(self) -> bool:
        """Say whether it outlives its owner."""
        return bool(self.summary.get("keep"))

    @property
    def token(self) -> str | None:
        """The token of the runtime that started it."""
        token: str | None = self.summary.get("starter", {}).get("token")
        return token

    @property
    def grace(self) -> float:
        """The seconds between TERM and KILL that it was started with."""
        try:
            grace = (directory.read_map(f"{self.path}/{directory.SPEC}") or {}).get("grace")
        except OSError:
            grace = None
        return float(grace) if isinstance(grace, int | float) else GRACE_SECONDS

    @property
    def shim(self) -> Mapping[str, Any] | None:
        """The identity of its shim, once there is one."""
        return self.look.shim or self.summary.get("shim")

    @property
    def shim_pid(self) -> int | None:
        """Its shim's process while that lives."""
        return None if self._pidfd is None or self.shim is None else self.shim["pid"]

    @property
    def is_stopping(self) -> bool:
        """Say whether it is to be stopped, and hasn't ended."""
        return not self.ended.is_set() and (self._wish.newest is not None or self.summary.get("state") == "stopping")

    @property
    def is_waited_for(self) -> bool:
        """Say whether it is being stopped, and there is hope that this will be over soon."""
        return self._wish.has_hope and not self.finished.is_set()

    @property
    def needs_ticks(self) -> bool:
        """Say whether nothing else may ring when there is something to do."""
        is_watched = self._pidfd is not None or self._leftovers.is_watched
        is_awaited = self._leader_awaited_since is not None
        return not is_watched or is_awaited or self._is_troubled or self.ledger.is_owing

    @property
    def output_bytes(self) -> int:
        """The size of its output now, and once it has ended the one that its end tells."""
        told = self.summary.get("output_bytes")
        if isinstance(told, int):
            return told
        try:
            return os.stat(f"{self.path}/{directory.OUTPUT}").st_size
        except OSError:
            return 0

    def as_seen(self) -> dict[str, Any]:
        """Give its summary with what is seen of it now."""
        seen = {**self.summary, "id": self.id, "head": self.ledger.head, "output_bytes": self.output_bytes}
        if self.is_stopping:
            seen["state"] = "stopping"
        if self._output is not None and (progress := self._output.progress()) is not None:
            seen["progress"] = progress
        if self.look.gone is not None:
            seen["gone"] = self.look.gone
        return {**seen, "survivors": [{"pid": each["pid"], "start": each["start"]} for each in self.survivors]}

    def pids_left(self) -> list[int]:
        """Find the processes that belong to it now."""
        if (shim := self.shim_pid) is not None:
            return [each.pid for each in tree.below(shim) if each.is_alive]
        return [each["pid"] for each in self.survivors]

    # -- What others wish

    def ring(self) -> None:
        """Have it looked at: something may have become of it."""
        self._bell.set()

    def stop(self, by: By, grace: float) -> None:
        """Wish that all that it started be stopped; a later wish may have another grace."""
        self._wish.make(Wish(by, grace))
        self.ring()

    def fail(self, why: str) -> None:
        """Say that nothing can begin it."""
        self._failure = why
        self.ring()

    # -- Its output

    def look_at_output(self) -> None:
        """See what it has printed since the last look, and tell that to who listens."""
        if self.look.stage != "running" or not self.begun.is_set():
            return
        if self._output is None:
            self._output = OutputWatch(f"{self.path}/{directory.OUTPUT}", self._stall, trio.current_time())
        silent_seconds = self._output.look(trio.current_time())
        if silent_seconds is not None:
            self._silence = silent_seconds
            self.ring()
        self._news.tell(self._output.size, self._output.progress(), now())

    def _last_progress(self) -> dict[str, Any] | None:
        """See how far it came, and tell that to who listens."""
        if self._output is None:
            self._output = OutputWatch(f"{self.path}/{directory.OUTPUT}", None, trio.current_time())
        self._output.look(trio.current_time())
        progress = self._output.progress(ended=True)
        self._news.tell(self._output.size, progress, now())
        return progress

    # -- Its life

    async def begin(self, start: Start, request: Post, owner: Mapping[str, Any] | None) -> bool:
        """Make its directory and record that it is wanted, in this order; False, with nothing left, if it's refused."""
        try:
            directory.make(TASKS_DIRECTORY, self.id, start.as_spec(owner), start.env)
        except OSError as error:
            why = f"can't be made in the store ({error.strerror or error})"
            self.refusal = TaskRefused(f"the directory {self.path}", why)
        else:
            self.refusal = await self.ledger.request(request)
        if self.refusal is None:
            self.requested.set()
            return True
        _discard(self.path)
        self._set_all()
        return False

    async def attend(self) -> None:
        """Follow it until it is finished."""
        self.requested.set()
        try:
            async with trio.open_nursery() as nursery:
                while not self.finished.is_set():
                    self._bell = trio.Event()  # before the look: whatever comes behind it rings again
                    try:
                        await self._advance(nursery)
                        self._is_troubled = False
                    except OSError as error:  # no descriptor is left, say
                        log(f"{self.id} can't be looked after now, and is again in a moment: {error}")
                        self._is_troubled = True
                    self.seen.set()
                    if not self.finished.is_set():
                        await self._bell.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._spawner.begun(self.id)
        self._set_all()

    def _set_all(self) -> None:
        for each in (self.seen, self.requested, self.begun, self.ended, self.finished):
            each.set()

    async def _advance(self, nursery: trio.Nursery) -> None:
        """Look at it, and do what follows from that."""
        await self.ledger.settle_debts()
        if not self.ended.is_set():
            await self._wish.record(self.ledger, now())
            await self._record_silence()
        self.look = looking.look(self.path, self.summary.get("shim"), settle=True)
        if self.look.stage == "unstarted":
            self._see_unstarted()
            return
        self._spawner.begun(self.id)
        if self.look.stage != "ended":
            self._watch_shim(nursery)
        if self.look.stage == "running":
            await self._see_running()
        else:
            await self._see_end(nursery)
        await self._give_wish()

    # -- Before it runs

    def _see_unstarted(self) -> None:
        """Have a shim begin it, unless it is to be stopped or nothing can begin it: then no shim may."""
        if (wish := self._wish.newest) is not None:
            self._forestall(_FORESTALLED[wish.by], wish.by)
        elif self._failure is not None:
            self._forestall(self._failure)
        elif trio.current_time() >= self._next_hand_over:
            if os.access(self.path, os.W_OK | os.X_OK):
                self._spawner.hand_over(self.id)
            else:
                self._forestall(f"{self.path} in the store can't be written")
            self._next_hand_over = trio.current_time() + self._hand_over_seconds
            self._hand_over_seconds = min(2 * self._hand_over_seconds, HAND_OVER_SECONDS_MAX)

    def _forestall(self, why: str, by: str = "itself") -> None:
        """See that no shim begins it, unless one has it, which rings when it has begun."""
        how = {"how": {"not_started": why}, "by": by}
        end = {**how, "survivors": [], "ended": now(), "output_bytes": 0, "output": None}
        if looking.forestall(self.path, end):
            self.ring()

    async def _see_running(self) -> None:
        """Record that it runs, once the file tells its command's pid."""
        if self.look.leader is None and not self._take_child_for_leader():
            return
        self._leader_awaited_since = None
        await self._record_start()
        self.begun.set()

    def _take_child_for_leader(self) -> bool:
        """Find the command where the disk had no room for the file that tells it; not before that should be there."""
        if self.begun.is_set() or self.look.shim is None:
            return self.begun.is_set()
        if self._leader_awaited_since is None:
            self._leader_awaited_since = trio.current_time()
        children = tree.children(self.look.shim["pid"])
        if trio.current_time() < self._leader_awaited_since + LEADER_SECONDS or not children:
            return False
        first = min(children, key=lambda each: (each.start, each.pid))
        self.look = replace(self.look, leader={"pid": first.pid, "start": first.start})
        return True

    async def _record_start(self) -> None:
        """Record that it has started, if it has and that isn't recorded."""
        leader, shim = self.look.leader, self.look.shim
        if leader is None or shim is None or self.summary.get("pid") is not None:
            return
        time = leader.get("time")  # of its own clock's, so that a short task doesn't start behind its end
        time = time if isinstance(time, int) and 0 < time <= now() else now()
        post = records.started(self.id, time, pid=leader["pid"], shim=shim)
        if self.summary.get("state") != "queued" and post.patch is not None:
            post.patch = {name: value for name, value in post.patch.items() if name != "state"}
        await self.ledger.record(post)

    def _watch_shim(self, nursery: trio.Nursery) -> None:
        """Ring when its shim ends, from the first look on that shows it."""
        shim = self.look.shim
        if shim is None or self._pidfd is not None:
            return
        self._pidfd = tree.open_process(shim["pid"], shim["start"])
        if self._pidfd is None:
            self.ring()  # it ended behind the look
        else:
            nursery.start_soon(self._ring_at_end_of_shim, self._pidfd)

    async def _ring_at_end_of_shim(self, pidfd: int) -> None:
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            os.close(pidfd)
            self._pidfd = None
        self.ring()

    # -- When it ends, and behind its end

    async def _see_end(self, nursery: trio.Nursery) -> None:
        """Record that it has ended, and that nothing is left of it, when that is so."""
        look = self.look
        assert look.end is not None
        end = dict(look.end)
        is_empty = look.is_tree_empty
        if look.stage == "left":
            self.survivors = survivors.living(end.get("survivors"))
        elif is_empty or self.shim is None:
            self.survivors, is_empty = [], True
        elif not self._leftovers.is_watched or self._wish.newest is not None:
            self.survivors = await self._leftovers.find(self.shim, nursery)
            is_empty = not self.survivors
            end["survivors"] = self.survivors
        if not self.ended.is_set():
            await self._record_end(end, is_empty)
        elif is_empty and self.summary.get(records.UNFINISHED):
            await self.ledger.record(records.emptied(self.id, now()))
        if is_empty and not self.ledger.is_owing:
            self.finished.set()

    async def _record_end(self, end: Mapping[str, Any], is_empty: bool) -> None:
        await self._record_start()
        ended = records.ended(self.id, end, now(), is_tree_empty=is_empty, progress=self._last_progress())
        await self.ledger.record(ended, notify=True)
        self.begun.set()
        self.ended.set()

    # -- Stopping it

    async def _give_wish(self) -> None:
        """Order the shim to stop the task, or stop what a dead shim left."""
        wish, shim = self._wish.newest, self.look.shim
        if wish is None or shim is None or self.finished.is_set():
            return
        if not (self._wish.is_recorded or self.ended.is_set()):
            self.ring()  # it was wished behind the last look for wishes
        elif self.look.stage != "ended":
            if self._wish.given_to is None and control.order_stop(self.path, shim, grace=wish.grace, by=wish.by):
                self._wish.given_to = "shim"
        elif self.survivors and self._wish.given_to != "leftovers":
            self._wish.given_to = "leftovers"
            self.survivors = await self._leftovers.stop(shim, wish.grace)
            self.ring()

    async def _record_silence(self) -> None:
        seconds, self._silence = self._silence, None
        if seconds is not None and self._output is not None:
            size = self._output.size
            stalled = records.stalled(self.id, now(), silent_seconds=round(seconds, 3), output_bytes=size)
            await self.ledger.record(stalled, notify=True)


def _discard(path: str) -> None:
    try:
        directory.discard(path)
    except OSError as error:
        log(f"{path} can't be removed: {error}")


def now() -> int:
    """Give the time, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000
