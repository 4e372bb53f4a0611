"""A disk whose power can be cut: a file system in an image, whose driver drops everything not synced at once.

The cut is the file system's own shutdown call: from it on nothing more reaches the image. A sync that is under way
meanwhile may still return success and be lost, so whoever syncs has to be stopped before the cut. After it the machine
counts as started anew: whoever asks for the boot's id from then on gets another one.

The mounts are this process's own (`private_mounts`), and those of its children: they are nowhere else to be seen, and
go with the last of these processes, however that ends. Needs root, and not every root may: run as a process
(`python -m turnkeeper.benchmarks.chaos.cut_disk`) it only tries that.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

IMAGE_BYTES = 320 * 1024 * 1024
"""More than the reserve that a store keeps. It is sparse."""

UNMOUNT_SECONDS = 10.0
"""How long a disk without power may still be in use."""

_AGAIN_SECONDS = 0.05
_CLONE_NEWNS = 0x00020000
_SHUT_DOWN = 0x8004587D  # EXT4_IOC_SHUTDOWN
_WITHOUT_FLUSHING_THE_LOG = 2
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_MAKER = ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0")


def private_mounts() -> None:
    """Give this thread, and what it starts, mounts of its own; again is no harm. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    _run("mount", "--make-rprivate", "/")


class CutDisk:
    """The file system of `size` bytes in an `image` below `place`, mounted at `mounted` while it has power."""

    def __init__(self, place: Path, size: int = IMAGE_BYTES) -> None:
        self.mounted = place / "disk"
        self.image = place / "disk.image"
        self._boot_id = place / "boot_id"
        with self.image.open("wb") as file:
            file.truncate(size)
        _run(*_MAKER, str(self.image))
        self.mounted.mkdir()

    def power_up(self) -> None:
        """Mount it; the driver recovers what its own log has."""
        _run("mount", "-o", "loop", str(self.image), str(self.mounted))

    def cut(self) -> None:
        """Cut the power: every write that wasn't synced is lost, unless the disk happened to have it."""
        descriptor = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, struct.pack("I", _WITHOUT_FLUSHING_THE_LOG))
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """Unmount and mount it, in a boot with another id. Nobody may use it meanwhile."""
        self._power_down()
        self._change_boot_id()
        self.power_up()

    def _power_down(self) -> None:
        """Unmount it; whoever used it a moment ago may still have to be torn down by the system."""
        deadline = time.monotonic() + UNMOUNT_SECONDS
        while True:
            try:
                return _run("umount", str(self.mounted))
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_SECONDS)

    def release(self) -> None:
        """Take all mounts away, whatever state they are in."""
        for path in (self.mounted, _BOOT_ID):
            while _is_mounted(path):
                _run("umount", "--lazy", str(path))

    def _change_boot_id(self) -> None:
        if _is_mounted(_BOOT_ID):
            _run("umount", str(_BOOT_ID))
        self._boot_id.write_text(f"{uuid.uuid4()}\n")
        _run("mount", "--bind", str(self._boot_id), str(_BOOT_ID))


def main() -> None:
    """Try all of it once, in memory that goes with this process. Raises OSError where it can't be done."""
    private_mounts()
    place = tempfile.gettempdir()  # nobody else sees what is mounted there, and nothing of it stays, even after SIGKILL
    _run("mount", "-t", "tmpfs", "turnkeeper", place)
    disk = CutDisk(Path(place))
    disk.power_up()
    disk.cut()
    disk.restart()


def _is_mounted(path: Path) -> bool:
    lines = Path("/proc/thread-self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in lines)


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")


if __name__ == "__main__":
    main()
