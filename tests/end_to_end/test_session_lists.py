"""End to end: how sessions are listed and found again: in pages, by directory, by status. Either backend."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import NotFound
from turnkeeper.actors.reading import listing as listing_module
from turnkeeper.actors.records import SessionInfo
from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.parametrize(("anyio_backend", "kept_by"), [("trio", "journal"), ("asyncio", "sqlite")]),
]


async def made(runtime: Runtime, **header: Any) -> str:
    """Make a session with one event, close it, and give its id."""
    async with await runtime.create_session(**header) as session:
        await session.append("my/note", {})
        return session.id


def ids(rows: list[SessionInfo]) -> list[str]:
    """Give the ids of rows."""
    return [row.id for row in rows]


def files_of(store: Path) -> dict[Path, int]:
    """Give the files of a store and their sizes; a reader of LMDB's is noted in its lock file."""
    return {
        path: path.stat().st_size for path in sorted(store.rglob("*")) if path.is_file() and path.name != "lock.mdb"
    }


async def paged(runtime: Runtime, limit: int, **labels: str) -> list[str]:
    """List sessions page by page, each behind the last row of the one before."""
    found: list[str] = []
    after: SessionInfo | None = None
    while page := await runtime.sessions(status=None, limit=limit, after=after, **labels):
        found += ids(page)
        after = page[-1]
    return found


# -- Pages


async def test_pages_give_every_session_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their size, with filters that few or many fit, and where one look has not enough of them."""
    made_ids = [await made(runtime, labels={"n": str(number % 7), "all": "1"}) for number in range(40)]
    expected = made_ids[::-1]
    monkeypatch.setattr(listing_module, "ROWS_MIN", 3)
    monkeypatch.setattr(listing_module, "ROWS_MAX", 5)
    for limit in (1, 3, 39, 40, 100):
        assert await paged(runtime, limit) == expected
        assert await paged(runtime, limit, all="1") == expected
        assert await paged(runtime, limit, all="1", n="3") == [id for id in expected if made_ids.index(id) % 7 == 3]
    assert await runtime.sessions(limit=0) == []
    assert ids(await runtime.sessions(after=expected[9], limit=2)) == expected[10:12]
    with pytest.raises(NotFound):
        await runtime.sessions(after="nobody")
    with pytest.raises(ValueError, match="a status is one of active, closed, crashed, not 'weird'"):
        await runtime.sessions(status="weird")  # type: ignore[arg-type]


async def test_a_session_that_becomes_active_while_pages_are_read_hides_no_other(runtime: Runtime) -> None:
    """It has moved to the front; the pages behind a row go on from where that row was."""
    made_ids = [await made(runtime) for _ in range(6)]
    first = await runtime.sessions(limit=2)
    async with await runtime.open_session(made_ids[1]) as session:
        await session.append("my/note", {})
        await session.flush()
        rest = await runtime.sessions(after=first[-1])
        assert ids(rest) == [made_ids[n] for n in (3, 2, 0)]
        assert (await runtime.sessions(limit=1))[0].id == made_ids[1]


async def test_the_oldest_of_many_is_found_by_a_filter(runtime: Runtime) -> None:
    """A filter looks at all of them, and not only at those that would be listed without it."""
    oldest = await made(runtime, title="the oldest", labels={"word": "needle"})
    for _ in range(60):
        await made(runtime)
    assert ids(await runtime.sessions(word="needle", limit=1)) == [oldest]
    assert ids(await runtime.sessions(title="the oldest", limit=1)) == [oldest]


async def test_a_session_that_somebody_has_is_listed_as_such_whatever_its_age(runtime: Runtime) -> None:
    """One process may have several; newer ones hide none."""
    async with await runtime.create_session() as old, await runtime.create_session() as other:
        for session in (old, other):
            await session.append("my/note", {})
            await session.flush()
        for _ in range(30):
            await made(runtime)
        active = await runtime.sessions(status="active", limit=5)
        assert ids(active) == [other.id, old.id]
        assert {(row.owner or {})["pid"] for row in active} == {os.getpid()}
        assert len(await runtime.sessions(status="closed", limit=100)) == 30


async def test_the_order_is_that_of_the_last_events_whatever_the_files_say(runtime: Runtime, store: Path) -> None:
    """Touching files, setting titles, looking and opening move nothing; a clock that was set back doesn't, either."""
    made_ids = [await made(runtime) for _ in range(4)]
    for number, path in enumerate(files_of(store)):
        os.utime(path, (number, number))
    await runtime.set_session(made_ids[0], title="not active")
    async with await runtime.open_session(made_ids[1]) as session:
        await session.read()
    async with await runtime.open_session(made_ids[2]) as session:
        await session.append("my/note", {}, time=5)
        await session.flush()
    assert ids(await runtime.sessions()) == [made_ids[n] for n in (2, 3, 1, 0)]


async def test_lists_write_nothing_and_bring_nothing_back(runtime: Runtime, store: Path) -> None:
    """A deleted session stays deleted, and the files of the store are as they were."""
    kept, deleted = await made(runtime), await made(runtime)
    await runtime.delete(deleted)
    before = files_of(store)
    for _ in range(2):
        assert ids(await runtime.sessions()) == [kept]
    assert files_of(store) == before


# -- Directories


async def test_a_directory_is_found_by_every_spelling(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was spelled, as it really is, through another link, relative, with dots; the spelling is what is shown."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "second").symlink_to("real")
    by_link = await made(runtime, cwd=str(tmp_path / "link"))
    by_path = await made(runtime, cwd=str(tmp_path / "real"))
    await made(runtime, cwd=str(tmp_path))
    await made(runtime)
    monkeypatch.chdir(tmp_path)
    for spelling in ("real", "link", "second", "./link/../link/", f"{tmp_path}//real", f"{tmp_path}/second"):
        assert ids(await runtime.sessions(cwd=spelling)) == [by_path, by_link], spelling
    shown = {row.id: (row.cwd, row.cwd_real) for row in await runtime.sessions(cwd="real")}
    assert shown[by_link] == (str(tmp_path / "link"), shown[by_path][1] or shown[by_path][0])
    assert shown[by_path][0] == str(tmp_path / "real")


async def test_a_moved_or_deleted_directory_keeps_its_sessions(runtime: Runtime, tmp_path: Path) -> None:
    """They are found by where they were, by where they are if that is said by a link, and by id from anywhere."""
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    (tmp_path / "link").symlink_to("old")
    id, by_link = await made(runtime, cwd=str(old)), await made(runtime, cwd=str(tmp_path / "link"))
    old.rename(new)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("new")
    assert ids(await runtime.sessions(cwd=str(old))) == [by_link, id]
    assert ids(await runtime.sessions(cwd=str(tmp_path / "link"))) == [by_link]
    assert await runtime.sessions(cwd=str(new)) == []
    old.symlink_to("new")
    assert ids(await runtime.sessions(cwd=str(old))) == [by_link, id]
    shutil.rmtree(new)
    assert ids(await runtime.sessions(cwd=str(old))) == [by_link, id]
    async with await runtime.open_session(id) as session:
        assert (session.head, len(await session.read())) == (1, 1)
    assert not new.exists(), "no directory is made again"


async def test_directories_that_look_alike_are_not_mixed(runtime: Runtime) -> None:
    """Whatever characters they have; a drive's letter may be small or large, and backslashes are no separators."""
    cwds = ["/p/외주", "/p/개인", "/p/a-b/c", "/p/a/b-c", "/p/a_b", "/p/a.b", '/p/"q"', "/p/a b", "/p/A_B"]
    made_ids = {cwd: await made(runtime, cwd=cwd) for cwd in cwds}
    for cwd, id in made_ids.items():
        assert ids(await runtime.sessions(cwd=cwd)) == [id], cwd
    windows = await made(runtime, cwd="d:\\x\\p")
    assert ids(await runtime.sessions(cwd="D:\\x\\p")) == ids(await runtime.sessions(cwd="d:\\x\\p")) == [windows]
    assert await runtime.sessions(cwd="d:\\x") == await runtime.sessions(cwd="p") == []


async def test_the_newest_session_of_a_directory_goes_on(store: Path, runtime: Runtime, tmp_path: Path) -> None:
    """By the first row of its list; a child has a directory of its own, also when it was forked."""
    (tmp_path / "worktree").mkdir()
    parent = await made(runtime, cwd=str(tmp_path))
    child = await made(runtime, cwd=str(tmp_path / "worktree"), parent=parent)
    async with await runtime.fork_session(child) as fork:
        pass
    async with open_runtime(store) as other:
        (newest,) = await other.sessions(cwd=str(tmp_path / "worktree"), limit=1)
        assert (newest.id, newest.cwd) == (fork.id, str(tmp_path / "worktree"))
        (newest,) = await other.sessions(cwd=str(tmp_path), limit=1)
        async with await other.open_session(newest.id) as session:
            assert session.id == parent
