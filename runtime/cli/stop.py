"""`turnkeeper stop`: end the processes that serve a store."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any

import click

from turnkeeper.actors.client.asking import ask_hello, ask_stop, node_pid
from turnkeeper.actors.protocol import REFUSED
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import WRITER_FILE, describe

from ..identity import is_gone
from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import print_json, print_text
from .status import not_served

LOOK_SECONDS = 0.02
KILLED_SECONDS = 5.0
"""How long the lock may stay held after its holders were killed: the kernel frees it with their last system call."""


@command("stop", example="turnkeeper stop")
@click.option("--force", is_flag=True, help="Kill node and writer instead. What was acknowledged stays.")
def stop(invocation: Invocation, force: bool) -> None:
    """End what serves the store, in order.

    Refused while programs have the store open (exit code 4): they would start it again. With --force the node and its
    writer are killed, whatever they do; programs that have the store open come back by themselves.
    """
    store = invocation.store
    describe(store)
    pids = _kill(store) if force else _ask(store)
    if invocation.is_json:
        print_json({"pids": pids, "forced": force})
    else:
        print_text(f"{'killed' if force else 'ended'}: node {pids['node']}, writer {pids['writer']}")


def _ask(store: str) -> dict[str, Any]:
    """Have the node end in order. Raises Failure if it refuses, or if there is none."""
    hello = ask_hello(store)
    answer = None if hello is None else ask_stop(store)
    if hello is None or answer is None:
        raise not_served(store)
    if answer["op"] == REFUSED:
        clients = answer["clients"]
        names = ", ".join(f"{client['name']} (process {client['pid']})" for client in clients)
        what = f"{len(clients)} program{'s have' if len(clients) > 1 else ' has'} the store open"
        raise Failure("busy", what, store, f"end {names} first, or use --force", clients=clients)
    return {"node": hello["pid"], "writer": hello["writer"]}


def _kill(store: str) -> dict[str, Any]:
    """Kill the node, which would start another writer, and then its writer; wait until the store is free."""
    if not store_is_held(store):
        raise not_served(store)
    node = _kill_node(store)
    writer = _kill_writer(store)
    deadline = time.monotonic() + KILLED_SECONDS
    while store_is_held(store):
        if time.monotonic() > deadline:
            advice = "find the process that has store.json open: fuser store.json"
            raise Failure("not_answering", "a process still holds the store", store, advice)
        time.sleep(LOOK_SECONDS)
    return {"node": node, "writer": writer}


def _kill_node(store: str) -> int | None:
    """Kill whoever listens at the store's socket: it still does once its process is held, so it is the right one."""
    pid = node_pid(store)
    if pid is None:
        return None
    with _Process(pid) as process:
        if node_pid(store) != pid:
            return None
        process.kill()
    return pid


def _kill_writer(store: str) -> int | None:
    """Kill the writer that wrote down who it is, if it lives and works in this very directory.

    A copied store brings along another one's writer.json, whose process is none of this store's.
    """
    try:
        with open(os.path.join(store, WRITER_FILE), "rb") as file:
            identity = json.load(file)
        pid = int(identity["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    with _Process(pid) as process:
        if is_gone(identity) or not _works_in(pid, store):
            return None
        process.kill()
    return pid


class _Process:
    """A process that can't be mistaken for another one, even if it ends and its pid is given again."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._pidfd = -1

    def __enter__(self) -> _Process:
        with contextlib.suppress(ProcessLookupError):
            self._pidfd = os.pidfd_open(self._pid)
        return self

    def kill(self) -> None:
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def __exit__(self, *error: object) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)


def _works_in(pid: int, store: str) -> bool:
    try:
        return os.path.samefile(f"/proc/{pid}/cwd", store)
    except OSError:
        return False
