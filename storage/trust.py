"""index.json: which index may be opened at all, and a witness of what was acknowledged.

    {"directory": "index/<random>", "store": UUID, "boot": …, "dev": …, "ino": …, "gen": …, "state": "open" | "clean",
     "witness": {"batch": N, "h": "…", "position": next}}

An index is trusted if it is the very file that index.json names (device, inode and the inode's generation: a copy moved
back gets the same pair of numbers), for this store, and it was closed cleanly or the machine hasn't gone down since.
One that isn't trusted is neither opened nor mapped nor read: after a power cut LMDB's unsynced pages can kill the
process that maps them. The witness counts whatever becomes of the index: it was durable when it was written.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from .filesystem import FileSystem, read_whole_file
from .spare_files import rewrite_file

INDEX_FILE = "index.json"
_DIRECTORY = re.compile(r"index/[0-9a-f]+\Z")


@dataclass(frozen=True, slots=True)
class Witness:
    """A batch that was durable: its number and `h`, and the position that comes after it."""

    batch: int
    h: str
    position: int


@dataclass(frozen=True, slots=True)
class IndexRecord:
    """What index.json says."""

    directory: str
    store: str
    boot: str
    dev: int
    ino: int
    gen: int
    state: str
    witness: Witness | None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the index may be opened, why not, and what was acknowledged in any case."""

    trusted: bool
    why: str
    record: IndexRecord | None
    machine_went_down: bool

    @property
    def witness(self) -> Witness | None:
        """The batch known to have been durable."""
        return None if self.record is None else self.record.witness


def read_index_record(fs: FileSystem) -> IndexRecord | None:
    """Read index.json; None where it is missing or isn't one."""
    try:
        fields: dict[str, Any] = json.loads(read_whole_file(fs, INDEX_FILE))
        witness = fields["witness"]
        directory = str(fields["directory"])
        if not _DIRECTORY.match(directory):
            return None
        return IndexRecord(
            directory=directory,
            store=str(fields["store"]),
            boot=str(fields["boot"]),
            dev=int(fields["dev"]),
            ino=int(fields["ino"]),
            gen=int(fields["gen"]),
            state=str(fields["state"]),
            witness=None
            if witness is None
            else Witness(int(witness["batch"]), str(witness["h"]), int(witness["position"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_index_record(fs: FileSystem, record: IndexRecord) -> None:
    """Replace index.json durably, also on a full disk. Raises OSError."""
    rewrite_file(fs, INDEX_FILE, json.dumps(asdict(record)).encode() + b"\n")


def record_of(
    fs: FileSystem, directory: str, store: str, boot: str, state: str, witness: Witness | None
) -> IndexRecord:
    """Describe the index in `directory` as it lies there now."""
    dev, ino, gen = fs.identity(f"{directory}/data.mdb")
    return IndexRecord(directory, store, boot, dev, ino, gen, state, witness)


def with_state(record: IndexRecord, state: str, boot: str, witness: Witness | None) -> IndexRecord:
    """Describe the same index in another state."""
    return replace(record, state=state, boot=boot, witness=witness or record.witness)


def judge_index(fs: FileSystem, store: str, boot: str, *, distrust: bool = False) -> Judgement:
    """Decide whether the index that index.json names may be opened.

    `distrust` is the supervisor's word that the last writer died of SIGBUS, SIGSEGV or SIGABRT.
    """
    record = read_index_record(fs)
    if record is None:
        return Judgement(False, "index.json is missing or damaged", None, False)
    if record.store != store:
        return Judgement(False, "it is another store's", None, False)
    went_down = record.boot != boot
    try:
        identity = fs.identity(f"{record.directory}/data.mdb")
    except OSError:
        identity = None
    if identity is None:
        why = "its files are missing"
    elif identity != (record.dev, record.ino, record.gen):
        why = "its file is a copy"
    elif record.state != "clean" and went_down:
        why = "the machine went down while it was open"
    elif distrust:
        why = "the last writer died of a memory fault"
    else:
        return Judgement(True, "", record, went_down)
    return Judgement(False, why, record, went_down)
