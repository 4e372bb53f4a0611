"""Names by which other processes ask a supervisor's children: what it needs of whoever has them to give.

A child that is `registered` has its name from before its first start until it is down for good: stopped by name,
finished, given up, or with its supervisor. Between two incarnations whoever asks by the name waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from ..actor_ref import ActorEnd
from .child_spec import ChildSpec, Tree
from .supervised_ref import SupervisedRef


class Registration(Protocol):
    """A name that was taken."""

    def serve(self, ref: SupervisedRef) -> None:
        """Let others ask the child of this reference; again is nothing."""

    def end(self, end: ActorEnd) -> None:
        """Give the name back, and tell those who ask how the child has ended."""


class Registry(Protocol):
    """Gives the names."""

    def check_name(self, name: str) -> None:
        """Raise TypeError or ValueError for what can't be a name."""

    def register(self, name: str) -> Registration:
        """Take a name. Raises an error that says who has it."""


def check_registered(specs: Iterable[ChildSpec], registry: Registry | None) -> None:
    """Raise ValueError if a child, in a tree too, is to have a name that it can't have; TypeError if there are none."""
    for spec in specs:
        if isinstance(spec.start, Tree):
            check_registered(spec.start.children, registry)
        elif spec.registered and registry is None:
            raise TypeError(f"child {spec.name!r} can't be registered: only a runtime's supervisors have names to give")
        elif spec.registered and registry is not None:
            registry.check_name(spec.name)
