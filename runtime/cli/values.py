"""The forms that options take and times are shown in."""

from __future__ import annotations

import time

import click


def label(text: str) -> tuple[str, str]:
    """Read a label, `k=v`; the value may be empty or hold more equals signs."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{text!r} is no label; write name=value")
    return name, value


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
