"""Tasks whose host, node, writer, spawner and shims are killed with SIGKILL, in random sets at random moments."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from .killed_supervisors import Kind, play

SEEDS, SEEDS_WITH_SHIMS, STORMS, SEEDS_OF_SQLITE = 300, 100, 50, 50


def assert_clean(seeds: Iterable[int], place: Path, kind: Kind) -> None:
    """Play the rounds of these seeds; say of each that went wrong how, and of all how they went where that is shown."""
    wrong = []
    for seed in seeds:
        result = play(seed, kind, parent=place)
        print(result, flush=True)  # noqa: T201
        if result.violations:
            wrong.append(str(result))
    assert not wrong, "\n".join(wrong)


def test_tasks_end_as_they_do_whoever_of_their_supervisors_is_killed(memory_path: Path) -> None:
    """Each ran once, its end and output are known, its session was told once, and nothing of anybody is left."""
    assert_clean([20], memory_path, "strike")


def test_a_task_is_lost_if_its_shim_was_killed_before_its_end_stood(memory_path: Path) -> None:
    """No other is; what such a task has left is named, and can be stopped."""
    assert_clean([104], memory_path, "shims")


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_tasks_end_as_they_do_in_hundreds_of_rounds(memory_path: Path) -> None:
    """The long form, without shims; a seed that is printed plays its round again."""
    assert_clean(range(SEEDS), memory_path, "strike")


@pytest.mark.long
@pytest.mark.timeout(2 * 3600)
def test_only_tasks_without_a_shim_are_lost_in_a_hundred_rounds(memory_path: Path) -> None:
    """The long form, with shims among those who are killed."""
    assert_clean(range(1000, 1000 + SEEDS_WITH_SHIMS), memory_path, "shims")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_tasks_end_as_they_do_in_storms(memory_path: Path) -> None:
    """The long form in which nobody who serves the store lives for more than a moment."""
    assert_clean(range(2000, 2000 + STORMS), memory_path, "storm")


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_tasks_end_as_they_do_in_stores_that_sqlite_keeps(memory_path: Path) -> None:
    """The long form, of the other backend."""
    assert_clean(range(3000, 3000 + SEEDS_OF_SQLITE), memory_path, "sqlite")
