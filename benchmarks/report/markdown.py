"""A result as Markdown: the marks, the table of flushes as a newcomer reads it, and a row for each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ..measuring.runs import Measured, Run
from .flushes import flush_table
from .judging import Judged, Verdict
from .results import Result
from .tables import OURS, is_lesser, set_params, title_of
from .wording import number, pairs, plain, table_row, with_bounds

SIGNS: Final[Mapping[Verdict, str]] = {"met": "✓ ", "missed": "✗ ", "another size": "", "not measured": ""}


def markdown_of(result: Result) -> str:
    """Give the whole report."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield "# Measured"
    yield ""
    if result.command:
        yield f"`{plain(result.command)}`, on:"
        yield ""
    for name, value in machine_facts(result.machine).items():
        yield f"- {name}: {plain(value)}"
    yield ""
    yield f"{HOW_IT_IS_TOLD} {LESSER}"
    if any(judged.verdict != "not measured" for judged in result.judged):
        yield from ("", "## Marks", "", verdict(result.judged), "", *marks_table(result.judged))
    flushes = flush_table(result.runs)
    if flushes:
        yield from ("", "## Flushes", "", *flushes)
    for each in result.measured:
        yield from _suite_lines(each)


HOW_IT_IS_TOLD: Final = (
    "Subjects took turns. A figure is the median over the rounds; behind it stand the bounds between which another "
    "run's median is expected, 19 times of 20. A ratio is ours over the other's, the median of the ratios of the pairs "
    "of rounds. Ratios carry over to another machine, times don't."
)


LESSER: Final = "† keeps events that don't outlive a power loss, as ours do if nothing else was asked for."


def machine_facts(machine: Any) -> dict[str, str]:
    """Give what is known of the machine, as words."""
    facts = {name.replace("_", " "): value for name, value in machine.items() if value is not None}
    if "memory bytes" in facts:
        facts["memory"] = f"{facts.pop('memory bytes') / 1e9:,.1f} GB"
    if "fdatasync us" in facts:
        facts["fdatasync of 512 bytes"] = f"{facts.pop('fdatasync us'):,.0f} µs"
    return {name: pairs(value) if isinstance(value, dict) else str(value) for name, value in facts.items()}


def verdict(judged: Sequence[Judged]) -> str:
    """Say in one sentence how the marks stand."""
    met, missed = (sum(each.verdict == verdict for each in judged) for verdict in ("met", "missed"))
    if not met + missed:
        return "No mark was measured at its size."
    return f"{met} of {met + missed} marks that were measured at their size are met."


def marks_table(judged: Sequence[Judged]) -> Iterator[str]:
    """Give the table of marks."""
    yield "| what | mark | measured | | what stands in the way |"
    yield "| --- | --- | --- | --- | --- |"
    for each in judged:
        measured = "" if each.value is None else with_bounds(each.value, each.bounds)
        words = (each.mark.what, each.mark.words, measured, f"{SIGNS[each.verdict]}{each.words}", each.hindered)
        yield table_row(words)


def _suite_lines(measured: Measured) -> Iterator[str]:
    yield from ("", f"## {measured.suite}", "")
    if measured.left_out is not None:
        yield f"Left out: {plain(measured.left_out)}"
        return
    yield f"In {measured.seconds:,.0f} s."
    yield ""
    yield f"| what | with | {OURS} | beside it | ratio |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for run in measured.runs:
        yield _run_row(run)


def _run_row(run: Run) -> str:
    params = {name: value for name, value in set_params(run).items() if name != "rounds"}
    other = f"{run.params.get('against', '')}{' †' if is_lesser(run) else ''}"
    if "left_out" in run.params:
        return table_row((title_of(run), pairs(params), "", f"{other}: {run.params['left_out']}", ""))
    name = run.compared
    shown = run.figures if name is None else {name: run.figures[name]}
    ours = ", ".join(f"{each} {with_bounds(value, run.bounds.get(each))}" for each, value in shown.items())
    theirs = ", ".join(f"{each} {number(value)}" for each, value in run.base.items() if name is None or each == name)
    beside = f"{other}: {theirs}" if other and theirs else other or theirs
    ratio = "" if run.ratio is None else with_bounds(run.ratio, run.bounds.get("ratio"))
    return table_row((title_of(run), pairs(params), ours, beside, ratio))
