"""A task for plain programs: the same names as of `Task` without `await`, from any thread."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ..errors import ForkedProcess, SessionClosed
from ..tasks.output import Output
from ..tasks.starting import GRACE_SECONDS
from ..tasks.state import TaskState
from ..tasks.task import Task, TaskOutput
from .loop import Loop


class BlockingTask:
    """`Task`, blocking."""

    def __init__(self, loop: Loop, task: Task) -> None:
        self._loop = loop
        self._task = task

    @property
    def id(self) -> str:
        """The task's id."""
        return self._task.id

    def state(self) -> TaskState:
        """Do as `Task.state`."""
        return self._loop.call(self._task.state)

    def wait(self, *, tree: bool = False, timeout: float | None = None) -> TaskState:
        """Do as `Task.wait`."""
        return self._loop.call(self._task.wait, tree=tree, timeout=timeout)

    def stop(self, *, grace: float = GRACE_SECONDS) -> TaskState:
        """Do as `Task.stop`."""
        return self._loop.call(self._task.stop, grace=grace)

    def output(self, *, start: int = 0, last: int | None = None, head: int | None = None) -> Output:
        """Do as `Task.output`."""
        return self._loop.call(self._task.output, start=start, last=last, head=head)

    def follow(self, *, start: int = 0) -> BlockingTaskOutput:
        """Do as `Task.follow`; each `next` waits for a piece."""
        return BlockingTaskOutput(self._loop, self._task.follow(start=start))

    def __repr__(self) -> str:
        return repr(self._task)


class BlockingTaskOutput(Iterator[Output]):
    """`TaskOutput`, as a plain iterator; `close` lets go of it."""

    def __init__(self, loop: Loop, output: TaskOutput) -> None:
        self._loop = loop
        self._output = output

    def __next__(self) -> Output:
        try:
            return self._loop.call(self._output.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None

    def close(self) -> None:
        """Do as `TaskOutput.aclose`; nothing if the runtime was left already."""
        with suppress(SessionClosed, ForkedProcess):
            self._loop.call(self._output.aclose)

    aclose = close


def task_of(task: BlockingTask | str) -> Task | str:
    """Give what the loop calls a task."""
    return task._task if isinstance(task, BlockingTask) else task
