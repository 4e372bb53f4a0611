"""Crash tests open thousands of journals: in memory where the system has a file system there, as syncs don't matter."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path() -> Iterator[Path]:
    """A directory in memory, or a temporary one where there is none."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place, prefix="turnkeeper-test-") as name:
        yield Path(name)
