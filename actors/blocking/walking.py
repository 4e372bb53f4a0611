"""Walks over a log for plain programs, which cross to the loop for portions and not for each item."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

from ..reading.walking import Walking
from .loop import Loop

Item = TypeVar("Item")


class BlockingWalking(Iterator[Item]):
    """`Walking`, as a plain iterator, which crosses to the loop for portions and not for each item."""

    def __init__(self, loop: Loop, walking: Walking[Item]) -> None:
        self._loop = loop
        self._walking = walking
        self._left: deque[Item] = deque()

    def __next__(self) -> Item:
        if not self._left:
            self._left.extend(self._loop.call(self._walking.next_portion))
            if not self._left:
                raise StopIteration
        return self._left.popleft()
