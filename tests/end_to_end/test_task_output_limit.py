"""A task's output file: its limit, which holds with nobody but a shim alive, and a disk that is full."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.runtime.tasks import spawner, tree

from ..shims import SLEEPER, Shims, until

LINE = b"\n[turnkeeper: cut here, at the output limit of %d bytes]\n"


def test_output_over_the_limit_ends_the_task_and_is_cut(shims: Shims) -> None:
    """The file has so many bytes, and one line that says so; the record says who ended it, and that output is cut."""
    task = shims.start("/usr/bin/yes", "0123456789abcdef", limit=100_000)
    shims.restart_spawner()
    end = task.wait()
    line = LINE % 100_000
    assert (end["by"], end["output"], end["output_bytes"]) == ("output limit", "cut", 100_000 + len(line))
    assert end["how"] == {"signal": signal.SIGTERM}
    assert task.output() == (b"0123456789abcdef\n" * 6000)[:100_000] + line


def test_the_limit_holds_against_what_ignores_it(shims: Shims) -> None:
    """A command that ignores SIGTERM is killed within half a second, whatever grace it was started with."""
    task = shims.shell("trap '' TERM; yes", limit=1000, grace=600.0)
    end = task.wait(10.0)
    assert (end["by"], task.output()) == ("output limit", b"y\n" * 500 + LINE % 1000)


def test_a_command_that_ended_before_it_was_stopped_for_its_output_keeps_its_code(tmp_path: Path) -> None:
    """Nobody ended it, so it did, though the look that finds too much comes before its end is seen; the rest is cut."""
    script = tmp_path / "spawner.py"
    script.write_text(_LATE_LOOKS.format(path=spawner.__file__))
    shims = Shims(tmp_path, str(script))
    task = shims.shell("head -c 5000 /dev/zero; exit 3", limit=1000)
    end = task.wait()
    shims.close()
    assert (end["how"], end["by"], end["output"]) == ({"code": 3}, "itself", "cut")
    assert task.output() == bytes(1000) + LINE % 1000
    assert shims.log() == ""


_LATE_LOOKS = """
import os, runpy, time
script = runpy.run_path({path!r})
from turnkeeper.runtime.tasks import output, tree
look = output.Output.look
def look_late(self):
    while any(child.is_alive for child in tree.children(os.getpid())):
        time.sleep(0.001)
    return look(self)
output.Output.look = look_late
script["main"]()
"""


def test_output_of_exactly_the_limit_is_whole(shims: Shims) -> None:
    """It is not over it."""
    task = shims.shell("head -c 1000 /dev/zero", limit=1000)
    end = task.wait()
    assert (end["output"], end["output_bytes"], task.output()) == (None, 1000, bytes(1000))


def test_survivors_are_kept_to_the_limit_as_well(shims: Shims) -> None:
    """What a command left behind is stopped when it writes too much, and the command's own end stands."""
    task = shims.shell("(sleep 0.1; yes) & exit 4", limit=1000)
    end = task.wait()
    assert (end["how"], end["by"], end["output"]) == ({"code": 4}, "itself", "cut")
    assert task.output() == b"y\n" * 500 + LINE % 1000


def test_a_file_that_was_reopened_without_appending_is_cut_too(shims: Shims) -> None:
    """Whoever writes at places of its own leaves holes behind a cut, which the next cut removes."""
    task = shims.shell("trap '' TERM; exec 3<>/dev/stdout; yes >&3", limit=1000)
    end = task.wait()
    assert (end["by"], task.output()) == ("output limit", b"y\n" * 500 + LINE % 1000)


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Shims]:
    """A spawner on a small file system of its own."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    shims = Shims(mounted)
    yield shims
    shims.close()
    assert shims.log() == ""
    subprocess.run(["umount", str(mounted)], check=True)


@pytest.mark.root
@pytest.mark.parametrize("rest", ["", f"{SLEEPER.format(600)};"], ids=["with nothing left", "with a survivor"])
def test_a_full_disk_keeps_the_code_and_says_that_output_is_missing(full: Shims, rest: str) -> None:
    """The space for the ends is kept from the beginning; what the command made of its ENOSPC is its own matter."""
    task = full.shell(f"head -c 2000000 /dev/zero; {rest} exit 9")
    if rest:
        look = until(lambda: (found := task.look()).stage == "left" and found)
        assert look.end is not None
        assert (look.end["how"], look.end["output"]) == ({"code": 9}, "disk full")
        assert [each["command"] for each in look.end["survivors"]] == ["sleep 600"]
        task.stop(0.0)
    end = task.wait()
    assert (end["how"], end["by"], end["output"]) == ({"code": 9}, "itself", "disk full")
    assert end["output_bytes"] == os.path.getsize(f"{task.path}/output.log") < 1 << 20


@pytest.mark.root
def test_a_disk_that_is_full_from_the_beginning_is_said(full: Shims) -> None:
    """A command that can store nothing runs, and the record says that its output is not all; with space, it is."""
    first, second = full.make(["/bin/echo", "hello"]), full.make(["/bin/echo", "hello"])
    ballast = full.root / "ballast"
    filling = ["dd", "if=/dev/zero", f"of={ballast}", "bs=4096"]
    assert b"No space" in subprocess.run(filling, capture_output=True, check=False).stderr
    full.hand_over(first)
    end = first.wait()
    assert (end["output"], end["output_bytes"]) == ("disk full", 0) or "No space" in end["how"]["not_started"]
    ballast.unlink()
    full.hand_over(second)
    assert (second.wait()["output"], second.output()) == (None, b"hello\n")


@pytest.mark.root
def test_a_stop_on_a_full_disk_needs_no_space(full: Shims) -> None:
    """Where the order can't be written, the shim is told by a signal alone."""
    task = full.shell("head -c 2000000 /dev/zero; exec sleep 600")
    until(lambda: tree.command_of(task.leader) == "sleep 600")
    task.stop(5.0)
    end = task.wait()
    assert (end["by"], end["output"]) == ("stop", "disk full")
