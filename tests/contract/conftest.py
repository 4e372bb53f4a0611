"""The suite's assertions say as much as a test module's own: so it is told before anything loads it.

Supervised children live in either place.
"""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("turnkeeper.storage.contract")


@pytest.fixture(params=[False, True], ids=["in the loop", "in a process"])
def process(request: pytest.FixtureRequest) -> bool:
    """Whether the children live in worker processes."""
    is_process: bool = request.param
    return is_process
