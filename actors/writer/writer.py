"""The writer: the one process that appends to a store, by group commit over a socket.

A reader for each connection puts what its client asks into one bounded queue. One loop takes all that is queued and
commits it at once (the disk sets the pace, there is no timer), answers, and only then lets the backend do its own work.
Commits run inline, as nothing else here has anything to do meanwhile. A frame is answered when all of it is durable and
readable; frames of one connection are answered in order.

It ends in order when its stdin does, which is the node's order or its death: what is queued is committed and
acknowledged and the store closed cleanly. After a failed commit nobody is answered and the process ends at once: the
outcome is unknown until a successor has opened the store, and clients send again to that one.

Runs on trio, in a process of its own, with the store as its working directory.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import traceback
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import monotonic
from typing import Any, NoReturn

import trio

from turnkeeper.runtime.frames import FrameError, encode_frame
from turnkeeper.runtime.identity import is_gone
from turnkeeper.storage.backend import Backend
from turnkeeper.storage.errors import Exists, Failed, IndexFailed, StorageError
from turnkeeper.storage.limits import BATCH_BYTES_MAX, MIB, RUNS_MAX
from turnkeeper.storage.requests import Append, Appended, Grant, Granted, Post, Request, Result

from .. import protocol
from ..node_log import log
from ..own_loop import watch_own_loop
from ..peers import Peer, stop_listening, welcome
from ..protocol import error_to_wire
from .changes import Changes, Changing
from .disk_space import DiskSpace
from .inboxes import Inboxes
from .openings import Decision, Openings
from .recording import Recorded, Recordings
from .requests import (
    Change,
    Opening,
    Recording,
    Sending,
    appends_from_wire,
    change_from_wire,
    listening_from_wire,
    number_of,
    opening_from_wire,
    recording_from_wire,
    sending_from_wire,
)

QUEUE_BYTES_MAX = 64 * MIB
"""What may wait for a commit, in bytes of lines; with this much, nothing more is read."""

FLUSHES_REMEMBERED = 10_000
"""Of so many frames the time from arrival to acknowledgement is kept."""

FAILED_EXIT_CODE = 70
"""How the process ends after a failed commit."""

LAST_ANSWERS_SECONDS = 1.0
"""How long the end waits for clients that are behind with reading their answers."""


class Client(Peer):
    """A connection. `watch` is its unanswered request for news: its number, and the position it knows."""

    watch: tuple[int, int] | None = None
    has_ended = False


@dataclass(slots=True)
class Queued:
    """What a client asked in one frame. `size` is what it counts for in the queue."""

    client: Client
    number: int
    asked: list[Append] | Opening | Change | Sending | Recording
    size: int
    arrived: float = field(default_factory=monotonic)


class Writer:
    """The group commit over one open store, whatever keeps it."""

    def __init__(self, backend: Backend, listener: socket.socket, path: str, store: str, boot: str) -> None:
        self._backend = backend
        self._listener = listener
        self._path = path
        self._store = store
        self._boot = boot
        self._openings = Openings(backend, is_gone)
        self._changes = Changes(backend)
        self._inboxes = Inboxes(backend, self._openings.reservations)
        self._recordings = Recordings(backend, self._inboxes)
        self._disk_space = DiskSpace()
        self._clients: set[Client] = set()
        self._watching: set[Client] = set()
        self._queue: deque[Queued] = deque()
        self._queue_bytes = 0
        self._work = trio.Event()
        self._room = trio.Event()
        self._ending = False
        self._flush_seconds: deque[float] = deque(maxlen=FLUSHES_REMEMBERED)
        self._serving = monotonic()

    async def run(self) -> None:
        """Serve until stdin ends or TERM comes; then commit what is queued, acknowledge it and close the store."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(welcome, self._listener, self._path, self._serve, nursery)
            nursery.start_soon(self._obey_stdin)
            nursery.start_soon(self._obey_term)
            nursery.start_soon(watch_own_loop, trio.sleep)
            await self._commit_all()
            stop_listening(self._listener)
            with trio.move_on_after(LAST_ANSWERS_SECONDS):
                for client in list(self._clients):
                    await client.wait_drained()
            nursery.cancel_scope.cancel()
        self._backend.close()

    # -- Ending

    async def _obey_stdin(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(0)
            if not os.read(0, 4096):
                return self._end()

    async def _obey_term(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                self._end()

    def _end(self) -> None:
        self._ending = True
        self._work.set()

    # -- Reading

    async def _serve(self, connection: socket.socket) -> None:
        """Greet a client and queue what it asks, until its connection ends or it sends what is no request."""
        client = Client(connection, self._nursery)
        self._clients.add(client)
        client.tell(encode_frame(self._hello()))
        try:
            while messages := await client.frames.receive_all():
                for message in messages:
                    self._take(client, message)
                await client.wait_drained()
                while self._queue_bytes > QUEUE_BYTES_MAX:
                    await self._room.wait()
        except FrameError as error:
            log(f"process {client.pid} sent what is no request and is cut off: {error.reason}")
            client.tell(encode_frame({"op": protocol.ERROR, **error_to_wire(StorageError(error.reason))}))
        except OSError:
            pass  # the connection broke, which is an end like any other
        finally:
            client.has_ended = True
            self._openings.reservations.forget(client)
            self._inboxes.forget(client)
            self._watching.discard(client)
            self._clients.discard(client)
            client.frames.close()

    def _hello(self) -> dict[str, Any]:
        return {
            "op": protocol.HELLO,
            "protocol": protocol.PROTOCOL,
            "version": protocol.VERSION,
            "pid": os.getpid(),
            "store": self._store,
            "boot": self._boot,
            "index": self._backend.index_directory,
            "position": self._backend.next_position,
        }

    def _take(self, client: Client, message: Any) -> None:
        """Queue or answer one message. Raises FrameError for what is no request."""
        if message.__class__ is list and len(message) == 2 and message[0].__class__ is int:
            appends = appends_from_wire(message[1])
            self._enqueue(Queued(client, message[0], appends, sum([len(each.lines) for each in appends])))
        elif isinstance(message, dict):
            self._take_control(client, number_of(message), message)
        else:
            raise FrameError(f"what was sent is no request to a writer: {message!r:.100}")

    def _take_control(self, client: Client, number: int, message: dict[str, Any]) -> None:
        match message:
            case {"op": protocol.OPEN}:
                self._enqueue(Queued(client, number, opening_from_wire(message), 0))
            case {"op": protocol.RELEASE, "stream": str(stream), "token": str(token)}:
                self._openings.reservations.release(stream, token)
                client.tell(encode_frame({"re": number}))
            case {"op": protocol.WATCH, "after": int(after)}:
                client.watch = (number, after)
                self._watching.add(client)
                self._tell_watching()
            case {"op": protocol.CHANGE}:
                self._enqueue(Queued(client, number, change_from_wire(message), 0))
            case {"op": protocol.SEND}:
                sending = sending_from_wire(message)
                self._enqueue(Queued(client, number, sending, len(sending.tail)))
            case {"op": protocol.RECORD}:
                recording = recording_from_wire(message)
                self._enqueue(Queued(client, number, recording, recording.size))
            case {"op": protocol.LISTEN}:
                self._inboxes.listen(client, number, listening_from_wire(message))
            case {"op": protocol.UNLISTEN}:
                self._inboxes.unlisten(client, listening_from_wire(message))
                client.tell(encode_frame({"re": number}))
            case {"op": protocol.STATISTICS}:
                client.tell(encode_frame({"re": number, **self._statistics()}))
            case _:
                raise FrameError(f"what was sent is no request to a writer: {message!r:.100}")

    def _enqueue(self, queued: Queued) -> None:
        self._queue.append(queued)
        self._queue_bytes += queued.size
        self._work.set()

    # -- Committing

    async def _commit_all(self) -> None:
        """Commit and answer what is queued, again and again, until the end was ordered and nothing is queued."""
        while True:
            await self._work.wait()
            if self._queue:
                try:
                    self._commit(self._take_queued())
                except Exception as error:  # whatever it was: what is on the disk is for the next writer to find out
                    _fail(error)
            if self._queue:
                await trio.lowlevel.checkpoint()
            elif not self._ending:
                self._work = trio.Event()
            else:
                break

    def _take_queued(self) -> list[Queued]:
        """Take from the queue, in order, about as much as one batch holds, and at least one.

        A deletion is taken alone: whether a session is deleted is looked up when other requests are decided.
        """
        taken: list[Queued] = []
        size = requests = 0
        while self._queue and size < BATCH_BYTES_MAX and requests < RUNS_MAX:
            if _is_deletion(self._queue[0]):
                return taken or [self._queue.popleft()]
            queued = self._queue.popleft()
            taken.append(queued)
            size += queued.size
            requests += len(queued.asked) if isinstance(queued.asked, list) else 1
        return taken

    def _commit(self, taken: list[Queued]) -> None:
        """Commit what was taken in one call, answer it, tell who watches, and let the backend do its own work."""
        requests: list[Request] = []
        starts: list[int] = []
        decisions: list[Decision | Changing | Recorded | Post | None] = []
        for queued in taken:
            starts.append(len(requests))
            decision: Decision | Changing | Recorded | Post | None = None
            if isinstance(queued.asked, list):
                requests += queued.asked
            else:
                decision = self._decide(queued)
                requests += _requests_of(decision)
            decisions.append(decision)
        starts.append(len(requests))
        results = self._backend.commit(requests) if requests else []
        self._disk_space.note(results)
        self._settle_reservations(requests, results)
        for queued, decision, (start, stop) in zip(taken, decisions, pairwise(starts), strict=True):
            if isinstance(queued.asked, list):
                self._answer_appends(queued, results[start:stop])
            elif decision is not None:
                self._answer_control(queued, decision, results[start:stop])
        self._free_queue(taken)
        self._inboxes.tell(requests, results)
        self._tell_watching()
        self._backend.between_commits()

    def _decide(self, queued: Queued) -> Decision | Changing | Recorded | Post | None:
        """Say what is to become of a request; None for an opening by who has gone."""
        asked = queued.asked
        if isinstance(asked, Change):
            return self._changes.decide(asked)
        if isinstance(asked, Sending):
            return self._inboxes.decide(asked)
        if isinstance(asked, Recording):
            return self._recordings.decide(asked)
        assert isinstance(asked, Opening)
        return None if queued.client.has_ended else self._openings.decide(asked, queued.client)

    def _settle_reservations(self, requests: list[Request], results: list[Result]) -> None:
        """Forget the names of streams that are stored now, and of those that lost their name to another."""
        for request, result in zip(requests, results, strict=True):
            if request.__class__ is Append and request.create and isinstance(result, Appended | Exists):
                self._openings.reservations.settle(request.stream)

    def _answer_appends(self, queued: Queued, results: list[Result]) -> None:
        wire = [error_to_wire(each) if isinstance(each, StorageError) else each for each in results]
        queued.client.tell(encode_frame([queued.number, wire]))
        self._flush_seconds.append(monotonic() - queued.arrived)

    def _answer_control(
        self, queued: Queued, decision: Decision | Changing | Recorded | Post, results: list[Result]
    ) -> None:
        refusals = [error_to_wire(result) for result in results if isinstance(result, StorageError)]
        reply: Mapping[str, Any]
        if isinstance(decision, Recorded):
            reply = decision.answer(results)
        elif refusals:
            reply = refusals[0]
        elif isinstance(decision, Changing):
            reply = {"stream": decision.row.id, "head": decision.row.head}
        elif isinstance(decision, Grant):
            (granted,) = results
            assert isinstance(granted, Granted)
            reply = {"stream": decision.stream, "new": False, **granted._asdict()}
        elif isinstance(decision, Post):
            (posted,) = results
            assert isinstance(posted, Appended)
            reply = {"seq": posted.first}
        else:
            reply = error_to_wire(decision) if isinstance(decision, StorageError) else decision
        queued.client.tell(encode_frame({"re": queued.number, **reply}))

    def _free_queue(self, taken: list[Queued]) -> None:
        freed = sum([queued.size for queued in taken])
        if self._queue_bytes > QUEUE_BYTES_MAX >= self._queue_bytes - freed:
            self._room.set()
            self._room = trio.Event()
        self._queue_bytes -= freed

    # -- What it tells beside answers

    def _tell_watching(self) -> None:
        position = self._backend.next_position
        for client in list(self._watching):
            if client.watch is not None and position > client.watch[1]:
                number, client.watch = client.watch[0], None
                self._watching.discard(client)
                client.tell(encode_frame({"re": number, "position": position}))

    def _statistics(self) -> dict[str, Any]:
        counted = self._backend.statistics()
        return {
            "position": self._backend.next_position,
            "sessions": counted["streams"] - counted["ownerless"],
            "queue_bytes": self._queue_bytes,
            "batches": counted["batches"],
            "events": self._backend.next_position - 1,
            "serving": self._serving,
            "flush_ms": flush_times_ms(self._flush_seconds),
            "full": None if self._disk_space.refusal is None else str(self._disk_space.refusal),
        }


def _is_deletion(queued: Queued) -> bool:
    """Say whether a session is to be deleted, or brought back."""
    return isinstance(queued.asked, Change) and queued.asked.deleted is not None


def _requests_of(decision: Decision | Changing | Recorded | Post | None) -> Sequence[Request]:
    """Give what is to be committed for a decision."""
    if isinstance(decision, Changing):
        return decision.patches
    if isinstance(decision, Recorded):
        return decision.committed
    return (decision,) if isinstance(decision, Grant | Post) else ()


def flush_times_ms(seconds: deque[float]) -> dict[str, float | None]:
    """Give the median and the 99th percentile, by nearest rank, in milliseconds; None without a single time."""
    ordered = sorted(seconds)

    def rank(share: float) -> float | None:
        return round(ordered[math.ceil(share * len(ordered)) - 1] * 1000, 3) if ordered else None

    return {"p50": rank(0.50), "p99": rank(0.99)}


def _fail(error: Exception) -> NoReturn:
    """End at once and answer nobody: the kernel closes the connections, and the node starts a successor.

    What isn't a failure of the disk may come from a damaged index, which the successor then doesn't open.
    """
    log(f"a commit failed, the writer ends\n{traceback.format_exc()}")
    is_of_disk = isinstance(error, Failed | OSError) and not isinstance(error, IndexFailed)
    os._exit(FAILED_EXIT_CODE if is_of_disk else protocol.INDEX_FAILED_EXIT_CODE)


def serve(backend: Backend, listener: socket.socket, path: str, store: str, boot: str) -> None:
    """Be the writer of the store at `path` until stdin ends; it is closed then."""
    trio.run(Writer(backend, listener, path, store, boot).run)
