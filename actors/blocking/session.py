"""`Session` for plain programs."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

from turnkeeper.storage.exact_json import Surrogates

from ..core_types import TEXT_CHANNEL
from ..folding import Effect
from ..records import Event, EventPage, Interrupted, Snapshot
from ..session.session import Session
from .inbox import BlockingInbox
from .loop import Loop
from .turns import BlockingToolCall, BlockingTurn
from .walking import BlockingWalking


class BlockingSession:
    """`Session`, blocking; a context manager that closes it."""

    def __init__(self, loop: Loop, session: Session) -> None:
        self._loop = loop
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def key(self) -> str | None:
        """The host's own name for it."""
        return self._session.key

    @property
    def head(self) -> int:
        """The number of the next event."""
        return self._session.head

    @property
    def interrupted(self) -> Interrupted | None:
        """What a crash had left open, and this opening has closed."""
        return self._session.interrupted

    @property
    def not_stored(self) -> range:
        """The numbers of the events that never will be stored, once ownership is lost."""
        return self._session.not_stored

    def append(
        self,
        type: str,
        data: Mapping[str, Any],
        *,
        key: str | None = None,
        time: int | None = None,
        text: Surrogates = "strict",
    ) -> int:
        """Do as `Session.append`."""
        return self._loop.call(self._session.append, type, data, key=key, time=time, text=text)

    def write(self, text: str, *, channel: str = TEXT_CHANNEL) -> None:
        """Do as `Session.write`."""
        self._loop.run(self._session.write, text, channel=channel)

    def flush(self) -> int:
        """Do as `Session.flush`."""
        return self._loop.call(self._session.flush)

    def inbox(self, *, wakes_max: int | None = None) -> BlockingInbox:
        """Do as `Session.inbox`; each `next` waits for a message."""
        return BlockingInbox(self._loop, self._session.inbox(wakes_max=wakes_max))

    def send(self, to: str, type: str, data: Mapping[str, Any], *, key: str | None = None) -> int:
        """Do as `Session.send`."""
        return self._loop.call(self._session.send, to, type, data, key=key)

    def turn(self, **data: Any) -> BlockingTurn:
        """Do as `Session.turn`, as a `with`."""
        return BlockingTurn(self._loop, self._session.turn(**data))

    def tool(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> BlockingToolCall:
        """Do as `Session.tool`, as a `with`."""
        return BlockingToolCall(self._loop, self._session.tool(id, name, arguments, effect=effect))

    def tool_started(self, id: str, name: str, arguments: Any, *, effect: Effect = "once") -> None:
        """Do as `Session.tool_started`."""
        self._loop.call(self._session.tool_started, id, name, arguments, effect=effect)

    def tool_finished(self, id: str, output: Any, *, error: str | None = None) -> None:
        """Do as `Session.tool_finished`."""
        self._loop.call(self._session.tool_finished, id, output, error=error)

    def set_parent(self, parent: str) -> None:
        """Do as `Session.set_parent`."""
        self._loop.call(self._session.set_parent, parent)

    def set(self, *, title: str | None = None, labels: Mapping[str, str | None] | None = None) -> None:
        """Do as `Session.set`."""
        self._loop.call(self._session.set, title=title, labels=labels)

    def fork(self, *, at: int | None = None) -> BlockingSession:
        """Do as `Session.fork`."""
        return BlockingSession(self._loop, self._loop.call(self._session.fork, at=at))

    def rewind(self, to: int) -> None:
        """Do as `Session.rewind`."""
        self._loop.call(self._session.rewind, to)

    def read(self, *, start: int = 0, last: int | None = None, limit: int = 1000) -> EventPage:
        """Do as `Session.read`."""
        return self._loop.call(self._session.read, start=start, last=last, limit=limit)

    def events(self, *, start: int = 0) -> BlockingWalking[Event]:
        """Do as `Session.events`."""
        return BlockingWalking(self._loop, self._session.events(start=start))

    def messages(self) -> BlockingWalking[dict[str, Any]]:
        """Do as `Session.messages`."""
        return BlockingWalking(self._loop, self._session.messages())

    def snapshot(self, state: Any) -> int:
        """Do as `Session.snapshot`."""
        return self._loop.call(self._session.snapshot, state)

    def last_snapshot(self) -> Snapshot | None:
        """Do as `Session.last_snapshot`."""
        return self._loop.call(self._session.last_snapshot)

    def close(self) -> None:
        """Do as `Session.aclose`."""
        self._loop.call(self._session.aclose)

    aclose = close

    def __enter__(self) -> BlockingSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.leave(self._session, kind, error, traceback)


def session_of(session: BlockingSession | str | None) -> Session | str | None:
    """Give what the loop calls a session."""
    return session._session if isinstance(session, BlockingSession) else session
