"""A process that makes actors and serves them under names, as told on stdin: what another process asks them from.

Commands are lines of JSON, answered by a line each: `spawn` makes an actor of tests/actors_at_work.py in a task group
of its own, `cancel` cancels that group and says what left through it. The store is a directory without a node.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from turnkeeper.actors.named_actors import NamedActors
from turnkeeper.runtime.actors import spawn_in_loop
from turnkeeper.runtime.errors import error_from_wire, error_to_wire

from . import actors_at_work

ROOT = Path(__file__).resolve().parents[1]


class ActorHost:
    """The process, as a test has it."""

    def __init__(self, store: Path, backend: str) -> None:
        store.mkdir(mode=0o700, exist_ok=True)
        self.store = store
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.actor_host", str(store), backend],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / ".import")},
        )

    def spawn(self, name: str, actor: type, *arguments: Any, **options: Any) -> None:
        """Have an actor made and served. Raises what making it raised there."""
        self._command("spawn", name, actor.__name__, arguments, options)

    def cancel(self, name: str) -> None:
        """Have the task group of an actor cancelled. Raises what left through it."""
        self._command("cancel", name)

    def _command(self, *command: Any) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if answer is not None:
            raise error_from_wire(answer)

    def end(self) -> None:
        """Have it end, however it is."""
        with self.process as process:
            process.kill()


class _Tenancy:
    """One actor of this process, and the task group that it lives in."""

    def __init__(self, name: str, named: NamedActors) -> None:
        self._name = name
        self._named = named
        self._scope = anyio.CancelScope()
        self._ready, self._over = anyio.Event(), anyio.Event()
        self._error: Exception | None = None

    async def begin(self, tasks: TaskGroup, actor: str, arguments: list[Any], options: dict[str, Any]) -> None:
        """Make the actor in a task group of its own, and return when it is ready."""
        tasks.start_soon(self._live, getattr(actors_at_work, actor), arguments, options)
        await self._ready.wait()
        self._raise()

    async def end(self) -> None:
        """Cancel the task group, and wait for its end."""
        self._scope.cancel()
        await self._over.wait()
        self._raise()

    async def _live(self, actor: type, arguments: list[Any], options: dict[str, Any]) -> None:
        try:
            with self._scope, self._named.register(self._name) as registration:
                async with anyio.create_task_group() as group:
                    ref = await spawn_in_loop(group, actor, *arguments, name=self._name, **options)
                    registration.serve(ref)
                    ref.call_at_end(registration.end)
                    self._ready.set()
        except Exception as error:
            self._error = error
            while isinstance(self._error, ExceptionGroup):
                self._error = self._error.exceptions[0]
        self._ready.set()
        self._over.set()

    def _raise(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


async def _main(store: str) -> None:
    tenancies: dict[str, _Tenancy] = {}
    async with anyio.create_task_group() as tasks:
        named = NamedActors(store, tasks, lambda: None)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            command, name, *rest = json.loads(line)
            answer: dict[str, Any] | None = None
            try:
                if command == "spawn":
                    tenancies[name] = _Tenancy(name, named)
                    await tenancies[name].begin(tasks, *rest)
                else:
                    await tenancies.pop(name).end()
            except Exception as error:
                answer = error_to_wire(error)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
        tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(_main, sys.argv[1], backend=sys.argv[2])
