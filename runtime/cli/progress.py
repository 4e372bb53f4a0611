"""Progress bars: on stderr, while a person looks at it, and gone when the work is done."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .printing import is_terminal


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar while the body works; it calls what it is given with bytes done and in all. None: nobody looks."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def told_progress() -> Iterator[Callable[[str], None]]:
    """Show the latest line of what is being done while the body works; it calls what it is given with each."""
    if not is_terminal(sys.stderr):
        yield lambda line: None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text("starting")) as status:
        yield lambda line: status.update(Text(line))
