"""The programs in README and in the guides, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..served import wait_unserved

SECONDS_MAX = 60.0
GUIDES = ("README.md", "EMBEDDING.md", "ACTORS.md")
ROOT = Path(__file__).parents[2]


def programs() -> Iterator[tuple[str, str]]:
    """Yield the Python programs of each guide with a name for each."""
    for name in GUIDES:
        for number, match in enumerate(
            re.finditer(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL), 1
        ):
            yield f"{name} {number}", match[1]


@pytest.mark.parametrize("program", [pytest.param(text, id=name) for name, text in programs()])
def test_a_program_of_a_guide_runs_again_and_again(tmp_path: Path, program: str) -> None:
    """Each is whole: it runs to its end on a new store, and on the store that it has left, and leaves no process."""
    # A file, as a reader would have it: worker processes import the module that defines their actors.
    (tmp_path / "program.py").write_text(program)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "program.py"],
            cwd=tmp_path,
            timeout=SECONDS_MAX,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
    wait_unserved(tmp_path / "agents", 5.0)


def test_the_guides_have_programs() -> None:
    """None is lost to the way in which they are found."""
    for guide in GUIDES:
        text = (ROOT / guide).read_text()
        assert sum(name.startswith(guide) for name, _ in programs()) == text.count("```python") > 0
