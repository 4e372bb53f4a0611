"""Run as a process: a host of one kind that does everything wrong that can be done wrong, and says what it is told.

`misuses.py STORE KIND`, where KIND is trio, asyncio or plain. The store has the sessions that `test_mixed_hosts` puts
there. Says `ready`, waits for a line, and says a line of JSON: [what was tried, the error's class, its message] for
each misuse, in which the host's own process, session and key have the same names whatever they are.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.runtime_opening import open_runtime

Call = Callable[[], Any]

END_OF_TURN = {"turn": 1, "reason": "completed"}
MISSING_BLOB = {"blob": "0" * 64, "bytes": 1, "media_type": "image/png"}


def misuses_of_runtime(runtime: Any, key: str) -> Mapping[str, Call]:
    """Give what can be done wrong with a runtime."""
    return {
        "open an unknown session": lambda: runtime.open_session("nobody"),
        "open one of two": lambda: runtime.open_session("twin"),
        "open a damaged session": lambda: runtime.open_session("broken"),
        "open a session of this process": lambda: runtime.open_session(key),
        "make a session of this process": lambda: runtime.open_session(key, create=True),
        "open a session of another process": lambda: runtime.open_session("held"),
        "make a session of a taken key": lambda: runtime.create_session(key=key),
        "make a session of an unknown parent": lambda: runtime.create_session(parent="nobody"),
        "make a session of a long title": lambda: runtime.create_session(title="x" * 10_000),
        "read an unknown session": lambda: runtime.read("nobody"),
        "read one of two": lambda: runtime.read("twin"),
        "read from before the beginning": lambda: runtime.read(key, start=-1),
        "follow an unknown session": lambda: first_of(runtime.follow("nobody")),
        "get a blob by nothing": lambda: runtime.get_blob({}),
        "get a missing blob": lambda: runtime.get_blob(MISSING_BLOB),
        "put no bytes": lambda: runtime.put_blob("text", media_type="text/plain"),
    }


def misuses_of_session(session: Any) -> Mapping[str, Call]:
    """Give what can be done wrong with a session that has an open turn, and in it a call "done" and one "begun"."""
    return {
        "append what is no number": lambda: session.append("my/n", {"n": [math.nan]}),
        "append bytes": lambda: session.append("my/n", {"n": {"m": b"x"}}),
        "append a missing blob": lambda: session.append("my/picture", {"picture": MISSING_BLOB}),
        "append other data under a key": lambda: session.append("my/n", {"n": 2}, key="once"),
        "write bytes": lambda: session.write(b"text"),
        "write half a character": lambda: session.write("\ud83d"),
        "write to no channel": lambda: session.write("text", channel=""),
        "write two megabytes": lambda: session.write("x" * 2**21),
        "end a turn under a key": lambda: session.append("turn/end", END_OF_TURN, key="turn"),
        "begin a second turn": lambda: enter(session.turn()),
        "append a second turn": lambda: session.append("turn/start", {}),
        "make a call of an unknown effect": lambda: session.tool_started("new", "bash", {}, effect="all"),
        "begin a call twice": lambda: session.tool_started("begun", "bash", {}),
        "run a call twice": lambda: enter(session.tool("done", "bash", {})),
        "finish a call twice": lambda: session.tool_finished("done", "again"),
        "read from before the beginning of mine": lambda: session.read(start=-1),
    }


USES: Mapping[str, Callable[[Any, Any], Any]] = {
    "append": lambda runtime, session: session.append("my/n", {"n": 1}),
    "append under a key": lambda runtime, session: session.append("my/n", {"n": 1}, key="once"),
    "write": lambda runtime, session: session.write("text"),
    "flush": lambda runtime, session: session.flush(),
    "turn": lambda runtime, session: enter(session.turn()),
    "tool": lambda runtime, session: enter(session.tool("late", "bash", {})),
    "tool_started": lambda runtime, session: session.tool_started("late", "bash", {}),
    "tool_finished": lambda runtime, session: session.tool_finished("late", 1),
    "sessions": lambda runtime, session: runtime.sessions(),
    "open_session": lambda runtime, session: runtime.open_session("twin-a"),
    "create_session": lambda runtime, session: runtime.create_session(),
    "read": lambda runtime, session: runtime.read("twin-a"),
    "follow": lambda runtime, session: first_of(runtime.follow("twin-a", after=0)),
    "put_blob": lambda runtime, session: runtime.put_blob(b"x", media_type="text/plain"),
}
"""What is right in itself, and wrong where nothing may be used any more."""

USES_OF_A_SESSION = 8
"""So many of them, the first ones, use the session; the others use the runtime alone."""


def uses(runtime: Any, session: Any) -> Mapping[str, Call]:
    """Give the uses of this runtime and this session."""
    return {what: partial(use, runtime, session) for what, use in USES.items()}


def enter(body: Any) -> Any:
    """Enter the body of a turn or a call, in a loop or without."""
    return body.__aenter__() if hasattr(body, "__aenter__") else body.__enter__()


def first_of(following: Any) -> Any:
    """Take a follower's first event, in a loop or without."""
    return anext(following) if hasattr(following, "__anext__") else next(following)


class Host:
    """Tries things, and keeps what it is told."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {f"process {os.getpid()}": "this process"}
        self.told: list[tuple[str, str, str]] = []

    def call(self, name: str, alias: str) -> None:
        """Give something of this host the name that it has in every host."""
        self._names[name] = alias

    def _tell(self, what: str, error: BaseException | None) -> None:
        message = str(error)
        for name, alias in self._names.items():
            message = message.replace(name, alias)
        message = re.sub(r"\d+,\d{3} bytes", "N bytes", message)  # of what has an id in it, which may be any length
        self.told.append((what, type(error).__name__, message))

    async def attempt(self, attempts: Mapping[str, Call]) -> None:
        """Try each, and wait for what has to be waited for."""
        for what, call in attempts.items():
            error: BaseException | None = None
            try:
                answer = call()
                if inspect.isawaitable(answer):
                    await answer
            except Exception as raised:
                error = raised
            self._tell(what, error)

    def attempt_in_child(self, attempts: Mapping[str, Call]) -> None:
        """Try each in a forked child, which has no loop and no threads, and whose first step has to be refused."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            for what, call in attempts.items():
                try:
                    answer = call()
                    if inspect.isawaitable(answer):
                        answer.__await__().send(None)
                    self._tell(what, None)
                except BaseException as error:
                    self._tell(what, error)
            os.write(writing, json.dumps(self.told).encode())
            os._exit(0)
        os.close(writing)
        os.wait()
        with os.fdopen(reading) as said:
            self.told = json.load(said)


@asynccontextmanager
async def entered(body: Any) -> AsyncIterator[Any]:
    """Be the asynchronous form of a context manager of either kind."""
    if hasattr(body, "__aenter__"):
        async with body as inner:
            yield inner
    else:
        with body as inner:
            yield inner


async def resolved(answer: Any) -> Any:
    """Wait for an answer where there is something to wait for."""
    return await answer if inspect.isawaitable(answer) else answer


async def main(store: str, kind: str) -> None:
    """Be a host that uses what `kind` says."""
    host = Host()
    opening: Any = connect(store) if kind == "plain" else open_runtime(store)
    async with entered(opening) as runtime:
        session = await resolved(runtime.open_session(kind, create=True))
        host.call(session.id, "ID")
        host.call(f"'{kind}'", "KEY")
        await resolved(session.append("my/n", {"n": 1}, key="once"))
        print("ready", flush=True)  # noqa: T201
        sys.stdin.readline()
        await host.attempt(misuses_of_runtime(runtime, kind))
        async with entered(session), entered(session.turn()):
            await resolved(session.tool_started("done", "bash", {}))
            await resolved(session.tool_finished("done", 1))
            await resolved(session.tool_started("begun", "bash", {}))
            await resolved(session.flush())
            before = [event.type for event in await resolved(session.read())]
            await host.attempt(misuses_of_session(session))
            host.attempt_in_child(uses(runtime, session))
            after = [event.type for event in await resolved(session.read())]
        assert after == before, (before, after)
        await host.attempt(dict(list(uses(runtime, session).items())[:USES_OF_A_SESSION]))
    await host.attempt(dict(list(uses(runtime, session).items())[USES_OF_A_SESSION:]))
    print(json.dumps(host.told), flush=True)  # noqa: T201


def drive(coroutine: Any) -> None:
    """Run a coroutine that never waits, as that of a plain program."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits for a loop")


if __name__ == "__main__":
    store, kind = sys.argv[1:]
    if kind == "plain":
        drive(main(store, kind))
    else:
        anyio.run(main, store, kind, backend=kind)
