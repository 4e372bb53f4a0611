"""What is recorded of one unfinished task, and what the disk has had no room for.

Records that are refused for want of space are owed: they go before whatever is recorded next, in order, so a task's
stream never says things in the wrong order. The summary here has them already. Part of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnkeeper.storage.errors import Conflict, StorageError, StoreFull
from turnkeeper.storage.requests import Appended, Post

from ..node_log import log
from . import records
from .recorder import Recorder
from .records import Notice


class Ledger:
    """One task's records. `summary` is what they say, and `head` the number of its next one."""

    def __init__(self, id: str, recorder: Recorder, summary: Mapping[str, Any], head: int) -> None:
        self.id = id
        self.summary = dict(summary)
        self.head = head
        self._recorder = recorder
        self._owed: list[tuple[Post, Notice | None]] = []

    @property
    def session(self) -> str | None:
        """The session that gets the notices."""
        session: str | None = self.summary.get("session")
        return session

    @property
    def is_owing(self) -> bool:
        """Say whether something waits for space."""
        return bool(self._owed)

    async def request(self, post: Post) -> StorageError | None:
        """Record that the task is wanted; give the refusal, if it is refused."""
        (result,) = await self._recorder.record([post])
        if isinstance(result, StorageError):
            return result
        self.head = result.head
        return None

    async def record(self, *posts: Post, notify: bool = False) -> None:
        """Record these, behind what is owed, all in one commit; `notify` the task's session of the last one."""
        entries = [*self._owed, *((post, None) for post in posts)]
        if notify and self.session is not None:
            entries[-1] = (posts[-1], records.notice_of(posts[-1], self.session))
        for post in posts:
            self._merge(post.patch or {})
        notified = [notice for _, notice in entries if notice is not None]
        results = await self._recorder.record([post for post, _ in entries], notified)
        of_notices = iter(results[len(entries) :])
        owed: list[tuple[Post, Notice | None]] = []
        for (post, notice), result in zip(entries, results, strict=False):
            told = None if notice is None else next(of_notices)
            # Behind one that is owed the others are too: what was stored of them already is known by its key.
            if owed or isinstance(result, StoreFull) or isinstance(told, StoreFull):
                owed.append((post, notice))
            else:
                self._settle(post, result)
                if notice is not None and isinstance(told, StorageError):
                    log(f"{self.id}: {notice.to} isn't told of {post.key}: {told}")
        self._owed = owed

    async def settle_debts(self) -> None:
        """Record what is owed, if there is space now."""
        if self._owed:
            await self.record()

    def _settle(self, post: Post, result: Appended | StorageError) -> None:
        if isinstance(result, Appended):
            self.head = max(self.head, result.head)
        elif not isinstance(result, Conflict):  # recorded by an earlier node, which saw it at another moment
            log(f"{self.id}: {post.key} is refused: {result}")

    def _merge(self, patch: Mapping[str, Any]) -> None:
        for name, value in patch.items():
            if value is None:
                self.summary.pop(name, None)
            else:
                self.summary[name] = value
