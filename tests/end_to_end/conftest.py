"""Stores of either backend for whoever asks for one: a test that isn't parametrised with `kept_by` has a journal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import anyio
import pytest

from turnkeeper.actors.runtime import Runtime
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.store import BackendName

from ..command_line import CommandLine
from ..served_tasks import no_task_left
from ..serving import served_store
from ..shims import Shims
from ..stores import make_store

DEADLINE_SECONDS = 30


@pytest.fixture
def kept_by() -> BackendName:
    """What keeps the store."""
    return "journal"


@pytest.fixture(scope="module")
def served_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[BackendName], Path]]:
    """Give a store of either backend that is served while the tests of a module run."""
    with ExitStack() as served:

        @cache
        def serve(kept_by: BackendName) -> Path:
            path = tmp_path_factory.mktemp("served") / "store"
            make_store(path, kept_by)
            served.enter_context(served_store(path))
            return path

        yield serve


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path, kept_by: BackendName) -> Path:
    """The path of a store that nobody has opened yet.

    For a test marked ``shared_store`` it is one that is served and in which others left their sessions: to start node
    and writer takes most such tests longer than all that they do. ``shared_store(False)`` is for one among them that
    looks at the whole store, kills or damages it.
    """
    mark = request.node.get_closest_marker("shared_store")
    if mark is not None and mark.args != (False,):
        serve: Callable[[BackendName], Path] = request.getfixturevalue("served_stores")
        return serve(kept_by)
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
