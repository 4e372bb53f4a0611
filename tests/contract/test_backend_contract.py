"""Contract: every clause of a backend, for each backend that comes with turnkeeper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("turnkeeper.storage.contract")

from turnkeeper.storage.contract import BackendContract  # noqa: E402 - its assertions are to be rewritten

from .backends import BACKENDS, DirectoryStore, new_store  # noqa: E402 - as above


@pytest.mark.parametrize("store", BACKENDS, indirect=True)
class TestBackends(BackendContract):
    """The clauses."""

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DirectoryStore]:
        """A new store of the backend."""
        with new_store(tmp_path / "store", request.param) as made:
            yield made
