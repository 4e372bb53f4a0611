"""The tasks that agents of a round start: the demo's, and some that have to be ended by whoever supervises them.

Each command writes into a witness file of its own that it begins and, where it ends by itself, how. What lasts reads
from a FIFO that the runner holds open, so it can't outlive the runner, however that dies.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from ..demonstration.planned_tasks import PlannedTask
from ..demonstration.planned_tasks import draw_task as draw_demo_task
from ..demonstration.task_oracle import output_digest

Kind = Literal["demo", "deaf", "flood", "no program"]
"""As the demo has it; deaf to SIGTERM until its timeout; printing too much; a file that is no program."""

LIMIT_BYTES = 64 * 1024
FLOOD_BYTES = 4 * LIMIT_BYTES
"""What it may print, and does: with its shim dead nobody keeps the limit, and it must not fill the disk."""

GRACE_SECONDS = 0.3
TIMEOUT_SECONDS = 1.0
NO_PROGRAM = "is neither a program of this system nor a script whose first line says what runs it"

_BEGIN = 'echo began >> "$1"; '
_SCRIPTS: Mapping[Kind, str] = {
    "deaf": "trap '' TERM; " + _BEGIN + "echo deaf; while :; do sleep 0.1; done",
    "flood": _BEGIN + f'yes chaos | head -c {FLOOD_BYTES}; exec 3<>"$2" 4<"$2" 3>&-; read -r _ <&4',
}
_HOW: Mapping[Kind, tuple[dict[str, Any], str]] = {
    "deaf": ({"signal": signal.SIGKILL.value}, "timeout"),
    "flood": ({"signal": signal.SIGTERM.value}, "output limit"),
}


@dataclass(frozen=True, slots=True)
class ChaosTask:
    """A task of a round; `demo` is what it is for the kind of that name, and its length for the others."""

    kind: Kind
    demo: PlannedTask

    @property
    def is_kept(self) -> bool:
        """Say whether it outlives its host."""
        return self.demo.keep

    @property
    def lasts(self) -> bool:
        """Say whether it goes on until somebody stops it."""
        return self.kind == "demo" and self.demo.lasts

    @property
    def ends_itself(self) -> bool:
        """Say whether its command says in the witness how it ends."""
        return self.kind == "demo" and not self.demo.lasts

    @property
    def wait_share(self) -> float:
        """How often its end is waited for."""
        return 0.5 if self.demo.waits else 0.1

    @property
    def by(self) -> str | None:
        """Give by whose doing it ends if nobody interferes; None if it never does."""
        if self.lasts:
            return None
        if self.kind == "no program":
            return "itself"
        return self.demo.by if self.kind == "demo" else _HOW[self.kind][1]

    @property
    def options(self) -> dict[str, Any]:
        """Give the options of its start."""
        limits: Mapping[Kind, dict[str, Any]] = {"deaf": {"timeout": TIMEOUT_SECONDS}, "flood": {"limit": LIMIT_BYTES}}
        return {"grace": GRACE_SECONDS, **limits.get(self.kind, {})}

    def how(self, bench: Path) -> dict[str, Any] | None:
        """Say how it ends if nobody interferes; None if it never does."""
        if self.lasts:
            return None
        if self.kind == "no program":
            return {"not_started": f"{no_program(bench)}: {NO_PROGRAM}"}
        return self.demo.end if self.kind == "demo" else _HOW[self.kind][0]

    def argv(self, key: str, bench: Path) -> list[str]:
        """Give the command that is this task under its key."""
        witness = bench / "witnesses" / key
        if self.kind == "demo":
            return self.demo.argv(key, witness, bench / "hold")
        if self.kind == "no program":
            return [str(no_program(bench))]
        return ["sh", "-c", _SCRIPTS[self.kind], "sh", str(witness), str(bench / "hold")]

    def output(self, key: str) -> bytes:
        """Give all that it prints, or what it prints first."""
        return self.demo.output(key) if self.kind == "demo" else b"deaf\n" if self.kind == "deaf" else b""

    def output_digest(self, key: str) -> str | None:
        """Give what notes have of its output; None where that isn't known before.

        What a command leaves behind is ended with its owner, and may not have printed yet.
        """
        is_open = self.kind == "flood" or (self.demo.kind == "child" and not self.is_kept)
        return None if is_open else output_digest(self.output(key))


def draw_task(random: Random) -> ChaosTask:
    """Draw a task."""
    kinds: tuple[Kind, ...] = ("demo", "deaf", "flood", "no program")
    (kind,) = random.choices(kinds, (20, 2, 2, 1))
    return ChaosTask(kind, draw_demo_task(random))


def no_program(bench: Path) -> Path:
    """Give the path of a file that can be executed, and is no program; `prepare` makes it."""
    return bench / "no-program"


def prepare(bench: Path) -> None:
    """Make what tasks need in their directory, which is there; their FIFO is the runner's."""
    (bench / "witnesses").mkdir()
    program = no_program(bench)
    program.write_text("this has no first line that says what runs it\n")
    program.chmod(0o700)
