"""Stores of either backend for whoever asks for one: a test that isn't parametrised with `kept_by` has a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.store import BackendName

from ..command_line import CommandLine
from ..served_tasks import no_task_left
from ..shims import Shims
from ..stores import make_store

DEADLINE_SECONDS = 30


@pytest.fixture
def kept_by() -> BackendName:
    """What keeps the store."""
    return "journal"


@pytest.fixture
def store(tmp_path: Path, kept_by: BackendName) -> Path:
    """The path of a store that nobody has opened yet."""
    path = tmp_path / "store"
    if kept_by != "journal":
        make_store(path, kept_by)
    return path


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store that isn't there yet."""
    return CommandLine(tmp_path / "store", tmp_path)


@pytest.fixture
async def runtime(store: Path) -> AsyncIterator[Runtime]:
    """The store, opened, of whose tasks nothing may be left in the end."""
    with no_task_left(store):
        async with open_runtime(store) as opened:
            yield opened


@pytest.fixture
async def other(runtime: Runtime, store: Path) -> AsyncIterator[Runtime]:
    """Another runtime of the store, which knows nothing of the first one."""
    async with open_runtime(store) as opened:
        yield opened


@pytest.fixture
async def deadline() -> AsyncIterator[None]:
    """See that the test doesn't wait for ever."""
    with anyio.fail_after(DEADLINE_SECONDS):
        yield


@pytest.fixture
def shims(tmp_path: Path) -> Iterator[Shims]:
    """A spawner without a node; nothing of its tasks is left afterwards, and none of its shims complained."""
    shims = Shims(tmp_path)
    yield shims
    shims.close()
    assert shims.log() == ""
