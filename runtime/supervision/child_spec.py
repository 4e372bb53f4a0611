"""What a supervisor is told of its children, in OTP's words: what to start, when to start it again, how to stop it.

A spec is a value: the same one may stand in several trees, and every incarnation of the child is made from it anew.
Mistakes show where it is written. It starts nothing itself.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from ..actor_ref import READY_SECONDS, SHUTDOWN_SECONDS
from ..actors import handlers_of
from ..mailbox import BYTES_MAX, MESSAGES_MAX
from ..restart import RestartPolicy
from ..watchdog import PROCESS_BLOCKED_SECONDS, check_blocked_seconds

RestartKind: TypeAlias = Literal["permanent", "transient", "temporary"]
"""When a child that ended by itself is started again: always; unless it ended normally; never."""

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one"]
"""Who is started again with a child: nobody, all of them, or those that were started after it."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A child of a supervisor.

    `start` says what it is:
    - a class, or any callable that makes an actor of `arguments`: an actor in the loop, or with `process` in a worker
      process of its own, where `start` may also be the class's "module:name";
    - an async function: it is called with `arguments` and a keyword `started`, a function of no arguments that it calls
      once it is ready, and it lives until it returns;
    - a `Tree`: a supervisor of children of its own.

    It has to be ready within `ready_seconds`. When it is stopped it has `shutdown_seconds`, then it is cancelled, and a
    process killed; with None that is done at once. Both don't count for a tree, whose children have times of their own.
    A mailbox holds `messages_max` messages of `bytes_max` together. A worker process that blocks its event loop for
    `blocked_seconds`, if any, is killed, and started again as after any other death.

    An actor that is `registered` can be asked by its name (a-z, 0-9 and -) from every process that has the store open,
    over its restarts, see `Runtime.actor`; one that lives already makes its start fail.

    Mind that a restarted child begins with `arguments` alone: what has to outlive it belongs into a session or a file.
    """

    name: str
    start: Callable[..., Any] | str | Tree
    arguments: tuple[Any, ...] = ()
    _: KW_ONLY
    process: bool = False
    restart: RestartKind = "permanent"
    shutdown_seconds: float | None = SHUTDOWN_SECONDS
    ready_seconds: float = READY_SECONDS
    messages_max: int = MESSAGES_MAX
    bytes_max: int = BYTES_MAX
    blocked_seconds: float | None = PROCESS_BLOCKED_SECONDS
    registered: bool = False

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise ValueError(f"a child needs a name, not {name!r}")
        if not isinstance(self.arguments, tuple):
            raise TypeError(f"the arguments of child {self.name!r} have to be a tuple, not {self.arguments!r}")
        if self.restart not in get_args(RestartKind):
            raise ValueError(f"child {self.name!r} is {' or '.join(get_args(RestartKind))}, not {self.restart!r}")
        check_times(f"child {self.name!r}", self.shutdown_seconds, self.ready_seconds)
        if self.messages_max < 1 or self.bytes_max < 0:
            raise ValueError(f"child {self.name!r} needs room for one message in its mailbox")
        check_blocked_seconds(self.blocked_seconds)
        self._check_start()

    @property
    def is_actor(self) -> bool:
        """Whether it can be asked and told."""
        return not isinstance(self.start, Tree) and not self.is_function

    @property
    def is_function(self) -> bool:
        """Whether it is an async function."""
        return any(map(inspect.iscoroutinefunction, (self.start, type(self.start).__call__)))

    def _check_start(self) -> None:
        if not isinstance(self.start, str | Tree) and not callable(self.start):
            raise TypeError(f"child {self.name!r} can't be started: {self.start!r} is no class, function or Tree")
        if isinstance(self.start, type):
            handlers_of(self.start)
        if self.process and not isinstance(self.start, str | type):
            raise TypeError(f"child {self.name!r} can't be a process: {self.start!r} is no class and no 'module:name'")
        if isinstance(self.start, str) and not self.process:
            raise TypeError(f"child {self.name!r} is given by name, {self.start!r}, which needs process=True")
        if self.registered and not self.is_actor:
            raise TypeError(f"child {self.name!r} can't be registered: only actors can be asked")
        if isinstance(self.start, Tree) and self.arguments:
            raise TypeError(f"child {self.name!r} is a tree, which takes no arguments")


def check_times(who: str, shutdown_seconds: float | None, ready_seconds: float) -> None:
    """Raise ValueError where nobody can be stopped or be ready within such times."""
    if (shutdown_seconds is not None and not shutdown_seconds >= 0) or not ready_seconds > 0:
        raise ValueError(f"{who} needs shutdown_seconds from 0 on, or None, and ready_seconds")


@dataclass(frozen=True, slots=True)
class Tree:
    """A supervisor that is another one's child, with its own children, in their start order, and its own policy."""

    children: tuple[ChildSpec, ...]
    _: KW_ONLY
    strategy: Strategy = "one_for_one"
    policy: RestartPolicy = field(default_factory=RestartPolicy)

    def __post_init__(self) -> None:
        if self.strategy not in get_args(Strategy):
            raise ValueError(f"a strategy is {', '.join(get_args(Strategy))}, not {self.strategy!r}")
        children: object = self.children
        if not isinstance(children, tuple) or not all(isinstance(child, ChildSpec) for child in children):
            raise TypeError(f"the children of a supervisor have to be a tuple of ChildSpec, not {children!r}")
        for name, times in Counter(child.name for child in self.children).items():
            if times > 1:
                raise ValueError(f"{times} children of one supervisor have the name {name!r}")
