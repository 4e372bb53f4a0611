"""The suite's assertions say as much as a test module's own: so it is told before anything loads it."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("turnkeeper.storage.contract")
