"""What the processes of a round hold, looked at from outside now and then, for the notes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from .notes import Notebook
from .plan import Role

KIB = 1024


def note_processes(found: Mapping[Role, Sequence[int]], notebook: Notebook, sessions: int, segments: int) -> None:
    """Note memory and descriptors of all who live, and how many they serve.

    `sessions` is the most one may have open, `segments` how many files the journal has. A process that ends meanwhile
    is passed over.
    """
    clients = len(found["host"]) + len(found["worker"])
    tasks = len(found["shim"])
    for role, pids in found.items():
        for pid in pids:
            try:
                descriptors, pss_bytes = len(os.listdir(f"/proc/{pid}/fd")), _pss_bytes(pid)
                born = os.stat(f"/proc/{pid}").st_ctime
            except (OSError, ValueError):
                continue
            serves = {"clients": clients, "sessions": sessions, "tasks": tasks, "segments": segments, "born": born}
            notebook.process(role, pid, descriptors, pss_bytes, **serves)


def _pss_bytes(pid: int) -> int:
    """Give the memory of a process, with its share of what others have, too."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * KIB
    raise ValueError(f"process {pid} has no memory")
