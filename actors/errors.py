"""The errors of the public face, split by what the caller can do about them.

What the journal refuses or fails with is storage's own and has the same class here; their common base is public as
`TurnkeeperError`. The rest belongs to sessions and to the processes that serve a store. Every error carries fields and
makes its message from them, so it survives pickling and a socket. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnkeeper.storage.errors import (
    Ambiguous,
    BlobMissing,
    Conflict,
    Corrupt,
    Deleted,
    Exists,
    Failed,
    Fenced,
    InvalidFork,
    InvalidValue,
    NewerFormat,
    NotFound,
    SessionBusy,
    StoreFull,
    StoreMissing,
    StoreRefused,
    TooLarge,
    WrongKind,
)
from turnkeeper.storage.errors import StorageError as TurnkeeperError

__all__ = [
    "AlreadyAccepted",
    "AlreadyServed",
    "Ambiguous",
    "BlobMissing",
    "CallRepeated",
    "Conflict",
    "Corrupt",
    "CriticalTypes",
    "Deleted",
    "Exists",
    "Failed",
    "Fenced",
    "ForkedProcess",
    "InvalidFork",
    "InvalidValue",
    "NameTaken",
    "NewerFormat",
    "NodeNotAnswering",
    "NotFound",
    "PositionLost",
    "SessionBusy",
    "SessionClosed",
    "StoreFull",
    "StoreMissing",
    "StoreRefused",
    "TaskDiffers",
    "TaskRefused",
    "TooFarAhead",
    "TooLarge",
    "TurnOpen",
    "TurnkeeperError",
    "VersionMismatch",
    "WrongKind",
]


class ForkedProcess(TurnkeeperError):
    """Process `opener` opened this, and the calling process is a fork of it: its connection isn't this one's to use."""

    def __init__(self, opener: int) -> None:
        super().__init__(opener)
        self.opener = opener

    def message(self) -> str:
        return f"this was opened by process {self.opener}, of which this one is a fork; open the store again here"


class NodeNotAnswering(TurnkeeperError):
    """The store is held by a process that doesn't answer. `state` says what that process does.

    `pid` is None where nobody can be named. Nothing was taken from it and nothing was killed.
    """

    def __init__(self, pid: int | None, state: str) -> None:
        super().__init__(pid, state)
        self.pid = pid
        self.state = state

    def message(self) -> str:
        who = "a process" if self.pid is None else f"process {self.pid}"
        return f"{who} holds the store and doesn't answer ({self.state}); wait, or end it: turnkeeper stop --force"


class VersionMismatch(TurnkeeperError):
    """The process on the other side, `pid`, speaks another protocol than this one; neither was changed."""

    def __init__(self, pid: int, protocol: str, version: str, own_protocol: str, own_version: str) -> None:
        super().__init__(pid, protocol, version, own_protocol, own_version)
        self.pid = pid
        self.protocol = protocol
        self.version = version
        self.own_protocol = own_protocol
        self.own_version = own_version

    def message(self) -> str:
        return (
            f"process {self.pid} is turnkeeper {self.version} (protocol {self.protocol}) and this is turnkeeper "
            f"{self.own_version} (protocol {self.own_protocol}); end what runs the other version, or use it too"
        )


class AlreadyServed(TurnkeeperError):
    """Process `pid` serves the store at `path` already, and a store has one node."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def message(self) -> str:
        return f"{self.path} is served by process {self.pid} already; end that one first: turnkeeper stop"


class NameTaken(Exists):
    """An actor of this name lives already. `owner` has boot, pid, start, host of its process, as far as they are known.

    Nothing was started.
    """

    def __init__(self, name: str, owner: Mapping[str, Any]) -> None:
        super().__init__(name, "actor's name")
        self.args = (name, dict(owner))
        self.name = name
        self.owner = dict(owner)

    def message(self) -> str:
        where = f"process {self.owner.get('pid')} on {self.owner.get('host')}" if self.owner else "another process"
        return f"an actor called {self.name} lives in {where}; ask that one, stop it, or use another name"


class PositionLost(TurnkeeperError):
    """Who follows from behind position `after` is ahead of the store, whose next event gets `next_position`.

    The machine went down before the disk had what was read there, as a store of durability "os" allows; or the
    position is another store's. Events that were read from `next_position` on aren't there any more.
    """

    def __init__(self, after: int, next_position: int) -> None:
        super().__init__(after, next_position)
        self.after = after
        self.next_position = next_position

    def message(self) -> str:
        end = self.next_position - 1
        return (
            f"there is no event {self.after}, the store ends with {end}: later ones were lost with the machine, or are "
            f"another store's; forget what came after {end} and follow from there"
        )


class SessionClosed(TurnkeeperError):
    """You closed this session, or the runtime it was opened with."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.session = session

    def message(self) -> str:
        return f"{self.session} was closed here; open it again to go on"


class TurnOpen(TurnkeeperError):
    """The session has an open turn, begun by event `seq`, and can have only one."""

    def __init__(self, session: str, seq: int) -> None:
        super().__init__(session, seq)
        self.session = session
        self.seq = seq

    def message(self) -> str:
        return f"{self.session} has an open turn since event {self.seq}; end it first"


class CallRepeated(TurnkeeperError):
    """Tool call `call` of the session has begun already, or, if `is_finished`, has its result already."""

    def __init__(self, session: str, call: str, is_finished: bool) -> None:
        super().__init__(session, call, is_finished)
        self.session = session
        self.call = call
        self.is_finished = is_finished

    def message(self) -> str:
        what = "has its result already" if self.is_finished else "has begun already"
        return f"call {self.call!r:.100} of {self.session} {what}; give each call an id of its own"


class CriticalTypes(TurnkeeperError):
    """The session holds events of critical types that this program hasn't registered. It was not opened."""

    def __init__(self, session: str, types: list[str]) -> None:
        super().__init__(session, list(types))
        self.session = session
        self.types = list(types)

    def message(self) -> str:
        types = ", ".join(self.types)
        return f"{self.session} holds events that only a program which knows them may add to; register: {types}"


class AlreadyAccepted(TurnkeeperError):
    """The session has accepted this message of its inbox, number `seq`, before; nothing was appended."""

    def __init__(self, session: str, seq: int) -> None:
        super().__init__(session, seq)
        self.session = session
        self.seq = seq

    def message(self) -> str:
        return f"{self.session} has accepted message {self.seq} already; it is accepted once"


class TooFarAhead(TurnkeeperError):
    """Message `seq` can't be accepted yet: too many before it, of which `first` is the first, were passed over."""

    def __init__(self, session: str, seq: int, first: int) -> None:
        super().__init__(session, seq, first)
        self.session = session
        self.seq = seq
        self.first = first

    def message(self) -> str:
        return (
            f"{self.session} can't keep in mind that message {self.seq} is accepted, so many before it aren't; "
            f"accept those first, from message {self.first} on"
        )


class TaskDiffers(Conflict):
    """The task `task` was started with other arguments before; nothing was started now. `key` is the caller's name."""

    def __init__(self, task: str, key: str | None) -> None:
        super().__init__(task, 0, key=key)
        self.task = task
        self.args = (task, key)

    def message(self) -> str:
        name = "this id" if self.key is None else f"the key {self.key!r}"
        return f"{name} is that of {self.task}, which was started with other arguments; use a new key for another task"


class TaskRefused(TurnkeeperError):
    """A task can't be started so: `what` names the argument or the file, `why` says what is wrong with it.

    Nothing was recorded and nothing was started.
    """

    def __init__(self, what: str, why: str) -> None:
        super().__init__(what, why)
        self.what = what
        self.why = why

    def message(self) -> str:
        return f"the task can't be started: {self.what} {self.why}"


def copy_of(error: Exception) -> Exception:
    """Make the error anew from its fields, so that each raising has a traceback and notes of its own."""
    try:
        return type(error)(*error.args)
    except TypeError:
        return error
