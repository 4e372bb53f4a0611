"""What becomes of calls that are made side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


async def collect(outcomes: list[Any], call: Callable[..., Awaitable[Any]], *arguments: Any, **keywords: Any) -> None:
    """Keep what the call returns or raises."""
    try:
        outcomes.append(await call(*arguments, **keywords))
    except Exception as error:
        outcomes.append(error)
