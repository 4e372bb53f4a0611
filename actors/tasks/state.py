"""What is known of a task: a plain copy, tied to no store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from turnkeeper.storage.requests import StreamRow

State = Literal["queued", "running", "stopping", "ended", "lost"]
By = Literal["itself", "stop", "timeout", "owner", "output limit", "unknown"]

LIVE: Final = frozenset(("queued", "running", "stopping"))
"""The states of a task that has no end yet."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task. `requested`, `started` and `ended` are in milliseconds since 1970.

    `how` it ended has one member: `code`, `signal`, or `not_started`, why its command never ran. `by` says who ended
    it: `itself`, a `stop`, its `timeout`, its `owner`'s end, the `output limit`; `unknown` stays unknown. A `lost` one
    has `why` instead. `survivors` are the pids of processes that it left behind and that live; `survivors_more` counts
    those that aren't named. `output` is `cut` or `disk full` where it isn't whole. `progress` is the last that is
    known, `keep` whether the task outlives its owner. A long command or directory is cut, and ends with "…" then.
    """

    id: str
    state: State
    how: dict[str, Any] | None
    by: By | None
    why: str | None
    survivors: list[int]
    survivors_more: int
    command: list[str]
    cwd: str
    session: str | None
    group: str | None
    key: str | None
    keep: bool
    pid: int | None
    requested: int
    started: int | None
    ended: int | None
    output_bytes: int
    output: str | None
    progress: dict[str, Any] | None
    position: int = field(default=0, compare=False)

    @classmethod
    def from_row(cls, row: StreamRow) -> TaskState:
        """Read a task's row as it stands in the journal, which may be behind what has become of it."""
        summary = row.summary
        how, by, progress = (summary.get(name) for name in ("how", "by", "progress"))
        state: State = summary["state"] if summary.get("state") in get_args(State) else "lost"
        survivors = [each.get("pid") for each in summary.get("survivors") or () if isinstance(each, dict)]
        return cls(
            id=row.id,
            state=state,
            how=how if isinstance(how, dict) else None,
            by=by if by in get_args(By) else None,
            why=summary.get("why"),
            survivors=[pid for pid in survivors if isinstance(pid, int)],
            survivors_more=summary.get("survivors_more") or 0,
            command=list(summary.get("command") or ()),
            cwd=summary.get("cwd") or "",
            session=summary.get("session"),
            group=summary.get("group"),
            key=summary.get("task_key"),
            keep=bool(summary.get("keep")),
            pid=summary.get("pid"),
            requested=summary.get("requested") or 0,
            started=summary.get("started"),
            ended=summary.get("ended"),
            output_bytes=summary.get("output_bytes") or 0,
            output=summary.get("output"),
            progress=progress if isinstance(progress, dict) else None,
            position=row.position,
        )

    @property
    def is_over(self) -> bool:
        """Say whether it has ended, or is lost; what it left behind may live."""
        return self.state not in LIVE

    @property
    def code(self) -> int | None:
        """The exit code; None without one: it goes on, a signal ended it, it never began, or nobody knows."""
        return (self.how or {}).get("code")
