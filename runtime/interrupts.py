"""Where trio may raise KeyboardInterrupt."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def without_interrupts(function: Function) -> Function:
    """Keep trio from raising KeyboardInterrupt inside the async function; trio raises it in the main task instead.

    Other loops never raise it inside a task of ours. trio is not imported for this: where it runs, it is there.
    """
    trio = sys.modules.get("trio")
    protected: Function = function if trio is None else trio.lowlevel.enable_ki_protection(function)
    return protected
