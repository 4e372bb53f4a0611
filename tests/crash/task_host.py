"""Run as a process: a host that starts tasks, waits for their ends, and accepts what its session is told of them.

`python -m tests.crash.task_host STORE LOOP`, with its plan as one line of JSON on its standard input. It says what it
was told, a line of JSON each: that a task was started, how a wait ended, which message was accepted for good. When all
its tasks but the endless ones have ended, it leaves.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import anyio

from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.session.session import Session


def say(**message: Any) -> None:
    """Tell the driver, which gets all of it or nothing."""
    os.write(1, json.dumps(message).encode() + b"\n")


async def accept_messages(session: Session) -> None:
    """Accept what comes, and say so when that is durable."""
    async for message in session.inbox():
        await message.accept()
        await session.flush()
        say(accepted=message.seq, session=session.id)


async def run_task(runtime: Runtime, session: Session, planned: dict[str, Any]) -> None:
    """Start a task, and wait for its end if it has one."""
    owner = session if planned["has_session"] else None
    task = await runtime.start_task(planned["argv"], session=owner, **planned["options"])
    say(started=planned["label"], task=task.id)
    if not planned["is_endless"]:
        state = await task.wait()
        say(ended=planned["label"], end={"state": state.state, "how": state.how, "by": state.by})


async def host(store: str, plan: dict[str, Any]) -> None:
    """Do as planned, and leave."""
    async with open_runtime(store) as runtime:
        session = await runtime.open_session(plan["session"], create=True)
        async with session, anyio.create_task_group() as accepting:
            if plan["accepts"]:
                accepting.start_soon(accept_messages, session)
            async with anyio.create_task_group() as group:
                for planned in plan["tasks"]:
                    group.start_soon(run_task, runtime, session, planned)
                    await anyio.sleep(plan["pause"])
            accepting.cancel_scope.cancel()
            say(closing=session.id)


if __name__ == "__main__":
    anyio.run(host, sys.argv[1], json.loads(sys.stdin.readline()), backend=sys.argv[2])
