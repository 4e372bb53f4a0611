"""A small file system of its own that a test fills to the last byte, as somebody else would."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

MEBIBYTES = {"tmpfs": 80, "ext4": 96}
"""A little more than the reserve that a store keeps; ext4 takes some of it for itself."""


class SmallDisk:
    """The file system mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fill(self) -> None:
        """Take all the space that there is, also what was freed since the last time."""
        take_all_space(self._ballast)

    def free(self) -> None:
        """Give the space back."""
        self._ballast.unlink()


def take_all_space(ballast: Path) -> None:
    """Let a file grow until its file system has nothing more to give."""
    descriptor = os.open(ballast, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        end, step = os.fstat(descriptor).st_size, 64 * 1024 * 1024
        while step:
            try:
                os.posix_fallocate(descriptor, end, step)
                end += step
            except OSError:
                step //= 2
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def small_disk(kind: str, place: Path) -> Iterator[SmallDisk]:
    """Mount a file system of this kind in memory; skip where that can't be done."""
    mounted, image = place / "disk", place / "image"
    mounted.mkdir()
    size = MEBIBYTES[kind] * 1024 * 1024
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mounted)]
    if kind == "ext4":
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("needs mkfs.ext4")
        with image.open("wb") as file:
            file.truncate(size)
        maker = ["mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(image)]
        subprocess.run(maker, check=True, capture_output=True)
        mount = ["mount", "-o", "loop", str(image), str(mounted)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no {kind} can be mounted here: {done.stderr.strip()}")
    try:
        yield SmallDisk(mounted)
    finally:
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)
