"""The forms in which programs print how far they are, recognised in one line; everything else is no progress.

Percentages and ratios stand in all kinds of prose: `coverage 87% of lines`, `CPU at 100%`, `3/10 tests failed`, a date.
So a figure counts where it stands as progress does: alone, in brackets, behind a name and a colon or an ellipsis, at a
bar; and anywhere in a line that is redrawn, as only what goes on is. A line with a word for something else that is
measured so, or for a result, is no progress in any case. What is more than its total is none, either.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import floor
from typing import Final, NamedTuple


class Figure(NamedTuple):
    """How far something is. `percent` is from 0 to 100, and None where the total isn't known."""

    percent: float | None = None
    current: float | None = None
    total: float | None = None
    unit: str | None = None
    name: str | None = None
    message: str | None = None
    is_reported: bool = False


NAME_CHARACTERS_MAX: Final = 100
_DISAGREE_POINTS: Final = 1.0
_PREFIXES: Final = "BKMGTP"

_NUMBER = r"(?:\d{1,3}(?:,\d{3}){1,4}|\d{1,15})(?:\.\d{1,6})?"
_BYTES = r"(?:(?:[kKMGTP]i?)?B|[kKMGTP])"
_ALONE = r"(?<![\w,/:+\-\u2212\u2013<>~≥≤≈$€#])(?<!\d\.)"
_PERCENT = re.compile(rf"{_ALONE}(?P<percent>\d{{1,3}}(?:\.\d{{1,6}})?) ?%(?![\w%/])")
_RATIO = re.compile(
    rf"{_ALONE}(?P<current>{_NUMBER}) ?(?P<unit>{_BYTES})?(?: ?/ ?| of )(?P<total>{_NUMBER})"
    rf"(?: ?(?P<total_unit>{_BYTES})(?!\w))?(?![\w%]|[/.,:\-]\w)"
)
_COUNT = re.compile(rf"(?:^|:)\s*(?P<current>{_NUMBER}) ?(?P<unit>[A-Za-z]{{1,16}}) \[\d+:\d\d[,<]")

_STAMP = re.compile(
    r"\s*[\[(]?(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d[\d.,]*(?:Z|[+-]\d\d:?\d\d)?[\])]?[ :]*"
    r"(?:[\[(]?(?:DEBUG|INFO|NOTICE)[\])]?[ :]*)?"
)
_OTHER_MEASURE = re.compile(
    r"\b(?:coverage|covered|cpu|gpu|mem|memory|ram|swap|disk|usage|used|free|available|utili[sz]ation|load|battery"
    r"|accuracy|acc|precision|recall|loss|confidence|similarity|threshold|quality|volume|brightness|opacity|humidity"
    r"|discount|rate|idle|score|rating|remaining|left|width|height|margin|padding)\b",
    re.IGNORECASE,
)
_RESULT = re.compile(
    r"\W{0,3}(?:[a-z]+ ){0,2}"
    r"(?:pass(?:ed|ing)|fail(?:ed|ing|ures?)|skipped|succeeded|successful|ok|errors?|warnings?|found)\b",
    re.IGNORECASE,
)
_DOING = re.compile(
    r"\W*(?!(?:warning|missing|nothing|something|anything|everything|pending|during|string)\b)[a-z]{2,16}ing\b",
    re.IGNORECASE,
)
_BAR = r"[|█▉▊▋▌▍▎▏░▒▓#=>━╸╺─■□●○*.\-\[\]()]"
_NOTHING_BEFORE = re.compile(rf"(?:[\s\d]*K)?(?:\s|{_BAR})*\Z")
_NAME_BEFORE = re.compile(r"(?:[:|\[\]…]|\.\.)\s*\Z|\b(?:progress|percent|pct)\W*\Z", re.IGNORECASE)
_THINGS = (
    r"steps?|stages?|epochs?|batch|batches|tests?|files?|pages?|chunks?|tasks?|items?|iterations?|iter|phases?|parts?"
    r"|layers?|jobs?|rounds?|blocks?|frames?|rows?|records?|objects?|modules?|packages?|images?|targets?|lines?|units?"
    r"|samples?|examples?|tokens?|urls?|requests?|entries|it|bytes"
)
_THING_BEFORE = re.compile(rf"\b(?:{_THINGS})\s*[\[(#]?\s*\Z", re.IGNORECASE)
_THING_BEHIND = re.compile(rf" (?P<unit>{_THINGS})\b", re.IGNORECASE)
_RATE_BEHIND = re.compile(r"[\d?] ?(?:(?P<unit>[A-Za-z]{1,16})/s|s/(?P<slow>[A-Za-z]{1,16}))\b")
_END_BEHIND = re.compile(rf"\s*(?:\Z|{_BAR}|[,:…\u2013\u2014])")
_PERCENT_BEHIND = re.compile(
    rf"\s*(?:(?:done|complete|completed|finished|downloaded|uploaded|installed|processed|built|eta|[\d.]+[KMG])\b"
    rf"|of +~? *{_NUMBER} ?{_BYTES}(?!\w))",
    re.IGNORECASE,
)
_SHARE_BEHIND = re.compile(rf"\s*of\b(?! +~? *{_NUMBER} ?{_BYTES}(?!\w))", re.IGNORECASE)
_NAME = re.compile(r"[^\W\d_]{2}")
_NAME_EDGES = " \t:=|[]()<>.…#*-\u2013\u2014/\\█▉▊▋▌▍▎▏░▒▓━╸╺─■□●○"


def guess(line: str, *, is_redrawn: bool, is_whole: bool = True) -> Figure | None:
    """Read a line, free of escapes; None if it doesn't tell of progress.

    `is_redrawn` says that it is written over another one, or that another one is written over it. Without `is_whole`
    more of it may come, so that what a number at its end will be isn't known yet.
    """
    if _OTHER_MEASURE.search(line):
        return None
    stamp = _STAMP.match(line)
    if stamp is not None:
        line = line[stamp.end() :]
    is_display = is_redrawn or _DOING.match(line) is not None
    percent = _last(_PERCENT, line, lambda found: _is_percent(line, found, is_display))
    ratio = _last(
        _RATIO,
        line,
        lambda found: (is_whole or found.end() < len(line)) and _is_ratio(line, found, is_display, percent),
    )
    if percent is not None or ratio is not None:
        return _figure(line, percent, ratio)
    count = _COUNT.search(line)
    if count is not None:
        return Figure(current=_number(count["current"]), unit=count["unit"], name=_name(line[: count.start()]))
    return None


def _last(form: re.Pattern[str], line: str, fits: Callable[[re.Match[str]], bool]) -> re.Match[str] | None:
    """Find the last place of the line that has the form and fits: of several figures the last one was printed last."""
    return next((found for found in reversed(list(form.finditer(line))) if fits(found)), None)


def _is_percent(line: str, found: re.Match[str], is_display: bool) -> bool:
    before, behind = line[: found.start()], line[found.end() :]
    if float(found["percent"]) > 100 or _SHARE_BEHIND.match(behind) or _RESULT.match(behind):
        return False
    if is_display or (before.rstrip().endswith("[") and behind.lstrip().startswith("]")):
        return True
    is_end = _END_BEHIND.match(behind) or _PERCENT_BEHIND.match(behind)
    return bool(is_end and (_NOTHING_BEFORE.match(before) or _NAME_BEFORE.search(before)))


def _is_ratio(line: str, found: re.Match[str], is_display: bool, percent: re.Match[str] | None) -> bool:
    before, behind = line[: found.start()], line[found.end() :]
    current, total, _ = _amounts(found)
    if (current > total > 0) or _RESULT.match(behind):
        return False
    if percent is not None:
        return total > 0 and abs(100 * current / total - float(percent["percent"])) <= _DISAGREE_POINTS
    if is_display or found["unit"] or found["total_unit"] or _THING_BEFORE.match(before.lstrip(" [(")):
        return True
    is_end = _END_BEHIND.match(behind) or _THING_BEHIND.match(behind)
    is_named = _NAME_BEFORE.search(before) or _THING_BEFORE.search(before)
    return bool(is_end and (_NOTHING_BEFORE.match(before) or is_named))


def _figure(line: str, percent: re.Match[str] | None, ratio: re.Match[str] | None) -> Figure:
    """Put together what the line says; either form is there, and if both are, they agree."""
    name = _name(line[: min(found.start() for found in (percent, ratio) if found is not None)])
    share = None if percent is None else _number(percent["percent"])
    if ratio is None:
        return Figure(percent=share, name=name)
    current, total, unit = _amounts(ratio)
    if unit is None:
        behind = line[ratio.end() :]
        thing = _THING_BEHIND.match(behind) or _RATE_BEHIND.search(behind)
        unit = None if thing is None else thing["unit"] or thing["slow"]
    if total == 0:
        return Figure(current=current, unit=unit, name=name)
    if share is None:
        share = percentage(current, total)
    return Figure(share, current, total, unit, name)


def percentage(current: float, total: float) -> float:
    """Give the part in per cent, to a tenth; not 100 before all is done."""
    return floor(1000 * current / total) / 10


def _amounts(ratio: re.Match[str]) -> tuple[float, float, str | None]:
    """Read a ratio's numbers in one unit, the total's. Prefixes are powers of 1024: no part exceeds its whole."""
    current, total = _number(ratio["current"]), _number(ratio["total"])
    total_unit = ratio["total_unit"] or ratio["unit"]
    unit = ratio["unit"] or total_unit
    steps = (
        0
        if total_unit is None or unit is None
        else _PREFIXES.index(unit[0].upper()) - _PREFIXES.index(total_unit[0].upper())
    )
    return (current * 1024.0**steps if steps else current), total, total_unit


def _number(text: str) -> float:
    text = text.replace(",", "")
    return float(text) if "." in text else int(text)


def _name(before: str) -> str | None:
    """Give the words that stand before a figure, if they are any."""
    name = " ".join(before.strip(_NAME_EDGES).split())[:NAME_CHARACTERS_MAX]
    return name if _NAME.search(name) else None
