"""A pool of agents in worker processes, each with a session of its own, each killed once in the middle of a turn.

`python session_pool.py DIRECTORY [trio|asyncio]` ends when every job is done. Kill it, too, and run it again.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AsyncExitStack

import anyio

from turnkeeper import ActorRef, ActorUnknown, ChildSpec, Runtime, open_runtime

AGENTS = ("anna", "bert", "carl")
JOBS = [f"chapter {number}" for number in range(1, 10)]


class Agent:
    """Does jobs. All that it remembers is its session's log, so its process may die at any moment."""

    def __init__(self, store: str, name: str) -> None:
        self._store, self._name = store, name
        self._done: set[str] = set()

    async def __aenter__(self) -> None:
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_runtime(self._store))
            session = await runtime.open_session(self._name, create=True)
            self._session = await stack.enter_async_context(session)
            self._stack = stack.pop_all()
        if session.interrupted:
            print(f"{self._name}: turn {session.interrupted.turn} was cut short, and is closed", flush=True)
        self._done.update([event.data["job"] async for event in session.events() if event.type == "pool/done"])

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def work(self, job: str) -> str:
        """Do a job in a turn, unless it was done before; return who has it."""
        if job not in self._done:
            async with self._session.turn():
                await self._session.append("user/message", {"text": job})
                async with self._session.tool(job, "think", {}, effect="idempotent") as call:
                    await anyio.sleep(0.2)
                    await call.finish("well thought")
                await self._session.append("pool/done", {"job": job})
            self._done.add(job)
        return f"{job} is with {self._name}"


async def main(store: str) -> None:
    """Give each agent a third of the jobs, and kill it once on the way."""
    async with open_runtime(store) as runtime:
        pool = await runtime.supervise(*(ChildSpec(name, Agent, (store, name), process=True) for name in AGENTS))
        async with anyio.create_task_group() as killing:
            killing.start_soon(kill_each, runtime)
            async with anyio.create_task_group() as working:
                for number, name in enumerate(AGENTS):
                    working.start_soon(hand_out, pool.ref(name), JOBS[number :: len(AGENTS)])
            killing.cancel_scope.cancel()
        print(*(f"{child.name} was started again {child.restarts} times" for child in pool.children()), sep="\n")


async def hand_out(agent: ActorRef, jobs: list[str]) -> None:
    """Ask for one job after another, and again if the agent died over it: it looks first whether it was done."""
    for job in jobs:
        while True:
            try:
                print(await agent.ask("work", job))
                break
            except ActorUnknown as error:
                print(error)


async def kill_each(runtime: Runtime) -> None:
    """Kill each agent once, when it begins to think: the process that owns its session."""
    killed = set()
    async for event in runtime.follow(types=["tool/started"]):
        owners = [each.owner["pid"] for each in await runtime.sessions() if each.id == event.stream and each.owner]
        if event.stream not in killed and owners:
            killed.add(event.stream)
            os.kill(owners[0], signal.SIGKILL)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend=sys.argv[2] if len(sys.argv) > 2 else "asyncio")
