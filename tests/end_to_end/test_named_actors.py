"""End to end: actors that processes of a store ask by name, and what is left of a name when its process dies."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from turnkeeper.actors.actor_names import ActorNames, Claim
from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import Exists, ForkedProcess, NameTaken, SessionClosed, StoreRefused
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.runtime.actor_ref import ActorEnd
from turnkeeper.runtime.errors import ActorError, ActorNotStarted, ActorUnknown
from turnkeeper.storage import lock

from ..actor_host import ActorHost
from ..actors_at_work import Clerk, Courier, Doorkeeper, Mishap, Refusal
from ..marks import appears, is_there
from ..outcomes import collect
from ..served import kill
from ..serving import watched

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("import_path", "deadline"), pytest.mark.shared_store]


@pytest.fixture
def start_host(store: Path, anyio_backend_name: str) -> Iterator[Callable[[], ActorHost]]:
    """Start processes that serve actors of the store, on the loop that this one isn't on."""
    started: list[ActorHost] = []

    def start() -> ActorHost:
        started.append(ActorHost(store, "trio" if anyio_backend_name == "asyncio" else "asyncio"))
        return started[-1]

    yield start
    for host in started:
        host.end()


def files_of_actors(store: Path) -> list[str]:
    """List what lies in the store for named actors."""
    return sorted(os.listdir(store / "actors"))


# -- Asking by name


async def test_an_actor_is_asked_by_its_name(runtime: Runtime, other: Runtime) -> None:
    """Replies and registered errors arrive as they do in its own loop; a failure ends it and is told."""
    await runtime.spawn(Clerk, "born", name="clerk")
    clerk = other.actor("clerk")
    assert await clerk.ask("note", "one") == 2
    await clerk.tell("note", "two")
    with pytest.raises(Refusal, match="no chair, 3 left"):
        await clerk.ask("refuse", "chair", 3)
    assert await clerk.ask("notes") == ["born", "one", "two"]
    with pytest.raises(ActorError, match="Mishap: tripped"):
        await clerk.ask("fail", "tripped")
    assert (await clerk.monitor()).reason == "it failed: Mishap: tripped"
    with pytest.raises(ActorNotStarted, match=r"^clerk.note was not started: it failed: Mishap: tripped$"):
        await clerk.ask("note", "late")


async def test_an_actor_of_ones_own_is_reached_directly(runtime: Runtime) -> None:
    """The name gives the very reference that spawn gave, as long as the actor lives."""
    clerk = await runtime.spawn(Clerk, name="clerk")
    assert runtime.actor("clerk") is clerk
    await clerk.stop()
    assert runtime.actor("clerk") is not clerk
    with pytest.raises(ActorNotStarted, match="no actor of this name is there"):
        await runtime.actor("clerk").ask("note")


async def test_an_actor_in_a_worker_process_has_a_name_too(runtime: Runtime, other: Runtime) -> None:
    """Its host serves the name; a worker process asks others in its turn."""
    clerk = await runtime.spawn(Clerk, process=True, name="clerk")
    pid = await other.actor("clerk").ask("pid")
    assert pid == await clerk.ask("pid") != os.getpid()
    courier = await other.spawn(Courier, runtime._client.path, process=True)
    assert await courier.ask("carry", "clerk", "pid") == pid
    kill(pid)
    assert (await other.actor("clerk").wait_ended()).reason == f"its worker process {pid} was killed by SIGKILL"
    with pytest.raises(ActorNotStarted, match=rf"its worker process {pid} was killed by SIGKILL"):
        await other.actor("clerk").ask("pid")


async def test_a_plain_program_names_and_asks(runtime: Runtime, store: Path) -> None:
    """The same names, blocking, from a thread of its own."""
    clerk = await runtime.spawn(Clerk, name="clerk")

    def work() -> list[Any]:
        with connect(store) as plain:
            keeper = plain.spawn(Clerk, "plain", name="keeper")
            clerk = plain.actor("clerk")
            clerk.tell_nowait("note", "now")
            clerk.tell("note", "then")
            with pytest.raises(NameTaken):
                plain.spawn(Clerk, name="clerk")
            return [clerk.ask("notes"), clerk.name, clerk.end, clerk.stop(), clerk.end, clerk.wait_ended(), keeper.end]

    stopped = ActorEnd("it was stopped", normal=True)
    assert await anyio.to_thread.run_sync(work) == [["now", "then"], "clerk", None, stopped, stopped, stopped, None]
    assert clerk.end == stopped


@pytest.mark.shared_store(False)
async def test_leaving_answers_what_was_asked_and_gives_the_name_back(runtime: Runtime, store: Path) -> None:
    """The actor handles what it has, its askers in other processes get their replies, and the files are gone."""
    outcomes: list[Any] = []
    mark = store.parent / "mark"
    async with anyio.create_task_group() as askers, open_runtime(store) as leaving:
        await leaving.spawn(Clerk, name="clerk")
        askers.start_soon(collect, outcomes, runtime.actor("clerk").ask, "hold", str(mark))
        await appears(mark)
        askers.start_soon(collect, outcomes, runtime.actor("clerk").ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        await runtime.actor("clerk").tell("note", "last")
        mark.unlink()
    assert sorted(outcomes, key=str) == [1, "released"]
    assert files_of_actors(store) == []
    with pytest.raises(SessionClosed):
        leaving.actor("clerk")


# -- Names


async def test_a_taken_name_says_whose_it_is_and_starts_nothing(
    runtime: Runtime, start_host: Callable[[], ActorHost], tmp_path: Path
) -> None:
    """Another process's, and this one's; in the loop and in a process."""
    host = start_host()
    await anyio.to_thread.run_sync(host.spawn, "elsewhere", Clerk)
    await runtime.spawn(Clerk, name="here")
    for name, pid in (("elsewhere", host.process.pid), ("here", os.getpid())):
        for process in (False, True):
            with pytest.raises(NameTaken, match=rf"^an actor called {name} lives in process {pid} on ") as caught:
                await runtime.spawn(Doorkeeper, str(tmp_path / "marks"), process=process, name=name)
            assert (caught.value.owner["pid"], isinstance(caught.value, Exists)) == (pid, True)
    assert not is_there(tmp_path / "marks")
    assert await runtime.actor("elsewhere").ask("pid") == host.process.pid


async def test_a_name_is_free_when_its_actor_has_ended(runtime: Runtime, other: Runtime) -> None:
    """At once for who was told so, whether it was stopped here, stopped from elsewhere or has failed."""
    for _ in range(5):
        await (await runtime.spawn(Clerk, name="clerk")).stop()
    for _ in range(5):
        await runtime.spawn(Clerk, name="clerk")
        assert await other.actor("clerk").stop() == ActorEnd("it was stopped", normal=True)
        mine = await other.spawn(Clerk, name="clerk")
        with pytest.raises(ActorError):
            await mine.ask("fail")
        await mine.wait_ended()
        await runtime.actor("clerk").wait_ended()
        assert await other.spawn(Clerk, name="clerk") is not mine
        await other.actor("clerk").stop()


@pytest.mark.shared_store(False)
async def test_an_actor_that_is_not_started_leaves_its_name(runtime: Runtime, tmp_path: Path, store: Path) -> None:
    """Nothing lies in the store for it afterwards."""
    for _ in range(2):
        with pytest.raises(Mishap):
            await runtime.spawn(Doorkeeper, str(tmp_path / "marks"), "fails to enter", name="keeper")
        assert files_of_actors(store) == []


@pytest.mark.parametrize("name", ["", "Clerk", "a b", "../node", "a" * 65, "a\n", "ä"])
async def test_what_cannot_be_a_name_is_refused(runtime: Runtime, name: str) -> None:
    """Names are checked as ids are, before anything is looked up or started."""
    with pytest.raises(ValueError, match="an actor's name has 1 to 64 characters of a-z, 0-9 and -"):
        runtime.actor(name)
    with pytest.raises(ValueError, match="an actor's name has 1 to 64 characters of a-z, 0-9 and -"):
        await runtime.spawn(Clerk, name=name)
    with pytest.raises(TypeError, match="an actor's name is a text"):
        runtime.actor(7)  # type: ignore[arg-type]


@pytest.mark.shared_store(False)
async def test_a_store_where_no_name_can_be_made_says_so(runtime: Runtime, store: Path) -> None:
    """A file stands where the directory should be."""
    (store / "actors").write_bytes(b"")
    with pytest.raises(StoreRefused, match=r"actors/clerk: can't be made \(Not a directory\)"):
        await runtime.spawn(Clerk, name="clerk")


@pytest.mark.shared_store(False)
async def test_only_its_user_can_reach_an_actor(runtime: Runtime, store: Path) -> None:
    """Directory, lock and socket are for this user alone, whatever the umask."""
    before = os.umask(0)
    try:
        await runtime.spawn(Clerk, name="clerk")
    finally:
        os.umask(before)
    modes = {
        each.name: stat.S_IMODE(each.lstat().st_mode) for each in (store / "actors", *(store / "actors").iterdir())
    }
    assert modes == {"actors": 0o700, "clerk.lock": 0o600, "clerk.sock": 0o600}


# -- Processes that die, and stores that move


@pytest.mark.shared_store(False)
async def test_a_killed_process_leaves_unknown_what_it_was_at_and_its_name_free(
    runtime: Runtime, start_host: Callable[[], ActorHost], tmp_path: Path
) -> None:
    """The next ask isn't started, and once another process has the name, asks go there; nothing is done twice. (A6)"""
    first, mark = start_host(), tmp_path / "mark"
    await anyio.to_thread.run_sync(first.spawn, "keeper", Doorkeeper, str(tmp_path / "first"))
    keeper = runtime.actor("keeper")
    outcomes: list[Any] = []
    async with anyio.create_task_group() as askers:
        askers.start_soon(collect, outcomes, keeper.ask, "hold", str(mark))
        await appears(mark)
        askers.start_soon(collect, outcomes, keeper.ask, "note", "behind")
        await anyio.wait_all_tasks_blocked()
        kill(first.process.pid)
    gone = f"its process {first.process.pid} ended, or the connection to it, without a word"
    assert [(type(each), each.reason) for each in outcomes] == [(ActorUnknown, gone)] * 2
    assert await keeper.wait_ended() == ActorEnd(
        "no actor of this name is there; the process of the last one has ended"
    )
    with pytest.raises(ActorNotStarted, match="the process of the last one has ended"):
        await keeper.ask("note", "late")
    assert files_of_actors(Path(runtime._client.path)) == ["keeper.lock", "keeper.sock"]
    second = start_host()
    await anyio.to_thread.run_sync(second.spawn, "keeper", Doorkeeper, str(tmp_path / "second"))
    assert await keeper.ask("pid") == second.process.pid
    assert await keeper.ask("notes") == []
    await keeper.stop()
    assert files_of_actors(Path(runtime._client.path)) == []


async def test_asks_find_the_name_again_after_each_kill(runtime: Runtime, start_host: Callable[[], ActorHost]) -> None:
    """While nobody waits, too: a connection that stood isn't trusted more than one that is made. (A6)"""
    clerk = runtime.actor("clerk")
    for _ in range(3):
        host = start_host()
        await anyio.to_thread.run_sync(host.spawn, "clerk", Clerk)
        assert await clerk.ask("pid") == host.process.pid
        kill(host.process.pid)


@pytest.mark.shared_store(False)
async def test_a_forked_child_keeps_neither_the_name_nor_the_connections(
    runtime: Runtime, start_host: Callable[[], ActorHost]
) -> None:
    """When the process of an actor is killed its fork lives on, and who waits is told all the same."""
    host = start_host()
    await anyio.to_thread.run_sync(host.spawn, "clerk", Clerk)
    clerk = runtime.actor("clerk")
    child = await clerk.ask("fork_sleeper")
    with watched(child) as wait_until_gone:
        try:
            outcomes: list[Any] = []
            async with anyio.create_task_group() as askers:
                askers.start_soon(collect, outcomes, clerk.ask, "hold", str(runtime._client.path) + "-mark")
                await appears(Path(runtime._client.path + "-mark"))
                kill(host.process.pid)
            assert [type(each) for each in outcomes] == [ActorUnknown]
            await runtime.spawn(Clerk, name="clerk")
        finally:
            os.kill(child, signal.SIGKILL)
            wait_until_gone()


async def test_a_forked_child_cannot_ask_and_takes_nothing_away(runtime: Runtime, other: Runtime) -> None:
    """What it inherited is its parent's: each use says so, and its end harms neither name nor connection."""
    await runtime.spawn(Clerk, name="clerk")
    asker = other.actor("clerk")
    assert await asker.ask("note", "before") == 1
    child = os.fork()
    if child == 0:
        refused = 0
        with contextlib.suppress(BaseException):
            runtime._actors._named._registrations["clerk"].claim.release()
            for use in (lambda: asker.tell_nowait("note", "child"), lambda: other.actor("clerk")):
                try:
                    use()
                except ForkedProcess:
                    refused += 1
        os._exit(10 + refused)
    _, status = await anyio.to_thread.run_sync(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(status) == 12
    assert await asker.ask("note", "after") == 2


@pytest.mark.shared_store(False)
async def test_a_store_may_be_moved_while_it_is_open(runtime: Runtime, other: Runtime, store: Path) -> None:
    """Names are claimed, found and given back where it lies now."""
    await runtime.spawn(Clerk, name="before")
    moved = store.with_name("moved")
    os.rename(store, moved)
    try:
        await runtime.spawn(Clerk, name="after")
        for name in ("before", "after"):
            assert await other.actor(name).ask("note", name) == 1
            await other.actor(name).stop()
        assert files_of_actors(moved) == []
    finally:
        os.rename(moved, store)


async def test_the_path_of_a_store_may_be_longer_than_an_address(tmp_path: Path) -> None:
    """Sockets are made and found through the store's directory, not by its path."""
    store = tmp_path / ("long-" * 40) / ("path-" * 40)
    store.parent.mkdir()
    async with open_runtime(store) as runtime, open_runtime(store) as other:
        await runtime.spawn(Clerk, name="a" * 64)
        assert await other.actor("a" * 64).ask("pid") == os.getpid()


@pytest.mark.shared_store(False)
async def test_a_name_that_is_given_back_meanwhile_is_taken_once(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has opened the file of a lock that was then removed doesn't take that for the name."""
    first, second = ActorNames(str(store)), ActorNames(str(store))
    held, take = first.claim("clerk"), lock.take

    def give_back_and_take(descriptor: int) -> bool:
        monkeypatch.undo()
        held.release()
        return take(descriptor)

    monkeypatch.setattr(lock, "take", give_back_and_take)
    taken = second.claim("clerk")
    with pytest.raises(NameTaken):
        first.claim("clerk")
    taken.release()
    assert files_of_actors(store) == []
    held = first.claim("clerk")
    others: list[Claim] = []

    def give_back_and_let_take(descriptor: int) -> bool:
        monkeypatch.undo()
        held.release()
        others.append(first.claim("clerk"))
        return take(descriptor)

    monkeypatch.setattr(lock, "take", give_back_and_let_take)
    with pytest.raises(NameTaken):
        second.claim("clerk")
    others[0].release()
    first.close()
    second.close()
