"""End to end: session actors, in the host's loop and in worker processes, on hosts of every kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.actors.blocking import connect

from ..served import SECONDS_MAX, wait_unserved

AGENT = """
import json, os, sys
from contextlib import AsyncExitStack
from turnkeeper.actors.runtime_opening import open_runtime

class Agent:
    def __init__(self, store, name):
        self._store, self._name = store, name

    async def __aenter__(self):
        async with AsyncExitStack() as stack:
            runtime = await stack.enter_async_context(open_runtime(self._store))
            session = await runtime.open_session(self._name, create=True)
            self._session = await stack.enter_async_context(session)
            self._stack = stack.pop_all()

    async def __aexit__(self, *exc):
        await self._stack.__aexit__(*exc)

    async def say(self, text):
        async with self._session.turn():
            await self._session.append("user/message", {"text": text})
        return {"pid": os.getpid(), "head": self._session.head}

"""

ASYNC_HOST = """
import {library}
from turnkeeper.actors.errors import SessionBusy

async def main(store):
    async with open_runtime(store) as runtime:
        here = await runtime.spawn(Agent, store, "here")
        there = await runtime.spawn(Agent, store, "there", process=True)
        told = [await agent.ask("say", f"{{n}}") for n in range(3) for agent in (here, there)]
        try:
            await runtime.spawn(Agent, store, "there", process=True)
        except SessionBusy as busy:
            owner = busy.owner["pid"]
        print(json.dumps([os.getpid(), owner, told]))

if __name__ == "__main__":
    {library}.run({main})
"""

PLAIN_HOST = """
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import SessionBusy

if __name__ == "__main__":
    with connect(sys.argv[1]) as runtime:
        here = runtime.spawn(Agent, sys.argv[1], "here")
        there = runtime.spawn(Agent, sys.argv[1], "there", process=True)
        told = [agent.ask("say", f"{n}") for n in range(3) for agent in (here, there)]
        try:
            runtime.spawn(Agent, sys.argv[1], "there", process=True)
        except SessionBusy as busy:
            owner = busy.owner["pid"]
        print(json.dumps([os.getpid(), owner, told]))
"""

HOSTS = {
    "trio": ASYNC_HOST.format(library="trio", main="main, sys.argv[1]"),
    "asyncio": ASYNC_HOST.format(library="asyncio", main="main(sys.argv[1])"),
    "plain": PLAIN_HOST,
}


@pytest.mark.parametrize("kind", HOSTS)
def test_a_session_actor_is_the_same_in_the_loop_and_in_a_process(tmp_path: Path, kind: str) -> None:
    """Both own their sessions, answer, and are stopped in order by the runtime's end, which leaves no process.

    The session that the worker owns is refused to another one, with the worker named, as the error that it is.
    """
    store, program = tmp_path / "store", tmp_path / "host.py"
    program.write_text(AGENT + HOSTS[kind])
    done = subprocess.run(
        [sys.executable, str(program), str(store)], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
    host, owner, told = json.loads(done.stdout)
    assert [answer["head"] for answer in told] == [3, 3, 6, 6, 9, 9]
    assert {answer["pid"] for answer in told[::2]} == {host}
    assert {answer["pid"] for answer in told[1::2]} == {owner}
    assert owner != host
    wait_unserved(store, 0.5)
    with connect(store) as runtime:
        assert sorted((each.key, each.events, each.status) for each in runtime.sessions()) == [
            ("here", 9, "closed"),
            ("there", 9, "closed"),
        ]
