"""Tasks of mixed kinds, each of which can end in one way only unless somebody stops it.

A command notes what it does in a file of its own, outside the store: `start PID` first, `left PID` for what it leaves
behind, `end` when it has done all. What it must end with, and all that it prints, is said here, and nothing of the
product is asked for that.
"""

from __future__ import annotations

import random
import secrets
import shlex
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

LIMIT_BYTES = 64 * 1024
"""The output limit of a task that writes without end."""

_YES = b"0123456789abcdef\n"
_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGUSR1, signal.SIGINT, signal.SIGPIPE)


@dataclass(frozen=True, slots=True)
class MixedTask:
    """One task. `how` and `by` are its end if nobody stops it, None if it has none; `output` is all that it prints.

    `options` are those of its start. With `is_endless_output`, `output` is only how what it prints begins.
    """

    label: str
    argv: list[str]
    how: Mapping[str, Any] | None
    by: str | None = "itself"
    output: bytes = b""
    options: dict[str, Any] = field(default_factory=dict)
    has_session: bool = False
    is_endless_output: bool = False
    leaves_process: bool = False

    @property
    def is_kept(self) -> bool:
        """Say whether it outlives its host."""
        return bool(self.options["on_owner_exit"] == "keep")

    @property
    def is_endless(self) -> bool:
        """Say whether it runs until somebody stops it."""
        return self.how is None

    def as_map(self) -> dict[str, Any]:
        """Give what its host has to know."""
        names = ("label", "argv", "options", "has_session", "is_endless")
        return {name: getattr(self, name) for name in names}


def mixed_tasks(count: int, notes: Path, rng: random.Random) -> list[MixedTask]:
    """Make tasks, at least one of each kind if there are enough, whose commands write their notes below `notes`.

    Their labels, and so their keys, are no other round's.
    """
    unique = secrets.token_hex(4)
    kinds = [*_KINDS, *rng.choices(_KINDS, k=max(0, count - len(_KINDS)))]
    rng.shuffle(kinds)
    tasks = []
    for number, kind in enumerate(kinds[:count]):
        name = kind.__name__.removeprefix("_").replace("_", "-")
        task = kind(f"{name}-{number}-{unique}", notes, rng)
        owner_exit = rng.choice(("kill", "keep"))
        options = {"grace": 0.5, **task.options, "cwd": str(notes), "on_owner_exit": owner_exit}
        if rng.random() < 0.5:
            options["key"] = task.label
        tasks.append(replace(task, options=options, has_session=rng.random() < 0.6))
    return tasks


def notes_of(task: MixedTask, notes: Path) -> list[str]:
    """Read what the command noted."""
    try:
        return (notes / task.label).read_text().splitlines()
    except FileNotFoundError:
        return []


# -- Kinds


def _shell(label: str, notes: Path, script: str, *, before: str = "") -> list[str]:
    note = f'note() {{ echo "$*" >>{shlex.quote(str(notes / label))}; }}'
    return ["/bin/sh", "-c", f"{note}; {before} note start $$; {script}", label]


def _seconds(rng: random.Random) -> float:
    return round(rng.random() * 1.2, 3)


def _exit_code(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code = rng.randrange(256)
    script = f"echo said; sleep {_seconds(rng)}; echo said later >&2; note end; exit {code}"
    return MixedTask(label, _shell(label, notes, script), {"code": code}, output=b"said\nsaid later\n")


def _at_once(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code = rng.choice((0, 1, 143, 255))
    return MixedTask(label, _shell(label, notes, f"note end; exit {code}"), {"code": code})


def _another_signal(label: str, notes: Path, rng: random.Random) -> MixedTask:
    number = rng.choice(_SIGNALS)
    script = f"echo said; sleep {_seconds(rng)}; note end; kill -{number.value} $$; sleep 600"
    return MixedTask(label, _shell(label, notes, script), {"signal": number.value}, "unknown", b"said\n")


def _term_ignorer(label: str, notes: Path, rng: random.Random) -> MixedTask:
    argv = _shell(label, notes, "echo deaf; while :; do sleep 0.1; done", before="trap '' TERM;")
    options = {"timeout": 0.2 + _seconds(rng), "grace": 0.2}
    return MixedTask(label, argv, {"signal": 9}, "timeout", b"deaf\n", options)


def _tree(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code = rng.randrange(256)
    deep = f'sh -c "sh -c \\"sleep {_seconds(rng)}; echo deep\\" & wait" & wait'
    return MixedTask(label, _shell(label, notes, f"{deep}; note end; exit {code}"), {"code": code}, output=b"deep\n")


def _survivor(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code = rng.randrange(256)
    start = rng.choice(("sleep 600", "setsid sleep 600", "sh -c 'trap \"\" TERM; sleep 600; :'"))
    script = f"{start} & note left $!; echo gone; note end; exit {code}"
    return MixedTask(label, _shell(label, notes, script), {"code": code}, output=b"gone\n", leaves_process=True)


def _large_output(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code, last = rng.randrange(256), rng.choice((10_000, 300_000))
    output = "".join([f"{number}\n" for number in range(1, last + 1)]).encode()
    return MixedTask(label, _shell(label, notes, f"seq {last}; note end; exit {code}"), {"code": code}, output=output)


def _session_leader(label: str, notes: Path, rng: random.Random) -> MixedTask:
    code = rng.randrange(256)
    script = f"setsid sh -c 'sleep {_seconds(rng)}; echo apart' & wait; note end; exit {code}"
    return MixedTask(label, _shell(label, notes, script), {"code": code}, output=b"apart\n")


def _too_much_output(label: str, notes: Path, rng: random.Random) -> MixedTask:
    argv = _shell(label, notes, f"sleep {_seconds(rng) / 2}; exec yes {_YES.decode().strip()}")
    output = (_YES * (LIMIT_BYTES // len(_YES) + 1))[:LIMIT_BYTES]
    how, options = {"signal": 15}, {"limit": LIMIT_BYTES}
    return MixedTask(label, argv, how, "output limit", output, options, is_endless_output=True)


def _not_started(label: str, notes: Path, rng: random.Random) -> MixedTask:
    program = notes / f"{label}.program"
    program.write_text("echo this has no first line that says what runs it\n")
    program.chmod(0o700)
    return MixedTask(label, [str(program)], {"not_started": str(program)})


def _endless(label: str, notes: Path, rng: random.Random) -> MixedTask:
    return MixedTask(label, _shell(label, notes, "echo endless; sleep 600"), None, output=b"endless\n")


def _endless_ignorer(label: str, notes: Path, rng: random.Random) -> MixedTask:
    argv = _shell(label, notes, "echo endless; while :; do sleep 0.1; done", before="trap '' TERM;")
    return MixedTask(label, argv, None, output=b"endless\n", options={"grace": 0.3})


_KINDS: tuple[Callable[[str, Path, random.Random], MixedTask], ...] = (
    _exit_code,
    _at_once,
    _another_signal,
    _term_ignorer,
    _tree,
    _survivor,
    _large_output,
    _session_leader,
    _too_much_output,
    _not_started,
    _endless,
    _endless_ignorer,
)
