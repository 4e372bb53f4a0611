"""A repair ended at each operation on the disk, by its process's death or the machine's, and run again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.client import owned_stream
from turnkeeper.actors.folding import REWOUND, TURN_END, TURN_START
from turnkeeper.actors.repairing import Repair, repair
from turnkeeper.storage import store
from turnkeeper.storage.exact_json import decode_event, encode_event
from turnkeeper.storage.journal import Journal
from turnkeeper.storage.repair import REPAIRED
from turnkeeper.storage.requests import Append

from ..simulated_disk import Death, SimulatedDisk
from ..stores import create
from .direct_client import DirectClient, finished

EVENTS: list[tuple[str, dict[str, Any]]] = [
    *[("note/n", {"number": number}) for number in range(5)],
    (TURN_START, {}),
    ("note/n", {"number": 6}),
    (TURN_END, {"reason": "completed"}),
    (REWOUND, {"to": 6, "previous": None}),
    ("note/n", {"number": 9}),
    (REWOUND, {"to": 9, "previous": 8}),
]
BYTES_LOST, HEADER_LOST = 2, 4
"""Numbers of the events whose own bytes, and whose batch's header, are spoiled."""

KEPT = [seq for seq in range(len(EVENTS)) if seq not in (BYTES_LOST, HEADER_LOST)]


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is sent line by line, so that it takes many commits."""
    monkeypatch.setattr(owned_stream, "EARLY_BYTES", 1)


class DamagedStore:
    """A store on a simulated disk, whose session `d` has lost two of its events."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.rng = random.Random(seed)
        store.make_directory(str(path))
        descriptor = store.open_store_file(str(path), create=True)
        store.finish(descriptor, str(path))
        self.disk = SimulatedDisk(path)
        self.boot = 1
        self.journal = self.open()
        self._fill()
        self.end()
        self._spoil()
        self.boot += 1
        self.journal = self.open()
        self.before = self.lines("d")

    def open(self) -> Journal:
        """Open the journal."""
        boot = f"boot {self.boot}"
        return Journal.open(str(self.path), boot=boot, is_gone=lambda who: True, holder={}, fs=self.disk)

    def end(self) -> None:
        """Let the process end."""
        self.disk.fail_at = 0
        self.journal._failed = True
        self.journal.close()
        self.disk.close_all()

    def go_on(self, *, machine_died: bool) -> None:
        """Open the journal again, after the process's death or the machine's, which keeps what it happens to."""
        self.end()
        if machine_died:
            self.disk.crash(self.rng)
            self.boot += 1
        self.journal = self.open()

    def repair(self) -> Repair:
        """Repair the session."""
        client: Any = DirectClient(self.path, self.journal, self.disk)
        return finished(repair(client, "d"))

    def lines(self, id: str) -> dict[int, bytes]:
        """Read what can be read of a stream."""
        reader = DirectClient(self.path, self.journal, self.disk)._reader
        return {stored.seq: stored.line for stored in reader.read(id).events}

    def copies(self) -> list[str]:
        """List all sessions but the damaged one, also those without events."""
        with self.journal._index.reading() as snapshot:
            return [id for id in self.journal._index.streams_beginning(snapshot, "", 100) if id not in ("d", "other")]

    def _fill(self) -> None:
        for seq, (type, data) in enumerate(EVENTS):
            line = encode_event("d", seq, 1_700_000_000_000, type, data)
            self.journal.commit([Append("d", 1, seq, line) if seq else create("d", line, title="mine")])
        self.journal.commit([create("other", encode_event("other", 0, 1, "note/n", {}))])

    def _spoil(self) -> None:
        handle = self.disk.open("journal/00000001.jsonl", write=True)
        content = self.disk.read(handle, 0, self.disk.size(handle))
        text = content.index(b'"number":%d' % BYTES_LOST)
        header = content.rindex(b'{"$batch"', 0, content.index(b'"number":%d' % HEADER_LOST))
        for place in (text, header + 3):
            self.disk.write(handle, place, b"#")
        self.disk.sync(handle)
        self.disk.close(handle)


def copy_of(damaged: DamagedStore, found: Repair) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Give what is to be the same of each copy: types and data of its events, and its summary without its own names.

    There is one copy, its numbers have no holes, and the damaged session is as it was.
    """
    assert found.copy is not None
    assert damaged.copies() == [found.copy]
    assert damaged.lines("d") == damaged.before
    copied = [decode_event(line) for _, line in sorted(damaged.lines(found.copy).items())]
    assert [event["seq"] for event in copied] == list(range(1 + len(KEPT)))
    summary = damaged.journal.row(found.copy).summary
    return [(event["type"], event["data"]) for event in copied], {
        name: value for name, value in summary.items() if name not in ("id", "owner")
    }


@pytest.mark.parametrize("machine_died", [False, True])
def test_a_repair_ended_at_any_operation_is_finished_by_the_next(memory_path: Path, machine_died: bool) -> None:
    """Nothing that was readable is lost, and one copy is left: finished by the second run, found by the third."""
    whole = DamagedStore(memory_path / "store", seed=0)
    before = whole.disk.operations
    expected = copy_of(whole, whole.repair())
    operations = whole.disk.operations - before
    whole.end()
    assert expected[0][0][0] == REPAIRED
    assert expected[0][0][1]["missing"] == [[BYTES_LOST] * 2, [HEADER_LOST] * 2]
    assert [type for type, _ in expected[0][1:]] == [EVENTS[seq][0] for seq in KEPT]
    assert operations > 2 * len(KEPT), "a write and a sync for each commit of the copy"
    finished = 0
    for operation in range(1, operations + 1):
        damaged = DamagedStore(memory_path / f"store-{operation}", seed=operation)
        damaged.disk.fail_at = damaged.disk.operations + operation
        with pytest.raises(Death):
            damaged.repair()
        damaged.go_on(machine_died=machine_died)
        assert damaged.lines("d") == damaged.before
        assert len(damaged.copies()) <= 1
        found = damaged.repair()
        finished += found.is_new
        assert copy_of(damaged, found) == expected
        again = damaged.repair()
        assert not again.is_new
        assert copy_of(damaged, again) == expected
        damaged.end()
    assert finished >= operations - 4, "at the last ones the copy was whole"
