"""What every backend owes, clause by clause, as tests that anybody can run on a backend of theirs.

A clause's number stands in its test's name. In a test module of yours, with pytest:

    import pytest
    from turnkeeper.storage.contract import BackendContract

    class TestMine(BackendContract):
        @pytest.fixture
        def store(self, tmp_path): ...    # yields a StoreInContract: a new, empty store

Nothing is imported here that isn't needed to use a backend; pytest's assertions say more after
`pytest.register_assert_rewrite("turnkeeper.storage.contract")`. Tests that speak of processes fork this one.
"""

from __future__ import annotations

from .appends import AppendClauses
from .asking import answer_to, appended, creation, event, events, fork, granted, owner, post, raised, refused
from .deletion import DeletionClauses
from .lists import ListClauses
from .looking import content, listed, page, places, reading, reopened, scanned
from .owners import OwnerClauses
from .posts import PostClauses
from .reads import ReadClauses
from .safety import SafetyClauses
from .stores import StoreInContract, bytes_read, is_gone_by

__all__ = [
    "BackendContract",
    "StoreInContract",
    "answer_to",
    "appended",
    "bytes_read",
    "content",
    "creation",
    "event",
    "events",
    "fork",
    "granted",
    "is_gone_by",
    "listed",
    "owner",
    "page",
    "places",
    "post",
    "raised",
    "reading",
    "refused",
    "reopened",
    "scanned",
]


class BackendContract(
    ReadClauses, AppendClauses, PostClauses, OwnerClauses, ListClauses, DeletionClauses, SafetyClauses
):
    """All clauses. Each test begins with a new store, from the fixture `store`."""
