"""The message view: what a model is to see of a session, folded from its events.

    {"role": "user", "seq": 4, "text": …, …}                            a user/message, with all members of its data
    {"role": "assistant", "seq": 6, "text": …, "tool_calls": [{"id", "name", "arguments"}, …], …}
    {"role": "tool", "seq": 9, "id": …, "name": …, "output": …[, "error": …]}           one for each call, in its order
    {"role": "gap", "seq": 7, "events": 2, "text": …}                                    events that can't be read

It is always well-formed: a message's calls are followed by exactly one result each before anything else. What a log
holds is not always so, after crashes and imports, and where several things go on at once: so a message that came
between a call and its result goes behind the results, a second result is left out, and a call that has none when its
turn ends gets the error that closing the turn would give it. Text that was streamed and never became a message becomes
one. What an import keeps of a record beside its content is left out, and so are the messages of sub-agents that it
found in the middle (`sidechain`). Pure, but for `Messages`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from turnkeeper.storage.requests import Gap

from ..core_types import ASSISTANT_CHUNK, IMPORT_KEY, TEXT_CHANNEL, USER_MESSAGE
from ..folding import (
    ASSISTANT_MESSAGE,
    RESULTS_MAX,
    TOOL_FINISHED,
    TOOL_LATE_RESULT,
    TOOL_STARTED,
    TURN_END,
    TURN_START,
    Call,
)
from ..records import Event
from .logs import StoredLog
from .walking import Walk

Message: TypeAlias = dict[str, Any]

WAITING_MAX: Final = 256
"""Messages and calls that wait for a call's result; with more it gets an error for one, and its result is too late."""

_LEFT_OUT = frozenset(("source", IMPORT_KEY, "tool_calls"))


class _ShownCall:
    """A call of a message, and its result once there is one."""

    __slots__ = ("arguments", "call", "id", "result")

    def __init__(self, id: str, name: str, arguments: Any) -> None:
        self.id = id
        self.call = Call(name)
        self.arguments = arguments
        self.result: Message | None = None

    def as_result(self) -> Message:
        """Give the call's result; made up, as the closing of its turn would, if there is none."""
        result = self.result or {"seq": None, "output": None, "error": self.call.error}
        return {"role": "tool", "id": self.id, "name": self.call.name, **result}


class _Entry:
    """A message that isn't given out yet.

    `takes_calls` is whether calls that come next still belong to it, `is_nameless` whether it was made of streamed text
    or of calls, and the message that was meant may still come.
    """

    __slots__ = ("calls", "is_nameless", "message", "takes_calls")

    def __init__(self, message: Message, *, is_nameless: bool = False, takes_calls: bool = False) -> None:
        self.message = message
        self.calls: dict[str, _ShownCall] = {}
        self.is_nameless = is_nameless
        self.takes_calls = takes_calls

    @property
    def is_done(self) -> bool:
        """Say whether nothing that comes can change it."""
        return not (self.takes_calls or self.is_nameless) and all(call.result for call in self.calls.values())

    def is_meant_by(self, calls: list[Mapping[str, Any]]) -> bool:
        """Say whether a message with these calls is the one that was streamed, or called before it was written down."""
        if not self.is_nameless:
            return False
        if calls and self.calls:
            return any(call["id"] in self.calls for call in calls)
        return self.takes_calls

    def seal(self) -> None:
        """Let nothing more belong to it but results."""
        self.takes_calls = self.is_nameless = False

    def messages(self) -> Iterator[Message]:
        """Give the message and the results of its calls."""
        if self.message["role"] == "assistant":
            calls = [
                {"id": call.id, "name": call.call.name, "arguments": call.arguments} for call in self.calls.values()
            ]
            yield {**self.message, "tool_calls": calls}
        else:
            yield self.message
        for call in self.calls.values():
            yield call.as_result()


class MessageFold:
    """Folds events, in order, into messages; what can be given out is given as soon as nothing can change it."""

    def __init__(self) -> None:
        self._waiting: deque[_Entry] = deque()
        self._open: dict[str, _ShownCall] = {}
        self._answered: dict[str, None] = {}

    def fold(self, event: Event) -> list[Message]:
        """Take the next event into account; give the messages that are settled by it."""
        take = _TAKES.get(event.type)
        if take is not None and event.data.get("sidechain") is not True:
            take(self, event.seq, event.data)
        return self._settled()

    def note_gap(self, gap: Gap) -> list[Message]:
        """Take note of events that can't be read: a message of its own says so."""
        self._seal()
        text = f"{gap.events} events are missing here: {gap.reason}"
        self._waiting.append(_Entry({"role": "gap", "seq": gap.first, "events": gap.events, "text": text}))
        return self._settled()

    def end(self) -> list[Message]:
        """Settle all that is left: nothing comes any more."""
        self._close()
        return self._settled()

    # -- Events

    def _user(self, seq: int, data: Mapping[str, Any]) -> None:
        self._seal()
        self._waiting.append(_Entry(_message("user", seq, data)))

    def _assistant(self, seq: int, data: Mapping[str, Any]) -> None:
        calls = list(_listed(data.get("tool_calls")))
        entry = self._last()
        if entry is None or not entry.is_meant_by(calls):
            entry = self._begin({})
        entry.message, entry.is_nameless = _message("assistant", seq, data), False
        for call in calls:
            if call["id"] not in self._answered:
                self._call(entry, call)

    def _chunk(self, seq: int, data: Mapping[str, Any]) -> None:
        text = data.get("text")
        # Other channels, such as thinking, are no part of the answer.
        if data.get("channel", TEXT_CHANNEL) != TEXT_CHANNEL or not isinstance(text, str):
            return
        entry = self._last()
        if entry is None or not entry.is_nameless or entry.calls:
            entry = self._begin({"role": "assistant", "seq": seq, "text": ""}, is_nameless=True)
        entry.message["text"] += text

    def _started(self, seq: int, data: Mapping[str, Any]) -> None:
        id = data.get("id")
        if not isinstance(id, str):
            return
        self._answered.pop(id, None)
        shown = self._open.get(id)
        if shown is None:
            entry = self._last()
            if entry is None or not entry.takes_calls:
                entry = self._begin({"role": "assistant", "seq": seq, "text": ""}, is_nameless=True)
            shown = self._call(entry, data)
        shown.call.begun = True
        shown.call.name = shown.call.name or _name_of(data)
        if shown.arguments is None:
            shown.arguments = data.get("arguments")

    def _finished(self, seq: int, data: Mapping[str, Any]) -> None:
        shown = self._answer(data)
        if shown is None:
            return  # a second result, or one of a call that was never made
        last = self._last()
        if last is not None:
            last.takes_calls = False
        shown.result = {"seq": seq, "output": data.get("output")}
        if data.get("error") is not None:
            shown.result["error"] = data["error"]

    def _turn_start(self, seq: int, data: Mapping[str, Any]) -> None:
        self._close()
        self._answered.clear()

    def _turn_end(self, seq: int, data: Mapping[str, Any]) -> None:
        self._close()

    # -- Entries

    def _last(self) -> _Entry | None:
        return self._waiting[-1] if self._waiting else None

    def _begin(self, message: Message, *, is_nameless: bool = False) -> _Entry:
        self._seal()
        entry = _Entry(message, is_nameless=is_nameless, takes_calls=True)
        self._waiting.append(entry)
        return entry

    def _call(self, entry: _Entry, data: Mapping[str, Any]) -> _ShownCall:
        """Give the open call of this id, added to the entry if there is none."""
        id = data["id"]
        if id not in self._open:
            self._open[id] = entry.calls[id] = _ShownCall(id, _name_of(data), data.get("arguments"))
        return self._open[id]

    def _answer(self, data: Mapping[str, Any]) -> _ShownCall | None:
        """Note that a call has its result; give the call if it was open."""
        id = data.get("id")
        if not isinstance(id, str):
            return None
        self._answered.pop(id, None)
        self._answered[id] = None
        if len(self._answered) > RESULTS_MAX:
            del self._answered[next(iter(self._answered))]
        return self._open.pop(id, None)

    def _seal(self) -> None:
        if self._waiting:
            self._waiting[-1].seal()

    def _close(self) -> None:
        """Answer every open call, as nobody else does any more."""
        self._seal()
        for shown in self._open.values():
            shown.result = {"seq": None, "output": None, "error": shown.call.error}
        self._open.clear()

    def _settled(self) -> list[Message]:
        """Take out what is done, and what has waited for too much."""
        messages: list[Message] = []
        while self._waiting and (self._waiting[0].is_done or self._is_full):
            entry = self._waiting.popleft()
            for id, shown in entry.calls.items():
                if self._open.get(id) is shown:
                    del self._open[id]
            messages += entry.messages()
        return messages

    @property
    def _is_full(self) -> bool:
        return len(self._waiting) > WAITING_MAX or len(self._open) > WAITING_MAX


_TAKES: Final = {
    USER_MESSAGE: MessageFold._user,
    ASSISTANT_MESSAGE: MessageFold._assistant,
    ASSISTANT_CHUNK: MessageFold._chunk,
    TOOL_STARTED: MessageFold._started,
    TOOL_FINISHED: MessageFold._finished,
    TOOL_LATE_RESULT: MessageFold._finished,
    TURN_START: MessageFold._turn_start,
    TURN_END: MessageFold._turn_end,
}


class Messages:
    """The messages of a log's live stretches, as they come out of a walk over it."""

    def __init__(self, log: StoredLog) -> None:
        self._log = log
        self._walk: Walk | None = None
        self._fold = MessageFold()
        self._is_over = False

    async def next_portion(self) -> list[Message]:
        """Give the next messages; none at the end. Raises NotFound, Ambiguous, and Corrupt if a rewind is damaged."""
        if self._walk is None:
            self._walk = Walk(self._log, await self._log.live_stretches())
        messages: list[Message] = []
        while not messages and not self._is_over:
            found = await self._walk.next_portion()
            for each in found:
                messages += self._fold.fold(each) if isinstance(each, Event) else self._fold.note_gap(each)
            if not found:
                self._is_over = True
                messages += self._fold.end()
        return messages


def _message(role: str, seq: int, data: Mapping[str, Any]) -> Message:
    """Make a message of an event's data; its text is a text, whoever wrote the event."""
    members = {name: value for name, value in data.items() if name not in _LEFT_OUT}
    text = data.get("text")
    return {**members, "role": role, "seq": seq, "text": text if isinstance(text, str) else ""}


def _listed(calls: Any) -> Iterator[Mapping[str, Any]]:
    """Give those of a message's calls that have an id."""
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, Mapping) and isinstance(call.get("id"), str):
            yield call


def _name_of(data: Mapping[str, Any]) -> str:
    name = data.get("name")
    return name if isinstance(name, str) else ""
