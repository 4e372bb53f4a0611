"""What is recorded of one unfinished task, and what the disk has had no room for.

Records that are refused for want of space are owed: they go before whatever is recorded next, in order, so a task's
stream never says things in the wrong order. The summary here has them already. Part of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnkeeper.storage.errors import Conflict, StorageError, StoreFull
from turnkeeper.storage.requests import Appended, Post

from ...node_log import log
from ...tasks import records
from ...tasks.records import Notice
from .recorder import Recorder


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

    async def record(self, post: Post, *, notify: bool = False) -> None:
        """Record this, behind what is owed; with `notify` the task's session is told, in the same commit."""
        notice = records.notice_of(post, self.session) if notify and self.session is not None else None
        self._merge(post.patch or {})
        self._owed.append((post, notice))
        await self.settle_debts()

    async def settle_debts(self) -> None:
        """Record what is owed, in order, as far as there is space now."""
        while self._owed:
            post, notice = self._owed[0]
            result, *told = await self._recorder.record([post], [] if notice is None else [notice])
            if isinstance(result, StoreFull) or any(isinstance(each, StoreFull) for each in told):
                break  # what was stored of it already is known by its key
            del self._owed[0]
            self._settle(post, result)
            for refusal in told:
                if isinstance(refusal, StorageError):
                    log(f"{self.id}: {self.session} isn't told of {post.key}: {refusal}")

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
