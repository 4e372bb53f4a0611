"""The page of a result: how each mark stands, what takes how long in drawings, and every run in tables."""

from __future__ import annotations

from typing import Final

from .judging import Verdict
from .markdown import HOW_IT_IS_TOLD, LESSER, machine_facts, verdict
from .paper import page_environment
from .plots import plots_of
from .results import Result
from .tables import section_of
from .wording import between, number

SIGNS: Final[dict[Verdict, tuple[str, str]]] = {
    "met": ("✓", "good"),
    "missed": ("✗", "bad"),
    "another size": ("○", "faint"),
    "not measured": ("–", "faint"),  # noqa: RUF001 - it is a dash
}


def page_of(result: Result) -> str:
    """Make the page."""
    judged = result.judged
    environment = page_environment(str(__package__))
    environment.globals.update(signs=SIGNS, number=number, between=between)
    return environment.get_template("result.html.jinja").render(
        result=result,
        verdict=verdict(judged),
        facts=machine_facts(result.machine),
        how=HOW_IT_IS_TOLD,
        lesser=LESSER,
        judged=[each for each in judged if each.verdict != "not measured"],
        unmeasured=sum(each.verdict == "not measured" for each in judged),
        plots=plots_of(result.runs),
        sections=[section_of(each) for each in result.measured],
    )
