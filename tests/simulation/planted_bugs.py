"""Bugs to plant into the product, each one a rule left out: a simulation that doesn't find them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import pytest

from turnkeeper.actors.client.link import Link
from turnkeeper.actors.node.tasks import supervisor
from turnkeeper.actors.node.tasks.ledger import Ledger
from turnkeeper.actors.node.tasks.recorder import Recorder
from turnkeeper.actors.session import forking
from turnkeeper.actors.session.acceptance import Accepted
from turnkeeper.storage import blobs, opening
from turnkeeper.storage.drafting import Draft
from turnkeeper.storage.format import FILLING
from turnkeeper.storage.journal import Journal, _Snapshot
from turnkeeper.storage.reading import Reader
from turnkeeper.storage.requests import Append, Appended, Post
from turnkeeper.storage.scanning import SegmentView

from .processes import Machine

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    """Commits are answered before they are on the disk."""
    begin = Journal.__init__

    def begin_without_sync(self: Journal, *arguments: Any) -> None:
        begin(self, *arguments)
        self._syncs = False

    patch.setattr(Journal, "__init__", begin_without_sync)


def skip_the_epoch_check(patch: pytest.MonkeyPatch) -> None:
    """Whoever appends is taken for the owner."""
    append = Draft._append

    def append_as_owner(self: Draft, request: Append) -> Any:
        run, stored = self.runs.get(request.stream), self._stored.head(request.stream)
        epoch = run.epoch if run is not None else None if stored is None else stored.epoch
        return append(self, request if epoch is None else replace(request, epoch=epoch))

    patch.setattr(Draft, "_append", append_as_owner)


def take_any_known_number_for_a_resend(patch: pytest.MonkeyPatch) -> None:
    """Lines whose numbers are stored are acknowledged, whatever is stored there."""

    def again(self: Draft, request: Append, events: int, head: int, *_: Any) -> Appended:
        return Appended(request.first, request.first + events, 1)

    patch.setattr(Draft, "_again", again)


def forget_what_is_stored(patch: pytest.MonkeyPatch) -> None:
    """Lines that are sent again aren't recognised."""
    patch.setattr(Draft, "_stored_prefix", lambda self, request, offered, run: (0, None))


def leave_the_last_batch_as_it_is(patch: pytest.MonkeyPatch) -> None:
    """An opening trusts that the last batch is on the disk, as it can be read."""
    settle = opening._Opening._settle

    class WithoutWriting:
        def __init__(self, fs: Any) -> None:
            self._fs = fs

        def write(self, handle: int, offset: int, content: bytes) -> None:
            if offset == 0 or not content.strip(FILLING):
                self._fs.write(handle, offset, content)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._fs, name)

    def settle_without_writing(self: Any, *arguments: Any) -> Any:
        fs = self._fs
        self._fs = WithoutWriting(fs)
        try:
            return settle(self, *arguments)
        finally:
            self._fs = fs

    patch.setattr(opening._Opening, "_settle", settle_without_writing)


def cut_a_damaged_middle_off(patch: pytest.MonkeyPatch) -> None:
    """What lies behind damage is taken for a torn tail, as nobody looks for good batches there."""
    patch.setattr(SegmentView, "next_batch", lambda self, offset: None)


def let_a_stopped_writer_in(patch: pytest.MonkeyPatch) -> None:
    """Only those who run keep others out."""
    patch.setattr(Machine, "is_held", property(lambda self: any(holder.runs for holder in self.lock)))


def accept_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    """That a message was accepted doesn't come with the record."""
    patch.setattr(Accepted, "as_patch", lambda self: {})


def fork_one_event_short(patch: pytest.MonkeyPatch) -> None:
    """A fork begins with one event less than was asked for."""
    look = forking._look

    def look_short(*arguments: Any, **options: Any) -> Any:
        found = look(*arguments, **options)
        return found._replace(at=max(0, found.at - 1))

    patch.setattr(forking, "_look", look_short)


def lose_events_at_the_seam(patch: pytest.MonkeyPatch) -> None:
    """A follower that reads many events at once misses the last one."""
    scan = Reader.scan

    def scan_short(self: Reader, *arguments: Any) -> Any:
        page = scan(self, *arguments)
        return page._replace(events=page.events[:-1]) if len(page.events) > 5 else page

    patch.setattr(Reader, "scan", scan_short)


def forget_keys(patch: pytest.MonkeyPatch) -> None:
    """What is to be stored once is stored as often as it is sent."""
    patch.setattr(_Snapshot, "stored_key", lambda self, stream, key: None)


def forget_what_is_unanswered(patch: pytest.MonkeyPatch) -> None:
    """After a lost connection nothing is sent again."""

    def lost(self: Link) -> None:
        self._frames.clear()

    patch.setattr(Link, "lost", lost)


def adopt_nothing(patch: pytest.MonkeyPatch) -> None:
    """A node forgets the tasks that an earlier one has left."""

    async def adopt(recorder: Recorder) -> list[Any]:
        return []

    patch.setattr(supervisor, "adopt", adopt)


def tell_no_session_of_its_tasks(patch: pytest.MonkeyPatch) -> None:
    """The end of a task is recorded, and its session isn't told."""
    record = Ledger.record

    async def record_alone(self: Ledger, post: Post, *, notify: bool = False) -> None:
        await record(self, post)

    patch.setattr(Ledger, "record", record_alone)


def name_blobs_before_they_are_synced(patch: pytest.MonkeyPatch) -> None:
    """Large data may not be on the disk yet when its event is."""
    write = blobs._write

    class WithoutSync:
        def __init__(self, fs: Any) -> None:
            self._fs = fs

        def sync(self, handle: int) -> None: ...

        def __getattr__(self, name: str) -> Any:
            return getattr(self._fs, name)

    def write_without_sync(fs: Any, digest: str, content: bytes) -> None:
        write(cast("Any", WithoutSync(fs)), digest, content)

    patch.setattr(blobs, "_write", write_without_sync)


PLANTS: Final[Mapping[Plant, Collection[str]]] = {
    acknowledge_before_the_sync: ("lose_power",),
    skip_the_epoch_check: (),
    take_any_known_number_for_a_resend: ("cut", "kill_writer", "kill_node"),
    forget_what_is_stored: ("cut", "kill_writer"),
    leave_the_last_batch_as_it_is: ("fail_sync",),
    cut_a_damaged_middle_off: (),
    let_a_stopped_writer_in: ("stop_writer",),
    accept_without_a_mark: (),
    fork_one_event_short: (),
    lose_events_at_the_seam: (),
    forget_keys: (),
    forget_what_is_unanswered: ("cut",),
    adopt_nothing: ("kill_node",),
    tell_no_session_of_its_tasks: (),
    name_blobs_before_they_are_synced: ("lose_power",),
}
"""The bugs, each with the faults that it takes to see it; none are named where it is seen anyway."""
