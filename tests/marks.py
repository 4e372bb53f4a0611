"""Files that actors of the tests make, wait for the removal of, and write into."""

from __future__ import annotations

from pathlib import Path

import anyio


def is_there(path: Path) -> bool:
    """Whether the file exists."""
    return path.exists()


async def appears(path: Path) -> None:
    """Wait until an actor has made the file."""
    while not is_there(path):  # noqa: ASYNC110
        await anyio.sleep(0.005)


def release(path: Path) -> None:
    """Let an actor go on that waits for the file's removal."""
    path.unlink()


def lines(path: Path) -> list[str]:
    """Read what an actor has marked."""
    return path.read_text().splitlines()
