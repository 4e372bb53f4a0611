"""A failpoint that the runner has armed: who passes it gets a signal, once (`turnkeeper.runtime.failpoints`)."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

from .store_processes import Process


class Failpoint:
    """Whoever passes the point for the `passes`th time gets the signal. `lift` it; a stopped process goes on then."""

    def __init__(self, directory: Path, point: str, number: signal.Signals, passes: int = 1) -> None:
        self._path = directory / point
        self._number = number
        self._pid: int | None = None
        self.is_armed = True
        temporary = directory / f"{point}.new"
        temporary.write_text(f"{number.value} {passes}")
        temporary.rename(self._path)  # whoever looks sees all of it

    def obeyed_by(self) -> int | None:
        """Give the pid of who has obeyed it, when somebody has; once known it stays."""
        if self._pid is None:
            for path in self._path.parent.glob(f"{self._path.name}.*"):
                pid = path.name.rpartition(".")[2]
                if pid.isdecimal() and path.read_text().startswith(f"{self._number.value} "):
                    self._pid = int(pid)
                    self.is_armed = False
                    path.unlink()
        return self._pid

    def lift(self) -> None:
        """Take it away if nobody has obeyed it; let go on who has stopped there."""
        self._path.unlink(missing_ok=True)
        pid = self.obeyed_by()
        self.is_armed = False
        if pid is not None and self._number == signal.SIGSTOP:
            with suppress(ProcessLookupError):
                process = Process(pid)
                process.send(signal.SIGCONT)
                process.close()
