"""Hosts of a round, as the driver has them: started with a plan, heard, and killed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]

SECONDS_MAX: Final = 60.0
"""How long a host may take for its end, on a machine that is busy with other things."""


class Host:
    """A host process with its tasks; it says what it was told."""

    def __init__(self, store: Path, plan: dict[str, Any], loop: str, log: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / '.import'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "tests.crash.task_host", str(store), loop]
        self._log = log
        with log.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(plan).encode() + b"\n")
        self.process.stdin.flush()
        self._said = self.process.stdout
        self._rest = b""
        self.session: str = plan["session"]
        self.labels = {planned["label"] for planned in plan["tasks"]}
        self.accepted: set[int] = set()
        self.is_killed = False
        self.is_closing = False
        self.has_ended = False

    def fileno(self) -> int:
        """Give what becomes readable when it says something."""
        return self._said.fileno()

    def hear(self) -> Iterator[dict[str, Any]]:
        """Give what it has said; nothing more once it has ended."""
        content = os.read(self.fileno(), 1 << 16)
        self.has_ended = not content
        *lines, self._rest = (self._rest + content).split(b"\n")
        yield from map(json.loads, lines)

    def take(self, message: dict[str, Any]) -> None:
        """Take note of what it said about its session."""
        if "accepted" in message:
            self.accepted.add(message["accepted"])
        self.is_closing |= "closing" in message

    def kill(self) -> None:
        """Kill it."""
        self.is_killed = True
        self.process.kill()

    def close(self) -> str | None:
        """Wait for its end, and say what was wrong with it."""
        try:
            code = self.process.wait(SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            code = None
        finally:
            for pipe in (self.process.stdin, self._said):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        if self.is_killed or code == 0:
            return None
        return f"a host that nobody killed ended with {code}: {self._log.read_text()[-1500:]}"
