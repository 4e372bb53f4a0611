"""End to end: when a node starts, whom it counts, what it restarts, and when it ends, seen over its socket."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from turnkeeper.actors import launch
from turnkeeper.actors.client.asking import ask_hello, ask_status, ask_stop, ask_writer_hello, node_pid
from turnkeeper.actors.protocol import NODE_SOCKET, PATIENCE_SECONDS, PROTOCOL, WRITER_SOCKET
from turnkeeper.runtime.frames import FrameDecoder
from turnkeeper.runtime.identity import process_state
from turnkeeper.storage.lock import store_is_held
from turnkeeper.storage.store import describe

from ..serving import (
    DEADLINE_SECONDS,
    FrameClient,
    ServedStore,
    eventually,
    first_append,
    next_append,
    served_store,
    start_node,
    stopped,
    watched,
    word_of,
)

GONE_SECONDS = 0.5


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServedStore]:
    """A served store of its own."""
    with served_store(tmp_path / "store") as served:
        yield served


def client_process(path: Path, *, forks: bool = False) -> subprocess.Popen[str]:
    """Start a process that attaches to the node and says its child's pid, or 0, when it has."""
    program = f"""
import os, sys, time
from pathlib import Path
from tests.serving import FrameClient
client = FrameClient(Path({str(path)!r}), "node.sock")
assert client.ask({{"op": "attach", "name": "another"}}) == {{"op": "attached"}}
child = os.fork() if {forks} else 0
if not child and {forks}:
    time.sleep(1000)
print(child, flush=True)
time.sleep(1000)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / '.import'}:{root}"}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)


# -- Starting


def test_a_node_says_who_it_is_and_a_second_candidate_is_too_late(store: ServedStore) -> None:
    """The hello carries protocol, version, pid and the store's own id; whoever comes second is told `busy`."""
    with store.visit() as visitor:
        hello = visitor.hello
    assert (hello["op"], hello["protocol"], hello["pid"]) == ("hello", PROTOCOL, store.process.pid)
    assert hello["store"] == describe(str(store.path)).store
    candidate = launch.start_candidate(str(store.path), create=True, durability=None)
    assert word_of(candidate) == "busy"
    assert candidate.wait(DEADLINE_SECONDS) == 0


def test_of_candidates_that_start_at_once_one_becomes_the_node(tmp_path: Path) -> None:
    """On a store that isn't even made yet; the others are told `busy`, and nothing that they did is in its way."""
    candidates = [launch.start_candidate(str(tmp_path / "store"), create=True, durability=None) for _ in range(20)]
    words = [word_of(candidate) for candidate in candidates]
    assert sorted(words) == ["busy"] * 19 + ["ready"]
    with FrameClient(tmp_path / "store", NODE_SOCKET) as client:
        assert client.hello["pid"] == candidates[words.index("ready")].pid
        client.ask({"op": "attach", "name": "a"})
        client.ask({"op": "bye"})
        client.wait_for_end()
    assert [candidate.wait(DEADLINE_SECONDS) for candidate in candidates] == [0] * 20


def test_node_and_writer_lead_process_sessions_with_a_lean_environment(store: ServedStore) -> None:
    """A terminal's signals don't reach them, and they know nothing of the host's variables but the few they need."""
    for pid in (store.process.pid, store.writer_pid()):
        assert os.getsid(pid) == pid
        variables = {each.split(b"=")[0].decode() for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}
        lean = {"", "PATH", "HOME", "LANG", "TZ", "TMPDIR"}
        assert all(name in lean or name.startswith(("LC_", "TURNKEEPER_")) for name in variables)
        assert os.readlink(f"/proc/{pid}/cwd") == str(store.path)


def test_they_keep_no_descriptor_of_the_host(tmp_path: Path) -> None:
    """What the host has open, inheritable or not, is not held open by a node that outlives it."""
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    with served_store(tmp_path / "store") as store:
        os.close(writing)
        assert store.writer_pid()
        assert os.read(reading, 1) == b""
    os.close(reading)


def test_a_hosts_directory_shadows_nothing(tmp_path: Path) -> None:
    """Modules that lie where the host was started from are not taken for ours, or for the standard library's."""
    for name in ("trio", "lmdb", "json", "socket", "turnkeeper"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    program = f"""
import sys
from pathlib import Path
import tests.serving
sys.path.insert(0, {str(tmp_path)!r})
with tests.serving.served_store(Path({str(tmp_path / "store")!r})) as store:
    print(store.writer_pid() > 0)
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / '.import'}:{root}"}
    found = subprocess.run(
        [sys.executable, "-P", "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (found.stdout, found.returncode) == ("True\n", 0), found.stderr


def test_a_candidate_loads_only_the_standard_library_before_it_has_the_lock() -> None:
    """Event loop, msgpack and LMDB come after the lock: forty-nine of fifty candidates never need them."""
    loaded = loaded_with("turnkeeper.actors.node.node_main", "turnkeeper.storage.store", options=["-S"])
    others = {name.split(".")[0] for name in loaded} - sys.stdlib_module_names - {"turnkeeper"}
    assert others <= {"__main__"}


def test_a_node_without_tasks_loads_no_process_supervisor() -> None:
    """Nor the supervision of its tree before somebody was greeted: whoever starts a node for a moment waits for it."""
    of_tasks = {name for name in loaded_with("turnkeeper.actors.node.node") if "supervis" in name or ".tasks." in name}
    assert of_tasks == {"turnkeeper.actors.node.tasks.owners", "turnkeeper.actors.node.tasks.supervisor_keeper"}


def loaded_with(*modules: str, options: Sequence[str] = ()) -> list[str]:
    """Give the names of all that a new interpreter has loaded that imports these modules."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / ".import")}
    command = [sys.executable, *options, "-P", "-c", f"import sys, {', '.join(modules)}; print(*sys.modules)"]
    loaded = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    return loaded.split()


# -- Ending


def test_the_last_client_ends_it_and_everybody_waits_for_that(tmp_path: Path) -> None:
    """Bye is answered `staying` while others are there, else `ending`; then node and writer are gone, lock and all."""
    path = tmp_path / "store"
    node = start_node(path)
    first, second = FrameClient(path, NODE_SOCKET), FrameClient(path, NODE_SOCKET)
    for client in (first, second):
        client.ask({"op": "attach", "name": "a"})
    with FrameClient(path, "writer.sock") as writer:
        writer_pid = writer.hello["pid"]
    assert first.ask({"op": "bye"}) == {"op": "staying"}
    assert second.ask({"op": "bye"}) == {"op": "ending"}
    begun = time.monotonic()
    second.wait_for_end()
    assert process_state(writer_pid) in ("gone", "zombie")
    assert node.wait(DEADLINE_SECONDS) == 0
    assert time.monotonic() - begun < GONE_SECONDS
    assert not store_is_held(str(path))
    first.close()
    second.close()


def test_who_only_looks_is_no_client(tmp_path: Path) -> None:
    """Asking keeps no node alive, and ends none that waits for its first client."""
    path = tmp_path / "store"
    node = start_node(path)
    with FrameClient(path, NODE_SOCKET) as visitor, FrameClient(path, NODE_SOCKET) as client:
        assert visitor.ask({"op": "bye"}) == {"op": "staying"}
        assert client.ask({"op": "attach", "name": "a"}) == {"op": "attached"}
        assert client.ask({"op": "bye"}) == {"op": "ending"}
        visitor.wait_for_end()
    assert node.wait(DEADLINE_SECONDS) == 0


@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a forked child"])
def test_a_client_is_gone_when_its_process_is(tmp_path: Path, forks: bool) -> None:
    """Killed without a bye, it counts no more, although a forked child may keep its connection open."""
    path = tmp_path / "store"
    node = start_node(path)
    with client_process(path, forks=forks) as client:
        assert client.stdout is not None
        child = int(client.stdout.readline())
        client.kill()
        client.wait()
        try:
            assert node.wait(PATIENCE_SECONDS / 2) == 0
        finally:
            if child:
                os.kill(child, signal.SIGKILL)


@pytest.mark.long
def test_a_node_that_nobody_comes_to_ends_by_itself(tmp_path: Path) -> None:
    """Whoever started it may have died before it could attach."""
    node = start_node(tmp_path / "store")
    with FrameClient(tmp_path / "store", NODE_SOCKET) as visitor:
        visitor.wait_for_end()
    assert node.wait(DEADLINE_SECONDS) == 0


def test_term_ends_it_in_order_although_clients_are_attached(store: ServedStore) -> None:
    """They are told, and their connections end when everything has: the index is clean then."""
    store.process.terminate()
    state = store.node.receive()
    while state["state"] != "ending":
        state = store.node.receive()
    store.node.wait_for_end()
    assert store.process.wait(DEADLINE_SECONDS) == 0
    assert json.loads((store.path / "index.json").read_text())["state"] == "clean"


@pytest.mark.parametrize(
    "change", ["removed", "moved away and made anew", "its socket replaced", "its writer's socket removed"]
)
def test_it_ends_when_its_store_is_no_longer_the_one_it_opened(store: ServedStore, change: str) -> None:
    """Within some seconds: what a node without a place acknowledged would be found by nobody."""
    store.writer_pid()
    if change == "removed":
        shutil.rmtree(store.path)
    elif change == "moved away and made anew":
        content = (store.path / "store.json").read_bytes()
        (store.path / "store.json").unlink()
        (store.path / "store.json").write_bytes(content)
    elif change == "its writer's socket removed":
        (store.path / WRITER_SOCKET).unlink()
    else:
        (store.path / NODE_SOCKET).unlink()
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(store.path / NODE_SOCKET))
    store.node.wait_for_end()
    store.process.wait(DEADLINE_SECONDS)
    store.path.mkdir(exist_ok=True)


def test_a_store_that_is_renamed_is_served_on(store: ServedStore) -> None:
    """Node and writer hold the directory, not its name; it is reached by the new one."""
    with store.writer() as writer:
        writer.ask([1, [first_append("a")]])
    moved = store.path.with_name("moved")
    store.path.rename(moved)
    with FrameClient(moved, "writer.sock") as writer:
        assert writer.ask([1, [next_append("a", 1)]])[1][0] == [1, 2, 2]
    assert node_pid(str(moved)) == store.process.pid
    moved.rename(store.path)


def test_a_path_longer_than_an_address_can_be_is_no_matter(tmp_path: Path) -> None:
    """Sockets are bound by relative names and reached through the directory."""
    path = tmp_path / ("long-" * 20) / ("longer-" * 20)
    path.parent.mkdir()
    with served_store(path) as store, store.writer() as writer:
        assert writer.ask([1, [first_append("a")]])[1][0] == [0, 1, 1]


# -- The writer


def test_a_killed_writer_serves_again_soon_and_everybody_is_told(store: ServedStore) -> None:
    """Clients hear `opening`, then `serving` with the new writer's pid, within a second where there is one to spare."""
    seconds: list[float] = []
    for _ in range(3):
        killed = store.kill_writer()
        begun = time.monotonic()
        while (state := store.node.receive())["state"] != "serving" or state["writer"] == killed:
            pass
        seconds.append(time.monotonic() - begun)
        assert store.writer_pid() == state["writer"]
    assert min(seconds) < 1.0


def test_nobody_becomes_a_client_of_a_node_that_is_ending(store: ServedStore) -> None:
    """Whoever comes in that moment is told so, and comes again to the next one."""
    with store.visit() as late, stopped(store.writer_pid()):
        store.process.terminate()
        while late.receive()["state"] != "ending":
            pass
        late.send({"op": "attach", "name": "late"})
        answer = late.receive()
        assert (answer["op"], answer["state"]) == ("state", "ending")


def test_thirty_kills_in_a_row_are_survived(store: ServedStore) -> None:
    """Who kills the writer over and over gets a new one each time: that isn't the writer's fault."""
    for _ in range(30):
        store.kill_writer()
    assert store.writer_pid()


def test_an_index_that_may_have_killed_its_writer_is_not_opened_again(store: ServedStore) -> None:
    """After SIGSEGV the index is built anew from the journal; after SIGKILL it is trusted."""
    with store.writer() as writer:
        writer.ask([1, [first_append("a")]])
        index = writer.hello["index"]
    store.kill_writer(signal.SIGKILL)
    with store.writer() as writer:
        assert writer.hello["index"] == index
    store.kill_writer(signal.SIGSEGV)
    with store.writer() as writer:
        assert writer.hello["index"] != index
        assert writer.ask([1, [next_append("a", 1)]])[1][0][:2] == [1, 2]


def test_a_writer_orphaned_by_the_nodes_death_ends_cleanly_and_a_new_node_goes_on(tmp_path: Path) -> None:
    """The lock is free only when both are dead; what was acknowledged is there."""
    path = tmp_path / "store"
    with served_store(path) as store, store.writer() as writer:
        writer.ask([1, [first_append("a")]])
        with watched(writer.hello["pid"]) as wait_until_gone:
            store.process.kill()
            wait_until_gone()
    with served_store(path) as store, store.writer() as writer:
        assert writer.ask([1, [first_append("a")]]) == [1, [[0, 1, 1]]]


def test_a_stopped_writer_keeps_a_successor_out_after_the_nodes_death(tmp_path: Path) -> None:
    """An orphan that wakes could overwrite what a successor acknowledged: it is never gone round."""
    path = tmp_path / "store"
    with served_store(path) as store:
        with stopped(store.writer_pid()):
            store.process.kill()
            store.process.wait()
            with launch.start_candidate(str(path), create=True, durability=None) as candidate:
                assert word_of(candidate) == "busy"
        eventually(lambda: not store_is_held(str(path)))


def test_a_store_whose_journal_cannot_be_opened_is_given_up_with_the_reason(tmp_path: Path) -> None:
    """Everybody who is connected is told why, and the node ends: starting the writer again would change nothing."""
    path = tmp_path / "store"
    with served_store(path):
        pass
    shutil.rmtree(path / "journal")
    (path / "journal").write_text("a file")
    node = start_node(path)
    with FrameClient(path, NODE_SOCKET) as visitor:
        message = visitor.receive()
        while message["op"] != "error":
            message = visitor.receive()
        assert message["error"] == "StoreRefused"
        assert message["args"][0] == str(path)
        assert "it can't be opened" in message["args"][1]
        visitor.wait_for_end()
    assert node.wait(DEADLINE_SECONDS) == 0


def test_a_rebuild_makes_a_new_index_while_clients_wait(store: ServedStore) -> None:
    """The writer is ended in order and its successor builds the index from the headers; nothing is lost."""
    with store.writer() as writer:
        writer.ask([1, [first_append("a"), first_append("b")]])
        index = writer.hello["index"]
    answer = store.node.ask({"op": "rebuild"})
    assert (answer["op"], answer["report"]["hopped_batches"], answer["report"]["findings"]) == ("rebuilt", 1, [])
    with store.writer() as writer:
        assert writer.hello["index"] != index
        assert writer.ask({"op": "statistics", "id": 1})["sessions"] == 2


# -- Asking


def test_status_says_what_node_and_writer_do(store: ServedStore) -> None:
    """Processes, clients, position, sessions, queue and flush times, as the status command shows them."""
    with store.writer() as writer:
        writer.ask([1, [first_append("a")]])
        writer_pid = writer.hello["pid"]
    status = ask_status(str(store.path))
    assert status is not None
    assert status["pids"] == {"node": store.process.pid, "writer": writer_pid, "spawner": None, "shims": []}
    opening = status["opening"]
    assert (opening["hopped_batches"], opening["torn_bytes"], opening["findings"]) == (0, 0, 0)
    assert opening["rebuilt"] == "index.json is missing or damaged"
    moments = opening["moments"]
    assert moments["start"] < moments["replaying"] < moments["open"] < moments["serving"] < time.monotonic()
    assert (status["clients"], status["attached"]) == (1, [{"pid": os.getpid(), "name": "the test"}])
    assert (status["state"], status["position"], status["sessions"]) == ("serving", 2, 1)
    assert status["flush_ms"]["p50"] > 0
    assert abs(status["since"] / 1000 - time.time()) < 60


def test_status_answers_although_the_writer_does_not(store: ServedStore) -> None:
    """With the writer stopped its figures are unknown, and said to be."""
    with stopped(store.writer_pid()):
        status = ask_status(str(store.path))
    assert status is not None
    assert (status["clients"], status["position"], status["flush_ms"]) == (1, None, {"p50": None, "p99": None})


def test_stop_is_refused_while_clients_are_attached_and_names_them(store: ServedStore) -> None:
    """They would start it again; with nobody attached it ends, and asking waits for that."""
    refusal = ask_stop(str(store.path))
    assert refusal == {"op": "refused", "clients": [{"pid": os.getpid(), "name": "the test"}]}
    store.node.ask({"op": "attach", "name": "turnkeeper serve", "serves": True})
    assert ask_stop(str(store.path)) == {"op": "stopping"}
    assert not store_is_held(str(store.path))


def test_asking_an_unserved_store_starts_nothing(tmp_path: Path) -> None:
    """Nobody serves: the answer is None, at once, and the directory stays as it was."""
    path = tmp_path / "store"
    with served_store(path):
        pass
    before = sorted(os.listdir(path))
    assert (ask_hello(str(path)), ask_writer_hello(str(path)), ask_status(str(path)), ask_stop(str(path))) == (
        None,
    ) * 4
    assert node_pid(str(path)) is None
    assert sorted(os.listdir(path)) == before


def test_a_stopped_node_is_named_by_its_pid(store: ServedStore) -> None:
    """Its listening socket says whose it is, without its help."""
    with stopped(store.process.pid):
        assert node_pid(str(store.path)) == store.process.pid


@pytest.mark.parametrize("nonsense", [b"\x00\x00\x00\x01\xc1", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01\x80"], ids=repr)
def test_nonsense_ends_its_own_connection_with_a_reason(store: ServedStore, nonsense: bytes) -> None:
    """Whoever sends what is no request is told so and cut off; others notice nothing."""
    with store.visit() as visitor:
        visitor.connection.sendall(nonsense)
        while (answer := visitor.receive())["op"] == "state":
            pass
        assert (answer["op"], answer["error"]) == ("error", "StorageError")
        visitor.wait_for_end()
    assert store.node.ask({"op": "status"})["clients"] == 1


def test_a_client_that_reads_nothing_holds_up_nobody_and_hears_the_newest_state(store: ServedStore) -> None:
    """News that it doesn't read isn't heaped up for it: it is told how things are when it reads again."""
    with store.visit() as deaf:
        deaf.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connection.setblocking(False)
        request = b"".join([b"\x00\x00\x00\x0b", b"\x81\xa2op\xa6status"]) * 2000
        sent = deaf.connection.send(request)
        killed = store.kill_writer()
        while (state := store.node.receive())["state"] != "serving" or state["writer"] == killed:
            pass
        deaf.connection.settimeout(DEADLINE_SECONDS)
        answers = 0
        while answers < sent // 15:
            answers += deaf.receive()["op"] == "status"
    assert store.node.ask({"op": "status"})["clients"] == 1


@pytest.mark.root
def test_another_users_process_is_turned_away(store: ServedStore) -> None:
    """Node and writer serve one user; whoever else reaches a socket is told so and cut off."""
    store.writer_pid()
    os.chmod(store.path, 0o711)
    directory = os.open(store.path, os.O_RDONLY)
    for name in (NODE_SOCKET, "writer.sock"):
        os.chmod(store.path / name, 0o666)
        program = f"""
import os, socket, sys
os.chdir({directory})
os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
connection.connect({name!r})
while content := connection.recv(65536):
    sys.stdout.buffer.write(content)
"""
        command = [sys.executable, "-S", "-c", program]
        said = subprocess.run(command, stdout=subprocess.PIPE, pass_fds=[directory], timeout=60, check=True).stdout
        (message,) = FrameDecoder().feed(said)
        assert (message["op"], message["error"]) == ("error", "StoreRefused")
    os.close(directory)
