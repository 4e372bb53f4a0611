"""Loop devices of the machine, and whose images they show."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def loop_devices_of(directory: Path) -> list[str]:
    """Name the loop devices whose image lies, or has lain, below a directory."""
    found = []
    for image in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # it has just been given back
            if image.read_text().startswith(f"{directory}/"):
                found.append(image.parts[3])
    return found
