"""End to end: who owns a session, who is told apart from whom, and what becomes of an owner that was taken over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.blocking import BlockingRuntime, connect
from turnkeeper.actors.errors import SessionBusy
from turnkeeper.actors.protocol import WRITER_SOCKET
from turnkeeper.runtime.identity import identity_of, own_identity

from ..served import end_all, finish, kill, read_line, start_python
from ..serving import FrameClient, first_append, stopped

pytestmark = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])

_OWNER = """
import asyncio, json, sys
from turnkeeper.actors.errors import Fenced, SessionBusy
from turnkeeper.actors.runtime_opening import open_runtime

async def name_of_error(call):
    try:
        await call
    except (Fenced, SessionBusy) as error:
        return [type(error).__name__, error.owner["pid"]]

async def enter_tool(session):
    async with session.tool("call", "bash", {}):
        print("the body ran", flush=True)

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        session = await runtime.open_session("job", create=True)
        await session.append("my/n", {"n": 0})
        await session.flush()
        for n in range(1, 4):
            await session.append("my/n", {"n": n})
        print(session.id, flush=True)
        sys.stdin.readline()  # and the loop stands still, so that nothing of it is sent
        calls = [session.flush(), session.append("my/n", {"n": 4}), enter_tool(session), runtime.open_session("job")]
        errors = [await name_of_error(call) for call in calls]
        lost = list(session.not_stored)
        await session.aclose()
        print(json.dumps({"errors": errors, "lost": lost}), flush=True)

asyncio.run(main())
"""


@pytest.fixture
def plain(store: Path) -> Iterator[BlockingRuntime]:
    """The store, opened by a plain program."""
    with connect(store) as runtime:
        yield runtime


def test_a_stopped_owner_keeps_its_session_until_it_is_taken_over_and_is_fenced_when_it_wakes(
    store: Path, plain: BlockingRuntime
) -> None:
    """However silent, a living owner is named to others; taken over, it learns of it and which events are not stored.

    What it had buffered never reaches the log, where one owner's events stand behind the other's.
    """
    host = start_python(_OWNER, str(store))
    try:
        id = read_line(host)
        identity = identity_of(host.pid)
        assert identity is not None
        with stopped(host.pid):
            for wanted in ("job", id, id[:-1]):
                with pytest.raises(SessionBusy) as caught:
                    plain.open_session(wanted)
                assert caught.value.stream == id
                assert caught.value.owner.items() >= identity.as_map().items()
                assert f"process {host.pid} on {identity.host}" in str(caught.value)
            session = plain.open_session("job", takeover=True)
            session.append("my/n", {"n": 100})
            session.flush()
        said = json.loads(finish(host, "\n"))
        owner = os.getpid()
        assert said["errors"] == [["Fenced", owner], ["Fenced", owner], ["Fenced", owner], ["SessionBusy", owner]]
        assert said["lost"] == [1, 2, 3]
        session.append("my/n", {"n": 101})
        session.close()
        assert [event.data["n"] for event in plain.read(id)] == [0, 100, 101]
    finally:
        end_all([host])


def test_an_owner_is_told_apart_from_whoever_has_its_pid(store: Path, plain: BlockingRuntime) -> None:
    """A reused pid, a pid from before a reboot and a zombie are gone; another user's process lives.

    What runs on another host, or is no identity at all, can't be seen from here: it keeps its session until it is taken
    over.
    """
    own = own_identity().as_map()
    with some_process() as living, ended_process() as zombie:
        gone = {
            "reused-pid": {**own, "start": own["start"] - 1},
            "rebooted": {**own, "boot": "00000000-0000-0000-0000-000000000000"},
            "zombie": zombie,
        }
        held = {"living": living, "elsewhere": {**own, "host": "elsewhere"}, "nobody": {"pid": own["pid"]}}
        store_owned(store, gone | held)
        listed = {each.id: each.status for each in plain.sessions()}
        assert listed == dict.fromkeys(gone, "crashed") | dict.fromkeys(held, "active")
        for id in gone:
            with plain.open_session(id) as session:
                assert session.head == 1
        for id, owner in held.items():
            with pytest.raises(SessionBusy) as caught:
                plain.open_session(id)
            assert caught.value.owner == {**owner, "token": id}
            assert len(plain.read(id)) == 1
        with plain.open_session("elsewhere", takeover=True) as session:
            assert session.head == 1
    with plain.open_session("living") as session:
        assert session.head == 1


def store_owned(store: Path, owners: dict[str, dict[str, Any]]) -> None:
    """Store sessions of one event, each with an owner who hasn't released it."""
    appends = [first_append(id, kind="session", owner={**owner, "token": id}) for id, owner in owners.items()]
    with FrameClient(store, WRITER_SOCKET) as writer:
        number, answers = writer.ask([1, appends])
    assert number == 1
    assert [answer[0] for answer in answers] == [0] * len(owners)


@contextlib.contextmanager
def some_process() -> Iterator[dict[str, Any]]:
    """Start a process, of another user if that is allowed here, and give its identity; end it afterwards."""
    user = 65534 if os.geteuid() == 0 else None
    process = subprocess.Popen(["sleep", "60"], user=user, cwd="/")
    try:
        identity = identity_of(process.pid)
        assert identity is not None
        yield identity.as_map()
    finally:
        kill(process.pid)
        process.wait()


@contextlib.contextmanager
def ended_process() -> Iterator[dict[str, Any]]:
    """Give the identity of a process that has ended and isn't reaped before the body's end."""
    process = subprocess.Popen(["sleep", "60"])
    try:
        identity = identity_of(process.pid)
        assert identity is not None
        os.kill(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        yield identity.as_map()
    finally:
        process.wait()
