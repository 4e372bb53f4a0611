"""Durable sessions and tasks for agents: what was acknowledged survives the death of whatever served it.

This module holds the public names and nothing else. Each is imported from its own module when it is first asked for, so
that ``import turnkeeper`` costs neither an event loop nor a journal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = ["__version__"]

if not TYPE_CHECKING:
    _MODULE_OF_NAME = {}

    def __getattr__(name):
        """Import the public name from its module and keep it; an unknown name is an ``AttributeError``."""
        if name not in _MODULE_OF_NAME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULE_OF_NAME[name]), name)
        return value

    def __dir__():
        """List the public names that were not imported yet, too."""
        return sorted({*globals(), *__all__})
