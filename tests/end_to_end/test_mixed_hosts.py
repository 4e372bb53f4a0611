"""End to end: programs of every kind on one store at once, through one writer, each a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.client.asking import ask_hello
from turnkeeper.actors.protocol import WRITER_SOCKET

from ..served import SECONDS_MAX, end_all, finish, processes_of, read_line, start_python, wait_unserved
from ..serving import FrameClient, first_append
from .misuses import USES

ROOT = Path(__file__).resolve().parents[2]

EVENTS = 200

_ASYNC = """
import json, os, sys
import {library}
from turnkeeper.actors.errors import SessionBusy
from turnkeeper.actors.runtime_opening import open_runtime

def say(**words):
    print(json.dumps(words), flush=True)

async def try_to_open(runtime, wanted):
    try:
        await runtime.open_session(wanted)
    except SessionBusy as busy:
        return busy.owner["pid"]

async def main():
    async with open_runtime(sys.argv[1]) as runtime:
        async with await runtime.open_session(sys.argv[2], create=True) as session:
            await session.append("my/n", {{"n": 0}})
            await session.flush()
            say(pid=os.getpid(), id=session.id)
            busy = [await try_to_open(runtime, name) for name in (sys.argv[2], *sys.stdin.readline().split())]
            for number in range(1, {events}):
                await session.append("my/n", {{"n": number}})
                if number % 7 == 0:
                    await session.flush()
            await session.flush()
            say(busy=busy)
            sys.stdin.readline()

{library}.run({main})
"""

_PLAIN = """
import json, os, sys
from turnkeeper.actors.errors import SessionBusy
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.protocol import WRITER_SOCKET

def say(**words):
    print(json.dumps(words), flush=True)

def try_to_open(runtime, wanted):
    try:
        runtime.open_session(wanted)
    except SessionBusy as busy:
        return busy.owner["pid"]

with connect(sys.argv[1]) as runtime, runtime.open_session(sys.argv[2], create=True) as session:
    session.append("my/n", {{"n": 0}})
    session.flush()
    say(pid=os.getpid(), id=session.id)
    busy = [try_to_open(runtime, name) for name in (sys.argv[2], *sys.stdin.readline().split())]
    for number in range(1, {events}):
        session.append("my/n", {{"n": number}})
        if number % 7 == 0:
            session.flush()
    session.flush()
    say(busy=busy)
    sys.stdin.readline()
"""

_ENDLESS_ASYNC = """
import sys
import {library}
from turnkeeper.actors.runtime_opening import open_runtime

flushed = 0

async def main():
    global flushed
    async with open_runtime(sys.argv[1]) as runtime:
        async with await runtime.open_session(sys.argv[2], create=True) as session, session.turn():
            while True:
                await session.append("my/n", {{}})
                await session.flush()
                flushed += 1
                if flushed == 50:
                    print("going", flush=True)

try:
    {library}.run({main})
except KeyboardInterrupt:
    print(flushed)
"""

_ENDLESS_PLAIN = """
import sys
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.protocol import WRITER_SOCKET

flushed = 0
try:
    with connect(sys.argv[1]) as runtime, runtime.open_session(sys.argv[2], create=True) as session, session.turn():
        while True:
            session.append("my/n", {})
            session.flush()
            flushed += 1
            if flushed == 50:
                print("going", flush=True)
except KeyboardInterrupt:
    print(flushed)
"""

ENDLESS_PROGRAMS = {
    "trio": _ENDLESS_ASYNC.format(library="trio", main="main"),
    "asyncio": _ENDLESS_ASYNC.format(library="asyncio", main="main()"),
    "plain": _ENDLESS_PLAIN,
}

PROGRAMS = {
    "trio": _ASYNC.format(library="trio", main="main", events=EVENTS),
    "asyncio": _ASYNC.format(library="asyncio", main="main()", events=EVENTS),
    "plain": _PLAIN.format(events=EVENTS),
}


@pytest.fixture
def hosts(store: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """One program of each kind, each with a session of its own on one store."""
    started = {name: start_python(program, str(store), name) for name, program in PROGRAMS.items()}
    yield started
    end_all(list(started.values()))


def tell(host: subprocess.Popen[str], line: str) -> None:
    """Say a line to a program."""
    assert host.stdin is not None
    host.stdin.write(line + "\n")
    host.stdin.flush()


@pytest.mark.parametrize("kept_by", ["journal", "sqlite"])
def test_a_trio_an_asyncio_and_a_plain_program_share_a_store(
    store: Path, hosts: dict[str, subprocess.Popen[str]]
) -> None:
    """One node and one writer serve all three at once, and every event of each is there, once and in order.

    A session that is open elsewhere, or a second time in the same program, is refused in each of them alike: a plain
    `except SessionBusy` catches it, and it names the owner. After the last one has left no process stays.
    """
    opened = {name: json.loads(read_line(host)) for name, host in hosts.items()}
    hello = ask_hello(str(store))
    assert hello is not None
    assert sorted(processes_of(store)) == sorted([hello["pid"], hello["writer"]])
    for name, host in hosts.items():
        tell(host, " ".join(opened[other]["id"] for other in hosts if other != name))
    for name, host in hosts.items():
        owners = [opened[name]["pid"], *(opened[other]["pid"] for other in hosts if other != name)]
        assert json.loads(read_line(host)) == {"busy": owners}
    assert sorted(processes_of(store)) == sorted([hello["pid"], hello["writer"]])
    for host in hosts.values():
        finish(host, "\n")
    wait_unserved(store, 0.5)
    with connect(store) as runtime:
        for name in hosts:
            events = runtime.read(name)
            assert [(event.stream, event.seq, event.data["n"]) for event in events] == [
                (opened[name]["id"], number, number) for number in range(EVENTS)
            ]
        assert sorted(each.key or "" for each in runtime.sessions(status="closed")) == sorted(hosts)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_killed_host_leaves_the_store_to_others(
    store: Path, hosts: dict[str, subprocess.Popen[str]], name: str
) -> None:
    """The others go on; the dead one's session opens at once, though nobody said goodbye for it."""
    for host in hosts.values():
        read_line(host)
    hosts[name].kill()
    hosts[name].wait(SECONDS_MAX)
    with connect(store) as runtime, runtime.open_session(name) as session:
        assert session.head == 1
        assert session.append("my/n", {"n": 1}) == 1


EXPECTED = {
    "open an unknown session": "NotFound",
    "open one of two": "Ambiguous",
    "open a damaged session": "Corrupt",
    "open a session of this process": "SessionBusy",
    "make a session of this process": "SessionBusy",
    "open a session of another process": "SessionBusy",
    "make a session of a taken key": "Exists",
    "make a session of an unknown parent": "NotFound",
    "make a session of a long title": "TooLarge",
    "read an unknown session": "NotFound",
    "read one of two": "Ambiguous",
    "read from before the beginning": "ValueError",
    "follow an unknown session": "NotFound",
    "get a blob by nothing": "ValueError",
    "get a missing blob": "BlobMissing",
    "put no bytes": "TypeError",
    "append what is no number": "InvalidValue",
    "append bytes": "InvalidValue",
    "append a missing blob": "BlobMissing",
    "append other data under a key": "Conflict",
    "write bytes": "InvalidValue",
    "write half a character": "InvalidValue",
    "write to no channel": "InvalidValue",
    "write two megabytes": "TooLarge",
    "end a turn under a key": "ValueError",
    "begin a second turn": "TurnOpen",
    "append a second turn": "TurnOpen",
    "make a call of an unknown effect": "ValueError",
    "begin a call twice": "CallRepeated",
    "run a call twice": "CallRepeated",
    "finish a call twice": "CallRepeated",
    "read from before the beginning of mine": "ValueError",
}
"""What `misuses.py` tries first, and what it has to be told; then it goes on in a child and after closing."""


@pytest.mark.parametrize("kept_by", ["journal", "sqlite"])
def test_every_misuse_is_told_in_the_same_words_on_every_loop_and_changes_nothing(store: Path) -> None:
    """A trio, an asyncio and a plain program at once: the right error of the right kind, in one line.

    In a forked child everything is refused by pid; after closing, everything of what was closed.
    """
    with connect(store) as runtime, runtime.open_session("held", create=True) as held:
        held.append("my/n", {})
        held.flush()
        with FrameClient(store, WRITER_SOCKET) as writer:
            others = [first_append(id, kind="session") for id in ("twin-a", "twin-b")]
            writer.ask([1, [*others, first_append("broken", kind="session", damaged=True)]])
        hosts = [start_misuses(store, kind) for kind in ("trio", "asyncio", "plain")]
        try:
            assert [read_line(host) for host in hosts] == ["ready"] * 3
            told = [json.loads(finish(host, "\n")) for host in hosts]
        finally:
            end_all(hosts)
        assert told[0] == told[1] == told[2]
        attempts = [attempt for attempt, _, _ in told[0]]
        assert attempts[: len(EXPECTED)] == list(EXPECTED)
        assert [error for _, error, _ in told[0]] == [
            *EXPECTED.values(),
            *["ForkedProcess"] * len(USES),
            *["SessionClosed"] * len(USES),
        ]
        assert all(message.strip() and "\n" not in message for _, _, message in told[0])
        assert sorted(each.key or each.id for each in runtime.sessions(limit=100)) == [
            *("asyncio", "broken", "held", "plain", "trio", "twin-a", "twin-b")
        ]


def start_misuses(store: Path, kind: str) -> subprocess.Popen[str]:
    """Start a host that does everything wrong."""
    # Python warns of every fork in a process with threads, which is the very thing that is tried here.
    program = "import runpy, warnings; warnings.simplefilter('ignore', DeprecationWarning); "
    program += f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    return start_python(program + "runpy.run_module('tests.end_to_end.misuses', run_name='__main__')", str(store), kind)


@pytest.mark.parametrize("name", ENDLESS_PROGRAMS)
def test_ctrl_c_ends_a_host_in_order(tmp_path: Path, name: str) -> None:
    """KeyboardInterrupt comes out as itself; the turn is aborted, all is stored, and node and writer end as always."""
    store = tmp_path / "store"
    host = start_python(ENDLESS_PROGRAMS[name], str(store), name)
    try:
        assert read_line(host) == "going"
        host.send_signal(signal.SIGINT)
        flushed = int(finish(host))
    finally:
        end_all([host])
    wait_unserved(store, 0.5)
    with connect(store) as runtime:
        events = runtime.read(name, limit=1_000_000)
        assert [event.seq for event in events] == list(range(len(events)))
        assert sum(event.type == "my/n" for event in events) - flushed in (0, 1)
        assert (events[-1].type, events[-1].data["reason"]) == ("turn/end", "aborted")
        assert [each.status for each in runtime.sessions()] == ["closed"]
