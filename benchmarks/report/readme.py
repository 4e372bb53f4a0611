"""The part of README.md that is measured: the newest table of flushes, and the drawing beside it, from a kept result.

    python -m turnkeeper.benchmarks.report.readme RESULT README.md

What stands between the two marks in the file is replaced, nothing else; the drawing and the whole report are written to
where that part refers to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from .flushes import flush_table
from .markdown import machine_facts, markdown_of, verdict
from .plots import plots_of, standing_alone
from .results import NotAResult, Result, read_result
from .wording import plain

BEGIN: Final = "<!-- measured: from here to the next mark `make readme` writes -->"
END: Final = "<!-- measured: to here -->"
DRAWING: Final = Path("docs", "flushes.svg")
REPORT: Final = Path("docs", "measured.md")

HOW_IT_IS_TOLD: Final = (
    f"Subjects took turns, and a figure is the median over the rounds. [The whole report]({REPORT.as_posix()}) has all "
    "that was measured, with the ratios, the bounds between which another run's median is expected, and what stands in "
    "the way of each mark that is missed."
)

_FACTS: Final = (
    *("processor", "cores", "memory", "free memory", "file system", "fdatasync of 512 bytes", "system", "python"),
    "commit",
)


class NothingToWrite(Exception):
    """The README's part can't be made, with the reason."""


def refreshed(readme: str, result: Result) -> tuple[str, str]:
    """Give the README with its part made anew, and the drawing. Raises NothingToWrite."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise NothingToWrite(f"the file has no lines {BEGIN!r} and {END!r}")
    drawing = next((plot for plot in plots_of(result.runs, ink="#1d1c1a") if plot.name == "latency"), None)
    if drawing is None:
        raise NothingToWrite("the result has no flushes")
    return "\n".join((f"{before}{BEGIN}", *_lines(result), f"{END}{after}")), standing_alone(drawing)


def _lines(result: Result) -> Iterator[str]:
    facts = machine_facts(result.machine)
    told = ", ".join(f"{name} {facts[name]}" for name in _FACTS if name in facts)
    yield f"`{plain(result.command)}` ({plain(told)}). {verdict(result.judged)}"
    yield ""
    yield from flush_table(result.runs)
    yield ""
    yield HOW_IT_IS_TOLD
    yield ""
    yield f"![How long a flush takes, by how many sessions flush]({DRAWING.as_posix()})"


def main() -> int:
    """Refresh the file that the command line names, and say what was written."""
    parser = argparse.ArgumentParser(prog="readme", description="Write what a benchmark measured into README.md.")
    parser.add_argument("result", type=Path, help="what a benchmark has left by --out")
    parser.add_argument("readme", type=Path)
    given = parser.parse_args()
    try:
        result = read_result(given.result)
        text, drawing = refreshed(given.readme.read_text(encoding="utf-8"), result)
    except NotAResult as error:
        return _fail(f"{error.path}: {error.why}; {error.advice}")
    except (NothingToWrite, OSError) as error:
        return _fail(str(error))
    written = {DRAWING: drawing, REPORT: markdown_of(result), Path(given.readme.name): text}
    for name, content in written.items():
        place = given.readme.parent / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(content, encoding="utf-8")
        sys.stdout.write(f"written: {place}\n")
    return 0


def _fail(why: str) -> int:
    sys.stderr.write(f"readme: {why}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
