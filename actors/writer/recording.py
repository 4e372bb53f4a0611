"""The writer's side of records of tasks: what of them is committed, all in one batch, and what is refused.

Only streams of the kind "task" are written so: one that isn't there begins as such, under a task's id, and any other is
refused. A notice that can't be sent is refused alone. In memory; the backend stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from turnkeeper.storage.backend import Backend
from turnkeeper.storage.errors import NotFound, StorageError, WrongKind
from turnkeeper.storage.requests import Post, Result

from ..ids import is_task_id
from ..kinds import TASK
from ..protocol import error_to_wire
from .inboxes import Inboxes
from .requests import Recording


class Recorded(NamedTuple):
    """What is decided on records: for each post and then each notice what is committed, or why not."""

    posts: list[Post | StorageError]
    notices: list[Post | StorageError]

    @property
    def committed(self) -> list[Post]:
        """The posts that are committed, each joined to the one before it."""
        return [each for each in (*self.posts, *self.notices) if isinstance(each, Post)]

    def answer(self, results: Sequence[Result]) -> dict[str, Any]:
        """Make the answer from what the commit gave for each of what was committed."""
        given = iter(results)
        wire = [
            [_to_wire(next(given) if isinstance(each, Post) else each) for each in decided]
            for decided in (self.posts, self.notices)
        ]
        return {"results": wire[0], "notices": wire[1]}


class Recordings:
    """Decides on the records of one store's tasks."""

    def __init__(self, backend: Backend, inboxes: Inboxes) -> None:
        self._backend = backend
        self._inboxes = inboxes

    def decide(self, recording: Recording) -> Recorded:
        """Say what is to be committed of records, in order."""
        decided = Recorded(
            [self._refusal_of(post) or post for post in recording.posts],
            [self._inboxes.decide(notice) for notice in recording.notices],
        )
        for post in decided.committed[1:]:
            post.joined = True
        return decided

    def _refusal_of(self, post: Post) -> WrongKind | None:
        """Say why a post can't be a task's record; None if it can."""
        try:
            summary = self._backend.row(post.stream).summary
        except NotFound:
            summary = {}
        kind = summary.get("kind", post.header.get("kind"))
        is_task = kind == TASK and is_task_id(post.stream)
        return None if is_task else WrongKind(post.stream, str(kind), TASK)


def _to_wire(result: Result) -> Any:
    return error_to_wire(result) if isinstance(result, StorageError) else list(result)
