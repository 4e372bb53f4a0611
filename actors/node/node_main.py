"""The node's candidate: takes the store's lock, says so, and becomes the node.

Run as a script with a boot line on stdin. Until it has the lock only the standard library is loaded, and modules of
ours that load nothing else; a candidate that comes too late costs little and loads hardly that. The first line that it
says is its word:

    ready          it holds the lock and listens; the opener connects
    busy           somebody else holds the lock; the opener connects to that one
    error {…}      the store can't be served; the error in its wire form

Behind `ready`, stdout and stderr are the store's node.log. A candidate that is killed in here leaves nothing to clean
up: an empty store.json is filled and a stale socket unlinked by the next one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

if (_root := os.path.abspath(f"{__file__}/../../../..")) not in sys.path:
    sys.path.insert(0, _root)

from turnkeeper.actors.boot import read_boot
from turnkeeper.storage import lock

if TYPE_CHECKING:
    import socket

    from turnkeeper.storage.store import StoreDescription

_BACKLOG = 4096
"""Connections that may wait to be accepted, as many as the system allows."""


class Held(NamedTuple):
    """A store whose lock this process holds, and its sockets, listening. `store_file` carries the lock."""

    path: str
    description: StoreDescription
    store_file: int
    node_listener: socket.socket
    writer_listener: socket.socket


def main() -> None:
    """Be a candidate and, with the lock, the node. Ends the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    boot = read_boot(sys.stdin.buffer)
    if boot is not None:
        if _comes_too_late(boot["path"]):
            _say("busy")
        else:
            _be_candidate(boot)
    os._exit(0)  # every connection ends in this moment, and nothing is left to be tidied up


def _comes_too_late(path: str) -> bool:
    """Ask before anything else is loaded: of fifty that start at once, forty-nine are too late."""
    try:
        return lock.store_is_held(path)
    except OSError:
        return False  # what is wrong with this path is found out below


def _be_candidate(boot: dict[str, Any]) -> None:
    import json

    from turnkeeper.actors.errors import StoreRefused, TurnkeeperError
    from turnkeeper.actors.protocol import error_to_wire

    try:
        held = _take_store(boot)
    except TurnkeeperError as error:
        _say(f"error {json.dumps(error_to_wire(error))}")
    except OSError as error:
        refused = StoreRefused(boot["path"], f"can't be served ({error.strerror or error})")
        _say(f"error {json.dumps(error_to_wire(refused))}")
    else:
        if held is None:
            _say("busy")
        else:
            _say("ready")
            _serve(held)


def _take_store(boot: dict[str, Any]) -> Held | None:
    """Make the store if that is wanted, take its lock and listen; None if another process holds the lock."""
    from turnkeeper.actors import protocol
    from turnkeeper.actors.errors import StoreMissing, VersionMismatch
    from turnkeeper.actors.node_log import LOG_BYTES_MAX
    from turnkeeper.storage import store

    if boot["protocol"] != protocol.PROTOCOL:
        theirs, own = (str(boot["protocol"]), boot["version"]), (str(protocol.PROTOCOL), protocol.VERSION)
        raise VersionMismatch(os.getpid(), *own, *theirs)
    path = boot["path"]
    if boot["create"]:
        store.make_directory(path)
    store_file = store.open_store_file(path, create=boot["create"])
    os.chdir(path)
    _log_to(protocol.NODE_LOG)
    if not lock.take(store_file):
        return None
    if os.fstat(store_file).st_size == 0 and not boot["create"]:
        raise StoreMissing(path, "a store was begun here and never finished; writing to it finishes it")
    description = store.finish(store_file, path, boot["durability"], boot["backend"])
    if os.fstat(2).st_size >= LOG_BYTES_MAX:
        os.ftruncate(2, 0)
    return Held(path, description, store_file, _listen(protocol.NODE_SOCKET), _listen(protocol.WRITER_SOCKET))


def _log_to(name: str) -> None:
    log = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    os.dup2(log, 2)
    os.close(log)


def _listen(name: str) -> socket.socket:
    """Bind in the store's directory, by a relative name: its own path may be longer than an address can be."""
    import socket

    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(name)
    os.chmod(name, 0o600)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _say(word: str) -> None:
    """Say the word. An opener that died meanwhile doesn't hear it, which changes nothing: others may connect."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, f"{word}\n".encode())
    os.dup2(2, 1)


def _allow_descriptors() -> int:
    """Raise the limit of open files as far as this user may, for the writer too: each client costs the node two.

    Returns the limit that was, which is the one for tasks: programs that close all that they may have open take long.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def _serve(held: Held) -> None:
    from turnkeeper.actors import launch
    from turnkeeper.runtime import failpoints

    if failpoints.directory() is not None:
        from turnkeeper.actors.failpoints import NODE

        failpoints.arm(NODE)
    descriptors = _allow_descriptors()
    # The writer's interpreter loads what it needs while this one does the same.
    writer = launch.start_writer(
        held.path,
        held.description.store,
        store_file=held.store_file,
        listener=held.writer_listener.fileno(),
        distrust_index=False,
    )
    from turnkeeper.actors.node.node import serve

    serve(*held, writer, descriptors)
    # Who sees its connection end finds the lock free. Closed, not released: a writer that is stuck would lose it too.
    os.close(held.store_file)


if __name__ == "__main__":
    main()
