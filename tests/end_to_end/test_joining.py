"""End to end: joining a store from a host's loop, trio or asyncio: who starts the node, who waits, who says what."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import anyio
import anyio.to_thread
import pytest

from turnkeeper.actors import launch
from turnkeeper.actors.client import client as client_module
from turnkeeper.actors.client.asking import ask_hello
from turnkeeper.actors.client.joining import Attachment, join
from turnkeeper.actors.errors import AlreadyServed, NodeNotAnswering, VersionMismatch
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.actors.serving import serve
from turnkeeper.runtime.frames import encode_frame
from turnkeeper.runtime.identity import process_state
from turnkeeper.storage import lock, store
from turnkeeper.storage.errors import NewerFormat, StorageError, StoreFull, StoreMissing, StoreRefused
from turnkeeper.storage.lock import store_is_held

from .. import stores
from ..serving import DEADLINE_SECONDS, eventually, first_append, kill_holder, stopped, watched
from ..stores import new_store

pytestmark = pytest.mark.anyio


@contextlib.asynccontextmanager
async def joined(path: Path, **options: object) -> AsyncIterator[Attachment]:
    """Be a client of the store meanwhile."""
    attachment = await join(str(path), create=True, **options)  # type: ignore[arg-type]
    try:
        yield attachment
    finally:
        await attachment.leave()


# -- Coming and going


async def test_open_append_close_leaves_a_store_and_no_process(tmp_path: Path) -> None:
    """Who opens first starts node and writer, and waits at the end until both are gone, the node reaped."""
    path = tmp_path / "store"
    async with joined(path) as attachment:
        assert attachment.hello["state"] == "serving"
        frames, hello = await attachment.reach_writer()
        await frames.send([1, [first_append("a")]])
        assert await frames.receive() == [1, [[0, 1, 1]]]
        frames.close()
    assert not store_is_held(str(path))
    assert process_state(attachment.hello["pid"]) == "gone"
    assert process_state(hello["pid"]) in ("gone", "zombie")


async def test_others_attach_to_the_node_that_is_there(tmp_path: Path) -> None:
    """Two openings at once have one node, whoever started it; it goes on while one of them stays."""
    path = tmp_path / "store"
    found: list[Attachment] = []

    async def come() -> None:
        found.append(await join(str(path), create=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(come)
    assert len({attachment.hello["pid"] for attachment in found}) == 1
    parents = [attachment for attachment in found if attachment.child is not None]
    for attachment in [*parents, *(each for each in found if each not in parents)]:
        assert ask_hello(str(path)) is not None
        await attachment.leave()
    assert ask_hello(str(path)) is None


async def test_a_node_that_stays_for_others_is_reaped_by_its_parent_all_the_same(tmp_path: Path) -> None:
    """The parent leaves first and goes on living: no zombie remains of the node when it ends later."""
    path = tmp_path / "store"
    parent = await join(str(path), create=True)
    pid = parent.hello["pid"]
    other = await join(str(path), create=True)
    await parent.leave()
    with watched(pid) as wait_until_gone:
        await other.leave()
        wait_until_gone()
    await anyio.to_thread.run_sync(eventually, lambda: process_state(pid) == "gone")


async def test_coming_back_after_the_nodes_death_finds_a_new_one(tmp_path: Path) -> None:
    """The old attachment says that it ended; joining again starts a node, over the dead one's socket."""
    path = tmp_path / "store"
    attachment = await join(str(path), create=True)
    old = attachment.hello["pid"]
    assert kill_holder(path, "node")
    while await attachment.receive() is not None:
        pass
    attachment.close()
    async with joined(path, first=False) as again:
        assert again.hello["pid"] != old


async def test_a_writer_that_is_killed_is_reached_again_through_the_same_node(tmp_path: Path) -> None:
    """Connections wait for the next writer in the node's backlog; `receive` hears of it."""
    async with joined(tmp_path / "store") as attachment:
        frames, hello = await attachment.reach_writer()
        assert kill_holder(tmp_path / "store", "writer")
        with contextlib.suppress(OSError):
            assert await frames.receive() is None
        frames.close()
        while attachment.hello["writer"] in (hello["pid"], None) or attachment.hello["state"] != "serving":
            assert await attachment.receive() is not None
        frames, again = await attachment.reach_writer()
        assert again["pid"] == attachment.hello["writer"] != hello["pid"]
        frames.close()


async def test_a_cancelled_joining_leaves_nothing_half_made(tmp_path: Path) -> None:
    """Whenever it is cancelled, the next one works."""
    path = tmp_path / "store"
    for milliseconds in (0, 5, 20, 40, 80):
        with anyio.move_on_after(milliseconds / 1000):
            await (await join(str(path), create=True)).leave()
    async with joined(path) as attachment:
        assert attachment.hello["state"] == "serving"


async def test_rebuilding_through_an_attachment_gives_the_report(tmp_path: Path) -> None:
    """Whoever has joined may have the index built anew, and hears what was found."""
    async with joined(tmp_path / "store") as attachment:
        report = await attachment.rebuild(lambda done, total: None)
    assert report["findings"] == []


PATIENCE = 2.5
"""For a store whose opening takes longer, though never so long between two signs of life."""


def make_store_without_index(path: Path) -> None:
    """Make a store whose opening takes some seconds: its index has to be built anew from many headers."""
    with new_store(path) as made:
        journal = made.open()
        for batch in range(2000):
            streams = [f"s-{batch}-{number}" for number in range(200)]
            journal.commit([stores.create(stream, stores.event(stream, 0)) for stream in streams])
            journal.between_commits()
        made.close()
        made.delete_index()


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_long_opening_is_waited_for_as_long_as_it_goes_on(tmp_path: Path) -> None:
    """Patience begins anew with each progress that is heard; nobody needs to know how large a store is."""
    path = tmp_path / "store"
    await anyio.to_thread.run_sync(make_store_without_index, path)
    begun = time.monotonic()
    async with joined(path, patience=PATIENCE) as attachment:
        assert time.monotonic() - begun > PATIENCE, "the store is too small for this test"
        told: list[tuple[int, int]] = []
        await attachment.rebuild(lambda done, total: told.append((done, total)))
        assert told == sorted(told)
        assert told


@pytest.mark.long
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_an_opening_that_nobody_waits_for_is_given_up(tmp_path: Path) -> None:
    """With its last client gone the node ends, and the writer doesn't open to the end first."""
    path = tmp_path / "store"
    await anyio.to_thread.run_sync(make_store_without_index, path)
    with anyio.move_on_after(0.5):
        await join(str(path), create=True)
    begun = time.monotonic()
    await anyio.to_thread.run_sync(eventually, lambda: not store_is_held(str(path)))
    assert time.monotonic() - begun < 1.0


# -- What there can't be a store at


async def test_looking_at_a_missing_store_makes_none(tmp_path: Path) -> None:
    """Without leave to create it is an error of its own, and no process is started for it."""
    with pytest.raises(StoreMissing):
        await join(str(tmp_path / "store"), create=False)
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreMissing):
        await join(str(tmp_path / "empty"), create=False)
    assert os.listdir(tmp_path) == ["empty"]
    assert os.listdir(tmp_path / "empty") == []


async def test_a_missing_parent_is_named_and_not_made(tmp_path: Path) -> None:
    """A store's directory is made, what lies above it isn't."""
    with pytest.raises(StoreRefused, match=str(tmp_path / "parent")):
        await join(str(tmp_path / "parent" / "store"), create=True)
    assert os.listdir(tmp_path) == []


class RefusedAttachment(Attachment):
    """A place at a node that has said at once why it can't serve the store."""

    def __init__(self, of: Attachment) -> None:
        self.hello, self.wanted, self.child = of.hello, None, None

    async def receive(self) -> dict[str, Any] | None:
        """Hear why."""
        raise StoreFull(0, 1)

    async def reach_writer(self, patience: float = 0) -> NoReturn:
        """Wait for a writer that never comes."""
        await anyio.sleep_forever()
        raise AssertionError

    async def send(self, frames: bytes) -> None:
        """Say something to nobody."""

    def close(self) -> None:
        """Give nothing up."""


async def test_nodes_that_cannot_serve_the_store_are_not_started_one_upon_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would cost a process and say the same: the pauses between them grow, until one serves."""
    joins: list[float] = []
    enough = anyio.Event()

    async def refused(*arguments: object, **options: object) -> Attachment:
        joins.append(time.monotonic())
        if len(joins) < 7:
            return RefusedAttachment(runtime._client._attachment)
        enough.set()
        return await join(*arguments, **options)  # type: ignore[arg-type]

    async with open_runtime(tmp_path / "store") as runtime, await runtime.create_session() as session:
        monkeypatch.setattr(client_module, "join", refused)
        assert kill_holder(tmp_path / "store", "node")
        with anyio.fail_after(DEADLINE_SECONDS):
            await enough.wait()
        await session.append("user/message", {"text": "0"})
        await session.flush()
    gaps = [later - earlier for earlier, later in pairwise(joins)]
    assert all(gap >= 0.01 * 2**number for number, gap in enumerate(gaps[:6]))


async def test_a_path_that_is_a_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    """So is one below a file."""
    (tmp_path / "file").write_text("precious")
    for path in (tmp_path / "file", tmp_path / "file" / "store"):
        with pytest.raises(StoreRefused, match=r"file|directory"):
            await join(str(path), create=True)
    assert (tmp_path / "file").read_text() == "precious"


async def test_a_store_of_a_newer_format_is_not_touched(tmp_path: Path) -> None:
    """It is called newer, not damaged."""
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    newer = json.dumps({"format": 2, "store": "x"})
    (path / "store.json").write_text(newer)
    with pytest.raises(NewerFormat):
        await join(str(path), create=True)
    assert (path / "store.json").read_text() == newer
    assert sorted(os.listdir(path)) in (["store.json"], ["node.log", "store.json"])


async def test_a_directory_that_may_not_be_written_to_is_refused(tmp_path: Path) -> None:
    """With the system's own reason; nothing is made, and no process stays."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    program = f"""
import ctypes, os, anyio
from turnkeeper.actors.client.joining import join
if os.geteuid() == 0:  # root is bound by permissions once it gives up CAP_DAC_OVERRIDE, for what it starts
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
try:
    anyio.run(lambda: join({str(closed / "store")!r}, create=True))
except Exception as error:
    print(type(error).__name__, error)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".import")}
    found = await anyio.run_process([sys.executable, "-P", "-c", program], env=environment)
    said = found.stdout.decode()
    assert said.startswith(f"StoreRefused {closed / 'store'}: ")
    assert "Permission denied" in said
    assert os.listdir(closed) == []


async def test_a_network_file_system_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS, SMB and 9p keep no promise about locks."""
    monkeypatch.setattr(store, "refused_file_system", lambda path: "NFS")
    with pytest.raises(StoreRefused, match="NFS"):
        await join(str(tmp_path), create=True)
    assert os.listdir(tmp_path) == []


async def test_a_durability_that_is_not_known_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    """A wish that can't be kept is no store with another promise."""
    with pytest.raises(StoreRefused, match="durability 'none'"):
        await join(str(tmp_path / "store"), create=True, durability="none")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


async def test_a_journal_that_cannot_be_opened_says_so_to_who_joins(tmp_path: Path) -> None:
    """The writer's own reason crosses to the opener."""
    path = tmp_path / "store"
    async with joined(path):
        pass
    for file in (path / "journal").iterdir():
        file.unlink()
    (path / "journal").rmdir()
    (path / "journal").write_text("a file")
    with pytest.raises(StorageError, match="journal"):
        await join(str(path), create=True)


# -- Who doesn't answer, or speaks otherwise


async def test_a_stopped_node_is_named_and_neither_killed_nor_gone_round(tmp_path: Path) -> None:
    """When patience is over, the error says which process and what it does; continued, it serves as before."""
    path = tmp_path / "store"
    async with joined(path) as attachment:
        pid = attachment.hello["pid"]
        with stopped(pid), pytest.raises(NodeNotAnswering) as caught:
            await join(str(path), create=True, patience=0.3)
        assert (caught.value.pid, caught.value.state) == (pid, "stopped")
        async with joined(path) as other:
            assert other.hello["pid"] == pid


async def test_a_stopped_writer_is_named_when_it_is_to_be_reached(tmp_path: Path) -> None:
    """Patience is one's own: the node and everybody else go on waiting."""
    async with joined(tmp_path / "store") as attachment:
        pid = attachment.hello["writer"]
        with stopped(pid), pytest.raises(NodeNotAnswering) as caught:
            await attachment.reach_writer(patience=0.3)
        assert (caught.value.pid, caught.value.state) == (pid, "stopped")


async def test_an_orphaned_stopped_writer_is_named_by_its_own_note(tmp_path: Path) -> None:
    """With the node dead nobody listens, and writer.json says who still holds the lock."""
    path = tmp_path / "store"
    attachment = await join(str(path), create=True)
    pid = attachment.hello["writer"]
    with stopped(pid):
        assert kill_holder(path, "node")
        while await attachment.receive() is not None:
            pass
        with pytest.raises(NodeNotAnswering) as caught:
            await join(str(path), create=True, first=False, patience=0.3)
        assert (caught.value.pid, caught.value.state) == (pid, "stopped")
    attachment.close()
    async with joined(path, first=False) as again:
        assert again.hello["writer"] != pid


async def test_a_node_of_another_version_is_one_error_with_both_and_its_pid(tmp_path: Path) -> None:
    """It isn't started over, and nothing is sent to it."""
    path = tmp_path / "store"
    store.make_directory(str(path))
    store_file = store.open_store_file(str(path), create=True)
    assert lock.take(store_file)
    store.finish(store_file, str(path), None)
    hello = {"op": "hello", "protocol": 99, "version": "9.9", "pid": os.getpid(), "state": "serving"}
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path / "node.sock"))
        listener.listen()

        def answer() -> bytes:
            with listener.accept()[0] as connection:
                connection.sendall(encode_frame(hello))
                return connection.recv(100)

        async with anyio.create_task_group() as tasks:
            said: list[bytes] = []

            async def be_node() -> None:
                said.append(await anyio.to_thread.run_sync(answer))

            tasks.start_soon(be_node)
            with pytest.raises(VersionMismatch, match=r"9\.9.*protocol 99") as caught:
                await join(str(path), create=True)
    assert (caught.value.pid, said) == (os.getpid(), [b""])
    os.close(store_file)


async def test_a_candidate_of_another_version_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package was upgraded under a running host: what it starts is another version than it is."""
    monkeypatch.setattr(launch, "PROTOCOL", 0)
    with pytest.raises(VersionMismatch, match="protocol 0"):
        await join(str(tmp_path / "store"), create=True)
    assert os.listdir(tmp_path) == []


async def test_a_candidate_that_cannot_run_gives_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation that is broken is no reason to try for ten seconds."""
    broken = tmp_path / "node_main.py"
    broken.write_text("raise SystemExit('no such thing here')\n")
    monkeypatch.setattr(launch, "_NODE_FILE", str(broken))
    with pytest.raises(StoreRefused, match="no such thing here"):
        await join(str(tmp_path / "store"), create=True)


# -- Serving in the foreground


async def test_serving_goes_on_without_clients_until_it_is_told_to_end(tmp_path: Path) -> None:
    """A node of one's own stays when the last client has left; a second one is told who serves already."""
    path = tmp_path / "store"
    hellos: list[int] = []
    with anyio.fail_after(DEADLINE_SECONDS):
        async with anyio.create_task_group() as tasks:
            ready = anyio.Event()

            def note(hello: dict[str, object]) -> None:
                hellos.append(int(str(hello["pid"])))
                ready.set()

            async def serve_here() -> None:
                await serve(str(path), ready=note)

            tasks.start_soon(serve_here)
            await ready.wait()
            async with joined(path) as attachment:
                assert attachment.hello["pid"] == hellos[0]
            assert ask_hello(str(path)) is not None
            with pytest.raises(AlreadyServed) as caught:
                await serve(str(path), ready=note)
            assert caught.value.pid == hellos[0]
            os.kill(os.getpid(), signal.SIGTERM)
    assert not store_is_held(str(path))


async def test_serving_ends_with_an_error_when_the_node_is_killed(tmp_path: Path) -> None:
    """A service manager sees it and starts it again."""
    path = tmp_path / "store"
    with pytest.raises(StoreRefused, match="SIGKILL"):
        await serve(str(path), ready=lambda hello: os.kill(hello["pid"], signal.SIGKILL))
