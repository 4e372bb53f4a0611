"""A disk whose power can be cut: a file system in an image in memory, whose driver drops everything not synced at once.

The cut is the file systems' own shutdown call: from it on nothing more reaches the image. An fdatasync that is under
way meanwhile may still return success and be lost; only what was told before counts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN and XFS_IOC_GOINGDOWN
_WITHOUT_FLUSHING_THE_LOG = 2

MAKERS = {
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
IMAGE_BYTES = 320 * 1024 * 1024
"""The least that XFS takes; more than the reserve that a store keeps. It is sparse."""


class CutDisk:
    """The file system in `image`, mounted at `mounted` while it has power."""

    def __init__(self, kind: str, image: Path, mounted: Path) -> None:
        self.image = image
        self.mounted = mounted
        maker = MAKERS[kind]
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        subprocess.run([*maker, str(image)], check=True, capture_output=True)
        mounted.mkdir()

    def power_up(self) -> None:
        """Mount it; the driver recovers what its own log has."""
        mount = ["mount", "-o", "loop", str(self.image), str(self.mounted)]
        subprocess.run(mount, check=True, capture_output=True)

    def cut(self) -> None:
        """Cut the power: every write that wasn't synced is lost, unless the disk happened to have it."""
        descriptor = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def power_down(self) -> None:
        """Unmount it; its loop device goes with it."""
        subprocess.run(["umount", str(self.mounted)], check=True, capture_output=True)

    def release(self) -> None:
        """Unmount it whatever state it is in, and give its memory back."""
        if os.path.ismount(self.mounted):
            subprocess.run(["umount", "--lazy", str(self.mounted)], check=True, capture_output=True)
        self.image.unlink()


@contextlib.contextmanager
def cut_disk(kind: str, place: Path) -> Iterator[CutDisk]:
    """Make a file system with power; skip where none can be made or mounted."""
    if shutil.which(MAKERS[kind][0]) is None:
        pytest.skip(f"needs {MAKERS[kind][0]}")
    disk = CutDisk(kind, place / f"{kind}.image", place / f"{kind}-disk")
    try:
        try:
            disk.power_up()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no {kind} can be mounted here: {error.stderr.decode().strip()}")
        yield disk
    finally:
        disk.release()
