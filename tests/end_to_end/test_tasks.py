"""End to end: tasks of a real store, as a program starts and looks at them: what runs, is refused, and is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.errors import Conflict, NotFound, SessionClosed, TaskRefused, WrongKind
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

from ..served import LOOPS_AND_STORES, SECONDS_MAX, kill, node_of
from ..served_tasks import no_task_left

pytestmark = [pytest.mark.anyio, LOOPS_AND_STORES, pytest.mark.shared_store]


def files_below(store: Path) -> list[Path]:
    """List all files of the store, sockets aside."""
    return [path for path in store.rglob("*") if path.is_file()]


def command_of(pid: int) -> list[bytes]:
    """Read what a process runs."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]


async def test_a_task_runs_and_its_end_is_known(runtime: Runtime) -> None:
    """It runs when the start returns; the wait gives its end, with all that was said of it."""
    with anyio.fail_after(SECONDS_MAX):
        command = ["sh", "-c", "echo out; echo err >&2; read line; exit 7"]
        task = await runtime.start_task(command, cwd="/", timeout=60, group="ci")
        end = await task.wait()
    assert (end.id, end.state, end.how, end.by, end.code) == (task.id, "ended", {"code": 7}, "itself", 7)
    assert (end.command, end.cwd, end.group, end.key, end.session) == (command, "/", "ci", None, None)
    assert (end.keep, end.survivors, end.output_bytes, end.output) == (False, [], 8, None)
    assert end.requested <= (end.started or 0) <= (end.ended or 0)
    assert await task.state() == end
    assert await runtime.tasks() == [end]


@pytest.mark.shared_store(False)
async def test_a_running_task_is_told_from_one_that_has_ended(runtime: Runtime) -> None:
    """Its state has its process; lists find it by what it is."""
    task = await runtime.start_task(["sleep", "60"])
    running = await task.state()
    assert (running.state, running.is_over, running.how, running.ended) == ("running", False, None, None)
    assert running.pid is not None
    assert command_of(running.pid) == [b"sleep", b"60"]
    done = await runtime.start_task(["true"])
    await done.wait()
    assert [each.id for each in await runtime.tasks(state="running")] == [task.id]
    assert [each.id for each in await runtime.tasks(state="ended")] == [done.id]
    assert {each.id for each in await runtime.tasks()} == {task.id, done.id}
    assert len(await runtime.tasks(limit=1)) == 1
    (first,) = await runtime.tasks(limit=1)
    assert [each.id for each in await runtime.tasks(after=first)] == [({task.id, done.id} - {first.id}).pop()]
    with pytest.raises(ValueError, match="state"):
        await runtime.tasks(state="asleep")  # type: ignore[arg-type]


async def test_how_a_command_ended_is_told_as_it_was(runtime: Runtime, tmp_path: Path) -> None:
    """An exit of 143, a signal that wasn't ours and a script that nothing runs are three different ends."""
    script = tmp_path / "script"
    script.write_text("\x7fno such thing\n")
    script.chmod(0o755)
    started = [
        await runtime.start_task(["sh", "-c", "exit 143"]),
        await runtime.start_task(["sh", "-c", "kill -TERM $$"]),
        await runtime.start_task([str(script)]),
    ]
    exited, killed, never = await runtime.wait_tasks(*started)
    assert (exited.how, exited.by) == ({"code": 143}, "itself")
    assert (killed.how, killed.by) == ({"signal": 15}, "unknown")
    assert (never.state, never.code, never.pid) == ("ended", None, None)
    assert "first line says what runs it" in (never.how or {})["not_started"]


async def test_the_command_gets_what_it_was_given(runtime: Runtime, tmp_path: Path) -> None:
    """Arguments, environment and directory reach it byte by byte, and its umask is this process's."""
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    raw = os.fsdecode(b"\xff\xfe\n=")
    program = (
        "import os, sys; print([os.fsencode(each) for each in sys.argv[1:]], os.getcwdb(), os.environb[b'RAW'], "
        "'HOME' in os.environ, os.umask(0), os.environ['TURNKEEPER_TASK'])"
    )
    umask = os.umask(0o027)
    try:
        task = await runtime.start_task(
            [sys.executable, "-c", program, raw, ""], cwd=str(place), env={"RAW": raw, "HOME": None}
        )
    finally:
        os.umask(umask)
    end = await task.wait()
    arguments = ([b"\xff\xfe\n=", b""], os.fsencode(place), b"\xff\xfe\n=", False, 0o027, task.id)
    assert (end.code, (await task.output()).text) == (0, " ".join(map(str, arguments)) + "\n")


async def test_an_environments_values_are_recorded_nowhere(runtime: Runtime, store: Path) -> None:
    """Once the command runs no file of the store has them."""
    task = await runtime.start_task(["sleep", "60"], env={"SECRET": "xyzzy-plugh"})
    await task.wait(timeout=0)
    found = files_below(store)
    assert any(path.name == "spec.json" for path in found)
    assert [path for path in found if b"xyzzy-plugh" in path.read_bytes()] == []
    request = (await runtime.read(task.id)).pop(0)
    assert (request.type, request.data["environment"]) == ("task/requested", ["SECRET"])


@pytest.mark.shared_store(False)
async def test_what_cant_be_started_leaves_nothing(runtime: Runtime, store: Path) -> None:
    """No record, no directory: the refusal is all there is."""
    for argv, arguments in (
        (["no-such-program"], {}),
        (["true"], {"cwd": "/no/such/place"}),
        (["true"], {"timeout": -1}),
        (["true"], {"limit": 0}),
        (["/tmp"], {}),
        (["true", "x" * 200_000], {}),
        (["true"], {"env": {"A": "\0"}}),
        (["true"], {"session": "nobody"}),
    ):
        with pytest.raises((TaskRefused, NotFound)) as refused:
            await runtime.start_task(argv, **arguments)
        assert "\n" not in str(refused.value)
    assert await runtime.tasks() == []
    assert [path for path in files_below(store) if "tasks" in path.parts] == []


# -- Names


@pytest.mark.shared_store(False)
async def test_a_key_starts_a_task_once(runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again it gives the same task, while it runs and when it has ended; the command ran once.

    What the caller's own environment is doesn't matter for that.
    """
    command = ["sh", "-c", f"echo ran >> {tmp_path}/ran; sleep 0.1"]
    task = await runtime.start_task(command, key="ci-17")
    monkeypatch.setenv("OTHER", "1")
    same = await runtime.start_task(command, key="ci-17")
    assert task.id == same.id
    assert task.id.startswith("task-ci-17-")
    assert (await same.wait()).key == "ci-17"
    assert (await (await runtime.start_task(command, key="ci-17")).wait()).code == 0
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert [each.id for each in await runtime.tasks()] == [task.id]


@pytest.mark.shared_store(False)
async def test_a_key_is_one_commands(runtime: Runtime) -> None:
    """With other arguments it is refused, and the refusal names the key."""
    await runtime.start_task(["true"], key="ci-17")
    with pytest.raises(Conflict, match="ci-17"):
        await runtime.start_task(["false"], key="ci-17")
    assert len(await runtime.tasks()) == 1


@pytest.mark.shared_store(False)
async def test_a_task_answers_to_its_id_a_beginning_and_its_key(runtime: Runtime) -> None:
    """And to nothing else: a session's id is said to be one, an unknown name to be unknown."""
    task = await runtime.start_task(["true"], key="ci-17")
    await task.wait()
    for name in (task.id, task.id[:-3], "ci-17"):
        found = runtime.task(name)
        assert (await found.state()).id == found.id == task.id
        assert (await runtime.task(name).wait()).code == 0
        assert (await runtime.task(name).output()).data == b""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "hello"})
        await session.flush()
        for call in ("state", "wait", "stop", "output"):
            with pytest.raises(WrongKind, match="session"):
                await getattr(runtime.task(session.id), call)()
            with pytest.raises(NotFound):
                await getattr(runtime.task("task-nobody"), call)()
        with pytest.raises(WrongKind):
            await runtime.open_session(task.id)
    with pytest.raises(NotFound):
        await runtime.wait_tasks(task, "task-nobody")
    with pytest.raises(NotFound):
        await anext(runtime.task("task-nobody").follow())
    with pytest.raises(TypeError):
        runtime.task(5)  # type: ignore[arg-type]


# -- Sessions


async def test_a_sessions_inbox_is_told_of_the_end(runtime: Runtime) -> None:
    """Also of a session of which nothing was stored when the task was started; once, from the task."""
    async with await runtime.create_session(key="agent") as session:
        task = await runtime.start_task(["sh", "-c", "exit 3"], session=session)
        with anyio.fail_after(SECONDS_MAX):
            async for message in session.inbox():
                assert (message.type, message.sender, message.data["task"]) == ("task/ended", task.id, task.id)
                assert message.data["how"] == {"code": 3}
                await message.accept()
                break
        assert (await task.state()).session == session.id
        other = await runtime.start_task(["true"], session="agent")
        await runtime.wait_tasks(other)
        for named in (session, "agent", session.id):
            assert {each.id for each in await runtime.tasks(session=named)} == {task.id, other.id}
        assert session.interrupted is None


async def test_a_task_of_a_session_that_is_closed_is_a_task(runtime: Runtime) -> None:
    """Nobody needs to own a session for its tasks; one that never was can have none."""
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "hello"})
    task = await runtime.start_task(["true"], session=session)
    assert (await task.wait()).session == session.id
    async with await runtime.create_session() as unstored:
        pass
    with pytest.raises(NotFound):
        await runtime.start_task(["true"], session=unstored)
    with pytest.raises(WrongKind):
        await runtime.start_task(["true"], session=task.id)


# -- Output


async def test_output_is_read_in_pieces_and_followed(runtime: Runtime, tmp_path: Path) -> None:
    """From a place on, so many lines of either end; following ends with the task."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = await runtime.start_task(["sh", "-c", f"seq 1 5; cat {gate}; echo end"])
    pieces = task.follow()
    seen = b""
    with anyio.fail_after(SECONDS_MAX):
        while seen != b"1\n2\n3\n4\n5\n":
            seen += (await anext(pieces)).data
        await anyio.to_thread.run_sync(gate.write_text, "go\n")
        async for piece in pieces:
            seen += piece.data
    assert seen == b"1\n2\n3\n4\n5\ngo\nend\n"
    await pieces.aclose()
    assert (await task.output(last=2)).data == b"go\nend\n"
    assert (await task.output(head=1)).data == b"1\n"
    assert (await task.output(start=10)).data == b"go\nend\n"
    with pytest.raises(ValueError, match="both"):
        await task.output(head=1, last=1)


async def test_following_goes_on_while_the_node_is_killed(runtime: Runtime, store: Path, tmp_path: Path) -> None:
    """Nothing of the output is missing, and the end is found out."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    task = await runtime.start_task(["sh", "-c", f"echo before; cat {gate}; exit 5"])
    pieces = task.follow()
    with anyio.fail_after(SECONDS_MAX):
        assert (await anext(pieces)).data == b"before\n"
        kill(node_of(store))
        await anyio.to_thread.run_sync(gate.write_text, "after\n")
        assert b"".join([piece.data async for piece in pieces]) == b"after\n"
        assert (await task.wait()).how == {"code": 5}


# -- Ends of the runtime


async def test_nothing_is_asked_of_a_runtime_that_was_left(store: Path) -> None:
    """Each call says so, whatever it is."""
    with no_task_left(store):
        async with open_runtime(store) as runtime:
            task = await runtime.start_task(["true"])
            await task.wait()
            pieces = task.follow()
    for call in (task.state, task.wait, task.stop, task.output, pieces.__anext__, runtime.tasks, runtime.wait_tasks):
        with pytest.raises(SessionClosed):
            await call()
    with pytest.raises(SessionClosed):
        await runtime.start_task(["true"])
    with pytest.raises(SessionClosed):
        runtime.task(task.id)
