"""Words of a report: figures with three digits, the unit that a figure's name has, parameters, rows of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..measuring.bounds import Bounds

UNITS: Final[Mapping[str, str]] = {
    "ms": "ms",
    "us": "µs",
    "s": "s",
    "seconds": "s",
    "kb": "KB",
    "kib": "KiB",
    "mb": "MB",
    "percent": "%",
}

_PER: Final = "per_second"
_NAMES: Final = {"most": "longest", "p999": "p99.9", "most_ms": "longest"}


class Label(NamedTuple):
    """What a figure is called, and in which unit it is; either may be empty."""

    name: str
    unit: str

    def __str__(self) -> str:
        return ", ".join(filter(None, self))


def label_of(figure: str) -> Label:
    """Give what a figure's name says: `p50_ms` is p50 in ms, `us_a_tell` is in µs a tell, `mb_per_second` in MB/s."""
    if figure.endswith(_PER):
        what, unit = _split(figure.removesuffix(_PER).rstrip("_"))
        return Label(what, f"{unit}/s")
    first, _, rest = figure.partition("_")
    if first in UNITS and rest.startswith(("a_", "an_")):
        return Label("", f"{UNITS[first]} {_words(rest)}")
    if first == "bytes" and rest:
        return Label("", _words(figure))
    return Label(*_split(figure))


def _split(figure: str) -> tuple[str, str]:
    what, _, unit = figure.rpartition("_")
    if unit in UNITS:
        return _NAMES.get(what, _words(what)), UNITS[unit]
    return _words(figure), ""


def _words(name: str) -> str:
    return name.replace("_", " ")


def number(value: float) -> str:
    """Give a number with three digits, or all of those before the point."""
    if value != value or abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def between(bounds: Bounds | None) -> str:
    """Give bounds as words; nothing where there are none, or they are too near each other to show."""
    if bounds is None:
        return ""
    low, high = map(number, bounds)
    return "" if low == high else f"{low} to {high}"


def with_bounds(value: float, bounds: Bounds | None) -> str:
    """Give a number, and its bounds behind it where they can be told."""
    told = between(bounds)
    return f"{number(value)} ({told})" if told else number(value)


def pairs(values: Mapping[str, Any]) -> str:
    """Give parameters as words."""
    return ", ".join(f"{_words(name)} {_value(value)}" for name, value in values.items() if value is not None)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, int | float) else str(value)


def table_row(cells: Sequence[str]) -> str:
    """Give a row of a table in Markdown."""
    return f"| {' | '.join(map(plain, cells))} |"


def plain(text: str) -> str:
    """Keep what a text says from ending a cell or a line."""
    return " ".join(text.split()).replace("|", "\\|")
