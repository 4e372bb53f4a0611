"""End to end: the blocking face of a real store, as plain programs use it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from turnkeeper.actors.blocking import BlockingRuntime, connect
from turnkeeper.actors.errors import Fenced, NotFound, SessionBusy, SessionClosed, StoreRefused, TurnOpen

from ..served import SECONDS_MAX, finish, start_python, wait_unserved


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a store that isn't there yet."""
    return tmp_path / "store"


def test_a_plain_program_has_the_same_names_without_await(store: Path) -> None:
    """Sessions, turns, tools, lists, reads and following, one after the other."""
    with connect(store) as runtime:
        with runtime.create_session(key="k", labels={"project": "x"}) as session:
            with session.turn(model="m"):
                session.append("assistant/message", {"text": "", "tool_calls": [{"id": "a", "name": "bash"}]})
                with session.tool("a", "bash", {"command": "ls"}) as call:
                    assert [event.type for event in runtime.read("k")][-1] == "tool/started"
                    call.finish("files")
            position = session.flush()
            assert (session.head, session.key, session.interrupted, session.not_stored) == (5, "k", None, range(0))
            assert session.read(last=1)[0].position == position
        assert [(each.id, each.status) for each in runtime.sessions(project="x")] == [(session.id, "closed")]
        following = runtime.follow("k", after=0)
        assert [next(following).type for _ in range(5)] == [
            "turn/start",
            "assistant/message",
            "tool/started",
            "tool/finished",
            "turn/end",
        ]
        with runtime.open_session("k") as session:
            session.tool_started("b", "read", {}, effect="read")
            session.tool_finished("b", "text")
            assert [event.type for event in session.read(start=5)] == ["tool/started", "tool/finished"]
            session.send("k", "user/message", {"text": "to myself"})
            assert runtime.send("k", "user/message", {"text": "again"}, key="once") == 1
            inbox = iter(session.inbox(wakes_max=2))
            message = next(inbox)
            assert (message.seq, message.type, message.data, message.sender) == (
                *(0, "user/message", {"text": "to myself"}),
                session.id,
            )
            assert message.accept("user/message") == session.head - 1
            assert next(inbox).accept() == session.head - 1
        assert runtime.repair_session("k").copy is None
    wait_unserved(store, 0.5)


def test_plain_programs_fork_rewind_and_change_sessions(store: Path) -> None:
    """And list them in pages, delete them, bring them back and stop them."""
    with connect(store) as runtime, runtime.create_session(key="k") as session:
        for _ in range(3):
            session.append("my/note", {})
        session.rewind(1)
        assert (session.head, session.read(last=1)[0].data["to"]) == (4, 1)
        session.set(title="first", labels={"team": "red"})
        with session.fork(at=2) as fork, runtime.fork_session("k", at=1, title="t", labels={}, key="f") as other:
            assert (fork.head, other.head, other.key) == (3, 2, "f")
        runtime.set_session(other.id, labels={"team": "blue"})
        newest, second, oldest = runtime.sessions()
        assert [each.id for each in (newest, second, oldest)] == [other.id, fork.id, session.id]
        assert [each.labels["team"] for each in (newest, second, oldest)] == ["blue", "red", "red"]
        assert [each.id for each in runtime.sessions(after=newest, limit=1)] == [fork.id]
        runtime.delete(fork.id)
        assert [each.id for each in runtime.sessions()] == [other.id, session.id]
        runtime.undelete(fork.id)
        assert runtime.stop_session("k") == [session.id]
        session.append("my/note", {"too": "late"})
        with pytest.raises(Fenced):
            session.flush()


def test_errors_are_the_same_and_pass_unchanged(store: Path) -> None:
    """Refusals arrive as themselves; the body's own exception comes out of turn, session and runtime as it is."""
    error = ValueError("mine")

    def fail(runtime: BlockingRuntime) -> None:
        with runtime.create_session(key="k") as session, session.turn():
            with pytest.raises(SessionBusy):
                runtime.open_session("k", create=True)
            with pytest.raises(TurnOpen):
                session.turn().__enter__()
            with pytest.raises(NotFound):
                runtime.read("nobody")
            raise error

    with pytest.raises(ValueError, match="mine") as caught, connect(store) as runtime:
        fail(runtime)
    assert caught.value is error
    with connect(store) as second:
        assert second.read("k", last=1)[0].data["reason"] == "error"
    with pytest.raises(SessionClosed):
        runtime.read("k")


def test_a_store_that_cant_be_is_refused_where_it_is_opened(tmp_path: Path) -> None:
    """One error that says why, from the `with` itself."""
    (tmp_path / "file").write_text("no store")
    with pytest.raises(StoreRefused, match="not a directory"), connect(tmp_path / "file"):
        pytest.fail("the body ran")
    with pytest.raises(StoreRefused, match="the directory above it is missing"), connect(tmp_path / "no" / "store"):
        pytest.fail("the body ran")
    with pytest.raises(StoreRefused, match="a store is a directory"), connect("postgresql://host/store"):
        pytest.fail("the body ran")


def test_threads_may_share_a_session(store: Path) -> None:
    """Each thread's events keep their order, and none is lost or repeated."""

    def append(name: str) -> None:
        for number in range(50):
            session.append("my/n", {"by": name, "n": number})

    with connect(store) as runtime, runtime.create_session() as session:
        threads = [threading.Thread(target=append, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
        session.flush()
        events = runtime.read(session.id)
        assert len(events) == 200
        for name in "abcd":
            assert [event.data["n"] for event in events if event.data["by"] == name] == list(range(50))


def test_a_forked_child_is_refused_and_can_end(store: Path) -> None:
    """It gets ForkedProcess instead of hanging, leaves its `with` statements, and the parent goes on."""
    program = """
import os, sys
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import ForkedProcess

parent = os.getpid()
with connect(sys.argv[1]) as runtime, runtime.create_session() as session:
    session.append("user/message", {"text": "before"})
    session.flush()
    if os.fork() == 0:
        for call in (lambda: session.append("my/type", {}), session.flush, runtime.sessions):
            try:
                call()
            except ForkedProcess as error:
                assert error.opener == parent
                print("refused")
        sys.exit()
    _, status = os.wait()
    assert os.getpid() == parent
    session.append("user/message", {"text": "after"})
    session.flush()
    print(os.waitstatus_to_exitcode(status), [event.data["text"] for event in session.read()])
"""
    # Python warns of every fork in a process with threads, which is the very thing that is tried here.
    host = start_python("import warnings; warnings.simplefilter('ignore', DeprecationWarning)" + program, str(store))
    assert finish(host).splitlines() == ["refused"] * 3 + ["0 ['before', 'after']"]


@pytest.mark.parametrize(
    "program",
    [
        "from turnkeeper.actors.blocking import connect\nwith connect(sys.argv[1]) as runtime:\n    runtime.sessions()",
        """
import asyncio
from turnkeeper.actors.runtime_opening import open_runtime

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        async with await runtime.create_session() as session, session.turn():
            await session.append("user/message", {"text": "hello"})

asyncio.run(main())
""",
    ],
    ids=["plain", "asyncio"],
)
def test_a_host_that_doesnt_use_trio_never_imports_it(store: Path, program: str) -> None:
    """Whatever runs in a host's loop is on anyio: trio is for hosts that chose it, and for our own processes."""
    host = start_python(f"import sys\n{program}\nprint('trio' in sys.modules)", str(store))
    assert finish(host).strip() == "False"


def test_leaving_closes_the_sessions_that_are_still_open(store: Path) -> None:
    """What was appended is stored and the session free, though nobody flushed or closed it."""
    with connect(store) as runtime:
        session = runtime.create_session(key="k")
        session.append("user/message", {"text": "kept"})
    wait_unserved(store, 0.5)
    with pytest.raises(SessionClosed):
        session.flush()
    with connect(store) as runtime:
        assert runtime.read("k")[0].data == {"text": "kept"}
        assert [each.status for each in runtime.sessions()] == ["closed"]
