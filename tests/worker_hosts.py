"""What the host of a worker process can see of it: what is held for it, and that it is gone."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from turnkeeper.runtime.processes import open_pidfd, wait_exit
from turnkeeper.runtime.tasks import tree


def possessions() -> tuple[list[str], list[str]]:
    """Give this process's descriptors and its children, zombies among them."""
    gc.collect()  # what earlier tests mapped may hang in cycles
    children = [str(child.pid) for child in tree.children(os.getpid())]
    return sorted(os.listdir("/proc/self/fd")), sorted(children)


def write_module(folder: Path, name: str, source: str) -> str:
    """Write a module that workers can import, and return its name."""
    (folder / f"{name}.py").write_text(source)
    return name


async def wait_gone(pid: int) -> None:
    """Wait until the process has ended; nobody here is its parent."""
    pidfd = open_pidfd(pid)
    if pidfd is not None:
        await wait_exit(pidfd)
        os.close(pidfd)
