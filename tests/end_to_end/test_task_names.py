"""End to end: what answers to the names of tasks, and that none of it takes a task for a session or the other way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.client.asking import ask_status
from turnkeeper.actors.errors import Ambiguous, Deleted, InvalidValue, NotFound, WrongKind
from turnkeeper.actors.ids import task_id_of_key
from turnkeeper.actors.reading.naming import find_task
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.tasks.records import notice_of

from ..command_line import CommandLine
from ..recorded_tasks import end, recording, request
from ..served import LOOPS_AND_STORES, SECONDS_MAX

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES]

KEYED = task_id_of_key("ci 17")
OTHER = "task-brave-otter-00000001"
NEXT = "task-brave-owl-00000002"


async def make(runtime: Runtime) -> str:
    """Make a session, with three tasks that have ended beside it; give its id."""
    async with await runtime.create_session(key="otter") as session:
        await session.append("note/made", {})
        await session.flush()
        async with recording(Path(runtime._client.path)) as recorder:
            for task in (KEYED, OTHER, NEXT):
                await recorder.record([request(task, session=session.id)])
                await recorder.record([end(task)], [notice_of(end(task), session.id)])
        return session.id


async def test_a_tasks_stream_is_read_as_any_other(store: Path) -> None:
    """By its id or a unique beginning of it: whole, in pages, and by who follows it or everything."""
    types = ["task/requested", "task/ended"]
    async with open_runtime(store) as runtime:
        session = await make(runtime)
        for name in (OTHER, "task-brave-ot"):
            assert [event.type for event in await runtime.read(name)] == types
            assert [event.type async for event in runtime.events(name)] == types
            following = runtime.follow(name, after=0)
            with anyio.fail_after(SECONDS_MAX):
                assert [(await anext(following)).stream for _ in types] == [OTHER, OTHER]
        everything = runtime.follow(after=0, types=["task/*"])
        with anyio.fail_after(SECONDS_MAX):
            found = [await anext(everything) for _ in range(6)]
        assert [event.stream for event in found] == [KEYED, KEYED, OTHER, OTHER, NEXT, NEXT]
        assert [info.id for info in await runtime.sessions()] == [session]
        for lookup in (runtime.read, lambda name: anext(runtime.follow(name, after=0))):
            with pytest.raises(Ambiguous) as caught:
                await lookup("task-brave")
            assert caught.value.candidates == [OTHER, NEXT]
            with pytest.raises(NotFound):
                await lookup("task-none")


async def test_the_commands_show_a_tasks_stream_and_count_no_task_as_a_session(store: Path, tmp_path: Path) -> None:
    """`session show` and the status go on working as before."""
    commands = CommandLine(store, tmp_path)
    async with open_runtime(store) as runtime:
        await make(runtime)
        status = await anyio.to_thread.run_sync(ask_status, str(store))
        assert status is not None
        assert status["sessions"] == 1
        shown = await anyio.to_thread.run_sync(commands.run, "session", "show", "task-brave-ot")
        assert (shown.code, "task/ended" in shown.out) == (0, True)
        listed = await anyio.to_thread.run_sync(commands.run, "session", "list", "--json")
        assert [row["key"] for row in listed.objects] == ["otter"]
        for arguments in (("stop", OTHER), ("delete", OTHER), ("fork", OTHER), ("rewind", OTHER, "--to", "1")):
            refused = await anyio.to_thread.run_sync(commands.run, "session", *arguments)
            assert refused.code != 0
            assert OTHER in refused.err
            assert "task" in refused.err
            assert "Traceback" not in refused.err


async def test_a_task_is_no_session(store: Path) -> None:
    """Its id, where a session is meant, is named as what it is, and nothing happens."""
    async with open_runtime(store) as runtime:
        await make(runtime)
        before = await runtime._client.next_position()
        attempts: list[Callable[[], Awaitable[object]]] = [
            lambda: runtime.open_session(OTHER),
            lambda: runtime.open_session(OTHER, takeover=True),
            lambda: runtime.fork_session(OTHER, at=1),
            lambda: runtime.delete(OTHER),
            lambda: runtime.undelete(OTHER),
            lambda: runtime.stop_session(OTHER),
            lambda: runtime.send(OTHER, "user/message", {"text": "hello"}),
            lambda: runtime.create_session(parent=OTHER),
            lambda: anext(runtime.messages(OTHER)),
            lambda: runtime.repair_session(OTHER),
        ]
        for attempt in attempts:
            with pytest.raises(WrongKind) as caught:
                await attempt()
            assert (caught.value.id, caught.value.kind, caught.value.wanted) == (OTHER, "task", "session")
        assert await runtime._client.next_position() == before


async def test_a_session_is_no_task(store: Path) -> None:
    """Its id or key, or its inbox, is named as what it is; a task answers to its id, its key and a beginning."""
    async with open_runtime(store) as runtime:
        session = await make(runtime)
        reads = runtime._client.reads
        for name, id in ((OTHER, OTHER), ("task-brave-ot", OTHER), ("ci 17", KEYED), (KEYED, KEYED)):
            assert (await reads.call(lambda reader, name=name: find_task(reader, name))).id == id  # type: ignore[misc]
        refusals = {
            session: WrongKind,
            "otter": WrongKind,
            f"inbox-{session}": WrongKind,
            session[:-1]: NotFound,
            "task-none": NotFound,
            "nothing": NotFound,
            "": NotFound,
            "\ud800": NotFound,
            "task-": Ambiguous,
        }
        for name, refusal in refusals.items():
            with pytest.raises(refusal):
                await reads.call(lambda reader, name=name: find_task(reader, name))  # type: ignore[misc]


async def test_a_task_of_a_deleted_sessions_key_is_found(store: Path) -> None:
    """Keys of sessions and keys of tasks are names of two kinds, and a deleted session is none of the second."""
    async with open_runtime(store) as runtime:
        session = await make(runtime)
        await runtime.delete(session)
        with pytest.raises(WrongKind):
            await runtime._client.reads.call(lambda reader: find_task(reader, session))
        with pytest.raises(NotFound) as caught:
            await runtime._client.reads.call(lambda reader: find_task(reader, "otter"))
        assert not isinstance(caught.value, Deleted)


async def test_a_session_logs_a_notice_and_no_other_record_of_a_task(store: Path) -> None:
    """Accepted under its own type it is the notice; what belongs into a task's stream alone is refused."""
    async with open_runtime(store) as runtime:
        id = await make(runtime)
        async with await runtime.open_session(id) as session:
            with anyio.fail_after(SECONDS_MAX):
                message = await anext(session.inbox())
            assert (message.type, message.sender, message.data["task"]) == ("task/ended", KEYED, KEYED)
            await message.accept(message.type)
            for type in ("task/requested", "task/started", "task/stopping", "task/emptied"):
                with pytest.raises(InvalidValue, match="turnkeeper alone"):
                    await session.append(type, {})
            with pytest.raises(InvalidValue, match="state"):
                await session.append("task/ended", {"by": "itself", "survivors": []})
            await session.flush()
        (logged,) = [event for event in await runtime.read(id) if event.type == "task/ended"]
        assert (logged.data["task"], logged.data["inbox"]) == (KEYED, 0)
