"""Patterns for event types, in which `*` stands for anything."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence


def matcher(patterns: Sequence[str]) -> Callable[[str], object]:
    """Make the test whether a text fits one of the patterns."""
    parts = (".*".join(re.escape(piece) for piece in pattern.split("*")) for pattern in patterns)
    return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL).fullmatch
