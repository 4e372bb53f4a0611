"""End to end: messages while owner, senders, writer and node are killed with SIGKILL at random moments of a seed."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.blocking import connect

from ..served import SECONDS_MAX, end_all, read_line, start_python, wait_unserved
from ..serving import eventually, kill_holder

VICTIMS = ("owner", "sender", "writer", "node", "owner", "sender")
"""Who is killed in one run, in an order that the seed gives."""

_OWNER = """
import random, sys, anyio
from turnkeeper.actors.runtime_opening import open_runtime

async def main(store, seed):
    rng = random.Random(seed)
    async with open_runtime(store) as runtime, await runtime.open_session("owner", create=True) as session:
        inbox = session.inbox()
        await session.append("note/opened", {})
        await session.flush()
        print("open", flush=True)
        async for message in inbox:
            await message.accept(message.type)
            if rng.random() < 0.5:
                await session.flush()

anyio.run(main, sys.argv[1], sys.argv[3], backend=sys.argv[2])
"""

_SENDER = """
import os, sys, anyio
from turnkeeper.actors.runtime_opening import open_runtime

async def main(store, name, sent_path):
    sent = os.open(sent_path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    number = os.read(sent, 1 << 20).count(b"\\n")
    async with open_runtime(store) as runtime, await runtime.open_session(name, create=True) as session:
        send = session.send if name == "by session" else runtime.send
        print("open", flush=True)
        while not os.path.exists(sent_path + ".stop"):
            seq = await send("owner", "my/n", {"by": name, "n": number}, key=f"{name} {number}")
            os.write(sent, b"%d\\n" % seq)
            number += 1

anyio.run(main, sys.argv[1], *sys.argv[3:], backend=sys.argv[2])
"""

SENDERS = ("by session", "by nobody")


class Run:
    """An owner and two senders in processes of their own, and what was acknowledged to the senders."""

    def __init__(self, store: Path, loop: str, seed: int) -> None:
        self.random = random.Random(seed)
        self._store = store
        self._loop = loop
        self._processes: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str) -> None:
        """Start the owner, or a sender; it has opened its session then."""
        words = [str(self.random.random())] if name == "owner" else [name, str(self.sent_path(name))]
        program = _OWNER if name == "owner" else _SENDER
        self._processes[name] = process = start_python(program, str(self._store), self._loop, *words)
        assert read_line(process) == "open"

    def sent_path(self, name: str) -> Path:
        """Where a sender writes down the number that it got for each message, one a line."""
        return self._store.with_name(f"sent {name}")

    def acknowledged(self, name: str) -> list[int]:
        """Give these numbers; a line that its writer didn't finish isn't one."""
        return [int(line) for line in self.sent_path(name).read_text().split("\n")[:-1]]

    def kill(self, victim: str) -> None:
        """Kill somebody when some more messages were sent, and start who has to be started again."""
        waited_for = {name: len(self.acknowledged(name)) + self.random.randrange(1, 8) for name in SENDERS}
        eventually(lambda: all(len(self.acknowledged(name)) >= count for name, count in waited_for.items()))
        time.sleep(self.random.random() * 0.01)  # into the middle of whatever goes on
        if victim in ("writer", "node"):
            eventually(lambda: kill_holder(self._store, victim))
            return
        name = self.random.choice(SENDERS) if victim == "sender" else victim
        end_all([self._processes.pop(name)])
        self.start(name)

    def finish(self) -> None:
        """Let the senders come to their end, and kill the owner."""
        for name in SENDERS:
            self.sent_path(name).with_name(f"sent {name}.stop").touch()
            assert self._processes[name].wait(SECONDS_MAX) == 0
        self.end()

    def end(self) -> None:
        """Let nothing be left."""
        end_all(list(self._processes.values()))


def check(run: Run, store: Path) -> None:
    """Hold that each message was sent once and in its sender's order, and is accepted once by whoever owns the session.

    The owner that was killed last may have left some; they come to this one.
    """
    with connect(store) as runtime:
        (owner,) = runtime.sessions(key="owner")
        messages = all_events(lambda start: runtime.read(f"inbox-{owner.id}", start=start))
        for name in SENDERS:
            seqs = [each.seq for each in messages if each.data["data"]["by"] == name]
            numbers = [messages[seq].data["data"]["n"] for seq in seqs]
            acknowledged = run.acknowledged(name)
            assert numbers == list(range(len(numbers)))
            assert acknowledged == seqs[: len(acknowledged)]
            assert len(acknowledged) > len(VICTIMS)
        with runtime.open_session("owner") as session:
            before = taken(all_events(lambda start: session.read(start=start)))
            inbox = iter(session.inbox())
            for _ in range(len(messages) - len(before)):
                message = next(inbox)
                message.accept(message.type)
            log = all_events(lambda start: session.read(start=start))
        assert sorted(taken(log)) == [message.seq for message in messages]
        for event in log:
            if "inbox" in event.data:
                assert {**messages[event.data["inbox"]].data["data"], "inbox": event.data["inbox"]} == event.data
        assert len(before) > len(VICTIMS), "the owners accepted some"
    wait_unserved(store, 2.0)


def all_events(read: Callable[[int], list[Any]]) -> list[Any]:
    """Read all pages."""
    events: list[Any] = []
    while page := read(len(events)):
        events += page
    return events


def taken(events: list[Any]) -> list[int]:
    """Give the numbers of the messages that a log has accepted, in its order."""
    return [event.data["inbox"] for event in events if "inbox" in event.data]


def run_with_kills(store: Path, loop: str, seed: int) -> None:
    """Send and accept while everybody is killed in turn, and check what became of each message."""
    run = Run(store, loop, seed)
    try:
        for name in SENDERS:
            run.sent_path(name).touch()
        for name in ("owner", *SENDERS):
            run.start(name)
        for victim in run.random.sample(VICTIMS, len(VICTIMS)):
            run.kill(victim)
        run.finish()
        check(run, store)
    finally:
        run.end()


@pytest.mark.parametrize(("loop", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")])
def test_no_message_is_lost_or_accepted_twice_whoever_is_killed(store: Path, loop: str) -> None:
    """Owner, senders, writer, node."""
    run_with_kills(store, loop, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize(
    ("loop", "kept_by"), [("trio", "journal"), ("asyncio", "journal"), ("trio", "sqlite"), ("asyncio", "sqlite")]
)
def test_no_message_is_lost_or_accepted_twice_over_many_seeds(store: Path, loop: str, seed: int) -> None:
    """The same, at other moments and in other orders."""
    run_with_kills(store, loop, seed)
