"""Contract: every clause of a backend, for each backend that comes with turnkeeper."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.storage.contract import BackendContract

from .backends import BACKENDS, DirectoryStore, new_store


def test_the_suite_is_loaded_without_what_runs_it() -> None:
    """It lies in the package, whose users needn't have pytest; and it loads no backend."""
    unwanted = {"pytest", "hypothesis", "lmdb", "sqlite3"}
    code = f"import turnkeeper.storage.contract, sys; print(*{unwanted} & set(sys.modules))"
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root / ".import")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("store", BACKENDS, indirect=True)
class TestBackends(BackendContract):
    """The clauses."""

    @pytest.fixture
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DirectoryStore]:
        """A new store of the backend."""
        with new_store(tmp_path / "store", request.param) as made:
            yield made
