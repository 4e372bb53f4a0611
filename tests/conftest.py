"""What holds for every test: property tests repeat themselves exactly, and tests for root are left out for others.

Async tests are marked ``anyio`` and run on trio and on asyncio; those of our own processes are marked ``trio``.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskGroup
from hypothesis import settings

GROUP_SECONDS_MAX = 60

# The deadline of a test is pytest's, not one of each example: the machine may be busy.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("other", deadline=None, print_blob=True)
settings.load_profile("same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what runs in its background so, and programs that are to be interrupted would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take the tests themselves out of all garbage collections to come, each of which would take 0.1 s longer."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test marked ``root`` when somebody else runs it."""
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs to run as root")


@pytest.fixture
async def group() -> AsyncIterator[TaskGroup]:
    """A task group that is cancelled after the test, which must not take longer than the deadline."""
    with anyio.fail_after(GROUP_SECONDS_MAX):
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()


@pytest.fixture
def import_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let worker processes find the actors of the tests, and modules that a test writes."""
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[1])
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file that an actor makes or writes into."""
    return tmp_path / "mark"
