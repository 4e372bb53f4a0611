"""End to end: blobs of a real store, and events too large for a line, on trio, on asyncio and without a loop."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnkeeper.actors.blocking import BlockingSession, connect
from turnkeeper.actors.client import blobs as blobs_module
from turnkeeper.actors.client.blobs import Blobs
from turnkeeper.actors.errors import BlobMissing, Conflict, Corrupt, Fenced, SessionClosed, TooLarge
from turnkeeper.actors.records import Event
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.blobs import blob_path, digest_of
from turnkeeper.storage.limits import BLOB_GRACE_SECONDS

from ..served import SECONDS_MAX, end_all, finish, kill, read_line, start_python, wait_unserved, writer_of

PICTURE = b"\x89PNG\r\n\x00\n" + os.urandom(2000)
LARGE = "ü\n" * 200_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a store that isn't there yet."""
    return tmp_path / "store"


@pytest.fixture
async def runtime(store: Path) -> AsyncIterator[Runtime]:
    """The store, opened."""
    async with open_runtime(store) as opened:
        yield opened


def blob_files(store: Path) -> list[str]:
    """Give the names of all blobs' files."""
    return sorted(each.name for each in (store / "blobs").rglob("*") if each.is_file())


def stored_lines(store: Path) -> list[dict[str, Any]]:
    """Give the events as anybody reads them from the files."""
    content = (store / "journal" / "00000001.jsonl").read_bytes()
    return [json.loads(line) for line in content.splitlines() if line.startswith(b'{"stream":')]


def data_of(events: list[Event]) -> list[dict[str, Any]]:
    """Give the data of events."""
    return [event.data for event in events]


def grow_old(path: Path) -> None:
    """Let a file have been written before the grace."""
    then = path.stat().st_mtime - BLOB_GRACE_SECONDS - 60
    os.utime(path, (then, then))


# -- Put, refer, get


@pytest.mark.anyio
async def test_a_blob_is_kept_once_and_comes_back(runtime: Runtime, store: Path) -> None:
    """Its reference is plain data; a second put of the same bytes stores nothing more."""
    ref = await runtime.put_blob(PICTURE, media_type="image/png")
    assert ref == {"blob": digest_of(PICTURE), "bytes": len(PICTURE), "media_type": "image/png"}
    assert await runtime.put_blob(PICTURE, media_type="image/x-other") == {**ref, "media_type": "image/x-other"}
    assert blob_files(store) == [ref["blob"]]
    async with await runtime.create_session() as session:
        await session.append("user/message", {"text": "look", "content": [{"type": "image", "source": ref}]})
        await session.flush()
        ((event),) = await runtime.read(session.id)
    assert await runtime.get_blob(event.data["content"][0]["source"]) == PICTURE


@pytest.mark.anyio
async def test_what_an_event_refers_to_is_kept_and_what_none_does_goes(runtime: Runtime, store: Path) -> None:
    """However old: the reference in the event's data is what keeps it, over a lost index, too."""
    kept = await runtime.put_blob(PICTURE, media_type="image/png")
    keyed = await runtime.put_blob(b"keyed", media_type="text/plain")
    left = await runtime.put_blob(b"left over", media_type="text/plain")
    async with await runtime.create_session() as session:
        await session.append("my/type", {"deep": [{"er": [kept]}]})
        await session.append("my/type", {"file": keyed}, key="k")
        await session.flush()
    for ref in (kept, keyed, left):
        grow_old(store / blob_path(ref["blob"]))
    kill(writer_of(store))
    shutil.rmtree(store / "index")
    async with await runtime.create_session() as session:
        await session.append("my/type", {})
        await session.flush()
    assert await runtime.get_blob(kept) == PICTURE
    assert await runtime.get_blob(keyed) == b"keyed"
    with pytest.raises(BlobMissing):
        await runtime.get_blob(left)


@pytest.mark.anyio
async def test_a_reference_to_nothing_is_refused_at_the_call(runtime: Runtime) -> None:
    """Nothing is appended, and the session goes on."""
    foreign = {"blob": "0" * 64, "bytes": 5, "media_type": "image/png"}
    async with await runtime.create_session() as session:
        with pytest.raises(BlobMissing, match=session.id):
            await session.append("my/type", {"picture": foreign})
        with pytest.raises(BlobMissing):
            await session.append("my/type", {"picture": foreign}, key="k")
        assert await session.append("my/type", {"picture": {"blob": "0" * 64}}) == 0
        await session.flush()
        with pytest.raises(BlobMissing):
            await runtime.get_blob(foreign)
        with pytest.raises(ValueError, match="put_blob"):
            await runtime.get_blob({"blob": "../../etc/passwd"})


@pytest.mark.anyio
async def test_an_event_may_name_so_many_blobs_and_a_long_header_beside_them(runtime: Runtime) -> None:
    """More than 31 are refused at the call, and so is what doesn't fit beside the header of a new session."""
    refs = [await runtime.put_blob(bytes([n]), media_type="a/b") for n in range(32)]
    async with await runtime.create_session() as session:
        with pytest.raises(TooLarge, match="32 blobs"):
            await session.append("my/type", {"refs": refs})
        await session.append("my/type", {"refs": refs[:31]})
        await session.flush()
    async with await runtime.create_session(title="x" * 2500) as session:
        with pytest.raises(TooLarge, match="header"):
            await session.append("my/type", {"refs": refs[:31]})
        await session.append("my/type", {"refs": refs[:5]})
        await session.flush()
        await session.append("my/type", {"refs": refs[:31]})
        await session.flush()
        assert len(await runtime.read(session.id)) == 2


@pytest.mark.anyio
async def test_a_damaged_blob_is_named(runtime: Runtime, store: Path) -> None:
    """By its file; what is around it is served."""
    ref = await runtime.put_blob(PICTURE, media_type="image/png")
    (store / blob_path(ref["blob"])).write_bytes(PICTURE[:-1] + b"?")
    with pytest.raises(Corrupt, match=ref["blob"]):
        await runtime.get_blob(ref)
    await runtime.put_blob(PICTURE, media_type="image/png")
    assert await runtime.get_blob(ref) == PICTURE


# -- What the writer misses


@pytest.mark.anyio
async def test_a_blob_that_went_before_the_commit_is_written_again(runtime: Runtime, store: Path) -> None:
    """The client still has it, and the flush only takes longer: a reference, spilled data and a keyed line alike."""
    async with await runtime.create_session() as session:
        await session.append("my/type", {"picture": await runtime.put_blob(PICTURE, media_type="image/png")})
        await session.append("my/type", {"text": LARGE})
        shutil.rmtree(store / "blobs")
        await session.flush()
        await session.append("my/type", {"n": 2})
        await session.flush()
        assert data_of(await runtime.read(session.id))[1:] == [{"text": LARGE}, {"n": 2}]
    assert blob_files(store) == sorted(
        each["data"].get("$blob") or each["data"]["picture"]["blob"] for each in stored_lines(store)[:2]
    )


@pytest.mark.anyio
async def test_a_blob_that_went_and_that_nobody_has_any_more_is_told(
    runtime: Runtime, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flush says which; nothing of it is stored, and the session has to be opened again."""
    monkeypatch.setattr(blobs_module, "KEPT_BYTES_MAX", 10)
    session = await runtime.create_session(key="k")
    await session.append("my/type", {"n": 0})
    await session.flush()
    ref = await runtime.put_blob(PICTURE, media_type="image/png")
    await session.append("my/type", {"picture": ref})
    shutil.rmtree(store / "blobs")
    with pytest.raises(BlobMissing, match=ref["blob"]):
        await session.flush()
    assert session.not_stored == range(1, 2)
    await session.aclose()
    assert data_of(await runtime.read("k")) == [{"n": 0}]


@pytest.mark.anyio
async def test_contents_are_remembered_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest go first, and what is named by stored events is not kept any longer."""
    monkeypatch.setattr(blobs_module, "KEPT_BYTES_MAX", 10)
    blobs = Blobs(str(tmp_path))
    digests = [await blobs.put(content) for content in (b"aaaa", b"bbbb", b"cccc", b"d" * 11)]
    assert [await blobs.restore(digest) for digest in digests] == [False, True, True, False]
    blobs.forget([digests[1], "unknown"])
    assert [await blobs.restore(digest) for digest in digests] == [False, False, True, False]
    await blobs.put(b"cccc")
    await blobs.put(b"eeeeee")
    assert await blobs.restore(digests[2])


# -- Events too large for a line


@pytest.mark.anyio
async def test_large_data_is_spilled_and_comes_back_whole(runtime: Runtime, store: Path) -> None:
    """Read from the buffer, from the store and by following; the line in the journal has a stub alone."""
    large = {"text": LARGE, "nested": {"numbers": [1.5, None, -(2**63)]}}
    async with await runtime.create_session() as session:
        assert [await session.append("my/type", data) for data in ({"n": 0}, large, {"n": 2})] == [0, 1, 2]
        assert data_of(await session.read()) == [{"n": 0}, large, {"n": 2}]
        await session.flush()
        assert data_of(await session.read()) == [{"n": 0}, large, {"n": 2}]
        assert data_of(await runtime.read(session.id, last=2)) == [large, {"n": 2}]
        following = runtime.follow(session.id, after=0)
        with anyio.fail_after(SECONDS_MAX):
            assert data_of([await anext(following) for _ in range(3)]) == [{"n": 0}, large, {"n": 2}]
    encoded = json.dumps(large, ensure_ascii=False, separators=(",", ":")).encode()
    assert stored_lines(store)[1]["data"] == {"$blob": digest_of(encoded), "bytes": len(encoded)}


@pytest.mark.anyio
async def test_only_data_over_the_limit_is_spilled(runtime: Runtime, store: Path) -> None:
    """256 KiB of JSON stand in the line, one byte more does not."""
    async with await runtime.create_session() as session:
        for size in (2**18, 2**18 + 1):
            await session.append("my/type", {"x": "y" * (size - len('{"x":""}'))})
        await session.flush()
    assert ["$blob" in each["data"] for each in stored_lines(store)] == [False, True]


@pytest.mark.anyio
async def test_events_of_many_tasks_stay_in_the_order_of_calls(runtime: Runtime) -> None:
    """A large one is slower to store, and what is appended after it still stands behind it."""
    async with await runtime.create_session() as session:
        async with anyio.create_task_group() as tasks:
            for n in range(12):
                tasks.start_soon(session.append, "my/type", {"n": n, "text": LARGE if n % 3 == 0 else ""})
                await anyio.lowlevel.checkpoint()
        await session.flush()
        assert [data["n"] for data in data_of(await runtime.read(session.id))] == list(range(12))


@pytest.mark.anyio
async def test_a_cancelled_append_of_large_data_appended_nothing(runtime: Runtime) -> None:
    """The number goes to the next event."""
    async with await runtime.create_session() as session:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await session.append("my/type", {"text": LARGE})
        assert scope.cancelled_caught
        assert await session.append("my/type", {"n": 0}) == 0
        await session.flush()
        assert data_of(await runtime.read(session.id)) == [{"n": 0}]


@pytest.mark.anyio
async def test_a_large_event_with_a_key_is_stored_once(runtime: Runtime) -> None:
    """The same data gives the old number, other data is a conflict."""
    async with await runtime.create_session() as session:
        assert await session.append("my/type", {"text": LARGE}, key="k") == 0
        assert await session.append("my/type", {"text": LARGE}, key="k") == 0
        with pytest.raises(Conflict):
            await session.append("my/type", {"text": LARGE + "!"}, key="k")
        assert await session.append("my/type", {"n": 1}) == 1


@pytest.mark.anyio
async def test_data_that_looks_like_a_stub_comes_back_as_it_was(runtime: Runtime) -> None:
    """Whoever writes down what the journal's lines say gets that, and not what a stub stands for."""
    ref = await runtime.put_blob(b'{"secret":true}', media_type="application/json")
    alike = {"$blob": ref["blob"], "bytes": ref["bytes"]}
    async with await runtime.create_session() as session:
        await session.append("my/type", alike)
        await session.append("my/type", {"inner": alike})
        assert data_of(await session.read()) == [alike, {"inner": alike}]
        await session.flush()
        assert data_of(await session.read()) == [alike, {"inner": alike}]
        following = runtime.follow(session.id, after=0)
        assert (await anext(following)).data == alike


@pytest.mark.anyio
async def test_references_in_spilled_data_are_kept_too(runtime: Runtime, store: Path) -> None:
    """They belong to the event, wherever its data lies."""
    ref = await runtime.put_blob(PICTURE, media_type="image/png")
    async with await runtime.create_session() as session:
        await session.append("my/type", {"text": LARGE, "picture": ref})
        await session.flush()
        (event,) = await runtime.read(session.id)
    for name in blob_files(store):
        grow_old(store / blob_path(name))
    kill(writer_of(store))
    async with await runtime.create_session() as session:
        await session.append("my/type", {})
        await session.flush()
    assert await runtime.get_blob(event.data["picture"]) == PICTURE


@pytest.mark.anyio
async def test_lists_and_openings_touch_no_blob(runtime: Runtime, store: Path) -> None:
    """With all blobs gone a crashed turn of large events is listed, opened and closed as if they were there."""
    session = await runtime.create_session(key="k")
    await session.append("turn/start", {"turn": 1, "prompt": LARGE})
    calls = [{"id": name, "name": "write", "arguments": LARGE} for name in ("begun", "done", "never")]
    await session.append("assistant/message", {"text": LARGE, "tool_calls": calls})
    await session.tool_started("begun", "write", LARGE, effect="idempotent")
    await session.tool_started("done", "write", LARGE)
    await session.tool_finished("done", LARGE)
    await session.flush()
    shutil.rmtree(store / "blobs")
    reopened = await runtime.open_session("k", takeover=True)
    assert [(info.id, info.events, info.turns) for info in await runtime.sessions()] == [(session.id, 8, 1)]
    assert reopened.interrupted is not None
    assert [tuple(call) for call in reopened.interrupted.calls] == [
        ("begun", "write", "retry"),
        ("never", "write", "not_started"),
    ]
    page = await runtime.read("k")
    assert [event.seq for event in page] == [5, 6, 7]
    assert [(gap.first, gap.events) for gap in page.missing] == [(seq, 1) for seq in range(5)]
    await reopened.aclose()
    await session.append("my/type", {})
    with pytest.raises(Fenced):
        await session.flush()
    await session.aclose()


@pytest.mark.anyio
async def test_a_large_event_whose_blob_is_damaged_is_missing_alone(runtime: Runtime, store: Path) -> None:
    """Reading names event and file and gives the rest; following tells it in its place, and goes on."""
    async with await runtime.create_session() as session:
        for data in ({"n": 0}, {"text": LARGE}, {"text": LARGE + "!"}, {"n": 3}):
            await session.append("my/type", data)
        position = await session.flush()
        one, two = (store / blob_path(each["data"]["$blob"]) for each in stored_lines(store)[1:3])
        one.write_bytes(one.read_bytes().replace(b"\\n", b"\\t", 1))
        two.unlink()
        page = await runtime.read(session.id)
        assert data_of(page) == [{"n": 0}, {"n": 3}]
        assert [(gap.first, gap.events, gap.path) for gap in page.missing] == [
            (1, 1, f"blobs/{one.name[:2]}/{one.name}"),
            (2, 1, f"blobs/{two.name[:2]}/{two.name}"),
        ]
        assert page.head == 4
        following = runtime.follow(session.id, after=position - 4)
        assert (await anext(following)).data == {"n": 0}
        for seq, gone in (1, one), (2, two):
            with pytest.raises(Corrupt) as told:
                await anext(following)
            assert (told.value.stream, told.value.missing) == (session.id, [(seq, 1)])
            assert (told.value.path, told.value.positions) == (
                f"blobs/{gone.name[:2]}/{gone.name}",
                (position - 3 + seq, 1),
            )
        assert (await anext(following)).data == {"n": 3}


@pytest.mark.anyio
async def test_a_page_that_is_too_large_says_so(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer at once are given, one always is, and following has no such limit."""
    monkeypatch.setattr(blobs_module, "PAGE_BYTES_MAX", 10)
    async with await runtime.create_session() as session:
        for _ in range(2):
            await session.append("my/type", {"text": LARGE})
        await session.flush()
        with pytest.raises(TooLarge, match="events 0 to 1, read at once; read fewer"):
            await runtime.read(session.id)
        assert data_of(await runtime.read(session.id, last=1)) == [{"text": LARGE}]
        following = runtime.follow(session.id, after=0)
        assert data_of([await anext(following), await anext(following)]) == [{"text": LARGE}] * 2


@pytest.mark.anyio
async def test_a_store_in_sqlite_keeps_blobs_and_large_events_as_well(store: Path) -> None:
    """The same files beside its database: put, named, spilled, written again, and read whole."""
    async with open_runtime(f"sqlite:{store}") as runtime:
        ref = await runtime.put_blob(PICTURE, media_type="image/png")
        async with await runtime.create_session(key="k") as session:
            await session.append("my/type", {"picture": ref})
            await session.append("my/type", {"text": LARGE})
            shutil.rmtree(store / "blobs")
            await session.flush()
        assert data_of(await runtime.read("k")) == [{"picture": ref}, {"text": LARGE}]
    assert not (store / "journal").exists()
    for name in blob_files(store):
        grow_old(store / blob_path(name))
    async with open_runtime(store) as runtime:
        assert await runtime.get_blob(ref) == PICTURE
        assert data_of(await runtime.read("k", last=1)) == [{"text": LARGE}]


@pytest.mark.anyio
async def test_a_repaired_copy_names_the_blobs_of_what_it_copied(store: Path) -> None:
    """Those of references, of spilled data, and of references in that; a missing one is missing in the copy as well."""
    async with open_runtime(store) as runtime, await runtime.create_session(key="k") as session:
        ref, inner = [await runtime.put_blob(content, media_type="a/b") for content in (b"outer", b"inner")]
        for data in ({"ref": ref}, {"text": LARGE, "ref": inner}, {"text": LARGE + "!"}, {"lost": "lost"}, {"n": 4}):
            await session.append("my/type", data)
            await session.flush()
    segment = store / "journal" / "00000001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'{"lost":"lost"}', b'{"lost":"LOST"}'))
    spilled, gone = (each["data"]["$blob"] for each in stored_lines(store)[1:3])
    (store / blob_path(gone)).unlink()
    async with open_runtime(store) as runtime:
        repaired = await runtime.repair_session("k")
        assert repaired.copy is not None
        page = await runtime.read(repaired.copy)
        assert data_of(page)[1:] == [{"ref": ref}, {"text": LARGE, "ref": inner}, {"n": 4}]
        assert [gap.first for gap in page.missing] == [3]
    runs = [
        run
        for line in segment.read_bytes().splitlines()
        if line.startswith(b'{"$batch":')
        for run in json.loads(line)["streams"]
    ]
    named = [digest for run in runs if run[0] == repaired.copy and len(run) > 6 for digest in run[6].get("blobs", [])]
    assert sorted(named) == sorted([ref["blob"], inner["blob"], spilled])


# -- Death, and no loop


PUT_AND_WAIT = """
import sys
from turnkeeper.actors.blocking import connect
with connect(sys.argv[1]) as runtime, runtime.create_session(key="k") as session:
    session.append("my/type", {"n": 0})
    session.flush()
    print(runtime.put_blob(b"left by the dead" * 10, media_type="text/plain")["blob"], flush=True)
    sys.stdin.read()
"""


def test_a_client_killed_between_put_and_append_leaves_a_blob_that_goes(store: Path) -> None:
    """Its session has what was acknowledged; the blob is there for an hour and is removed by a later opening."""
    client = start_python(PUT_AND_WAIT, str(store))
    try:
        digest = read_line(client)
        kill(client.pid)
    finally:
        end_all([client])
    wait_unserved(store, SECONDS_MAX)
    for is_old in (False, True):
        if is_old:
            grow_old(store / blob_path(digest))
        with connect(store) as runtime, runtime.open_session("k") as session:
            assert data_of(session.read()) == [{"n": 0}]
            assert (store / blob_path(digest)).exists() != is_old


SPILL_UNTIL_KILLED = """
import sys
from turnkeeper.actors.blocking import connect
with connect(sys.argv[1]) as runtime, runtime.create_session(key="k") as session:
    for n in range(1000):
        session.append("my/type", {"n": n, "text": str(n) * 150_000})
        session.flush()
        print(n, flush=True)
"""


def test_acknowledged_large_events_survive_their_clients_death(store: Path) -> None:
    """Killed in the middle of whatever it does: everything it was told is there, whole."""
    client = start_python(SPILL_UNTIL_KILLED, str(store))
    try:
        while (told := int(read_line(client))) < 5:
            pass
        kill(client.pid)
        assert client.stdout is not None
        told = max([told, *map(int, client.stdout.read().split())])
    finally:
        end_all([client])
    with connect(store) as runtime:
        page = runtime.read("k")
        assert page.missing == []
        assert data_of(page)[: told + 1] == [{"n": n, "text": str(n) * 150_000} for n in range(told + 1)]


def test_a_plain_program_puts_and_gets(store: Path) -> None:
    """The same names without `await`, in a process of its own that never loads a blob's module before."""
    with connect(store) as runtime:
        ref = runtime.put_blob(PICTURE, media_type="image/png")
        assert runtime.get_blob(ref) == PICTURE
    with pytest.raises(SessionClosed):
        runtime.put_blob(PICTURE, media_type="image/png")
    program = (
        "import sys, json; from turnkeeper import connect\n"
        "with connect(sys.argv[1]) as runtime: print(len(runtime.get_blob(json.loads(sys.argv[2]))))"
    )
    assert finish(start_python(program, str(store), json.dumps(ref))).strip() == str(len(PICTURE))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingSession]:
    """A session for many examples."""
    with connect(tmp_path_factory.mktemp("blobs") / "store") as runtime, runtime.create_session() as made:
        yield made


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
            | st.sampled_from(["$blob", "bytes", "blob", "data"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(max_examples=40)
@given(value=VALUES, times=st.sampled_from([1, 3000, 60_000]))
def test_large_data_round_trips(session: BlockingSession, value: Any, times: int) -> None:
    """Whatever its form and size: spilled or not, it comes back equal."""
    data = {"value": value, "padding": ["£"] * times, "$blob": value}
    seq = session.append("my/type", data)
    session.flush()
    (event,) = session.read(start=seq, limit=1)
    assert event.data == data
