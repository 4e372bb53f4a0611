"""What a death in mid-write leaves behind, and what the next opening makes of it."""

from __future__ import annotations

import json
from pathlib import Path

from turnkeeper.storage.requests import Append

from ..stores import StoreInTest, appended, create, event, lines, new_store


def _three_batches(store: StoreInTest) -> list[int]:
    """Write three batches; give where each ends."""
    journal = store.open()
    ends = [len(store.content())]
    journal.commit([create("a", lines("a", 0, 2)), create("b", lines("b", 0, 1))])
    ends.append(journal.statistics()["end"])
    journal.commit([Append("a", 1, 2, lines("a", 2, 2)), Append("b", 1, 1, lines("b", 1, 1, "ünï"))])
    ends.append(journal.statistics()["end"])
    return ends


def _cut(store: StoreInTest, kept: int, length: int, filler: bytes) -> None:
    """Keep `kept` bytes of the segment and put filler for the rest of what was there."""
    content = store.segment().read_bytes()
    store.segment().write_bytes(content[:kept] + filler * (length - kept) + content[length:])


def test_the_last_batch_cut_at_every_byte_is_quarantined_and_the_rest_served(memory_path: Path) -> None:
    """With the index gone: earlier batches are served, the tail kept aside and reported, the next append clean."""
    with new_store(memory_path / "store") as store:
        _, second, third = _three_batches(store)
        store.kill()
        store.delete_index()
        whole = store.segment().read_bytes()
        for kept in range(second, third - 1):  # the last byte is a newline, as filling is
            filler = b"\0" if kept % 2 else b"\n"
            store.segment().write_bytes(whole)
            _cut(store, kept, third, filler)
            journal = store.open()
            report = journal.report
            assert [finding.kind for finding in report.findings] == (["torn tail"] if kept > second else []), kept
            assert report.torn_bytes <= kept - second
            if report.torn_bytes:
                aside = (store.path / report.quarantined).read_bytes()
                assert whole[second:kept].startswith(aside)
                note = json.loads((store.path / report.quarantined).with_suffix(".json").read_text())
                assert (note["segment"], note["offset"]) == ("00000001.jsonl", second)
            assert {stream: len(found) for stream, found in store.events().items()} == {"a": 2, "b": 1}
            assert appended(journal, Append("a", 1, 2, event("a", 2, f"after {kept}"))).head == 3
            store.kill()
            store.delete_index()
            journal = store.open()
            assert journal.report.findings == []
            assert len(store.events()["a"]) == 3
            store.kill()
            store.delete_index()


def test_a_tail_cut_off_behind_a_kept_index_is_a_torn_tail_only_if_the_index_never_saw_it(memory_path: Path) -> None:
    """The index of before the last batch knows nothing of it; the one of after it makes its loss damage."""
    with new_store(memory_path / "store") as store:
        _, second, third = _three_batches(store)
        store.kill()
        _cut(store, second + 40, third, b"\n")
        journal = store.open()
        assert "damaged batch" in {finding.kind for finding in journal.report.findings}
        assert journal.report.quarantined == ""
        assert store.content()[second : second + 40] in store.segment().read_bytes()
        assert journal.statistics()["segment"] == 2
        assert journal.row("a").summary["damaged"] is True
        assert journal.row("a").head == 4, "a number that was given is never given again"
        store.kill()
        store.delete_index()
        journal = store.open()
        assert journal.row("a").epoch == 1


def test_nothing_behind_the_last_batch_is_clean(memory_path: Path) -> None:
    """Filling, NULs or the bare end of the file behind the last batch are no finding."""
    with new_store(memory_path / "store") as store:
        _three_batches(store)
        store.kill()
        for filler in (b"", b"\0" * 70_000, b"\n" * 5):
            store.segment().write_bytes(store.content() + filler)
            journal = store.open()
            assert journal.report.findings == []
            appended(journal, Append("b", 1, journal.row("b").head, event("b", journal.row("b").head)))
            store.kill()


def test_a_garbage_tail_is_quarantined(memory_path: Path) -> None:
    """Bytes that were never a batch are kept aside too, to the last one."""
    with new_store(memory_path / "store") as store:
        _, _, third = _three_batches(store)
        store.kill()
        content = store.segment().read_bytes()[:third]
        garbage = b"\xff\xfe garbage \x00\x01" * 10
        store.segment().write_bytes(content + garbage + b"\n" * 1000)
        journal = store.open()
        assert journal.report.torn_bytes == len(garbage)
        assert (store.path / journal.report.quarantined).read_bytes() == garbage
        assert store.content() == content
