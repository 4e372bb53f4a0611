"""Contract of room: what doesn't fit is told before it is begun, with figures and what to do."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring import room


def test_too_little_memory_is_told_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system has to give counts, and what the container may still take, whichever is less."""
    (tmp_path / "facts").write_text("MemTotal: 9000000 kB\nMemAvailable: 4000000 kB\n")
    monkeypatch.setattr(room, "MEMORY_FACTS", tmp_path / "facts")
    monkeypatch.setattr(room, "MEMORY_LIMIT", tmp_path / "limit")
    monkeypatch.setattr(room, "MEMORY_USED", tmp_path / "used")
    room.require_memory(4_000_000_000)
    with pytest.raises(OSError, match=r"takes 5.0 GB of memory and 4.1 GB are free; end other programs") as raised:
        room.require_memory(5_000_000_000)
    assert raised.value.errno == errno.ENOMEM
    (tmp_path / "limit").write_text("2000000000\n")
    (tmp_path / "used").write_text("500000000\n")
    with pytest.raises(OSError, match=r"takes 4.0 GB of memory and 1.5 GB are free"):
        room.require_memory(4_000_000_000)
    (tmp_path / "limit").write_text("max\n")
    room.require_memory(4_000_000_000)


def test_where_nothing_tells_how_much_memory_there_is_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guess would keep people from measuring."""
    for name in ("MEMORY_FACTS", "MEMORY_LIMIT", "MEMORY_USED"):
        monkeypatch.setattr(room, name, Path("/no such file"))
    room.require_memory(1 << 60)


def test_on_a_file_system_in_memory_no_more_is_free_than_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is filled there takes the memory of those who measure, however large the file system may grow."""
    monkeypatch.setattr(room, "free_memory_bytes", lambda: room.SPARE_BYTES + 1_000)
    monkeypatch.setattr(room, "file_system", lambda directory: "ext4")
    assert room.free_bytes(tmp_path) > 1_000
    monkeypatch.setattr(room, "file_system", lambda directory: "tmpfs")
    assert room.free_bytes(tmp_path) == 1_000
    with pytest.raises(OSError, match=r"0.0 GB are free; make space, measure less of it"):
        room.require_space(tmp_path, 1)
    monkeypatch.setattr(room, "free_memory_bytes", lambda: 0)
    assert room.free_bytes(tmp_path) == 0
    monkeypatch.setattr(room, "free_memory_bytes", lambda: None)
    assert room.free_bytes(tmp_path) > 1_000
