"""What node and writer write to the store's node.log, which is their stderr. Standard library only."""

from __future__ import annotations

import os
import sys
import time

LOG_BYTES_MAX = 1024 * 1024
"""With this much in it nothing more is written; the next node begins it anew."""


def log(what: str) -> None:
    """Write one line with the time, in UTC, and the process; a full log or disk is no reason to end."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    try:
        if os.fstat(2).st_size >= LOG_BYTES_MAX:
            return
        sys.stderr.write(f"{moment} [{os.getpid()}] {what}\n")
        sys.stderr.flush()
    except OSError:
        pass
