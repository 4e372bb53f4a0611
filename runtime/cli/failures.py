"""What a command ends with when it can't do its work: one line for people, one object for scripts, one exit code.

Every exception goes through `failure_of`, which alone knows what is whose fault. The kinds and exit codes are a promise
to scripts: a new cause of failure gets a kind here, never a code of its own.
"""

from __future__ import annotations

import os
from typing import Any, Final

import click

from turnkeeper.actors import errors
from turnkeeper.storage.errors import StorageError
from turnkeeper.storage.full_disk import NO_SPACE, lacks_space

EXIT_CODES: Final = {
    "failed": 1,
    "internal": 1,
    "refused": 1,
    "newer_format": 1,
    "version_mismatch": 1,
    "not_answering": 1,
    "exists": 1,
    "conflict": 1,
    "invalid_fork": 1,
    "turn_open": 1,
    "fenced": 1,
    "too_large": 1,
    "invalid_value": 1,
    "critical_types": 1,
    "usage": 2,
    "invalid_line": 2,
    "invalid_input": 2,
    "task_refused": 2,
    "not_found": 3,
    "deleted": 3,
    "ambiguous": 3,
    "wrong_kind": 3,
    "store_missing": 3,
    "blob_missing": 3,
    "position_lost": 3,
    "not_served": 3,
    "busy": 4,
    "damaged": 5,
    "store_full": 6,
}
"""Kind of failure, as `--json` names it, to the command's exit code."""

_KINDS: Final[dict[type[StorageError], str]] = {
    errors.Deleted: "deleted",
    errors.NotFound: "not_found",
    errors.Ambiguous: "ambiguous",
    errors.WrongKind: "wrong_kind",
    errors.StoreMissing: "store_missing",
    errors.BlobMissing: "blob_missing",
    errors.StoreRefused: "refused",
    errors.NewerFormat: "newer_format",
    errors.PositionLost: "position_lost",
    errors.VersionMismatch: "version_mismatch",
    errors.NodeNotAnswering: "not_answering",
    errors.SessionBusy: "busy",
    errors.AlreadyServed: "busy",
    errors.Exists: "exists",
    errors.InvalidFork: "invalid_fork",
    errors.TurnOpen: "turn_open",
    errors.Conflict: "conflict",
    errors.Fenced: "fenced",
    errors.TooLarge: "too_large",
    errors.InvalidValue: "invalid_value",
    errors.CriticalTypes: "critical_types",
    errors.TaskRefused: "task_refused",
    errors.Corrupt: "damaged",
    errors.StoreFull: "store_full",
}
"""Storage's and the runtime's errors; one that isn't listed is `failed`. Subclasses stand before what they extend."""

_NO_SPACE: Final = tuple(map(os.strerror, NO_SPACE))

TRACEBACK_VARIABLE: Final = "TURNKEEPER_TRACEBACK"


class Failure(Exception):
    """The end of a command that could not do its work: `what` happened, `where`, and what to do (`advice`).

    `fields` tell scripts what the line tells people. `told` means that the command has already given its result as
    JSON, and that the result says what is wrong.
    """

    def __init__(self, kind: str, what: str, where: str, advice: str, /, *, told: bool = False, **fields: Any) -> None:
        super().__init__(kind, what, where, advice)
        self.kind = kind
        self.exit_code = EXIT_CODES[kind]
        self.parts = (what, where, advice)
        self.told = told
        self.fields = fields

    @property
    def message(self) -> str:
        """The line for people: what, where, what to do."""
        return ": ".join(" ".join(part.split()) for part in self.parts if part)

    def as_map(self) -> dict[str, Any]:
        """Give it as scripts read it."""
        return {"error": {**self.fields, "kind": self.kind, "message": self.message}}


def failure_of(error: BaseException, store: str) -> Failure:
    """Translate whatever ended a command that worked on `store`."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, Failure):
        return error
    if isinstance(error, click.ClickException):
        return _of_usage_error(error)
    if isinstance(error, StorageError):
        return _of_storage_error(error, store)
    if isinstance(error, OSError):
        place = error.filename if isinstance(error.filename, str) else store
        kind = "store_full" if lacks_space(error) else "failed"
        return Failure(kind, error.strerror or str(error) or type(error).__name__, place, "", errno=error.errno)
    return _unexpected(error, store)


def _of_usage_error(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    path = "turnkeeper" if context is None else context.command_path
    return Failure("usage", error.format_message().rstrip("."), path, f"see {path} --help")


def _of_storage_error(error: StorageError, store: str) -> Failure:
    kind = next((kind for known, kind in _KINDS.items() if isinstance(error, known)), "failed")
    if isinstance(error, errors.StoreRefused) and any(reason in error.why for reason in _NO_SPACE):
        kind = "store_full"  # there was not even room to make or open it, so nobody could keep a reserve
    fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    return Failure(kind, *_wording(error, store), **fields)


def _wording(error: StorageError, store: str) -> tuple[str, str, str]:
    """Say what happened, where, and what to do about it from a command line."""
    match error:
        case errors.Deleted():
            return f"{error.wanted} is deleted", store, f"turnkeeper session undelete {error.wanted} brings it back"
        case errors.NotFound():
            return f"no session {error.wanted!r}", store, "turnkeeper session list shows those that are there"
        case errors.Ambiguous():
            return f"{error.wanted!r} begins several ids", store, f"give more of it: {', '.join(error.candidates)}"
        case errors.TaskRefused():
            why, _, advice = error.why.partition("; ")
            return f"{error.what} {why}", store, advice
        case errors.StoreRefused():
            what, _, advice = error.why.partition("; ")
            return what, error.path, advice or "choose another path, or mend this one"
        case errors.NewerFormat():
            what = f"written by a newer version (format {error.found}, this one knows {error.known})"
            return what, error.path, "upgrade turnkeeper"
        case errors.AlreadyServed():
            return f"process {error.pid} serves this store already", error.path, "end it first: turnkeeper stop"
        case errors.SessionBusy():
            owner = f"process {error.owner.get('pid')} on {error.owner.get('host')}"
            return f"{error.stream} is open in {owner}", store, "try again when it has closed the session"
        case errors.Corrupt():
            advice = f"turnkeeper session show {error.stream} prints the rest"
            return error.message().removesuffix("; the rest can be read"), store, advice
        case errors.StoreFull():
            what = f"no space ({error.free:,} bytes free, {error.needed:,} are kept in reserve)"
            return what, store, "make space and try again"
        case errors.Failed():
            return error.what, store, "whether it was stored is unknown; try again"
        case _:
            what, _, advice = error.message().rpartition("; ")
            return (what, store, advice) if what else (advice, store, "")


def _unexpected(error: BaseException, store: str) -> Failure:
    """Word what nobody foresaw: a defect of ours, which is told without a traceback unless one is asked for."""
    name = type(error).__name__
    if os.environ.get(TRACEBACK_VARIABLE):
        import traceback

        traceback.print_exception(error)
        return Failure("internal", f"unexpected {name}: {error}", store, "please report it", type=name)
    advice = f"please report it, with what {TRACEBACK_VARIABLE}=1 prints"
    return Failure("internal", f"unexpected {name}: {error}", store, advice, type=name)
