"""End to end: a repair that is interrupted or meets others, through the runtime, on trio and on asyncio."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnkeeper.actors.errors import Corrupt, CriticalTypes, Exists, SessionBusy
from turnkeeper.actors.runtime_opening import open_runtime

pytestmark = pytest.mark.anyio

EVENTS = 1000
LOST = 500


class Interruption(Exception):
    """What stops a repair in the middle."""


async def _damage(path: Path, *, is_critical: bool = False) -> str:
    """Make a store whose one session has lost event `LOST`; give its id. Its type is critical, if that is wanted."""
    async with open_runtime(path) as runtime, await runtime.create_session(key="k") as session:
        runtime.register("note/n", critical=is_critical)
        for number in range(EVENTS):
            await session.append("note/n", {"number": number})
            if number in (LOST - 1, LOST):
                await session.flush()
        await session.flush()
    segment = path / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    place = content.index(b'"number":%d}' % LOST)
    segment.write_bytes(content[:place] + b"'" + content[place + 1 :])
    return session.id


async def _stop_in_the_middle(path: Path) -> None:
    """Begin a repair, end it after a few hundred events, and leave the store."""

    def interrupt(done: int, total: int) -> None:
        if done >= 300:
            raise Interruption

    async with open_runtime(path) as runtime:
        with pytest.raises(Interruption):
            await runtime.repair_session("k", interrupt)


async def test_an_interrupted_repair_is_finished_by_the_next_one(tmp_path: Path) -> None:
    """One copy is left, without repetitions: its beginning from the first run, the rest from the second."""
    id = await _damage(tmp_path / "store")
    await _stop_in_the_middle(tmp_path / "store")
    async with open_runtime(tmp_path / "store") as runtime:
        (begun,) = [each for each in await runtime.sessions() if each.id != id]
        assert 300 <= begun.events < EVENTS
        assert begun.origin == {"repaired_from": id}
        found = await runtime.repair_session("k")
        assert (found.copy, found.is_new) == (begun.id, True)
        assert found.readable.missing == [(LOST, LOST)]
        copied = await runtime.read(begun.id, limit=2 * EVENTS)
        numbers = [event.data["number"] for event in copied[1:]]
        assert numbers == [number for number in range(EVENTS) if number != LOST]
        assert len(await runtime.sessions()) == 2


async def test_a_repair_needs_to_know_no_critical_type(tmp_path: Path) -> None:
    """It adds nothing but what the damaged session has: a copy is begun and finished, and its type stays critical."""
    await _damage(tmp_path / "store", is_critical=True)
    await _stop_in_the_middle(tmp_path / "store")
    async with open_runtime(tmp_path / "store") as runtime:
        found = await runtime.repair_session("k")
        assert found.is_new
        assert found.copy is not None
        with pytest.raises(CriticalTypes):
            await runtime.open_session(found.copy)


async def test_a_copy_that_is_being_made_is_left_to_its_maker(tmp_path: Path) -> None:
    """Two repairs at once: one makes the copy, the other is told who does."""
    await _damage(tmp_path / "store")
    await _stop_in_the_middle(tmp_path / "store")
    async with open_runtime(tmp_path / "store") as runtime:
        (begun, _) = await runtime.sessions()
        async with await runtime.open_session(begun.id):
            with pytest.raises(SessionBusy):
                await runtime.repair_session("k")


async def test_an_unfinished_copy_that_somebody_appended_to_is_not_gone_on_with(tmp_path: Path) -> None:
    """What stands there isn't mixed with the rest of the damaged session: the repair says which session it is."""
    await _damage(tmp_path / "store")
    await _stop_in_the_middle(tmp_path / "store")
    async with open_runtime(tmp_path / "store") as runtime:
        (begun, _) = await runtime.sessions()
        async with await runtime.open_session(begun.id) as session:
            await session.append("note/other", {})
            head = session.head
        with pytest.raises(Exists, match=begun.id):
            await runtime.repair_session("k")
        assert (await runtime.read(begun.id)).head == head


async def test_what_was_rewound_stays_so_in_the_copy(tmp_path: Path) -> None:
    """Rewinds go back to the same places, which have other numbers there; one after the other, and by a second run."""
    path = tmp_path / "store"
    async with open_runtime(path) as runtime, await runtime.create_session(key="k") as session:
        for number in range(4):
            await session.append("note/n", {"number": number})
            await session.flush()
        await session.rewind(3)
        await session.append("note/n", {"number": 5})
        await session.rewind(4)
    segment = path / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b'"number":0}', b"'number':0}").replace(b'"number":1}', b"'number':1}"))
    async with open_runtime(path) as runtime:
        found = await runtime.repair_session("k")
        assert found.copy is not None
        copied = await runtime.read(found.copy)
        assert [event.data.get("number") for event in copied] == [None, 2, 3, None, 5, None]
        assert [copied[seq].data for seq in (3, 5)] == [{"to": 2, "previous": None}, {"to": 3, "previous": 3}]
        row = await runtime._client.reads.call(lambda reader: reader.row(str(found.copy)))
        assert row.summary["rewound"] == 5
        again = await runtime.repair_session("k")
        assert (again.copy, again.is_new) == (found.copy, False)


async def test_a_damaged_session_is_forked_before_its_damage_and_not_behind(tmp_path: Path) -> None:
    """The fork goes on with what is whole; behind it, what is missing is named, and no session is made."""
    path = tmp_path / "store"
    async with open_runtime(path) as runtime, await runtime.create_session(key="k") as session:
        for number in range(4):
            await session.append("note/n", {"number": number})
            await session.flush()
    segment = path / "journal" / "00000001.jsonl"
    content = segment.read_bytes()
    header = content.rindex(b'{"$batch":', 0, content.index(b'"number":2}'))
    segment.write_bytes(content[:header] + b"'" + content[header + 1 :])
    (path / "index.json").unlink()
    async with open_runtime(path) as runtime:
        with pytest.raises(Corrupt):
            await runtime.open_session("k")
        async with await runtime.fork_session("k", at=2) as fork:
            assert [event.data.get("number") for event in await fork.read()] == [0, 1, None]
        for at in (3, None):
            with pytest.raises(Corrupt) as caught:
                await runtime.fork_session("k", at=at)
            assert caught.value.missing == [(2, 1)]
        assert len(await runtime.sessions()) == 2
