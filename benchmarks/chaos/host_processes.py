"""The hosts of a round as its runner has them: processes that are started, ordered, killed, and waited for."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from .host import HostStart
from .plan import AgentPlan, HostPlan

ERROR_CHARACTERS = 1500
"""So much of what a host said on its standard error is shown."""


class HostProcess:
    """One run of a host. It is the runner's child, and ends at once when that does: its orders come through a pipe."""

    def __init__(self, start: HostStart, plan: HostPlan, log: Path, environment: Mapping[str, str]) -> None:
        self.plan = plan
        self.name = start.name
        self.is_killed = False
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "turnkeeper.benchmarks.chaos.host"],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._order(dataclasses.asdict(start))

    @property
    def pid(self) -> int:
        """Its pid; it is nobody else's before `wait`."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Say whether it has ended, and is reaped."""
        return self._process.poll() is not None

    def take_over(self, agents: Sequence[AgentPlan]) -> None:
        """Order it to take over the sessions of these agents."""
        self._order({"take": [agent.as_map() for agent in agents]})

    def leave(self) -> None:
        """Order it to leave the store and to end."""
        self._order({"leave": True})

    def kill(self) -> None:
        """Kill it."""
        self.is_killed = True
        self._process.kill()

    def release(self) -> str | None:
        """Take note that it has ended; say what was wrong with that, if anything was."""
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        if self.is_killed or self._process.returncode == 0:
            return None
        said = self._log.read_text(errors="replace")[-ERROR_CHARACTERS:]
        return f"{self.name}, which nobody killed, ended with {self._process.returncode}: {said}"

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it is dead, which is seen elsewhere
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
