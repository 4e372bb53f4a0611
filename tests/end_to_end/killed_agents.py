"""Run as a process: agents that take a turn each and are killed in it, one at each of its steps.

`killed_agents.py STORE RAN LOOP`. Agent number N works in a child of its own on the session `agent-N`, and kills that
child with SIGKILL at step N: a step is a suspension of its task, a frame that was sent, or the body of a call.
The file RAN gets a line whenever the body of a call runs, as `N CALL`. The first agent that comes to its end is the
last; then the process says how many were killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import anyio

from turnkeeper.actors.folding import Effect
from turnkeeper.actors.ids import new_session_id
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session
from turnkeeper.runtime.frame_socket import FrameSocket

from .suspensions import Once, Suspensions

CALLS: dict[str, Effect] = {"reads": "read", "repeats": "idempotent", "writes": "once"}
"""The calls that the agent makes, and their effects; it asks for one more that it never begins."""


async def work(runtime: Runtime, key: str, run_body: Callable[[str], None]) -> None:
    """Be an agent for a turn."""
    session = await runtime.open_session(key, create=True)
    async with session, session.turn():
        calls = [{"id": id, "name": "bash"} for id in (*CALLS, "never")]
        await session.append("assistant/message", {"text": "", "tool_calls": calls})
        await session.flush()
        for id, effect in CALLS.items():
            async with session.tool(id, "bash", {}, effect=effect) as call:
                run_body(id)
                await session.flush()
                await call.finish(f"{id} done")
            await session.flush()
        await work_flatly(session, run_body)


async def work_flatly(session: Session, run_body: Callable[[str], None]) -> None:
    """Make a call as a callback framework does."""
    await session.tool_started("flat", "bash", {})
    run_body("flat")
    await session.tool_finished("flat", "flat done")
    await session.flush()


async def run_agent(store: str, ran: int, number: int) -> None:
    """Be an agent, killed at the step of its number."""
    step = Once(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
    send_nowait = FrameSocket.send_nowait

    def send_and_count(self: FrameSocket, frame: bytes) -> bool:
        sent = send_nowait(self, frame)
        step()
        return sent

    def run_body(id: str) -> None:
        os.write(ran, f"{number} {id}\n".encode())
        step()

    async with open_runtime(store) as runtime:
        FrameSocket.send_nowait = send_and_count  # type: ignore[method-assign]
        await Suspensions(work(runtime, f"agent-{number}", run_body), step)


def main(store: str, ran: str, loop: str) -> None:
    """Start agents, one after the other, until one comes to its end."""
    # What each child would load for itself: its loop, the words of ids, and what reads an index.
    import_module(f"anyio._backends._{loop}")
    import_module("turnkeeper.storage.reading")
    new_session_id()
    descriptor = os.open(ran, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number, status = 0, signal.SIGKILL.value
    while status == signal.SIGKILL:
        number += 1
        child = os.fork()
        if child == 0:
            options: dict[str, Any] = {"backend": loop}
            try:
                anyio.run(run_agent, store, descriptor, number, **options)
            except BaseException:
                sys.excepthook(*sys.exc_info())
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    assert status == 0, f"agent {number} ended with {status}"
    print(number - 1)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
