"""What whoever keeps events outlives, in words of what may die: none is compared without saying so.

SQLite's promise follows from two settings of a connection, so it is read from the connection that writes and never
taken for granted: a library's next release may set others.
"""

from __future__ import annotations

from typing import Final, NamedTuple

POWER_LOSS: Final = "a power loss"
"""Each event was on the disk before its flush returned, as ours are."""

NEARLY_POWER_LOSS: Final = "a power loss but for the last flush"
"""The files are sound afterwards, but what was acknowledged last may be undone."""

PROCESS_DEATH: Final = "the death of the process, no power loss"
"""The system has the bytes when a flush returns, and writes them to the disk when it likes."""

_SYNCHRONOUS: Final = ("OFF", "NORMAL", "FULL", "EXTRA")


class Durability(NamedTuple):
    """What events outlive, and the settings which say so."""

    survives: str
    settings: str


def our_survival(durability: str) -> str:
    """Say what events of a store of ours outlive, whoever keeps it."""
    return PROCESS_DEATH if durability == "os" else POWER_LOSS


def sqlite_durability(journal_mode: str, synchronous: int) -> Durability:
    """Say what a transaction outlives with these settings (sqlite.org/pragma.html).

    A write-ahead log is synced at each commit from FULL on. A rollback journal's file is removed by the commit, and
    only EXTRA syncs the directory behind that: else a power loss may bring the journal back, and undo the transaction.
    """
    mode = journal_mode.lower()
    settings = f"journal_mode={mode}, synchronous={_SYNCHRONOUS[synchronous]}"
    if (mode == "wal" and synchronous >= 2) or (mode == "delete" and synchronous == 3):
        return Durability(POWER_LOSS, settings)
    if mode == "delete" and synchronous == 2:
        return Durability(NEARLY_POWER_LOSS, settings)
    return Durability(PROCESS_DEATH, settings)
