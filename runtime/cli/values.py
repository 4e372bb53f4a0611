"""The forms that options take, and that times, durations and sizes are shown in."""

from __future__ import annotations

import re
import time
from typing import Final

import click

SECONDS_OF_UNIT: Final = {"w": 604_800.0, "d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""Units of durations, in the order in which they stand."""

BYTES_OF_UNIT: Final = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate(("k", "M", "G", "T"), 1)},
    "KB": 1000,
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate(("K", "M", "G", "T"), 1)},
}

_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in SECONDS_OF_UNIT), re.ASCII)
_SIZE = re.compile(rf"(\d+(?:\.\d+)?) ?({'|'.join(BYTES_OF_UNIT)})", re.ASCII)


def label(text: str) -> tuple[str, str]:
    """Read a label, `k=v`; the value may be empty or hold more equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is no label; write name=value")
    return name, value


def duration(text: str) -> float:
    """Read a duration above 0, `30s`, `1h30m` or `500ms`, in seconds. Without a unit it is refused."""
    seconds = age(text)
    if not seconds:
        raise click.BadParameter(f"{text!r} is no time at all; write one above 0, such as 30s")
    return seconds


def age(text: str) -> float:
    """Read a duration as `duration` does, or 0 of a unit."""
    found = _DURATION.fullmatch(text.strip())
    if not text.strip() or found is None:
        advice = "write a number with its unit (ms, s, m, h, d, w), such as 30s or 1h30m"
        raise click.BadParameter(f"{text!r} is no duration; {advice}")
    amounts = zip(found.groups("0"), SECONDS_OF_UNIT.values(), strict=True)
    return sum(float(amount) * seconds for amount, seconds in amounts)


def size(text: str) -> int:
    """Read a size of 1 byte or more, such as `100MB` or `64KiB`, in bytes. Without a unit it is refused."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        advice = f"write a number with its unit ({', '.join(BYTES_OF_UNIT)}), such as 100MB"
        raise click.BadParameter(f"{text!r} is no size; {advice}")
    size = int(float(found[1]) * BYTES_OF_UNIT[found[2]])
    if size < 1:
        raise click.BadParameter(f"{text!r} is less than a byte; write a size above 0, such as 100MB")
    return size


def shown_size(count: int) -> str:
    """Show a number of bytes, rounded."""
    amount, unit = float(count), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.5 else f"{amount:.1f} {unit}"


def shown_duration(seconds: float) -> str:
    """Show a duration by its two largest units; below ten seconds with tenths."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    rest = round(seconds)
    parts: list[str] = []
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, int(SECONDS_OF_UNIT[unit]))
        if count or parts:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def moment(milliseconds: int, now: float) -> str:
    """Show a time, in ms since 1970, in local time; today's (`now` is in seconds) by the clock alone."""
    local = _local(milliseconds)
    if local is None:
        return "?"
    return time.strftime("%H:%M:%S" if local[:3] == time.localtime(now)[:3] else "%Y-%m-%d %H:%M", local)


def full_moment(milliseconds: int) -> str:
    """Show a time, in ms since 1970, in local time, to the millisecond."""
    local = _local(milliseconds)
    return "?" if local is None else f"{time.strftime('%Y-%m-%d %H:%M:%S', local)}.{milliseconds % 1000:03d}"


def _local(milliseconds: int) -> time.struct_time | None:
    try:
        return time.localtime(milliseconds / 1000)
    except (ValueError, OverflowError, OSError):
        return None
