"""What node and writer write to the store's node.log, which is their stderr. Standard library only."""

from __future__ import annotations

import os
import sys
import time


def log(what: str) -> None:
    """Write one line with the time, in UTC, and the process; a full disk is no reason to end."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        sys.stderr.write(f"{moment} [{os.getpid()}] {what}\n")
        sys.stderr.flush()
    except OSError:
        pass
