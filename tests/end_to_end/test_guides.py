"""The programs in README and in the guide, run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..served import wait_unserved

SECONDS_MAX = 60.0
ROOT = Path(__file__).parents[2]


def programs() -> Iterator[tuple[str, str]]:
    """Yield the Python programs of each guide with a name for each."""
    for name in ("README.md", "EMBEDDING.md"):
        for number, match in enumerate(
            re.finditer(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL), 1
        ):
            yield f"{name} {number}", match[1]


@pytest.mark.parametrize("program", [pytest.param(text, id=name) for name, text in programs()])
def test_a_program_of_a_guide_runs_again_and_again(tmp_path: Path, program: str) -> None:
    """Each is whole: it runs to its end on a new store, and on the store that it has left, and leaves no process."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            timeout=SECONDS_MAX,
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
    wait_unserved(tmp_path / "agents", 5.0)


def test_the_guides_have_programs() -> None:
    """None is lost to the way in which they are found."""
    assert len(list(programs())) >= 6
