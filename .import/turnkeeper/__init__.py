"""Durable sessions and tasks for agents: what was acknowledged survives the death of whatever served it.

This module holds the public names and nothing else. Each is imported from its own module when it is first asked for, so
that ``import turnkeeper`` costs neither an event loop nor a journal.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if sys.platform == "win32":
    raise ImportError("turnkeeper doesn't run on Windows: use it in WSL or on Linux")

if TYPE_CHECKING:
    from turnkeeper.actors.blocking import connect
    from turnkeeper.actors.errors import (
        AlreadyAccepted,
        Ambiguous,
        BlobMissing,
        CallRepeated,
        Conflict,
        Corrupt,
        CriticalTypes,
        Deleted,
        Exists,
        Failed,
        Fenced,
        ForkedProcess,
        InvalidFork,
        InvalidValue,
        NameTaken,
        NewerFormat,
        NodeNotAnswering,
        NotFound,
        PositionLost,
        SessionBusy,
        SessionClosed,
        StoreFull,
        StoreMissing,
        StoreRefused,
        TaskDiffers,
        TaskRefused,
        TooFarAhead,
        TooLarge,
        TurnkeeperError,
        TurnOpen,
        VersionMismatch,
        WrongKind,
    )
    from turnkeeper.actors.records import Event, EventPage, Interrupted, SessionInfo, Snapshot
    from turnkeeper.actors.runtime import Runtime
    from turnkeeper.actors.runtime_opening import open_runtime
    from turnkeeper.actors.session.inbox import Message
    from turnkeeper.actors.session.session import Session
    from turnkeeper.actors.session.turns import ToolCall
    from turnkeeper.actors.tasks.output import Output
    from turnkeeper.actors.tasks.state import TaskState
    from turnkeeper.actors.tasks.task import Task, TasksStopped
    from turnkeeper.runtime.actor_ref import ActorEnd, ActorRef, Down
    from turnkeeper.runtime.errors import (
        ActorError,
        ActorNotStarted,
        ActorUnknown,
        ChildStartError,
        MessageTooLarge,
        TooManyRestarts,
        WorkerDied,
        WorkerStartError,
        register_error,
    )
    from turnkeeper.runtime.mailbox import MailboxFull
    from turnkeeper.runtime.restart import RestartPolicy
    from turnkeeper.runtime.supervision.child import ChildStatistics
    from turnkeeper.runtime.supervision.child_spec import ChildSpec, Tree
    from turnkeeper.runtime.supervision.supervisor import Supervisor
    from turnkeeper.runtime.watchdog import Blockage
    from turnkeeper.runtime.workers.main_module import UnguardedMain

__version__ = "0.1.0"

__all__ = [
    "ActorEnd",
    "ActorError",
    "ActorNotStarted",
    "ActorRef",
    "ActorUnknown",
    "AlreadyAccepted",
    "Ambiguous",
    "BlobMissing",
    "Blockage",
    "CallRepeated",
    "ChildSpec",
    "ChildStartError",
    "ChildStatistics",
    "Conflict",
    "Corrupt",
    "CriticalTypes",
    "Deleted",
    "Down",
    "Event",
    "EventPage",
    "Exists",
    "Failed",
    "Fenced",
    "ForkedProcess",
    "Interrupted",
    "InvalidFork",
    "InvalidValue",
    "MailboxFull",
    "Message",
    "MessageTooLarge",
    "NameTaken",
    "NewerFormat",
    "NodeNotAnswering",
    "NotFound",
    "Output",
    "PositionLost",
    "RestartPolicy",
    "Runtime",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "SessionInfo",
    "Snapshot",
    "StoreFull",
    "StoreMissing",
    "StoreRefused",
    "Supervisor",
    "Task",
    "TaskDiffers",
    "TaskRefused",
    "TaskState",
    "TasksStopped",
    "TooFarAhead",
    "TooLarge",
    "TooManyRestarts",
    "ToolCall",
    "Tree",
    "TurnOpen",
    "TurnkeeperError",
    "UnguardedMain",
    "VersionMismatch",
    "WorkerDied",
    "WorkerStartError",
    "WrongKind",
    "__version__",
    "connect",
    "open_runtime",
    "register_error",
]

if not TYPE_CHECKING:
    _MODULE_OF_NAME = {
        "connect": "turnkeeper.actors.blocking",
        "AlreadyAccepted": "turnkeeper.actors.errors",
        "Ambiguous": "turnkeeper.actors.errors",
        "BlobMissing": "turnkeeper.actors.errors",
        "CallRepeated": "turnkeeper.actors.errors",
        "Conflict": "turnkeeper.actors.errors",
        "Corrupt": "turnkeeper.actors.errors",
        "CriticalTypes": "turnkeeper.actors.errors",
        "Deleted": "turnkeeper.actors.errors",
        "Exists": "turnkeeper.actors.errors",
        "Failed": "turnkeeper.actors.errors",
        "Fenced": "turnkeeper.actors.errors",
        "ForkedProcess": "turnkeeper.actors.errors",
        "InvalidFork": "turnkeeper.actors.errors",
        "InvalidValue": "turnkeeper.actors.errors",
        "NameTaken": "turnkeeper.actors.errors",
        "NewerFormat": "turnkeeper.actors.errors",
        "NodeNotAnswering": "turnkeeper.actors.errors",
        "NotFound": "turnkeeper.actors.errors",
        "PositionLost": "turnkeeper.actors.errors",
        "SessionBusy": "turnkeeper.actors.errors",
        "SessionClosed": "turnkeeper.actors.errors",
        "StoreFull": "turnkeeper.actors.errors",
        "StoreMissing": "turnkeeper.actors.errors",
        "StoreRefused": "turnkeeper.actors.errors",
        "TaskDiffers": "turnkeeper.actors.errors",
        "TaskRefused": "turnkeeper.actors.errors",
        "TooFarAhead": "turnkeeper.actors.errors",
        "TooLarge": "turnkeeper.actors.errors",
        "TurnOpen": "turnkeeper.actors.errors",
        "TurnkeeperError": "turnkeeper.actors.errors",
        "VersionMismatch": "turnkeeper.actors.errors",
        "WrongKind": "turnkeeper.actors.errors",
        "Message": "turnkeeper.actors.session.inbox",
        "Event": "turnkeeper.actors.records",
        "EventPage": "turnkeeper.actors.records",
        "Interrupted": "turnkeeper.actors.records",
        "SessionInfo": "turnkeeper.actors.records",
        "Snapshot": "turnkeeper.actors.records",
        "Runtime": "turnkeeper.actors.runtime",
        "open_runtime": "turnkeeper.actors.runtime_opening",
        "Session": "turnkeeper.actors.session.session",
        "Output": "turnkeeper.actors.tasks.output",
        "TaskState": "turnkeeper.actors.tasks.state",
        "Task": "turnkeeper.actors.tasks.task",
        "TasksStopped": "turnkeeper.actors.tasks.task",
        "ToolCall": "turnkeeper.actors.session.turns",
        "ActorEnd": "turnkeeper.runtime.actor_ref",
        "ActorRef": "turnkeeper.runtime.actor_ref",
        "Down": "turnkeeper.runtime.actor_ref",
        "ActorError": "turnkeeper.runtime.errors",
        "ActorNotStarted": "turnkeeper.runtime.errors",
        "ActorUnknown": "turnkeeper.runtime.errors",
        "ChildStartError": "turnkeeper.runtime.errors",
        "MessageTooLarge": "turnkeeper.runtime.errors",
        "TooManyRestarts": "turnkeeper.runtime.errors",
        "WorkerStartError": "turnkeeper.runtime.errors",
        "register_error": "turnkeeper.runtime.errors",
        "MailboxFull": "turnkeeper.runtime.mailbox",
        "UnguardedMain": "turnkeeper.runtime.workers.main_module",
        "WorkerDied": "turnkeeper.runtime.errors",
        "RestartPolicy": "turnkeeper.runtime.restart",
        "ChildStatistics": "turnkeeper.runtime.supervision.child",
        "ChildSpec": "turnkeeper.runtime.supervision.child_spec",
        "Tree": "turnkeeper.runtime.supervision.child_spec",
        "Supervisor": "turnkeeper.runtime.supervision.supervisor",
        "Blockage": "turnkeeper.runtime.watchdog",
    }

    def __getattr__(name):
        """Import the public name from its module and keep it; an unknown name is an ``AttributeError``."""
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF_NAME[name]), name)
        return value

    def __dir__():
        """List the public names that were not imported yet, too."""
        return sorted({*globals(), *__all__})
