"""The runtime for plain programs: the same names without `await`, from any thread.

A thread of its own runs an event loop, asyncio's, with the runtime in it; each call here is carried out there and
waited for. An exception arrives as it is. A forked child has no such thread: there every call raises ForkedProcess, and
leaving a `with` does nothing. A twin stands in the module of its original's name, those of tasks and of actors in one
each; `loop` is the way into the thread, and `connecting` is its life.
"""

from __future__ import annotations

from .actors import BlockingRef, BlockingSupervisor
from .connecting import connect
from .runtime import BlockingRuntime
from .session import BlockingSession

__all__ = ["BlockingRef", "BlockingRuntime", "BlockingSession", "BlockingSupervisor", "connect"]
