"""The proof of chaos: bugs that are planted into a copy of the tree are found there, each within five minutes.

Each patch beside this file is a bug; what stands before its diff says which promise it breaks. A patch that doesn't
apply any more has to be made anew for the code as it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from turnkeeper.benchmarks.chaos import abilities

from ..command_line import CommandLine

ROOT: Final = Path(__file__).resolve().parents[2]
AREAS: Final = ("actors", "benchmarks", "runtime", "storage", ".import")
PATCHES: Final = {path.stem: path for path in Path(__file__).parent.glob("*.patch")}

SEED: Final = 1
SECONDS_MAX: Final = 300
CLEAN_SECONDS: Final = 60
LAST_ROUND_SECONDS: Final = 120.0
"""How long the last round may take that is begun in time."""

POWER_ALONE: Final = ("--kill", "none", "--fault", "power")

STORED: Final = {"acknowledged is found", "followers", "forks", "delivered", "accepted", "one task", "task runs"}
"""What is broken where something is lost that was acknowledged, or seen."""

FOUND_BY: Final = {
    "acknowledgement-before-the-sync": STORED,
    "skipped-epoch-check": {"epochs", "one owner", "refused is not stored", "fenced"},
    "resend-without-the-stored-bytes-rule": {"acknowledged is found", "fenced"},
    "last-batch-not-written-again": STORED,
    "damaged-middle-cut-off": {"same or reported"},
    "exit-file-looked-at-before-the-lock": {"task ends"},
    "seam-in-following": {"followers"},
    "accepted-message-given-again": {"accepted once"},
    "fork-off-by-one": {"forks"},
    "stopped-writer-not-locked-out": {"frame", "numbers", "epochs", "acknowledged is found"},
}
"""The bugs, each with the promises of which it breaks one at least."""

NARROWED: Final = {"acknowledgement-before-the-sync": POWER_ALONE}
"""The options with which a bug is looked for: with all kills and faults it is found, too, but rounds last longer. All
others are looked for with everything that there is."""


def copy_tree(tmp_path: Path) -> Path:
    """Copy what of the tree makes the package."""
    copy = tmp_path / "tree"
    for area in AREAS:
        shutil.copytree(ROOT / area, copy / area, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def apply(patch: Path, tree: Path, *options: str) -> None:
    """Apply a patch to a tree, exactly; fails where it doesn't fit."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}  # the tree is no part of any repository
    command = ["git", "apply", *options, str(patch)]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{patch.name} has to be made anew: {done.stderr}"


def files_of(patch: Path) -> list[str]:
    """Give the files that a patch changes."""
    return [line.removeprefix("+++ b/") for line in patch.read_text().splitlines() if line.startswith("+++ b/")]


def test_each_bug_fits_the_code_and_says_what_it_breaks(tmp_path: Path) -> None:
    """There are ten; each applies as it stands to modules that can be compiled with it, and begins with words."""
    assert PATCHES.keys() == FOUND_BY.keys()
    assert len(PATCHES) == 10
    tree = copy_tree(tmp_path)
    for patch in PATCHES.values():
        assert patch.read_text().partition("\n\ndiff --git ")[0].endswith("."), patch.name
        apply(patch, tree)
        assert files_of(patch)
        for file in files_of(patch):
            content = (tree / file).read_text()
            assert content != (ROOT / file).read_text()
            compile(content, file, "exec")
        apply(patch, tree, "--reverse")


@pytest.mark.long
@pytest.mark.timeout(SECONDS_MAX + 2 * LAST_ROUND_SECONDS)
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_chaos_finds_each_bug(bug: str, tmp_path: Path) -> None:
    """Within five minutes some round breaks the promise that the bug breaks."""
    if bug in NARROWED and "power" in abilities.impossible():
        pytest.skip(f"no power can be cut here: {abilities.impossible()['power']}")
    tree = copy_tree(tmp_path)
    apply(PATCHES[bug], tree)
    code, report = run_chaos(tree, tmp_path, SECONDS_MAX, *NARROWED.get(bug, ()))
    assert code == 1
    assert FOUND_BY[bug] & report["broken"].keys()
    assert report["elapsed_seconds"] < SECONDS_MAX


@pytest.mark.long
@pytest.mark.timeout(CLEAN_SECONDS + 2 * LAST_ROUND_SECONDS)
@pytest.mark.parametrize("options", [(), POWER_ALONE])
def test_without_a_bug_nothing_is_found(options: tuple[str, ...], tmp_path: Path) -> None:
    """A copy of the tree as it is breaks no promise."""
    code, report = run_chaos(copy_tree(tmp_path), tmp_path, CLEAN_SECONDS, *options)
    assert (code, report["broken"]) == (0, {})


def run_chaos(tree: Path, tmp_path: Path, seconds: int, *options: str) -> tuple[int, dict[str, Any]]:
    """Run chaos with the package of a tree until a promise is broken, or its time is over; give how it ends."""
    cli = CommandLine(tmp_path / "store", tmp_path)
    environment = {"PYTHONPATH": str(tree / ".import"), "TMPDIR": str(tmp_path)}
    arguments = ("chaos", "run", "--until-broken", "--seconds", str(seconds), "--seed", str(SEED), "--json")
    process = cli.start(*arguments, *options, environment=environment)
    try:
        out, err = process.communicate(timeout=seconds + LAST_ROUND_SECONDS)
    except BaseException:
        process.terminate()  # it ends all that it has started
        process.communicate()
        raise
    assert out, err.decode()
    return process.returncode, json.loads(out.splitlines()[0])
