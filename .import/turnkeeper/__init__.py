"""Durable sessions and tasks for agents: what was acknowledged survives the death of whatever served it.

This module holds the public names and nothing else. Each is imported from its own module when it is first asked for, so
``import turnkeeper`` costs neither an event loop nor a journal.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__"]

_MODULE_OF_NAME: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    """Import the public name from its module and keep it; an unknown name is an ``AttributeError``."""
    module = _MODULE_OF_NAME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names too that were not imported yet."""
    return sorted({*globals(), *__all__})
