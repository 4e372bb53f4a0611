"""End to end: what is particular to an actor in a worker process, with real processes, on trio and on asyncio."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from turnkeeper.runtime.actor_ref import ActorRef
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown, MessageTooLarge, WorkerStartError
from turnkeeper.runtime.frames import FRAME_BYTES_MAX, encode_frame
from turnkeeper.runtime.identity import process_state
from turnkeeper.runtime.workers.worker import spawn_in_process

from ..actors_at_work import Clerk, Doorkeeper
from ..marks import appears, lines
from ..outcomes import collect
from ..worker_hosts import possessions, wait_gone, write_module

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path")]

DEADLINE_SECONDS = 30


async def ask_until_told(ref: ActorRef) -> ActorNotStarted:
    """Ask an actor that is dying until it is told that it has ended; the error says how."""
    while True:
        try:
            await ref.ask("notes")
        except ActorNotStarted as error:
            return error
        except ActorUnknown:
            continue


# -- Where it runs


async def test_a_worker_leads_a_session_of_its_own_and_runs_on_trio(group: TaskGroup) -> None:
    """It is another process than the host, out of reach of the host's terminal, and loads trio alone."""
    clerk = await spawn_in_process(group, Clerk)
    pid = await clerk.ask("pid")
    assert os.getsid(pid) == os.getpgid(pid) == pid != os.getpid()
    assert await clerk.ask("loops_loaded") == ["trio"]


async def test_an_interrupt_means_nothing_to_a_worker_and_its_programs_are_untouched(group: TaskGroup) -> None:
    """SIGINT is the host's affair; a program started by the actor finds it as usual, and nothing on its input."""
    clerk = await spawn_in_process(group, Clerk)
    assert await clerk.ask("interrupt") == await clerk.ask("pid")
    assert await clerk.ask("signal_dispositions") == ["<built-in", "function", "default_int_handler>", "''"]


async def test_what_an_actor_prints_goes_where_the_host_prints(
    group: TaskGroup, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output and standard error are the host's own."""
    clerk = await spawn_in_process(group, Clerk)
    await clerk.ask("print_both", "words")
    assert capfd.readouterr() == ("words\n", "words\n")


async def test_what_an_import_says_is_not_lost(
    group: TaskGroup, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard error is held back until the worker is ready and then given to the host's."""
    source = "import os, sys\nprint('warned', file=sys.stderr)\nclass Quiet:\n    async def rest(self):\n        pass\n"
    quiet = await spawn_in_process(group, write_module(tmp_path, "talkative", source) + ":Quiet")
    await quiet.stop()
    assert capfd.readouterr().err == "warned\n"


# -- What crosses


async def test_values_that_cannot_cross_are_refused_before_anything_is_sent(group: TaskGroup) -> None:
    """The caller gets a TypeError that names the place, and the actor never hears of it."""
    clerk = await spawn_in_process(group, Clerk)
    with pytest.raises(TypeError, match=r"^arguments\[0\]\['file'\] can't cross between processes: pathlib"):
        await clerk.ask("echo", {"file": Path("/")})
    with pytest.raises(TypeError, match="unhashable"):
        await clerk.tell("echo", {(1, 2): 3})
    with pytest.raises(MessageTooLarge, match="over the limit of 16,777,216 between processes"):
        await clerk.ask("echo", [bytes(FRAME_BYTES_MAX)])
    with pytest.raises(TypeError, match=r"^arguments\[0\] can't cross"):
        await spawn_in_process(group, Clerk, object())
    with pytest.raises(MessageTooLarge, match="between processes"):
        await spawn_in_process(group, Clerk, "x" * FRAME_BYTES_MAX)
    assert await clerk.ask("notes") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"\0\0\0\x01\xc1", "a frame of 1 bytes is no message"),
        (b"\xff\xff\xff\xff", "a frame of 4,294,967,295 bytes is over the limit of 16,777,216"),
        (encode_frame(5), "it said what no worker says: 5"),
        (encode_frame({"reply": 1}), "it said what no worker says: {'reply': 1}"),
        (encode_frame(["ready", None]), r"it said what no worker says: \['ready', None\]"),
        (encode_frame(["started", ["echo"]]), "it said 'started', which nobody asked for"),
        (encode_frame(["reply", 1]) + encode_frame(["reply", 2]), "it said 'reply', which nobody asked for"),
        (encode_frame(["reply", None, [0, 0, 5]]), "a message tells of memory that didn't come with it"),
    ],
)
async def test_a_worker_that_says_nonsense_is_ended_and_harms_nobody(group: TaskGroup, words: bytes, said: str) -> None:
    """Its end says what it was; another worker of the same host, and the host's tasks, don't notice. (A10)"""
    clerk, bystander = await spawn_in_process(group, Clerk), await spawn_in_process(group, Clerk)
    outcomes: list[Any] = []
    await collect(outcomes, clerk.ask, "say_to_host", words)
    end = await clerk.wait_ended()
    assert re.search(rf"its worker process \d+ was killed by SIGKILL: {said}", end.reason)
    assert not end.normal
    assert outcomes == [1] or isinstance(outcomes[0], ActorUnknown)
    with pytest.raises(ActorNotStarted, match=said):
        await clerk.ask("notes")
    assert await bystander.ask("note", "well") == 1


async def test_a_large_message_and_its_reply_cross_whole(group: TaskGroup) -> None:
    """Many times what a socket holds, in both directions."""
    clerk = await spawn_in_process(group, Clerk)
    large = bytes(range(256)) * 4 * 4096
    assert await clerk.ask("echo", large) == [[large], {}]


async def test_a_reply_that_cannot_cross_is_the_actors_failure(group: TaskGroup) -> None:
    """The one who asked learns what it was, and the actor has ended."""
    clerk = await spawn_in_process(group, Clerk)
    with pytest.raises(ActorError, match=r"^TypeError: reply can't cross between processes: builtins.set"):
        await clerk.ask("unplain")
    assert (await clerk.wait_ended()).error is not None


async def test_an_error_that_only_the_worker_registered_is_described(group: TaskGroup, tmp_path: Path) -> None:
    """The host builds no class that it did not register itself, and the actor lives on: it gave an answer."""
    source = (
        "from turnkeeper.runtime.errors import register_error\n"
        "@register_error\nclass Own(Exception):\n    pass\n"
        "class Refuser:\n"
        "    async def refuse(self):\n        raise Own('unknown here')\n"
        "    async def answer(self):\n        return 42\n"
    )
    refuser = await spawn_in_process(group, write_module(tmp_path, "refusing", source) + ":Refuser")
    with pytest.raises(ActorError, match="Own: unknown here"):
        await refuser.ask("refuse")
    assert await refuser.ask("answer") == 42


# -- Its death


@pytest.mark.parametrize(
    ("how", "value", "words"),
    [("signal", signal.SIGKILL, "was killed by SIGKILL"), ("exit", 7, "ended with exit code 7")],
)
async def test_the_death_of_a_worker_answers_every_ask(group: TaskGroup, how: str, value: int, words: str) -> None:
    """The message at hand may have been done, those behind it were not started, and each says how the process ended."""
    clerk = await spawn_in_process(group, Clerk, messages_max=1)
    pid = await clerk.ask("pid")
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        for call in (("end_process", how, value), ("note", "in the mailbox"), ("note", "waiting for room")):
            askers.start_soon(collect, results, clerk.ask, *call)
            await anyio.wait_all_tasks_blocked()
    process = f"its worker process {pid} {words}"
    assert sorted(map(str, results)) == [
        f"Clerk.note was not started: {process}",
        f"Clerk.note was not started: {process}",
        f"whether Clerk.end_process was done is unknown: {process}",
    ]
    assert [type(result) for result in results].count(ActorUnknown) == 1
    assert process_state(pid) == "gone"
    with pytest.raises(ActorNotStarted, match=process):
        await clerk.ask("note", "late")


async def test_the_death_of_an_idle_worker_is_told_to_the_next_ask(group: TaskGroup) -> None:
    """Nobody is disturbed by it, and whoever asks next learns how it ended."""
    clerk = await spawn_in_process(group, Clerk)
    pid = await clerk.ask("pid")
    os.kill(pid, signal.SIGKILL)
    assert (await clerk.wait_ended()).reason == f"its worker process {pid} was killed by SIGKILL"
    assert str(await ask_until_told(clerk)).endswith(f"its worker process {pid} was killed by SIGKILL")
    assert (await clerk.stop()).error is None


async def test_what_a_worker_left_running_ends_with_it(group: TaskGroup) -> None:
    """A program in the worker's group does not outlive it, however the worker ends."""
    killed, stopped = await spawn_in_process(group, Clerk), await spawn_in_process(group, Clerk)
    sleepers = [await killed.ask("start_sleeper"), await stopped.ask("start_sleeper")]
    os.kill(await killed.ask("pid"), signal.SIGKILL)
    await stopped.stop()
    for sleeper in sleepers:
        await wait_gone(sleeper)


# -- Its end


async def test_a_blocked_worker_is_killed_in_time(group: TaskGroup, mark: Path) -> None:
    """A loop that never turns heeds neither the message nor SIGTERM; SIGKILL follows two seconds after that."""
    clerk = await spawn_in_process(group, Clerk)
    await clerk.tell("block", str(mark))
    await appears(mark)
    begun = time.monotonic()
    end = await clerk.stop(shutdown_seconds=0.1)
    assert end.reason.endswith("was killed by SIGKILL")
    assert 2 < time.monotonic() - begun < 2.1 + DEADLINE_SECONDS / 2


async def test_sigterm_from_outside_lets_the_actor_leave(group: TaskGroup, tmp_path: Path) -> None:
    """Its handler is cancelled and its __aexit__ runs; the exit code tells of the signal."""
    keeper = await spawn_in_process(group, Doorkeeper, str(tmp_path / "marks"))
    pid = await keeper.ask("pid")
    results: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, results, keeper.ask, "hold", str(tmp_path / "mark"))
        await appears(tmp_path / "mark")
        os.kill(pid, signal.SIGTERM)
    assert [str(result) for result in results] == [
        f"whether Doorkeeper.hold was done is unknown: its worker process {pid} ended with exit code 143"
    ]
    assert lines(tmp_path / "marks") == ["entered", "left with Cancelled"]


async def test_workers_that_do_not_heed_are_ended_side_by_side(tmp_path: Path) -> None:
    """Cancelling the task group ends them all at once: together they take hardly longer than one."""
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as group:
            for number in range(4):
                clerk = await spawn_in_process(group, Clerk, shutdown_seconds=0.5)
                await clerk.tell("block", str(tmp_path / str(number)))
                await appears(tmp_path / str(number))
            begun = time.monotonic()
            group.cancel_scope.cancel()
    assert 2.5 < time.monotonic() - begun < 5


# -- Its start


def start_errors(tmp_path: Path) -> dict[str, str]:
    """Give targets that can't be started, each with what its error says."""
    write_module(tmp_path, "broken", "import missing_module")
    write_module(tmp_path, "exits", "import sys; sys.exit(3)")
    write_module(tmp_path, "dies", "import os, sys; sys.stderr.write('last words'); sys.stderr.flush(); os._exit(9)")
    write_module(tmp_path, "fine", "class Fine:\n    pass\n")
    return {
        "broken:Any": "could not import it: ModuleNotFoundError: No module named 'missing_module'",
        "no_such_module:Any": "could not import it: ModuleNotFoundError: No module named 'no_such_module'",
        "fine:Missing": "could not import it: AttributeError: module 'fine' has no attribute 'Missing'",
        "exits:Any": "could not import it: SystemExit: 3",
        "dies:Any": "ended with exit code 9 before it was ready",
        "fine": "can't be started: it can't be imported by module and name",
        "fine:function.<locals>.Local": "can't be started: it can't be imported by module and name",
        "__main__:Clerk": "could not import it: AttributeError: .*has no attribute 'Clerk'"
        "|can't be started: it is defined in a program that no other process can import",
    }


async def test_a_target_that_cannot_be_started_is_one_clear_error(group: TaskGroup, tmp_path: Path) -> None:
    """Whatever is wrong with it, the error names the target and the reason, and nothing of the process is left."""
    before = possessions()
    for target, words in start_errors(tmp_path).items():
        with pytest.raises(WorkerStartError, match=f"^the worker process for {target} ({words})") as caught:
            await spawn_in_process(group, target)
        if target == "dies:Any":
            assert caught.value.words == "last words"
            assert caught.value.__notes__ == ["Its last words:\nlast words"]
    assert possessions() == before


async def test_a_worker_that_is_not_ready_in_time_is_killed(group: TaskGroup, tmp_path: Path, mark: Path) -> None:
    """An import that takes too long is an error with what it said so far, not a hang."""
    source = (
        "import os, sys, time\n"
        f"open({os.fspath(mark)!r}, 'w').write(str(os.getpid()))\n"
        "print('loading', file=sys.stderr, flush=True)\n"
        "time.sleep(600)\n"
    )
    target = write_module(tmp_path, "slow", source) + ":Any"
    with pytest.raises(WorkerStartError, match=r"slow:Any was not ready within 1.5 s$|last words") as caught:
        await spawn_in_process(group, target, ready_seconds=1.5)
    assert caught.value.words == "loading\n"
    assert process_state(int(lines(mark)[0])) == "gone"


async def test_an_actor_that_dies_while_it_enters_is_an_error(group: TaskGroup, mark: Path) -> None:
    """The process was ready and the actor never was."""
    with pytest.raises(WorkerStartError, match="ended with exit code 7 before its actor was ready"):
        await spawn_in_process(group, Doorkeeper, str(mark), "dies at the door")


async def test_a_cancelled_start_leaves_nothing(group: TaskGroup, tmp_path: Path, mark: Path) -> None:
    """Cancelled while it imports or while the actor enters, the process is reaped before the cancellation is over."""
    before = possessions()
    source = f"import time\nopen({os.fspath(mark)!r}, 'w').close()\ntime.sleep(600)\n"
    slow = write_module(tmp_path, "endless", source) + ":Any"
    marks = tmp_path / "marks"
    for begun, start in (
        (mark, partial(spawn_in_process, group, slow)),
        (marks, partial(spawn_in_process, group, Doorkeeper, str(marks), "never enters")),
    ):
        async with anyio.create_task_group() as starting:
            starting.start_soon(start)
            await appears(begun)
            starting.cancel_scope.cancel()
    assert possessions() == before


async def test_nothing_is_left_of_many_workers(group: TaskGroup) -> None:
    """After stops, failures and deaths there is no descriptor more than before, and no child."""
    before = possessions()
    for number in range(6):
        clerk = await spawn_in_process(group, Clerk)
        if number % 3 == 0:
            await clerk.stop()
        elif number % 3 == 1:
            await clerk.tell("fail")
        else:
            await clerk.tell("end_process", "signal", int(signal.SIGKILL))
        await clerk.wait_ended()
        with contextlib.suppress(ActorError):
            await clerk.stop()
    assert possessions() == before
