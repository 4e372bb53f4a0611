"""A session: one agent's log, owned by this process from its opening to its close.

Appending only numbers and buffers; the client's pump sends, and a flush merely waits, so cancelling a call ends its
wait and never the bytes. Nothing here shields but the ends of turns, tools and sessions, each for 5 seconds at most.
The folded state knows of the open turn what its closing needs. Events themselves aren't kept, but for this opening's
rewinds, which may have to be known before they can be read.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

import anyio

from turnkeeper.storage.errors import Failed, InvalidFork
from turnkeeper.storage.exact_json import Surrogates

from ..client.chunks import Chunks
from ..client.control_request import Request
from ..client.owned_stream import OwnedStream
from ..core_types import SNAPSHOT, TEXT_CHANNEL
from ..folding import (
    NEWEST_REWIND,
    REWOUND,
    TOOL_FINISHED,
    TOOL_LATE_RESULT,
    TOOL_NOT_STARTED,
    TOOL_STARTED,
    TURNS,
    Effect,
    Reason,
    TurnState,
    count_or_none,
    unanswered,
)
from ..leaving import note_or_raise
from ..log_summary import LogSummary
from ..reading.logs import OwnedLog
from ..reading.messages import Messages
from ..reading.prefixes import state_at
from ..reading.rewinds import Rewind
from ..reading.walking import Events, Walking
from ..records import Event, EventPage, Interrupted, Snapshot
from .acceptance import Accepted
from .header import check_changes, check_header
from .inbox import Inbox
from .numbering import Numbering
from .owned_inbox import OwnedInbox
from .sending import send
from .snapshots import last_snapshot
from .turns import ToolCall, Turn

if TYPE_CHECKING:
    from ..client.client import Client

END_SECONDS_MAX = 5.0
"""How long the end of a turn, a tool or a session may wait for the store, in a shield."""

_EFFECTS = get_args(Effect)


class Session:
    """One opening of a session. `async with` closes it and releases its ownership.

    `key` is the host's own name for it, `interrupted` what a crash had left open and this opening, or one before, has
    closed, and the tasks that went on meanwhile: it is told until a turn begins. Any task of the loop that opened it
    may call any method.
    """

    def __init__(
        self,
        client: Client,
        stream: OwnedStream,
        *,
        key: str | None,
        state: TurnState,
        summary: LogSummary | None = None,
        interrupted: Interrupted | None = None,
        accepted: Accepted | None = None,
    ) -> None:
        self.id = stream.id
        self.key = key
        self.interrupted = interrupted
        self._client = client
        self._stream = stream
        self._state = state
        self._inbox = OwnedInbox(client, stream, accepted or Accepted())
        self._rewinds: list[Rewind] = []
        stream.names = (stream.id, key)
        self._chunks = stream.text = Chunks(stream)
        client.bus.add_source(self._chunks)
        self._summary = LogSummary() if summary is None else summary
        self._log = OwnedLog(client, stream, self._summary, state, self._rewinds)
        self._numbering = Numbering(
            client, stream, state=state, summary=self._summary, inbox=self._inbox, chunks=self._chunks
        )
        self._is_closed = False
        client.sessions.add(self)

    @property
    def head(self) -> int:
        """The number of the next event: how many there are, those that aren't durable yet included.

        Text that was written and isn't an event yet doesn't count.
        """
        return self._stream.head

    @property
    def not_stored(self) -> range:
        """The numbers of the events that were appended and never will be stored, once ownership is lost."""
        stream = self._stream
        return range(stream.acknowledged, stream.head) if stream.refusal is not None else range(0)

    async def append(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        time: int | None = None,
        text: Surrogates = "strict",
    ) -> int:
        """Buffer an event and return its number.

        Data over 256 KiB is put into a blob first, durably, up to 64 MiB. A reference that `put_blob` gave, anywhere in
        the data, keeps its blob for as long as the event is kept.

        The order of events is the order of calls, and what `data` holds at the call is stored. Waits only while the
        buffer is full (then cancelling means that the event was not appended). With `key` the event is stored once:
        this waits until the store has answered, which it does with the old number where the key is known; cancelled,
        the event may have been stored. `time`, in ms since 1970, is for events that happened before; it orders nothing.
        Lone surrogates, as a text has that was cut in an emoji, are refused; `text="replace"` makes U+FFFD of them.

        A core type's data has to have its shape; types of your own are `name/word`, and taken as they are unless you
        register them. `text="replace"` makes U+FFFD of lone surrogates, the halves of a character that was cut, which
        are refused otherwise.

        Raises:
            InvalidValue, TooLarge: The data can't be stored, or no event of this type has such; nothing was appended.
            TurnOpen: A second turn was begun.
            Conflict: The key is known with other data.
            BlobMissing: The data refers to a blob that isn't in this store; nothing was appended.
            SessionClosed: You closed the session. Fenced: Another owner took it; see `not_stored`.
            StoreFull, NodeNotAnswering, …: Events appended before couldn't be stored yet. They are kept and tried
                again; this one wasn't appended. Told once.
        """
        return await self._numbering.append(type, data, key, time, text)

    def write(self, text: str, *, channel: str = TEXT_CHANNEL) -> None:
        """Take text as a model gives it, token by token: joined into `assistant/chunk` events, a few for thousands.

        Never waits. A chunk becomes an event, numbered and buffered like those that are appended, 200 ms after its
        first token or at 4 KiB, before the session's next event of another kind, and with every flush; the order of
        calls is kept. Another `channel` (`thinking`, say) begins another chunk, whose data names it. Until then it is
        seen live by who follows with `ephemeral=True`. What waits for space in the buffer is joined to fewer, larger
        chunks.

        Raises:
            InvalidValue: It is no string, or has lone surrogates. Nothing was taken.
            TooLarge: Over 1 MiB would wait for space in the buffer, or for a call before it; flush. Nothing was taken.
            SessionClosed, Fenced, StoreFull, NodeNotAnswering, …: As `append`; this text wasn't taken.
        """
        self._chunks.write(text, channel)

    async def flush(self) -> int:
        """Wait until all that was appended or written is durable and readable by every process; give the last position.

        It survives the death of any process from then on, and the machine's if the store's durability is `fsync`.
        Cancelling ends the wait; the events are stored all the same.

        Raises:
            SessionClosed: You closed the session. Fenced: Another owner took it; see `not_stored`.
            StoreFull, NodeNotAnswering, …: It couldn't be stored yet; everything is kept and tried again.
        """
        stream = self._stream
        stream.take_failure()
        if stream.has_text:
            await self._numbering.cut_text()
        if stream.acknowledged < stream.head:
            await self._numbering.wait_stored()
        if stream.position is None:
            stream.position = await self._client.last_position(self.id)
        return stream.position

    def inbox(self, *, wakes_max: int | None = None) -> Inbox:
        """Iterate over the messages of the session's inbox that it hasn't accepted, in order and without end.

        Each message is given once; what isn't accepted comes again in the next iteration that is begun, whoever owns
        the session then. Waits where there is none, and wakes when one was sent, by whatever process. The first step
        stores a session of which nothing was stored, so that it can be sent to.

        With `wakes_max`, after so many wakes in a row by messages of sessions and tasks it waits on, and holds theirs
        back until somebody else sends one: then all come. A wake is when messages come that weren't there when the
        last one before them was given.

        Raises (while iterating):
            SessionClosed: You closed the session. Fenced: It was taken over, also while this waits.
            Corrupt: Messages are damaged; told once for each. The next step goes on behind them, and the next message
                that is accepted takes them with it.
        """
        return Inbox(self, self._inbox, wakes_max)

    async def send(self, to: str, type: str, data: Mapping[str, Any], *, key: str | None = None) -> int:
        """Send a message in this session's name; otherwise as `Runtime.send`.

        What was appended here before is stored first, so a receiver never knows what the sender's log doesn't.

        Raises what `flush` raises, then nothing was sent; and what `Runtime.send` raises.
        """
        stream = self._stream
        stream.check_owned()
        if stream.has_text or stream.acknowledged < stream.head:
            await self.flush()
        return await send(self._client, to, type, data, key=key, author=stream)

    def turn(self, **data: Any) -> Turn:
        """Open a turn for the body of an `async with`; `data` goes into its `turn/start`.

        When the body returns, raises or is cancelled, unanswered calls get error results, the turn ends `completed`,
        `error` or `aborted`, and all of it is flushed, in a shield of at most 5 s. The body's own exception passes
        unchanged; that the flush failed becomes a note of it.

        Raises:
            TurnOpen: The session has an open turn already.
        """
        return Turn(self, data)

    def tool(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> ToolCall:
        """Run a tool call as the body of an `async with`, which begins only when the call's start is durable.

        The body's `finish` gives the result; without it, returning means a result of null, and an exception is an error
        result. `effect` says what an interruption means: `read` and `idempotent` calls may be made again.

        Raises:
            CallRepeated: A call of this id has begun, or has its real result, in this turn; the body doesn't run.
        """
        _check_effect(effect)
        return ToolCall(self, id, name, arguments, effect)

    async def tool_started(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> None:
        """Store that a call begins. Don't begin it if this raises or is cancelled: it then counts as never begun.

        Raises:
            CallRepeated: A call of this id has begun, or has its real result, in this turn; nothing was appended.
        """
        _check_effect(effect)
        self._stream.check_owned()
        self._state.check_start(self.id, id)
        await self.append(TOOL_STARTED, {"id": id, "name": name, "arguments": arguments, "effect": effect})
        try:
            await self.flush()
        except BaseException:
            self._withdraw(id)
            raise

    async def tool_finished(self, id: str, output: Any, *, error: str | None = None) -> None:
        """Append a call's result; as a late one if the call is not open (any more). Durable with the next flush.

        Raises:
            CallRepeated: The call has its real result already, or is just getting it; nothing was appended.
        """
        result = {"id": id, "output": output} if error is None else {"id": id, "output": output, "error": error}
        self._stream.check_owned()
        with self._state.finishing(self.id, id):
            await self.append(TOOL_FINISHED if id in self._state.calls else TOOL_LATE_RESULT, result)

    async def set(self, *, title: str | None = None, labels: Mapping[str, str | None] | None = None) -> None:
        """Give the session another title, and set some labels or, by None, remove them; see `set_session`.

        Durable when it returns; in a session without events, with its first one.
        """
        stream, changes = self._stream, dict(labels or {})
        stream.take_failure()
        check_changes(title, changes)
        if stream.reservation is not None and not stream.is_settled:
            await self.flush()
        if stream.reservation is None:
            await self._client.change(self.id, title=title, labels=changes)
            return
        header = stream.reservation["create"]
        kept = {name: value for name, value in {**header.get("labels", {}), **changes}.items() if value is not None}
        words = {"title": header.get("title", "") if title is None else title, "labels": kept}
        check_header({**header, **words})
        stream.patch({name: value or None for name, value in words.items()})

    async def set_parent(self, parent: str) -> None:
        """Say which session, by its id, this one belongs to; durable when it returns. Raises as `flush` does.

        Raises ValueError for a fork, which has its beginning of the parent that it has.
        """
        stream = self._stream
        stream.check_owned()
        if stream.reservation is not None:
            known = stream.reservation["create"]
        else:
            known = (await self._client.reads.call(lambda reader: reader.row(self.id))).summary
        if known.get("parent_seq") is not None:
            raise ValueError(f"{self.id} is a fork of {known['parent']}, and stays one")
        stream.check_owned()
        stream.patch({"parent": parent})
        self._client.link.request_flush(stream)
        await self._numbering.wait_until(lambda: stream.is_settled)

    async def fork(self, *, at: int | None = None) -> Session:
        """Make a session that begins with the first `at` events of this one, all of them without it.

        See `Runtime.fork_session`. What was appended here is flushed first; what comes later is not the fork's. Raises
        as that, and as `flush`.
        """
        from .forking import fork

        await self.flush()
        if self._stream.reservation is not None:
            raise InvalidFork(self.id, at or 0, "it has no events yet")
        return await fork(self._client, self.id, at, {})

    async def rewind(self, to: int) -> None:
        """Go on as if the session had only its first `to` events; durable when it returns.

        Nothing is destroyed: this appends a record, `read` gives everything, and what was rewound can be gone back to.
        A turn that is open at that place is closed behind the record, as interrupted. What was accepted from the inbox
        stays accepted. Cancelled, it may have been done.

        Raises:
            ValueError: The session has fewer events. TurnOpen: It is in a turn; end that first.
            Corrupt: What was open at that place can't be read. Also what `flush` raises.
        """
        stream = self._stream
        self._check_rewind(to)
        async with self._numbering.in_turn() as mark:
            await self._numbering.wait_until(lambda: not stream.barred)
            self._chunks.cut(mark)
            await self._numbering.wait_stored()
            self._check_rewind(to)
            summary = {TURNS: self._state.turns, NEWEST_REWIND: self._state.rewound}
            then = await self._client.reads.call(partial(state_at, id=self.id, summary=summary, stop=to))
            await self._numbering.wait_room()
            record = Rewind(stream.head, to, self._state.rewound)
            self._rewinds.append(record)
            self._numbering.take_together([(REWOUND, record.as_data()), *then.closing("interrupted")])
        await self.flush()

    async def read(self, *, start: int = 0, last: int | None = None, limit: int = 1000) -> EventPage:
        """Read events from number `start` on, at most `limit`, or the `last` ones; those in the buffer too.

        An event that isn't durable yet has no position. What is damaged is named in the page's `missing`.
        Raises TooLarge if what was too large for lines is too much at once.
        """
        return await self._log.read(start=start, last=last, limit=limit)

    def events(self, *, start: int = 0) -> Walking[Event]:
        """Iterate over the events from number `start` on, those in the buffer too, a page of them in memory at a time.

        Where events can't be read it raises Corrupt, which names them; the next step goes on behind them.
        """
        return Walking(Events(self._log, self.id, start))

    def messages(self) -> Walking[dict[str, Any]]:
        """Iterate over what a model is to see of the session; see `Runtime.messages`. What is buffered counts, too."""
        return Walking(Messages(self._log))

    async def snapshot(self, state: Any) -> int:
        """Append what the program has folded of the events so far; give the number. Durable with the next flush.

        `state` is any JSON, up to 64 MiB. The log goes on as before: a snapshot saves reading what stands before it.
        Raises what `append` raises.
        """
        return await self.append(SNAPSHOT, {"state": state})

    async def last_snapshot(self) -> Snapshot | None:
        """Read the newest snapshot that can be read and that no rewind took out; then read on behind its `seq`.

        One that is damaged is passed over for the one before it. None if none of the last 16 is left: read from 0.
        """
        return await last_snapshot(self._log, self._summary.snapshots)

    async def aclose(self) -> None:
        """Abort an open turn, store everything, and give the session free for others. Closing twice is nothing.

        Waits in a shield, at most 5 s. Raises what kept events from being stored, unless a call was told that before;
        whatever is raised, it is closed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._inbox.close()
        with anyio.move_on_after(END_SECONDS_MAX, shield=True) as scope:
            await self._leave()
        if scope.cancelled_caught:
            raise Failed(f"the end of {self.id} wasn't stored within {END_SECONDS_MAX:.0f} s")

    def give_up(self) -> None:
        """Close without waiting: what is buffered is stored, and the session released, as soon as that is possible."""
        self._is_closed = True
        self._inbox.close()
        if self._stream.refusal is None and not self._stream.leaving:
            self._client.link.release(self._stream)

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except Exception as failure:
            note_or_raise(error, failure)

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True) and self._stream.refusal is None:
            warnings.warn(f"session {self.id} was never closed", ResourceWarning, stacklevel=1, source=self)

    def _check_rewind(self, to: int) -> None:
        self._stream.take_failure()
        if count_or_none(to) is None or to > self.head:
            raise ValueError(f"{self.id} has {self.head} events; it can be rewound to 0 to {self.head}, not to {to!r}")
        self._numbering.check_no_turn()

    # -- Ends

    async def _end_turn(self, seq: int, reason: Reason, error: BaseException | None) -> None:
        """Close the turn that event `seq` began, unless something else has, and wait until that is stored."""
        with anyio.move_on_after(END_SECONDS_MAX, shield=True) as scope:
            async with self._numbering.in_turn() as mark:
                await self._numbering.wait_unbarred()
                self._chunks.cut(mark)
                if self._state.open_turn == seq:
                    self.close_turn(reason, error)
            await self.flush()
        if scope.cancelled_caught:
            raise Failed(f"the end of {self.id}'s turn wasn't stored within {END_SECONDS_MAX:.0f} s")

    def close_turn(self, reason: Reason, error: BaseException | None = None, time: int | None = None) -> bool:
        """Append what closes the open turn, at once, and say whether there was one; `time` in ms."""
        closing = self._state.closing(reason, error)
        if closing:
            self._numbering.take_together(closing, time)
        return bool(closing)

    async def _end_call(self, id: str, error: str | None) -> None:
        with anyio.move_on_after(END_SECONDS_MAX, shield=True):
            async with self._numbering.in_turn() as mark:
                await self._numbering.wait_unbarred()
                self._chunks.cut(mark)
                if id in self._state.calls:
                    result = {"id": id, "output": None} if error is None else unanswered(id, error)
                    self._numbering.take_together([(TOOL_FINISHED, result)])

    def _withdraw(self, id: str) -> None:
        """Note that a call whose start couldn't be made durable never began."""
        call = self._state.calls.get(id)
        if call is not None:
            call.begun = False
            if not self._stream.barred and self._stream.refusal is None and not self._stream.leaving:
                self._numbering.take_together([(TOOL_FINISHED, unanswered(id, TOOL_NOT_STARTED))])

    async def _leave(self) -> None:
        stream = self._stream
        if stream.refusal is None:
            try:
                await self._release()
            finally:
                # asyncio's own cancellation knows no shield: it may have ended the wait for what comes before.
                if not stream.leaving and stream.refusal is None:
                    self._give_back()
        # A release that comes too late is nothing, as long as everything else is stored.
        if self.not_stored and not stream.is_refusal_told:
            stream.raise_failure()

    async def _release(self) -> None:
        stream = self._stream
        async with self._numbering.order:
            await self._numbering.wait_unbarred()
            request = self._give_back()
        if request is not None:
            await self._client.answered(request)
        else:
            await self._numbering.wait_until(lambda: stream.is_settled)

    def _give_back(self) -> Request | None:
        """Abort an open turn, if a line can be numbered now, and give up the stream."""
        if not self._stream.barred:
            self._chunks.cut()
            self.close_turn("aborted")
        if self._state.interrupted is None and (patch := self._state.without_abandoned()):
            self._stream.patch(patch)
        return self._client.link.release(self._stream)


def _check_effect(effect: str) -> None:
    if effect not in _EFFECTS:
        raise ValueError(f"effect is one of {', '.join(_EFFECTS)}, not {effect!r}")
