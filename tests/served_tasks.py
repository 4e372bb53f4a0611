"""Tasks of a served store, asked for over node.sock by a client that only knows frames. Blocking, with deadlines."""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from turnkeeper.actors.client.asking import ask_status, ask_writer_hello
from turnkeeper.actors.kinds import TASK
from turnkeeper.actors.protocol import NODE_SOCKET, WRITER_SOCKET
from turnkeeper.runtime.identity import own_identity
from turnkeeper.storage.backend import open_reader
from turnkeeper.storage.lock import store_is_held

from .served import kill, processes_of
from .serving import DEADLINE_SECONDS, FrameClient, eventually, first_append, own_owner, start_node

LIMIT = 1024**2

_PIDFD_GETFD = 438


class TaskClient(FrameClient):
    """A runtime that is attached to the node, and asks about tasks."""

    def __init__(self, path: Path, token: str | None = None) -> None:
        super().__init__(path, NODE_SOCKET)
        self.path = path
        self.token = token or secrets.token_hex(8)
        self._number = 0
        self._answers: dict[int, dict[str, Any]] = {}
        self.heard: list[dict[str, Any]] = []
        attach = {"op": "attach", "name": "the test", "token": self.token, "owner": own_identity().as_map()}
        assert self.ask(attach) == {"op": "attached"}
        self.is_attached = True

    def begin(self, op: str, **what: Any) -> int:
        """Ask something and return the number under which it is answered."""
        self._number += 1
        self.send({"op": op, "id": self._number, **what})
        return self._number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the answer to a request; what else is said meanwhile is in `heard`."""
        while number not in self._answers:
            message = self.receive()
            if "re" in message:
                self._answers[message["re"]] = message
            else:
                self.heard.append(message)
        return self._answers.pop(number)

    def request(self, op: str, **what: Any) -> dict[str, Any]:
        """Ask something and wait for the answer."""
        return self.answer(self.begin(op, **what))

    def begin_start(self, *argv: str, task: str | None = None, **what: Any) -> tuple[str, int]:
        """Ask for a task; give its id and the number of the request."""
        task = task or f"task-test-{secrets.token_hex(4)}"
        start = {
            "task": task,
            "key": None,
            "token": f"of {task}",
            "argv": [os.fsencode(each) for each in argv],
            "program": os.fsencode(argv[0]) if argv else b"",
            "cwd": os.fsencode(self.path),
            "umask": 0o022,
            "env": {b"PATH": os.environb[b"PATH"]},
            "environment": [],
            "timeout": None,
            "grace": 5.0,
            "limit": LIMIT,
            "keep": False,
            "session": None,
            "group": None,
            "stall": None,
            **what,
        }
        return task, self.begin("start_task", **start)

    def start(self, *argv: str, task: str | None = None, **what: Any) -> str:
        """Start a task, see that it runs or has ended, and give its id."""
        task, number = self.begin_start(*argv, task=task, **what)
        answer = self.answer(number)
        assert "error" not in answer, answer
        return task

    def shell(self, script: str, **what: Any) -> str:
        """Start a shell script as a task."""
        return self.start("/bin/sh", "-c", script, **what)

    def wait(self, task: str, *, tree: bool = False) -> dict[str, Any]:
        """Wait for a task's end and return its summary."""
        answer = self.request("wait_task", task=task, tree=tree)
        assert "error" not in answer, answer
        summary: dict[str, Any] = answer["summary"]
        return summary

    def stop(self, *tasks: str, grace: float = 5.0) -> dict[str, Any]:
        """Stop tasks and return what became of that."""
        return self.request("stop_tasks", tasks=list(tasks), grace=grace)

    def live(self) -> dict[str, dict[str, Any]]:
        """List the unfinished tasks."""
        return {each["id"]: each for each in self.request("live_tasks")["tasks"]}

    def bye(self) -> str:
        """Leave, and say what the node answers."""
        self.is_attached = False
        self.send({"op": "bye"})
        while (message := self.receive()).get("op") not in ("staying", "ending"):
            pass
        answer: str = message["op"]
        return answer

    def close(self) -> None:
        """End the connection, without a word."""
        self.is_attached = False
        super().close()


class TaskStore:
    """A store with a node of this process's, which may be killed and followed by another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clients: list[TaskClient] = []
        self.node = start_node(path)

    def client(self, token: str | None = None) -> TaskClient:
        """Attach to the node."""
        client = TaskClient(self.path, token)
        self.clients.append(client)
        return client

    def status(self) -> dict[str, Any]:
        """Ask what the node does."""
        status = ask_status(str(self.path))
        assert status is not None
        return status

    def spawner(self) -> int:
        """Give the spawner's pid, once there is one."""
        eventually(lambda: self.status()["pids"]["spawner"] is not None)
        pid: int = self.status()["pids"]["spawner"]
        return pid

    def handed_over(self) -> bytes:
        """Look at what a stopped spawner will read next; empty if nothing waits for it."""
        pidfd = os.pidfd_open(self.spawner())
        try:
            descriptor = ctypes.CDLL(None).syscall(_PIDFD_GETFD, pidfd, 0, 0)
        finally:
            os.close(pidfd)
        with socket.socket(fileno=descriptor) as requests:
            try:
                return requests.recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            except BlockingIOError:
                return b""

    def writer(self) -> int:
        """Give the writer's pid, once there is one."""
        eventually(lambda: self.status()["pids"]["writer"] is not None)
        pid: int = self.status()["pids"]["writer"]
        return pid

    def kill_node(self, *others: int) -> None:
        """Kill the node, and in the same moment others; wait until it is dead."""
        for pid in (self.node.pid, *others):
            os.kill(pid, signal.SIGSTOP)
        for pid in (self.node.pid, *others):
            os.kill(pid, signal.SIGKILL)
        self.node.wait(DEADLINE_SECONDS)

    def start_node(self) -> None:
        """Start another node, behind one that has ended, once its writer has, too."""
        for client in self.clients:
            client.close()
        self.clients.clear()
        eventually(lambda: not store_is_held(str(self.path)))
        self.node = start_node(self.path)

    def end(self) -> None:
        """Leave, and see that node, spawner and all that belongs to tasks end by themselves."""
        for client in self.clients:
            if client.is_attached:
                client.bye()
            client.close()
        try:
            self.node.wait(DEADLINE_SECONDS)
        finally:
            self.node.kill()
            self.node.wait()
        eventually(lambda: not store_is_held(str(self.path)))
        eventually(lambda: processes_of(self.path) == [])
        eventually(lambda: marked_processes(self.path) == [])


@contextmanager
def task_store(path: Path) -> Iterator[TaskStore]:
    """Serve a store for tasks, and see that nothing is left behind."""
    store = TaskStore(path)
    try:
        yield store
    finally:
        store.end()


def events_of(path: Path, task: str) -> list[tuple[str, dict[str, Any]]]:
    """Read what the journal says of a task, in order: types and data."""
    hello = ask_writer_hello(str(path))
    with closing(open_reader(str(path), None if hello is None else hello["index"])) as reader:
        found = [json.loads(each.line) for each in reader.read(task).events]
    return [(each["type"], each["data"]) for each in found]


def types_of(store: TaskStore, task: str) -> list[str]:
    """Give the types of what the journal says of a task, in order."""
    return [type for type, _ in events_of(store.path, task)]


def fifo(place: Path) -> dict[str, bytes]:
    """Make a fifo, `pipe`, and give how a task is started that finds it: it goes on when something is written there."""
    os.mkfifo(place / "pipe")
    return {"cwd": os.fsencode(place)}


def begin_session(store: TaskStore, id: str) -> None:
    """Make a session."""
    with FrameClient(store.path, WRITER_SOCKET) as writer:
        number, (result,) = writer.ask([1, [first_append(id, kind="session", owner=own_owner("a token"))]])
        assert (number, result[:2]) == (1, [0, 1])


def row_of(path: Path, task: str) -> dict[str, Any]:
    """Read a task's summary from the files."""
    hello = ask_writer_hello(str(path))
    with closing(open_reader(str(path), None if hello is None else hello["index"])) as reader:
        row = reader.row(task)
        assert row.summary["kind"] == TASK
        return row.summary


def marked_processes(path: Path) -> list[int]:
    """Find the living processes of the store's tasks."""
    tasks = {f"TURNKEEPER_TASK={each.name}".encode() for each in path.glob("tasks/*")}
    found = []
    for entry in os.listdir("/proc") if tasks else ():
        try:
            if entry.isdigit() and tasks & set(Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")):
                found.append(int(entry))
        except OSError:
            continue
    return found


@contextmanager
def no_task_left(path: Path) -> Iterator[None]:
    """See that nothing of the store's tasks is left behind the body; what is, is killed."""
    try:
        yield
        eventually(lambda: marked_processes(path) == [])
    finally:
        for pid in marked_processes(path):
            kill(pid)
