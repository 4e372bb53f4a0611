"""`turnkeeper task stop`: end tasks, with everything that they started."""

from __future__ import annotations

from functools import partial

import click

from turnkeeper.actors.reading.naming import find_task
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.stopping import those_below
from turnkeeper.actors.tasks.listing import unfinished
from turnkeeper.actors.tasks.task import TasksStopped
from turnkeeper.storage.backend import BackendReader
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .failures import Failure
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text
from .store_view import look_at
from .task_names import complete_task, naming_tasks
from .values import duration


@command("stop", example="turnkeeper task stop --group nightly --grace 10s")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_task)
@click.option("--grace", type=duration, default="5s", show_default=True, metavar="TIME", help="Between TERM and KILL.")
@click.option(
    "--session",
    metavar="ID",
    help="Those of this session, of its children and theirs.",
    shell_complete=complete_session,
)
@click.option("--group", metavar="G", help="Those of this group.")
def stop(invocation: Invocation, ids: tuple[str, ...], grace: float, session: str | None, group: str | None) -> None:
    """Stop tasks, named by their ids, their session or their group, and print what became of each.

    Everything that a task started is ended: by SIGTERM, and after the grace by SIGKILL. What an ended task left behind
    is ended, too. Given both, a session and a group, only those tasks are stopped that are of both.
    """
    if not ids and session is None and group is None:
        raise click.UsageError("nothing to stop; give ids, --session or --group")
    store = invocation.store
    describe(store)
    with look_at(store) as view, naming_tasks(store, *ids):
        tasks = view.ask(lambda reader: _tasks(reader, ids, session, group))
    stopped = run_in_loop(partial(_stop, store, tasks, grace)) if tasks else TasksStopped([], [], {})
    if invocation.is_json:
        print_json({"stopped": stopped.stopped, "already_ended": stopped.already_ended, "left": stopped.left})
    else:
        _print(stopped)
    if stopped.left:
        left = "; ".join(f"{id}: {', '.join(map(str, pids))}" for id, pids in stopped.left.items())
        advice = "look what keeps these processes: ps -o pid,stat,wchan,args -p PID"
        raise Failure("failed", "some processes can't be ended", left, advice, told=invocation.is_json)


def _tasks(reader: BackendReader, ids: tuple[str, ...], session: str | None, group: str | None) -> list[str]:
    """Find the tasks that are meant. Raises NotFound, Ambiguous, WrongKind."""
    found = [find_task(reader, id).id for id in ids]
    if session is not None or group is not None:
        rows = [row for row in unfinished(reader) if group in (None, row.summary.get("group"))]
        if session is not None:
            owners = {owner for row in rows if (owner := row.summary.get("session")) is not None}
            below = those_below(reader, reader.resolve(session), owners)
            rows = [row for row in rows if row.summary.get("session") in below]
        found += [row.id for row in rows]
    return list(dict.fromkeys(found))


async def _stop(store: str, tasks: list[str], grace: float) -> TasksStopped:
    async with open_runtime(store) as runtime:
        return await runtime.stop_tasks(*tasks, grace=grace)


def _print(stopped: TasksStopped) -> None:
    for ids, what in ((stopped.stopped, "stopped"), (stopped.already_ended, "had ended")):
        for id in ids:
            print_text(f"{id}  {what}")
    if not (stopped.stopped or stopped.already_ended or stopped.left):
        print_text("nothing to stop")
