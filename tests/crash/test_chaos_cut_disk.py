"""The disk of chaos whose power is cut: what it loses, and that it is nobody else's and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos import abilities

from ..loop_devices import loop_devices_of
from ..serving import eventually

pytestmark = pytest.mark.root

SECONDS_MAX = 60.0

PROGRAM = """
import json, os, sys
from pathlib import Path
from turnkeeper.benchmarks.chaos.cut_disk import CutDisk, private_mounts

private_mounts()
boot = Path("/proc/sys/kernel/random/boot_id")
boots = [boot.read_text()]
disk = CutDisk(Path(sys.argv[1]))
try:
    disk.power_up()
    for name in ("synced", "written"):
        with (disk.mounted / name).open("w") as file:
            file.write(name)
            file.flush()
            if name == "synced":
                os.fsync(file.fileno())
    mounts = len(Path("/proc/self/mountinfo").read_text().splitlines())
    disk.cut()
    disk.restart()
    boots.append(boot.read_text())
    disk.restart()
    boots.append(boot.read_text())
    found = [path.read_text() for path in disk.mounted.iterdir() if path.is_file()]
finally:
    disk.release()
released = len(Path("/proc/self/mountinfo").read_text().splitlines())
boots.append(boot.read_text())
print(json.dumps({"found": found, "boots": boots, "mounts": mounts, "released": released}))
"""


def mounts() -> str:
    """Give this process's mounts."""
    return Path("/proc/self/mountinfo").read_text()


def test_only_what_was_synced_outlives_a_cut(tmp_path: Path) -> None:
    """Each time it has power again it is another boot; and all of that only for the program that has the disk."""
    if why := abilities.impossible().get("power"):
        pytest.skip(why)
    before = mounts()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    said = json.loads(done.stdout)
    assert said["found"] == ["synced"]
    first, *others, last = said["boots"]
    assert first == last
    assert len({first, *others}) == 3
    assert said["released"] == said["mounts"] - 1
    assert mounts() == before


def test_a_trial_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """No file, no mount, no loop device: all of it goes with the process."""
    if why := abilities.impossible().get("power"):
        pytest.skip(why)
    with subprocess.Popen(abilities.POWER_TRIAL, env={**os.environ, "TMPDIR": str(tmp_path)}) as trial:
        facts = Path(f"/proc/{trial.pid}/mountinfo")
        eventually(lambda: f"{tmp_path}/disk " in facts.read_text())
        trial.kill()
    assert list(tmp_path.iterdir()) == []
    assert str(tmp_path) not in mounts()
    eventually(lambda: not loop_devices_of(tmp_path))
