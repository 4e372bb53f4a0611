"""A result as tables: what was measured of ours in one row, and below it all that took turns with it.

Runs that differ in nothing but what they are compared with, or by which figure, are one table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..measuring.bounds import Bounds
from ..measuring.durability import POWER_LOSS
from ..measuring.runs import Figures, Measured, Run, figure_bounds
from .wording import between, label_of, number, pairs

OURS: Final = "turnkeeper"

_OF_THE_OTHER: Final = ("against", "left_out", "survives", "settings", "installed")
_BASE: Final = "base_"


class Cell(NamedTuple):
    """A figure as it is shown: the value, and its bounds."""

    value: str
    bounds: str = ""


@dataclass(slots=True)
class Line:
    """One subject of a table: its figures, the ratio of ours over them by the figure, and why it is left out.

    `note` is what else holds for it alone; `is_lesser` says that its events don't outlive a power loss.
    """

    subject: str
    figures: Figures = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    ratios: dict[str, Cell] = field(default_factory=dict)
    left_out: str = ""
    note: str = ""
    is_lesser: bool = False


@dataclass(slots=True)
class Table:
    """Subjects that were measured alike; ours comes first."""

    title: str
    params: Mapping[str, Any]
    lines: list[Line]

    @property
    def words(self) -> str:
        """Say what its runs were measured with."""
        return pairs({name: value for name, value in self.params.items() if value is not None})

    @property
    def figures(self) -> list[str]:
        """Name the figures that any of them has, ours first."""
        return list(dict.fromkeys(name for line in self.lines for name in line.figures))

    @property
    def ratios(self) -> list[str]:
        """Name the figures by which ours is compared."""
        return list(dict.fromkeys(name for line in self.lines for name in line.ratios))

    @property
    def columns(self) -> list[str]:
        """Give the heads of the columns."""
        return [
            *map(_head, self.figures),
            *(f"ratio of {label_of(name).name}".removesuffix(" of ") for name in self.ratios),
        ]

    def cells(self, line: Line) -> list[Cell | None]:
        """Give a line's cells, one a column, None where it has nothing."""
        figures = [
            Cell(number(line.figures[name]), between(line.bounds.get(name))) if name in line.figures else None
            for name in self.figures
        ]
        return [*figures, *(line.ratios.get(name) for name in self.ratios)]


@dataclass(frozen=True, slots=True)
class Section:
    """A suite: what holds for all of its tables, the tables, and why it was left out."""

    name: str
    seconds: float
    common: str
    tables: Sequence[Table]
    left_out: str | None


def section_of(measured: Measured) -> Section:
    """Make the tables of what a suite has measured."""
    tables: dict[str, Table] = {}
    for run in measured.runs:
        title = title_of(run)
        params = set_params(run)
        table = tables.setdefault(f"{title} {params}", Table(title, params, []))
        _add(table, run)
    found = list(tables.values())
    common = _common([table.params for table in found])
    for table in found:
        table.params = {name: value for name, value in table.params.items() if name not in common}
    return Section(measured.suite, measured.seconds, pairs(common), found, measured.left_out)


def set_params(run: Run) -> dict[str, Any]:
    """Give the parameters that hold for all subjects."""
    return {name: value for name, value in run.params.items() if not _is_of_the_other(name)}


def title_of(run: Run) -> str:
    """Name what a run measures, without the figure that it is about."""
    return run.name.removesuffix(run.compared or "").rstrip(" ,") or run.name


def _add(table: Table, run: Run) -> None:
    other = run.params.get("against")
    if run.figures and not table.lines:
        table.lines.append(Line(OURS, run.figures, run.bounds))
    if "left_out" in run.params:
        table.lines.append(Line(str(other or OURS), left_out=str(run.params["left_out"])))
        return
    if not run.base:
        return
    subject = str(other or "base")
    line = next((each for each in table.lines if each.subject == subject), None)
    if line is None:
        line = Line(subject, run.base, figure_bounds(run.rounds.base), note=note_of(run), is_lesser=is_lesser(run))
        table.lines.append(line)
    if run.ratio is not None:
        name = run.compared or ""
        line.ratios[name] = Cell(number(run.ratio), between(run.bounds.get("ratio")))


def note_of(run: Run) -> str:
    """Say what holds for the other alone: what its events outlive, by which settings, its version, its sizes."""
    survives = run.params.get("survives")
    more = {
        name.removeprefix(_BASE): value
        for name, value in run.params.items()
        if _is_of_the_other(name) and name not in ("against", "left_out", "survives", "settings", "installed")
    }
    told = [run.params.get("installed"), survives and f"outlives {survives}", run.params.get("settings"), pairs(more)]
    return "; ".join(str(each) for each in told if each)


def is_lesser(run: Run) -> bool:
    """Say whether what the other keeps doesn't outlive a power loss."""
    return bool(run.params.get("survives", POWER_LOSS) != POWER_LOSS)


def _head(figure: str) -> str:
    return str(label_of(figure))


def _is_of_the_other(param: str) -> bool:
    return param in _OF_THE_OTHER or param.startswith(_BASE)


def _common(params: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Give what all have in common."""
    first = params[0] if params else {}
    return {name: value for name, value in first.items() if all(each.get(name) == value for each in params)}
