"""Read the boot line that one of our own processes is started with. Standard library only."""

from __future__ import annotations

import json
import sys
from typing import IO, Any


def read_boot(stdin: IO[bytes]) -> dict[str, Any] | None:
    """Return what the starter says, with its import path added behind our own; None if it died before it said it."""
    line = stdin.readline()
    if not line.endswith(b"\n"):
        return None
    boot: dict[str, Any] = json.loads(line)
    sys.path += [each for each in boot["import_path"] if each not in sys.path]
    return boot
