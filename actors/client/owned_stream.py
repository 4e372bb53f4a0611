"""One opening of a stream: it numbers lines and keeps each until the writer has acknowledged it. No I/O.

A line is added, waits for company, is sent in a *group* (one append of the protocol) and is acknowledged. At most one
group of a stream is unanswered at a time: a group is one commit's, so a second would only wait elsewhere, and whatever
is refused can never be overtaken by what comes after it. All of a group is stored or nothing of it, so the patches that
its lines bring are one: nobody sees the summary between them. *Marks* say where a patch came, and where a group has to
end: a line with a key is a group of its own, and one that names blobs ends its group, as it may be refused for them.

A refusal is either temporary (no space, outcome unknown: everything is kept and sent again; a named blob that isn't
there: it is put again first, once) or final (another owner: what isn't stored never will be, and every call raises
until the stream is opened again).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from turnkeeper.storage.errors import BlobMissing, Conflict, Failed, Fenced, StorageError, StoreFull
from turnkeeper.storage.exact_json import encode_data
from turnkeeper.storage.limits import PATCH_BYTES_MAX

from ..errors import SessionClosed, copy_of

if TYPE_CHECKING:
    from .chunks import Chunks
    from .link import Link

GROUP_BYTES_MAX = 1024 * 1024
"""Lines of one group, in bytes; a single line may be as long. Well below a batch, so that others fit beside it."""

EARLY_BYTES = 256 * 1024
"""Lines that wait, in bytes, at which they are sent without waiting for a flush or for the window's end."""

RETRY_SECONDS_FIRST = 0.2
RETRY_SECONDS_MAX = 2.0
"""Delays between tries after a temporary refusal: doubled each time, up to the greatest."""

Entry: TypeAlias = list[Any]
"""A group as it crosses: [stream, epoch, first, lines, patch, key, create]."""

_FIRST, _LINES, _PATCH, _KEY = 2, 3, 4, 5

Patch: TypeAlias = dict[str, Any]


class OwnedStream:
    """A stream that this process may append to, under `epoch`.

    `head` is the number of the next line, `acknowledged` that of the first line that isn't known to be durable.
    `position` is that of the last acknowledged event, None before there is one. `reservation` is the request that
    reserved the stream, as long as nothing of it is stored; its `create` is the header that the first group brings.
    `names` are those of the session that has it: its id, and its key if there is one.
    """

    __slots__ = (
        "_deferred",
        "_lines",
        "_link",
        "_marks",
        "acknowledged",
        "asking",
        "barred",
        "blobs_put_again",
        "calls_queued",
        "changed",
        "due",
        "epoch",
        "failure",
        "failures",
        "flying",
        "has_text",
        "head",
        "id",
        "is_failure_untold",
        "is_refusal_told",
        "keyed_answer",
        "leaving",
        "names",
        "position",
        "putting_blob",
        "queued",
        "refusal",
        "reservation",
        "retries",
        "sent",
        "sent_count",
        "text",
        "timed",
        "unsent_bytes",
        "waiting",
        "wake",
        "wanted",
    )

    def __init__(self, link: Link, id: str, epoch: int, head: int, reservation: Patch | None = None) -> None:
        self._link = link
        self.id = id
        self.epoch = epoch
        self.head = head
        self.reservation = reservation
        self.names: tuple[str | None, ...] = ()
        self.acknowledged = head
        self.position: int | None = None
        self._lines: list[bytes] = []
        self._marks: deque[tuple[int, Patch | None, str | None]] = deque()
        self._deferred: Patch = {}
        self.unsent_bytes = 0
        # Text that will be lines, whether there is some at present, and how many calls wait to be numbered.
        self.text: Chunks | None = None
        self.has_text = False
        self.calls_queued = 0
        # The group that is unanswered, how many lines it has, and whether it is on a connection that still stands.
        self.sent: Entry | None = None
        self.sent_count = 0
        self.flying = False
        # What the link knows of it: is it in the list to be sent, has somebody asked for that, does it wait for its
        # reservation first, or for a blob (and which of its group's were put again), has it a timer, when is it sent
        # unasked, how often was its group refused, is it done with.
        self.queued = False
        self.wanted = False
        self.asking = False
        self.putting_blob = False
        self.blobs_put_again: frozenset[str] = frozenset()
        self.timed = False
        self.due = 0.0
        self.retries = 0
        self.leaving = False
        # What callers see: a refusal that stays, and the last failure; whether they were told; how many failures.
        self.refusal: Exception | None = None
        self.is_refusal_told = False
        self.failure: Exception | None = None
        self.is_failure_untold = False
        self.failures = 0
        self.barred = False
        self.keyed_answer: int | StorageError | None = None
        self.waiting = 0
        # Who waits: how many, what is called once when something has changed, and what they wait for it with.
        self.wake: Callable[[], object] | None = None
        self.changed: Any = None

    # -- What the owner does

    @property
    def takes_lines(self) -> bool:
        """Say whether a line can be added now: nothing to raise, no keyed line unanswered, space in the buffer."""
        return not (self.barred or self.is_failure_untold or self.leaving or self.refusal or self._link.is_full)

    @property
    def takes_at_once(self) -> bool:
        """Say whether a line can be added without a turn of the loop, in which what waits could be sent."""
        return self.unsent_bytes < EARLY_BYTES and not self.calls_queued and self.takes_lines

    @property
    def may_number(self) -> bool:
        """Say whether the next number can be given now: no keyed line is unanswered, and no call waits for its turn."""
        return not (self.barred or self.calls_queued or self.refusal)

    @property
    def has_room(self) -> bool:
        """Say whether there is space in the buffer."""
        return not self._link.is_full

    @property
    def is_settled(self) -> bool:
        """Say whether nothing waits to be sent or answered."""
        return self.sent is None and not self._lines and not self._marks and not self._deferred

    def add(self, line: bytes, patch: Mapping[str, Any] | None = None) -> int:
        """Take the next line, encoded with the number `head`, and return that number.

        `patch` changes the summary together with it. Only when both are here may a large group go out before its
        flush: whoever is asked for one may send it from within the call.
        """
        seq = self._take(line)
        if patch is not None:
            self.patch(patch)
        if self.unsent_bytes >= EARLY_BYTES:
            self._link.request_flush(self)
        return seq

    def add_keyed(self, line: bytes, key: str, patch: Patch | None = None) -> None:
        """Take a line that is stored once for its key, alone in its group, with its patch.

        Until it is answered `barred` is set and no other line can be numbered: a known key gives the number back.
        Then `keyed_answer` is the seq, or why the line was refused.
        """
        if self._lines and not (self._marks and self._marks[-1][0] == self.head):
            self._marks.append((self.head, None, None))
        self._take(line)
        self._marks.append((self.head, patch, key))
        self.keyed_answer = None
        self.barred = True
        self._link.request_flush(self)

    def cut_text(self) -> None:
        """Make lines of the text that waits, if lines can be numbered now."""
        if self.text is not None and self.has_text and self.may_number:
            self.text.cut()

    def begin_text(self) -> None:
        """Note that text waits, which is to be lines when the window ends."""
        if not (self._lines and self.timed):
            self._link.begin_window(self)
        self.has_text = True

    def _take(self, line: bytes) -> int:
        lines, link = self._lines, self._link
        if not (lines or self.has_text):
            link.begin_window(self)
        lines.append(line)
        size = len(line)
        link.buffered_bytes += size
        self.unsent_bytes += size
        seq = self.head
        self.head = seq + 1
        return seq

    def patch(self, patch: Mapping[str, Any]) -> None:
        """Change the summary together with the last line that was added; alone, if that one was sent already.

        In a stream that has no line yet it goes into the header that the first one will bring. While a keyed line is
        unanswered it waits for the answer, as only that tells where the patch stands.
        """
        if self.barred:
            self._deferred.update(patch)
            return
        if self.reservation is not None and self.is_settled:
            self.reservation["create"].update(patch)
            return
        marks = self._marks
        if marks and marks[-1][0] == self.head and marks[-1][2] is None:
            _, before, _ = marks.pop()
            patch = {**(before or {}), **patch}
        marks.append((self.head, dict(patch), None))

    def unacknowledged_lines(self) -> list[bytes]:
        """Give the lines that aren't known to be durable, in order, the first one's number being `acknowledged`."""
        sent: bytes = self.sent[_LINES] if self.sent is not None else b""
        return [*(line + b"\n" for line in sent.split(b"\n")[:-1]), *self._lines]

    def take_failure(self) -> None:
        """Raise what the owner must know before its next call: a refusal or close, or the failure since the last call.

        A failure is told once.
        """
        self.check_owned()
        if self.is_failure_untold:
            self.raise_failure()

    def check_owned(self) -> None:
        """Raise why nothing can be added any more, if that is so: a refusal that stays, or the owner's own close."""
        if self.refusal is not None:
            self.raise_failure()
        if self.leaving:
            raise SessionClosed(self.id)

    def raise_failure(self) -> NoReturn:
        """Raise the refusal, else the last failure, to its owner, who knows of it from now on."""
        if self.refusal is not None:
            self.is_refusal_told = True
            raise copy_of(self.refusal)
        assert self.failure is not None
        self.is_failure_untold = False
        raise copy_of(self.failure)

    # -- What the link does

    def next_entry(self) -> Entry | None:
        """Form the next group, the unanswered one if there is one; None if nothing waits. It counts as sent."""
        if self.sent is not None:
            return self.sent
        lines = self._lines
        first = self.head - len(lines)
        if not self._marks and self.unsent_bytes <= GROUP_BYTES_MAX:
            if not lines:
                self.wanted = False
                return None
            count, patch, key = len(lines), None, None
        else:
            count, patch, key = self._cut_group(first)
        taken = lines if count == len(lines) else lines[:count]
        self._lines = [] if taken is lines else lines[count:]
        self.wanted = bool(self.wanted and (self._lines or self._marks))
        content = taken[0] if count == 1 else b"".join(taken)
        self.unsent_bytes -= len(content)
        create = self.reservation is not None
        if self.reservation is not None:
            patch = {**self.reservation["create"], **(patch or {})}
        self.sent = entry = [self.id, self.epoch, first, content, patch, key, create]
        self.sent_count = count
        return entry

    def _cut_group(self, first: int) -> tuple[int, Patch | None, str | None]:
        """Say how many lines the next group has, its patch and its key; the marks that it takes are gone."""
        marks, count, size = self._marks, 0, 0
        patch: Patch | None = None
        while True:
            stop, more, key = marks[0] if marks else (self.head, None, None)
            stands_alone = key is not None or (more is not None and "blobs" in more)
            merged = more if patch is None else {**patch, **(more or {})}
            if patch is not None and (stands_alone or not _fits(merged)):
                return count, patch, None
            for place in range(count, stop - first):
                size += len(self._lines[place])
                if size > GROUP_BYTES_MAX and place > 0:
                    return place, patch, None
            count, patch = stop - first, merged
            if not marks:
                return count, patch, None
            marks.popleft()
            # What begins a stream has a header, and room for one patch beside it.
            if stands_alone or more is None or self.reservation is not None:
                return count, patch, key

    def acknowledge(self, first: int, position: int) -> None:
        """Take the answer that the group is durable, from `first` on; `position` is its last event's."""
        entry = self._settle_group()
        self.retries = 0
        self.reservation = None
        if entry[_PATCH] is not None and "blobs" in entry[_PATCH]:
            self._link.forget_blobs(entry[_PATCH]["blobs"])
        given: int = entry[_FIRST]
        if entry[_KEY] is None:
            self.acknowledged = given + self.sent_count
        else:
            if first == given:
                self.acknowledged = given + 1
            else:
                self.head = given
            self._answer_keyed(first)
        if position and self.acknowledged > given:
            self.position = position
        self._notify()

    def refuse(self, error: StorageError) -> None:
        """Take the answer that the group was refused."""
        assert self.sent is not None
        if isinstance(error, StoreFull | Failed):
            self.flying = False
            self.fail(error)
            self._link.retry_later(self, self._retry_delay())
        elif isinstance(error, BlobMissing) and error.digest not in self.blobs_put_again:
            self.flying = False
            self.putting_blob = True
            self.blobs_put_again |= {error.digest}
            self._link.put_again(self, error)
        elif self.sent[_KEY] is not None and not self._ends_ownership(error):
            entry = self._settle_group()
            self.head = entry[_FIRST]
            self._answer_keyed(error)
            self._notify()
        else:
            stored = error.stored if isinstance(error, Fenced | Conflict) else 0
            self.acknowledged = self.sent[_FIRST] + stored
            self.end(error)

    def _answer_keyed(self, answer: int | StorageError) -> None:
        self.barred = False
        self.keyed_answer = answer
        if self.leaving and self.text is not None:
            self.text.cut()
        if self._deferred:
            patch, self._deferred = self._deferred, {}
            self.patch(patch)
            self.wanted = True

    def _ends_ownership(self, error: StorageError) -> bool:
        # A Conflict at the very number that the keyed line would have got isn't about numbers, but about its content.
        assert self.sent is not None
        return isinstance(error, Fenced) or (isinstance(error, Conflict) and error.expected != self.sent[_FIRST])

    def _retry_delay(self) -> float:
        self.retries += 1
        return min(RETRY_SECONDS_MAX, RETRY_SECONDS_FIRST * 2.0 ** (min(self.retries, 10) - 1))

    def fail(self, error: Exception) -> None:
        """Tell who waits now, else the next call, that lines couldn't be stored yet. They are kept and tried again."""
        self.failures += 1
        self.failure = error
        self.is_failure_untold = not self.waiting
        self._notify()

    def end(self, refusal: Exception) -> None:
        """Make every later call raise `refusal`; what isn't acknowledged is dropped."""
        if self.refusal is None:
            self.refusal = refusal
        if self.text is not None:
            self.head += self.text.drop()
        self._link.buffered_bytes -= self.unsent_bytes + (len(self.sent[_LINES]) if self.sent is not None else 0)
        self._lines = []
        self._marks.clear()
        self._deferred = {}
        self.unsent_bytes = 0
        self.sent = None
        self.flying = self.wanted = self.barred = False
        self._notify()

    def _settle_group(self) -> Entry:
        assert self.sent is not None
        entry, self.sent, self.flying = self.sent, None, False
        self.blobs_put_again = frozenset()
        self._link.buffered_bytes -= len(entry[_LINES])
        return entry

    def _notify(self) -> None:
        wake, self.wake = self.wake, None
        if wake is not None:
            wake()


def _fits(patch: Patch | None) -> bool:
    return patch is None or len(encode_data("summary's changes", patch)) <= PATCH_BYTES_MAX
