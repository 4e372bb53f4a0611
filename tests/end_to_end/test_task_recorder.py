"""End to end: records of tasks on their way to the writer, whoever dies meanwhile; and who acts on them finds them."""

from __future__ import annotations

import signal
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import Conflict, Deleted, NotFound
from turnkeeper.actors.node.tasks.recorder import Recorder
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.tasks.records import notice_of
from turnkeeper.actors.tasks.state import TaskState
from turnkeeper.actors.writer.requests import RECORDS_MAX
from turnkeeper.storage.requests import Appended

from ..recorded_tasks import end, recording, request
from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of, writer_of

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

KILLS = 4


async def make(runtime: Runtime, key: str) -> str:
    """Make a session that is stored and closed; give its id."""
    async with await runtime.create_session(key=key) as session:
        await session.append("note/made", {})
        return session.id


async def test_a_record_is_durable_and_readable_when_it_has_come_back(store: Path) -> None:
    """From any process, at once; `reads` finds it too."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        (answer,) = await recorder.record([request("task-a")])
        assert isinstance(answer, Appended)
        assert answer[:2] == (0, 1)
        assert [event.type for event in await runtime.read("task-a")] == ["task/requested"]
        state = TaskState.from_row(await recorder.reads.call(lambda reader: reader.row("task-a")))
        assert (state.state, state.command, state.position) == ("queued", ["true"], answer.position)


async def test_each_record_is_answered_for_itself(store: Path) -> None:
    """The posts first, then the notices: what is refused leaves the rest alone."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        owl = await make(runtime, "owl")
        await runtime.delete(await make(runtime, "otter"))
        await recorder.record([end("task-a", 1)])
        notices = [notice_of(end("task-b"), to) for to in ("nobody", "otter", owl)]
        answers = await recorder.record([end("task-a", 2), end("task-b")], notices)
        assert [type(answer) for answer in answers] == [Conflict, Appended, NotFound, Deleted, Appended]
        assert [event.data["sender"] for event in await runtime.read(f"inbox-{owl}")] == ["task-b"]


async def test_more_than_is_stored_together_is_refused_at_the_call(store: Path) -> None:
    """And the recorder goes on."""
    async with open_runtime(store), recording(store) as recorder:
        with pytest.raises(ValueError, match=str(RECORDS_MAX)):
            await recorder.record([end(f"task-{number}") for number in range(RECORDS_MAX + 1)])
        with pytest.raises(ValueError, match="different"):
            await recorder.record([request("task-a"), end("task-a")])
        assert isinstance((await recorder.record([request("task-a")]))[0], Appended)


async def test_records_outlive_any_number_of_writers(store: Path) -> None:
    """Each end is stored once with its notice, though writers are killed while they are on their way."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        otter = await make(runtime, "otter")
        recorded: list[str] = []
        is_killed = False
        goes_on = anyio.Event()

        async def record_without_pause() -> None:
            while not is_killed or len(recorded) < 20:
                goes_on.set()
                task = f"task-{len(recorded)}"
                answers = await recorder.record([end(task)], [notice_of(end(task), otter)])
                assert [type(answer) for answer in answers] == [Appended, Appended]
                recorded.append(task)

        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(record_without_pause)
                for _ in range(KILLS):
                    goes_on = anyio.Event()
                    await goes_on.wait()
                    await anyio.to_thread.run_sync(lambda: kill(writer_of(store)))
                is_killed = True
        inbox = [event.data["data"]["task"] for event in await runtime.read(f"inbox-{otter}", last=10_000)]
        assert inbox == recorded
        for task in recorded:
            assert [event.type for event in await runtime.read(task)] == ["task/ended"]


async def test_reads_follow_the_writer_to_another_index(store: Path) -> None:
    """A writer that died of a memory fault leaves an index that nobody opens again."""
    async with open_runtime(store), recording(store) as recorder:
        await recorder.record([request("task-a")])
        await recorder.reads.call(lambda reader: reader.row("task-a"))
        await anyio.to_thread.run_sync(lambda: kill(writer_of(store), number=signal.SIGSEGV))
        await recorder.record([end("task-a")])
        row = await recorder.reads.call(lambda reader: reader.row("task-a"))
        assert TaskState.from_row(row).state == "ended"


async def test_a_record_waits_for_the_next_node_of_the_store(store: Path) -> None:
    """No process serves the store for a while; what was on its way is stored when one does again."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        await recorder.record([request("task-a")])
        writer = writer_of(store)
        kill(node_of(store))
        kill(writer)
        with anyio.fail_after(SECONDS_MAX):
            assert isinstance((await recorder.record([end("task-a")]))[0], Appended)
        assert [event.type for event in await runtime.read("task-a")] == ["task/requested", "task/ended"]


async def test_a_record_that_was_given_up_can_be_made_again(store: Path) -> None:
    """Stored or not: it is stored once."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        await recorder.record([request("task-a")])
        with anyio.CancelScope() as given_up:
            given_up.cancel()
            await recorder.record([end("task-a")])
        assert given_up.cancelled_caught
        assert isinstance((await recorder.record([end("task-a")]))[0], Appended)
        assert [event.type for event in await runtime.read("task-a")] == ["task/requested", "task/ended"]


async def test_what_was_given_up_is_settled_before_another_run_goes_on(store: Path) -> None:
    """Who gave it isn't there any more: it may have been sent, or not yet. Then it is in the journal."""
    async with open_runtime(store) as runtime:
        recorder = Recorder(str(store))
        with anyio.CancelScope() as given_up:
            given_up.cancel()
            await recorder.record([request("task-a")])
        async with anyio.create_task_group() as tasks:
            await tasks.start(recorder.run)
            with anyio.fail_after(SECONDS_MAX):
                await recorder.settle()
            assert [event.type for event in await runtime.read("task-a")] == ["task/requested"]
            await recorder.settle()
            tasks.cancel_scope.cancel()


async def test_who_acts_on_a_tasks_event_finds_it_in_the_journal(store: Path) -> None:
    """A subscriber that hears of an end reads the state at once, and it has ended; and so does who gets the notice."""
    async with open_runtime(store) as runtime, recording(store) as recorder:
        otter = await make(runtime, "otter")
        tasks = [f"task-{number}" for number in range(50)]

        async def record_all() -> None:
            for task in tasks:
                await recorder.record([request(task, session=otter)])
                await recorder.record([end(task)], [notice_of(end(task), otter)])

        seen: list[str] = []
        with anyio.fail_after(SECONDS_MAX):
            async with anyio.create_task_group() as group:
                group.start_soon(record_all)
                async for event in runtime.follow(after=0, types=["task/ended"]):
                    row = await recorder.reads.call(lambda reader, id=event.stream: reader.row(id))  # type: ignore[misc]
                    assert TaskState.from_row(row).state == "ended"
                    seen.append(event.stream)
                    if len(seen) == len(tasks):
                        break
        assert seen == tasks
