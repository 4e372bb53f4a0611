"""What clients, node and writer say to each other: names, numbers and the form of an error.

Everything is sans-I/O and small; frames are runtime's. Two sockets lie in a store, beside the one where shims ring:

    node.sock    maps. The node speaks first (`hello`) and again whenever its state changes (`state`); a client that
                 says `attach` counts until it says `bye`, its connection ends or its process does. Latest values cross
                 here too, unanswered: a client says to which topics it will `listen`, all clients hear which are
                 `wanted`, and what they `publish` reaches the listeners as a `value`. What a client asks about tasks
                 is numbered, see below.
    writer.sock  the writer speaks first (`hello`). Appends are arrays, [frame number, [append, …]], answered by
                 [frame number, [result, …]]; everything else is a map with `id`, answered by one with `re`.

Who attaches names its runtime by a `token`, the same whenever it comes back; that token owns the tasks that it starts
not to be kept. Requests about tasks have an `id`, which their answer has as `re`: {"op", "id", ...} is answered by
{"re", ...}, or by {"re", "error", "args"}. They are answered as they come to be, in any order and beside all else. All
mean the same when asked twice, so what is unanswered when a node dies is asked again of the next one.

    start_task   {task, key, token, argv: [bytes], program: bytes, cwd: bytes, umask, env: {bytes: bytes},
                 environment: [name], timeout, grace, limit, keep, session, group, stall} -> {head, summary} once it
                 runs, or has ended. The id `task` makes it one start however often it is asked for; where there is no
                 `key`, `token` is random and tells it from another one's of the same id. `env` is the whole
                 environment, `environment` what of it the caller sets or removes. Times are seconds, `limit` is bytes,
                 None is none.
    stop_tasks   {tasks: [id], sessions: [id], grace} -> {stopped: [id], already_ended: [id], left: {id: [pid]}} once
                 their trees are empty; `left` are those whose processes even KILL didn't end. `sessions` stands for
                 the unfinished tasks of each of them.
    wait_task    {task, tree} -> {head, summary} once it has ended, and with `tree` nothing of it is left.
    live_tasks   {session} -> {tasks: [...]}, the unfinished ones, of that session alone if it isn't None, each a map of
                 its summary's and of what the node sees now: id, head, session, group, state, pid, output_bytes,
                 progress, survivors.
    end_tasks    {} -> {}: once those that the client's token owns have been stopped, and that is stored.
    forget       {ids: [n]}, unanswered and without a number: nobody waits for these answers any more.

An error crosses as its class's name and its fields in the order of its constructor, and is built again only from the
classes listed here: a peer names an error, it never chooses code to run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from turnkeeper import __version__
from turnkeeper.storage import errors as storage_errors
from turnkeeper.storage.errors import StorageError

from . import errors

PROTOCOL: Final = 3
"""Raised by every change that an older peer would misunderstand."""

VERSION: Final = __version__

NODE_SOCKET: Final = "node.sock"
WRITER_SOCKET: Final = "writer.sock"
TASK_SOCKET: Final = "task.sock"
TASKS_DIRECTORY: Final = "tasks"
NODE_LOG: Final = "node.log"

PATIENCE_SECONDS: Final = 10.0
"""How long an opener waits for a node that doesn't answer, and a node for its first client."""

HEADER_DEPTH_MAX: Final = 16
"""Levels of nesting in a header or a patch."""

INDEX_FAILED_EXIT_CODE: Final = 71
"""How a writer ends that can't make sense of its index: the next one is told not to open it."""

HELLO: Final = "hello"
STATE: Final = "state"
ERROR: Final = "error"

ATTACH, ATTACHED = "attach", "attached"
BYE, ENDING, STAYING = "bye", "ending", "staying"
STATUS = "status"
STOP, STOPPING, REFUSED = "stop", "stopping", "refused"
REBUILD, REBUILT = "rebuild", "rebuilt"
LISTEN, WANTED, PUBLISH, VALUE = "listen", "wanted", "publish", "value"
START_TASK, STOP_TASKS, WAIT_TASK = "start_task", "stop_tasks", "wait_task"
LIVE_TASKS, END_TASKS, FORGET = "live_tasks", "end_tasks", "forget"

REQUESTS_MAX: Final = 10_000
"""Numbered requests of one client that may be unanswered at once; one more is refused."""

OPENING: Final = "opening"
SERVING: Final = "serving"
PROGRESS: Final = "progress"

OPEN, RELEASE, WATCH, STATISTICS = "open", "release", "watch", "statistics"
CHANGE: Final = "change"
SEND, LISTEN, UNLISTEN = "send", "listen", "unlisten"
RECORD: Final = "record"

_CLASSES: Final[dict[str, type[StorageError]]] = {
    each.__name__: each
    for module in (storage_errors, errors)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, StorageError)
}


def error_to_wire(error: StorageError) -> dict[str, Any]:
    """Give the error as plain values: its class's name, and its fields in order."""
    return {"error": type(error).__name__, "args": list(error.args)}


def error_from_wire(message: Mapping[str, Any]) -> StorageError:
    """Build the error that the other side named. One that this version doesn't know keeps its name and fields."""
    name, arguments = message.get("error"), message.get("args")
    fields = list(arguments) if isinstance(arguments, (list, tuple)) else []
    known = _CLASSES.get(name) if isinstance(name, str) else None
    if known is not None:
        try:
            return known(*fields)
        except (TypeError, ValueError, AttributeError):
            pass
    return StorageError(f"{name}:", *fields)


def check_hello(message: Any) -> dict[str, Any]:
    """Return the greeting of a node or writer that this side can talk to.

    Raises:
        VersionMismatch: It speaks another protocol.
        StorageError: It refuses this client and says why, or it is no greeting.
    """
    if isinstance(message, dict) and message.get("op") == ERROR:
        raise error_from_wire(message)
    if not isinstance(message, dict) or message.get("op") != HELLO or not isinstance(message.get("pid"), int):
        raise StorageError("what listens at the store's socket is no turnkeeper process")
    if message.get("protocol") != PROTOCOL:
        theirs = str(message.get("protocol")), str(message.get("version"))
        raise errors.VersionMismatch(message["pid"], *theirs, str(PROTOCOL), VERSION)
    return message
