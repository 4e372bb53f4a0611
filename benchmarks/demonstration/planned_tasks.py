"""The tasks that agents start: small shell commands of which everything is known before they run.

A command writes into a witness file of its own that it begins, and, where it ends by itself, how; so what happened is
known without anybody who supervised it. Its output is the same bytes whenever it runs. What lasts until it is stopped
reads from a FIFO that the demo holds open: it can't outlive the demo, however that dies. It opens the FIFO for writing
as well, for a moment: a reader alone would wait for ever for somebody to hold it, where the demo has died already.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

Kind = Literal["exit", "signal", "child", "server", "daemon"]
"""It exits; dies by a signal; exits before a child that it leaves behind; lasts with a child of its own; lasts with one
that has left its process session.
"""

MARK = "TURNKEEPER_DEMO"
"""The variable by which everything that a task started is known: the directory of its column's files, and its name."""

_KINDS: tuple[Kind, ...] = ("exit", "signal", "child", "server", "daemon")
_WEIGHTS = (50, 12, 14, 16, 8)
_LINES = (2, 20, 400)
_PAUSE_MS = (30, 450)
_CODE_SHARE = 0.5
_KEEP_SHARE = 0.4
_WAIT_SHARE = 0.3
_OWNER_SHARE = 0.25
_GIVE_UP_SHARE = 0.2
_GIVE_UP_MS = (1, 30)
_STOP_TURNS = (1, 5)

_BEGIN = """
name=$1 witness=$2 lines=$3 pause=$4 number=$5 hold=$6 line=1
print() { while [ "$line" -le "$1" ]; do echo "$name line $line"; line=$((line + 1)); done; }
echo began >> "$witness"
print $((lines / 2)); sleep "$pause"; print "$lines"
"""
_LAST = 'exec 3<>"$hold" 4<"$hold" 3>&-; read -r _ <&4'
_END: dict[Kind, str] = {
    "exit": 'echo "code $number" >> "$witness"; exit "$number"',
    "signal": 'echo "signal $number" >> "$witness"; kill -"$number" $$',
    "child": '(sleep "$pause"; echo "$name child") & echo "code $number" >> "$witness"; exit "$number"',
    "server": f'(echo "$name ready"; {_LAST}) & {_LAST}',
    "daemon": f"""setsid sh -c 'hold=$1; echo "$2 ready"; {_LAST}' sh "$hold" "$name" & {_LAST}""",
}


class PlannedTask(NamedTuple):
    """A task: it prints `lines`, with a pause in their middle, and ends as its kind says.

    `number` is its exit code or signal. One that lasts is stopped so many turns after its start (`stop_after`), or with
    its agent. `keep`: it may outlive its agent. `waits`: the agent waits for its end before it goes on. `give_up_ms`:
    so soon the agent gives up waiting for the start's answer, and asks again.
    """

    kind: Kind
    lines: int
    pause_ms: int
    number: int
    keep: bool
    waits: bool
    stop_after: int | None
    give_up_ms: int | None

    @property
    def lasts(self) -> bool:
        """Say whether it goes on until it is stopped."""
        return self.kind in ("server", "daemon")

    @property
    def end(self) -> dict[str, int]:
        """Give how it must end, as the journal says that."""
        if self.lasts:
            return {"signal": signal.SIGTERM.value}
        return {"signal" if self.kind == "signal" else "code": self.number}

    @property
    def by(self) -> str:
        """Give by whose doing it must end, as the journal says that: a signal of its own is nobody's."""
        if self.lasts:
            return "owner" if self.stop_after is None else "stop"
        return "unknown" if self.kind == "signal" else "itself"

    def argv(self, name: str, witness: Path, hold: Path) -> list[str]:
        """Give the command that is this task under a name of its own."""
        settings = (str(self.lines), f"{self.pause_ms / 1000:.3f}", str(self.number))
        return ["sh", "-c", _BEGIN + _END[self.kind], "sh", name, str(witness), *settings, str(hold)]

    def output(self, name: str) -> bytes:
        """Give all that it prints; what lasts has printed it once its last line is there."""
        lines = [f"{name} line {number}\n" for number in range(1, self.lines + 1)]
        if self.lasts:
            lines.append(f"{name} ready\n")
        elif self.kind == "child":
            lines.append(f"{name} child\n")
        return "".join(lines).encode()

    @classmethod
    def from_map(cls, values: dict[str, Any]) -> PlannedTask:
        """Read back what `_asdict` gave."""
        return cls(**values)


def place_of_call(steps: Sequence[tuple[str, Any]]) -> int:
    """Say at which step of a turn its task is started: at its first call, or at its end if it has none."""
    calls = [place for place, (type, _) in enumerate(steps) if type == "tool/started"]
    return calls[0] if calls else len(steps) - 1


def draw_task(random: Random) -> PlannedTask:
    """Draw a task."""
    (kind,) = random.choices(_KINDS, _WEIGHTS)
    number = random.randrange(1, 126) if random.random() < _CODE_SHARE else 0
    if kind == "signal":
        number = random.choice((signal.SIGKILL, signal.SIGUSR1, signal.SIGTERM)).value
    keeps, waits, stays, gives_up = (random.random() for _ in range(4))
    lasts = kind in ("server", "daemon")
    stop_after, give_up_ms = random.randint(*_STOP_TURNS), random.randint(*_GIVE_UP_MS)
    return PlannedTask(
        kind=kind,
        lines=random.choice(_LINES),
        pause_ms=random.randint(*_PAUSE_MS),
        number=number,
        keep=not lasts and keeps < _KEEP_SHARE,
        waits=not lasts and waits < _WAIT_SHARE,
        stop_after=stop_after if lasts and stays >= _OWNER_SHARE else None,
        give_up_ms=give_up_ms if gives_up < _GIVE_UP_SHARE else None,
    )
