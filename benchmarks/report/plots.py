"""A result as drawings: SVG that stands in the page itself, with text as text, in the page's own colour and font.

Each drawing is made of what the runs have; where they don't have it, there is none. All of them are narrow and one
panel below the other, so that a phone shows them at a readable size. What they draw is also told by the tables.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final, TypeAlias

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..measuring.runs import Run
from ..measuring.trend import BLOCKS, trend
from .flushes import Flushes, Load, flushes_of
from .wording import UNITS, number

WIDTH_INCHES: Final = 4.0
LINE_INCHES: Final = 0.24
"""How wide a drawing is, and how high one line of it: at a phone's width its text stays readable."""

OURS_COLOUR: Final = "#2a8c6f"
OTHER_COLOUR: Final = "#8a8780"
LINE_COLOURS: Final = (OURS_COLOUR, "#b3661e", "#5b4bb0", "#a8324a", "#357ab8", "#6b7a1f")
"""Readable on white and on nearly black."""

_INK: Final = "#123456"
"""Stands for the colour of the text around, until that is put in its place."""

_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_MARGIN_INCHES: Final = 0.75
_NAME_CHARACTERS: Final = 26
_TITLE_CHARACTERS: Final = 34
"""Longer names of lines and titles above them go on in a second line, or no room is left for what is drawn."""


@dataclass(frozen=True, slots=True)
class Plot:
    """A drawing: what it shows, in words, and the SVG."""

    name: str
    title: str
    svg: str


# It says so once on each machine, on stderr, when that takes longer than a few seconds.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)

Draw: TypeAlias = Callable[[Sequence[Run]], "Figure | None"]


def plots_of(runs: Sequence[Run], ink: str = "currentColor") -> list[Plot]:
    """Draw what the runs have data for; text and axes in the colour `ink`."""
    drawn = []
    for name, (title, draw) in _DRAWINGS.items():
        with rc_context({**_STYLE, "svg.hashsalt": name}):
            figure = draw(runs)
            if figure is not None:
                drawn.append(Plot(name, title, _svg(figure, name, ink)))
    return drawn


def standing_alone(plot: Plot) -> str:
    """Give a drawing as a file of its own, on white: nobody knows on what it will be shown."""
    head, _, rest = plot.svg.partition(">")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head} style="background: #fff">{rest}'


def _svg(figure: Figure, name: str, ink: str) -> str:
    """Give a figure as an element that can stand in a page beside others."""
    written = io.StringIO()
    figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None})
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :].replace(_INK, ink)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)  # ids of one drawing must not be those of another
    svg = re.sub(r"'DejaVu Sans'[^;\"]*", "sans-serif", svg)
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)


# -- flushes


def _draw_latencies(runs: Sequence[Run]) -> Figure | None:
    """Draw p50 and p99 of each subject, a panel for each load."""
    panels = _panels(flushes_of(runs), lambda each: each.load.events == 1)
    if not panels:
        return None
    figure, axes = _stacked([len(each) for each in panels.values()])
    low = min(each.figures["p50_ms"] for panel in panels.values() for each in panel)
    high = max(each.figures["p99_ms"] for panel in panels.values() for each in panel)
    for axis, (load, panel) in zip(axes, panels.items(), strict=True):
        for place, each in enumerate(panel):
            middle, tail = each.figures["p50_ms"], each.figures["p99_ms"]
            axis.plot([middle, tail], [place, place], color=_colour(each), linewidth=2, alpha=0.6)
            axis.plot([middle], [place], "o", color=_colour(each), markersize=6)
            axis.plot([tail], [place], "|", color=_colour(each), markersize=9, markeredgewidth=2)
        _name_lines(axis, panel, str(load))
        axis.set_xscale("log")
        axis.set_xlim(low / 1.4, high * 1.4)
        _plain_numbers(axis)
    axes[-1].set_xlabel("ms: a dot at p50, a bar at p99")
    return figure


def _draw_throughput(runs: Sequence[Run]) -> Figure | None:
    """Draw the events a second of each subject, a panel for each load in which all go as fast as they can."""
    panels = _panels(flushes_of(runs), lambda each: each.load.sessions > 1 and not each.load.per_second)
    if not panels:
        return None
    figure, axes = _stacked([len(each) for each in panels.values()])
    for axis, (load, panel) in zip(axes, panels.items(), strict=True):
        for place, each in enumerate(panel):
            value = each.figures["per_second"]
            low, high = each.bounds.get("per_second", (value, value))
            axis.barh([place], [value], height=0.6, color=_colour(each), alpha=0.75)
            axis.plot([low, high], [place, place], color=_INK, linewidth=1)
        _name_lines(axis, panel, str(load))
        _plain_numbers(axis)
    axes[-1].set_xlabel("events a second\n(a line: where another run's median is expected)")
    return figure


def _panels(flushes: Sequence[Flushes], is_wanted: Callable[[Flushes], bool]) -> dict[Load, list[Flushes]]:
    wanted = [each for each in flushes if is_wanted(each)]
    return {load: [each for each in wanted if each.load == load] for load in sorted({each.load for each in wanted})}


def _colour(flushes: Flushes) -> str:
    return OURS_COLOUR if flushes.is_ours else OTHER_COLOUR


def _name_lines(axis: Axes, panel: Sequence[Flushes], title: str) -> None:
    names = [fill(each.name.removeprefix("turnkeeper "), _NAME_CHARACTERS) for each in panel]
    axis.set_yticks(range(len(panel)), names, fontsize=8, linespacing=0.9)
    for label, each in zip(axis.get_yticklabels(), panel, strict=True):
        label.set_fontweight("bold" if each.is_ours else "normal")
    axis.set_ylim(len(panel) - 0.5, -0.5)
    axis.tick_params(axis="y", length=0)
    axis.set_title(fill(title, _TITLE_CHARACTERS), loc="left", fontsize=9, fontweight="bold")
    axis.grid(axis="x", color=OTHER_COLOUR, alpha=0.25)


# -- over size, and over time


def _draw_recovery(runs: Sequence[Run]) -> Figure | None:
    """Draw how long opening takes over how many events there are, a line for each state of the cache."""
    lines: dict[str, dict[float, float]] = {}
    for run in runs:
        if run.name == "open" and run.compared is not None:
            points = lines.setdefault(f"{run.params.get('cache', '')} cache", {})
            points[run.params["events"]] = run.figures[run.compared]
            if "base_events" in run.params:
                points[run.params["base_events"]] = run.base[run.compared]
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    figure, (axis,) = _stacked([8])
    for (name, points), colour in zip(lines.items(), LINE_COLOURS, strict=False):
        axis.plot(sorted(points), [points[size] for size in sorted(points)], "o-", color=colour, label=name)
    axis.set_xscale("log")
    axis.set_ylim(bottom=0)
    axis.set_xlabel("events in the store")
    axis.set_ylabel("ms")
    _finish_lines(axis)
    return figure


def _draw_outages(runs: Sequence[Run]) -> Figure | None:
    """Draw how long an outage is over the bytes of the log, a line for each thing that died."""
    lines: dict[str, dict[float, float]] = {}
    for run in runs:
        if "after" in run.params and run.compared is not None:
            lines.setdefault(run.params["after"], {})[run.params["log_bytes"]] = run.figures[run.compared]
    lines = {name: points for name, points in lines.items() if len(points) > 1}
    if not lines:
        return None
    figure, (axis,) = _stacked([14])
    for (name, points), colour in zip(lines.items(), LINE_COLOURS, strict=False):
        axis.plot(sorted(points), [points[size] for size in sorted(points)], "o-", color=colour, label=name)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("bytes of log")
    axis.set_ylabel("ms")
    _finish_lines(axis)
    axis.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axis.yaxis.set_minor_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.tick_params(axis="y", which="minor", labelsize=7)
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2), fontsize=8)
    return figure


def _draw_memory(runs: Sequence[Run]) -> Figure | None:
    """Draw every series of memory that a run has, each in a panel, and the line through what counts of it."""
    series = [(name, points) for run in runs for name, points in run.series.items() if _is_memory(name) and points]
    if not series:
        return None
    figure, axes = _stacked([6] * len(series))
    for axis, (name, points) in zip(axes, series, strict=True):
        what, _, over = name.partition(" over ")
        subject, _, unit = what.rpartition("_")
        xs, ys = zip(*points, strict=True)
        axis.plot(xs, ys, ".", color=OURS_COLOUR, markersize=2.5)
        axis.set_title(f"the {subject}'s memory", loc="left", fontsize=9, fontweight="bold")
        axis.set_xlabel(over)
        axis.set_ylabel(UNITS[unit])
        _draw_trend(axis, points)
        _finish_lines(axis)
    return figure


def _draw_trend(axis: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw the line through the later half, where that is long enough to have one."""
    half = points[len(points) // 2 :]
    if len(half) < BLOCKS:
        return
    slope = trend(half).slope
    middle = sum(x for x, _ in half) / len(half), sum(y for _, y in half) / len(half)
    ends = half[0][0], half[-1][0]
    axis.plot(ends, [middle[1] + slope * (x - middle[0]) for x in ends], color=LINE_COLOURS[1], label="its later half")


def _is_memory(name: str) -> bool:
    return name.partition(" over ")[0].rpartition("_")[2] in ("kb", "kib", "mb")


# -- the drawing itself


def _stacked(lines: Sequence[int]) -> tuple[Figure, list[Axes]]:
    """Make a figure with panels below one another, each of so many lines."""
    heights = [count * LINE_INCHES + _MARGIN_INCHES for count in lines]
    figure = Figure(figsize=(WIDTH_INCHES, sum(heights)), layout="constrained")
    axes = figure.subplots(len(lines), 1, squeeze=False, height_ratios=heights)
    return figure, [row[0] for row in axes]


def _plain_numbers(axis: Axes) -> None:
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _finish_lines(axis: Axes) -> None:
    axis.grid(color=OTHER_COLOUR, alpha=0.25)
    _plain_numbers(axis)
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    if axis.get_legend_handles_labels()[0]:
        axis.legend(frameon=False)


def _short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{number(value / size)}{letter}"
    return number(value)


_DRAWINGS: Final[dict[str, tuple[str, Draw]]] = {
    "latency": ("How long a flush takes, by how many sessions flush", _draw_latencies),
    "throughput": ("How many events become durable in a second", _draw_throughput),
    "recovery": ("How long opening takes after a kill, by the size of the store", _draw_recovery),
    "outages": ("How long a host waits for its next acknowledged append after a death", _draw_outages),
    "memory": ("Memory over time", _draw_memory),
}
