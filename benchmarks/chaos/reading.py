"""Run as a process behind the last life of a round: opens the store once more, and notes all that can be read of it.

`python -m turnkeeper.benchmarks.chaos.reading STORE NOTES`. Each session is opened, which closes what a crash left open
in it, closed, and read whole through the product, as its agents would; so is the list of sessions, and everything is
followed once from its beginning. Tasks have the time that they take to end; what a killed shim has left of one is
stopped, as it is named, and nobody else would. Beside it the checker reads the files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from turnkeeper import Corrupt, Event, Runtime, SessionInfo, TaskState, open_runtime

from .follower import note_loss
from .noted_session import Maker, noted
from .notes import Notebook

PAGE = 1000
FOLLOWER = "reader"
TASKS_SECONDS = 15.0
GRACE_SECONDS = 0.3
SILENT_SECONDS = 0.5
"""When following gives nothing for so long, it has come to the end."""


async def read_all(store: str, notebook: Notebook) -> None:
    """Open, close, read, list and follow everything."""
    async with open_runtime(store) as runtime:
        rows = await all_sessions(runtime)
        for row in rows:
            async with noted(await runtime.open_session(row.id), notebook, Maker(FOLLOWER)):
                pass
        for row in rows:
            await _read(runtime, row.id, notebook)
        notebook.listed([row.id for row in await all_sessions(runtime)])
        await _follow(runtime, notebook)
        await _end_tasks(runtime, notebook)
        notebook.leaving()


async def all_sessions(runtime: Runtime) -> list[SessionInfo]:
    """List every session."""
    rows: list[SessionInfo] = []
    while page := await runtime.sessions(limit=PAGE, after=rows[-1] if rows else None):
        rows += page
    return rows


async def _read(runtime: Runtime, id: str, notebook: Notebook) -> None:
    events: list[Event] = []
    head = 0
    while page := await runtime.read(id, start=len(events), limit=PAGE):
        events += page
        head = page.head
    notebook.read(id, 0, head, events)


async def _follow(runtime: Runtime, notebook: Notebook) -> None:
    notebook.following(FOLLOWER, 0)
    following = runtime.follow(after=0)
    events: list[Event] = []
    with anyio.CancelScope() as scope:
        while True:
            scope.deadline = anyio.current_time() + SILENT_SECONDS
            loss: Corrupt | None = None
            try:
                events.append(await anext(following))
            except Corrupt as error:
                loss = error
            if len(events) == PAGE or loss is not None:
                notebook.followed(FOLLOWER, events)
                events = []
            if loss is not None:
                note_loss(FOLLOWER, loss, notebook)
    if events:
        notebook.followed(FOLLOWER, events)
    await following.aclose()


async def _end_tasks(runtime: Runtime, notebook: Notebook) -> None:
    """Wait for the ends of tasks, and stop what is left of those that are lost."""
    tasks: list[TaskState] = []
    while page := await runtime.tasks(limit=PAGE, after=tasks[-1] if tasks else None):
        tasks += page
    if not tasks:
        return
    left = [
        task for task in await runtime.wait_tasks(*(task.id for task in tasks), timeout=TASKS_SECONDS) if task.survivors
    ]
    for task in left:
        if task.key is not None:
            notebook.stopping(task.key)
    stopped = await runtime.stop_tasks(*(task.id for task in left), grace=GRACE_SECONDS)
    if stopped.left:
        raise RuntimeError(f"a stop has left something of {stopped.left}")


def main() -> None:
    """Read the store that the arguments name."""
    store, notes = sys.argv[1:]
    with Notebook(Path(notes)) as notebook:
        anyio.run(read_all, store, notebook, backend="trio")


if __name__ == "__main__":
    main()
