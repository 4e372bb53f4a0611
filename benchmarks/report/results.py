"""A benchmark's result as it is kept: made of what suites measured, written as JSON, and read again.

    machine   what it was measured on, see `measuring.machine`
    command   what was asked for, as a shell takes it; empty where it wasn't a command
    suites    name, seconds, and why it could not be measured (`left_out`)
    runs      the suite's name and a `Run` each

More members may come; what is there keeps its meaning.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from ..measuring.interrupts import Interrupts
from ..measuring.runs import Measured, Rounds, Run
from .judging import Judged, judge
from .marks import MARKS

ALL: Final = "report"
"""The name of the result of all suites."""

_PROGRAMS: Final = ("turnkeeper", "__main__.py")


@dataclass(frozen=True, slots=True)
class Result:
    """What suites have measured on a machine."""

    machine: Mapping[str, Any]
    measured: Sequence[Measured]
    command: str = ""

    @property
    def runs(self) -> list[Run]:
        """Give all runs, in the order of the suites."""
        return [run for each in self.measured for run in each.runs]

    @property
    def judged(self) -> list[Judged]:
        """Give all marks, each beside the run that measures it."""
        return judge(self.runs, MARKS)

    def as_map(self) -> dict[str, Any]:
        """Give it as plain values, each run with its marks."""
        judge(self.runs, MARKS)
        result = {
            "machine": dict(self.machine),
            "command": self.command,
            "suites": [
                {"name": each.suite, "seconds": each.seconds, "left_out": each.left_out} for each in self.measured
            ],
            "runs": [{"suite": each.suite, **asdict(run)} for each in self.measured for run in each.runs],
        }
        plain: dict[str, Any] = json.loads(json.dumps(result))
        return plain

    @classmethod
    def from_map(cls, content: Mapping[str, Any]) -> Result:
        """Make one of plain values. Raises KeyError, TypeError or AttributeError where it is none."""
        runs: dict[str, list[Run]] = {each["name"]: [] for each in content["suites"]}
        for each in content["runs"]:
            runs[each["suite"]].append(_run(each))
        measured = [
            Measured(each["name"], float(each["seconds"]), runs[each["name"]], each["left_out"])
            for each in content["suites"]
        ]
        return cls(dict(content["machine"]), measured, str(content["command"]))


def _run(content: Mapping[str, Any]) -> Run:
    known = {each.name: content[each.name] for each in fields(Run)}
    bounds = {name: (float(low), float(high)) for name, (low, high) in known["bounds"].items()}
    series = {name: [(float(x), float(y)) for x, y in points] for name, points in known["series"].items()}
    return Run(**{**known, "bounds": bounds, "series": series, "rounds": Rounds(**known["rounds"])})


def command_line() -> str:
    """Give the command that this program was started with, as a shell takes it; empty if it is another program."""
    return shlex.join(["turnkeeper", *sys.argv[1:]]) if Path(sys.argv[0]).name in _PROGRAMS else ""


# -- on disk


class NotAResult(Exception):
    """A file or directory holds no result that can be read: `path`, `why`, and what to do (`advice`)."""

    def __init__(self, path: str, why: str, advice: str) -> None:
        super().__init__(path, why, advice)
        self.path = path
        self.why = why
        self.advice = advice


def save_result(result: Mapping[str, Any], name: str, out: Path) -> None:
    """Write a result to `name`.json in `out`, whole or not at all. Raises OSError, and Ctrl-C behind it."""
    save_texts({out / f"{name}.json": json_of(result)})


def json_of(result: Mapping[str, Any]) -> str:
    """Give a result as its file has it."""
    return json.dumps(result) + "\n"


def save_texts(texts: Mapping[Path, str]) -> None:
    """Write files, all of them or none: a signal that comes in the middle is raised behind the last one.

    For the main thread. Raises OSError.
    """
    with Interrupts() as interrupts:
        interrupts.checkpoint()
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        interrupts.checkpoint()


def read_result(place: Path) -> Result:
    """Read a result: a JSON file, or the directory that a benchmark got by --out. Raises NotAResult."""
    path = _file_in(place) if place.is_dir() else place
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise NotAResult(str(place), "there is no such file", "give what a benchmark has left by --out") from None
    except OSError as error:
        raise NotAResult(str(path), f"it can't be read ({error.strerror})", "check the file") from None
    except ValueError:
        raise NotAResult(str(path), "this is no JSON", "give what a benchmark has left by --out") from None
    try:
        return Result.from_map(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        pass
    if isinstance(content, dict) and {"machine", "runs"} <= content.keys():
        raise NotAResult(str(path), "another version of turnkeeper has made this result", "measure again with this one")
    raise NotAResult(str(path), "this is no result of a benchmark", "give what a benchmark has left by --out")


def _file_in(directory: Path) -> Path:
    """Give the result of all in a directory, or the only one that is there."""
    of_all = directory / f"{ALL}.json"
    if of_all.exists():
        return of_all
    found = sorted(directory.glob("*.json"))
    if len(found) != 1:
        why = f"{len(found)} JSON files are in it" if found else "no result of a benchmark is in it"
        raise NotAResult(str(directory), why, "name the file" if found else "give what a benchmark has left by --out")
    return found[0]
