"""What the model speaks of: the rules, what may go wrong, and all that a world holds at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple

TURN_START: Final = "turn/start"
PLANS: Final = (("a1", "a2"), ("b1",))
"""What each client wants to append, besides the closing of a turn that it finds open."""

JOURNALS_REMEMBERED: Final = 2**16
"""How many journals' derived facts are kept, so that they aren't worked out again for each world that shares the
journal."""


class FailedIndexTransaction(StrEnum):
    """What becomes of a writer whose index transaction failed after the batch was synced."""

    ENDS_THE_WRITER = "ends the writer"
    ANSWERED_AS_FULL = "answered as full"
    GOES_ON = "goes on"


@dataclass(frozen=True)
class Rules:
    """The protocol's rules, each with what happens without it. All of them hold unless one is switched off."""

    lock: bool = True
    """A writer starts only with the store's lock, which the kernel frees at the old one's death. Without it a stopped
    writer that wakes overwrites what its successor acknowledged."""

    hung_writer_is_killed: bool = True
    """The node kills a writer that is stopped. Without it a stopped holder of the lock keeps everybody waiting for
    ever."""

    torn_tail_is_cut: bool = True
    """Opening overwrites a torn batch with filling, and the next batch takes its place. Without it what is written and
    acknowledged next lies behind a bad batch, where nobody looks for it."""

    rewrite_on_open: bool = True
    """Opening writes the last good batch again, in place. Without it a batch whose sync failed counts as clean: no
    later sync brings it to the disk, and its resend is acknowledged."""

    sync_on_open: bool = True
    """Opening syncs what it rewrote before it serves. Without it a resend of lines that only the page cache holds is
    acknowledged."""

    fencing: bool = True
    """An append under another epoch than the stream's is refused. Without it an owner that was taken over goes on
    appending."""

    durable_grants: bool = True
    """A grant is a run of the journal. In the index alone it goes with the index, and the fenced owner appends
    again."""

    recognition: bool = True
    """Lines that are stored already, byte for byte, are acknowledged as the first time. Without it a resend after a
    lost answer is told that what it stored is refused."""

    recognition_before_fencing: bool = True
    """Lines are recognised whatever the epoch is now. Without it an owner that was taken over after a lost answer is
    told that what it stored is refused."""

    recognition_compares_epochs: bool = True
    """Only lines of the same epoch are recognised. Without it a fenced owner's closing is acknowledged because its
    successor stored the same one."""

    refusals_say_what_is_stored: bool = True
    """A refusal says how many of the lines are stored. Without it a resend of which a part is stored is told that
    nothing is."""

    full_disk_leaves_heads: bool = True
    """Head and epoch move with the index transaction, not when a batch is put together. Without it a batch that met a
    full disk leaves a head that no line has, and its resend conflicts."""

    full_disk_judges_again: bool = True
    """When a batch meets a full disk, its messages are judged again by what is stored. Without it an owner is told that
    it is fenced by a grant that was never written."""

    failed_index_transaction: FailedIndexTransaction = FailedIndexTransaction.ENDS_THE_WRITER
    """The batch is stored, so its outcome is unknown to the clients and the writer ends. Answered as full it is a lie;
    a writer that goes on with the old head stores the resend a second time."""

    failed_sync_ends_the_writer: bool = True
    """A failed sync is not tried again: the kernel marks the pages clean, so the second one succeeds and nothing is on
    the disk."""

    sync_before_answers: bool = True
    """Answers follow the sync. Without it a power cut takes what was acknowledged."""

    index_before_answers: bool = True
    """Answers follow the index transaction. Without it a line is acknowledged that no reader finds."""

    deterministic_closings: bool = True
    """What closes an interrupted turn follows from the log alone. Without it a reader is shown one closing and another
    is stored."""

    closings_follow_the_grant: bool = True
    """Whether the turn is open is judged by the log up to the head that the grant names. Judged when the stream is
    asked for, it is closed a second time by the next owner."""


class Invariant(StrEnum):
    """What must hold in every world."""

    EXACTLY_ONCE_IN_ORDER = "the events are numbered from 0 without holes, and none is stored twice"
    ACKNOWLEDGED_TO_ITS_EPOCH = "a line is acknowledged under the epoch that stored it"
    ACKNOWLEDGED_IS_DURABLE = "an acknowledged line is there after a power cut at this moment"
    NO_FALSE_DAMAGE = "a power cut at this moment leaves no good batch behind a bad one"
    ACKNOWLEDGED_IS_READABLE = "an acknowledged line is in the index that readers are told of"
    REFUSED_IS_NOT_STORED = "a line that was refused is not stored"
    FENCED_STAYS_OUT = "after a grant was told, no line of an older epoch is stored at its head or above"
    TURN_CLOSED_ONCE = "a turn is closed at most once"
    CLOSED_AS_SHOWN = "the closing that a reader was shown is the one that is stored in its place"
    REFUSED_FOR_A_REASON = "a client that follows the rules meets no conflict, and is fenced only by a grant"
    NEVER_STUCK = "while a client waits for something, somebody can take a step of their own"


class Run(NamedTuple):
    """One batch's lines of the stream, or, without lines, a grant: ``first`` is the head before it.

    Batches of two writers differ in their bytes (their time) even where their lines are the same: a run has its writer.
    """

    epoch: int
    first: int
    lines: tuple[str, ...]
    writer: int = 0

    @property
    def head(self) -> int:
        """The head after it."""
        return self.first + len(self.lines)


TORN: Final = "torn"
Cell = Run | Literal["torn"] | None
"""A batch's place in the journal: a good batch, a bad one, or filling."""
Journal = tuple[Cell, ...]


class Event(NamedTuple):
    """One stored line."""

    epoch: int
    seq: int
    line: str


class Index(NamedTuple):
    """What the index knows: how many cells are in it, and the stream's epoch."""

    cells: int
    epoch: int


class Append(NamedTuple):
    """A client's message: these lines, at ``first``, under this epoch; ``heard`` while its connection lasts."""

    client: int
    heard: bool
    epoch: int
    first: int
    lines: tuple[str, ...]


class Ask(NamedTuple):
    """A client's message: let me own the stream, whoever owns it now."""

    client: int
    heard: bool


Message = Append | Ask


class Verdict(StrEnum):
    """What a writer answers."""

    GRANTED = "granted"
    ACKNOWLEDGED = "acknowledged"
    FENCED = "fenced"
    CONFLICT = "conflict"
    FULL = "full"
    UNKNOWN = "outcome unknown"


class Answer(NamedTuple):
    """A writer's answer to a message; ``stored`` counts its leading lines that are stored, ``head`` is a grant's."""

    client: int
    heard: bool
    verdict: Verdict
    epoch: int
    head: int
    lines: tuple[str, ...]
    stored: int


class Stage(StrEnum):
    """Where a writer is: the steps of opening, then those of a commit."""

    OFF = "off"
    STARTED = "started"
    REWRITTEN = "rewritten"
    SETTLED = "settled"
    SERVING = "serving"
    WRITTEN = "written"
    SYNCED = "synced"
    INDEXED = "indexed"


class Writer(NamedTuple):
    """A place for a writer. ``end``, ``head`` and ``epoch`` are its own idea of the journal and the stream."""

    stage: Stage
    stopped: bool = False
    end: int = 0
    head: int = 0
    epoch: int = 0
    batch: Run | None = None
    answers: tuple[Answer, ...] = ()
    queue: tuple[Message, ...] = ()


class Phase(StrEnum):
    """What a client believes of its ownership. ``MISLED`` was refused without a reason."""

    NONE = "none"
    ASKING = "asking"
    OWNER = "owner"
    FENCED = "fenced"
    MISLED = "misled"


class Client(NamedTuple):
    """A client: what it sent and keeps stands at ``cursor``; ``planned`` counts the lines of its plan sent so far."""

    phase: Phase
    epoch: int = 0
    cursor: int = 0
    unacknowledged: tuple[str, ...] = ()
    planned: int = 0
    connection: int | None = None
    waiting: bool = False


class Budget(NamedTuple):
    """How often each thing may still happen. Takeovers are no accident, but each makes an epoch, so they count too."""

    kills: int = 0
    stops: int = 0
    torn_writes: int = 0
    failed_syncs: int = 0
    failed_index_transactions: int = 0
    lost_indexes: int = 0
    full_disks: int = 0
    takeovers: int = 0
    lost_connections: int = 0
    killed_hosts: int = 0


class Shown(NamedTuple):
    """The closing that a reader was shown, and the seq at which the log ended for it."""

    seq: int
    line: str


class World(NamedTuple):
    """All there is: the journal twice, the index, the lock, who takes part, and what each was ever told."""

    cache: Journal
    disk: Journal
    dirty: frozenset[int]
    indexed: Index | None
    lock: int | None
    writers: tuple[Writer, ...]
    clients: tuple[Client, ...]
    acknowledged: frozenset[tuple[int, str]]
    refused: frozenset[tuple[int, str]]
    granted: frozenset[tuple[int, int]]
    shown: Shown | None
    budget: Budget


class Step(NamedTuple):
    """One thing that can happen; ``voluntary`` if the protocol itself does it, neither chance nor somebody's wish."""

    label: str
    world: World
    voluntary: bool


NO_WRITER: Final = Writer(Stage.OFF)


def first_world(budget: Budget) -> World:
    """Return the story's beginning: client 0 owns the stream and its turn is open, a writer serves, all is quiet."""
    journal: Journal = (Run(1, 0, (TURN_START,)),)
    return World(
        cache=journal,
        disk=journal,
        dirty=frozenset(),
        indexed=Index(1, 1),
        lock=0,
        writers=(Writer(Stage.SERVING, end=1, head=1, epoch=1), NO_WRITER),
        clients=(Client(Phase.OWNER, epoch=1, cursor=1, connection=0), Client(Phase.NONE, connection=0)),
        acknowledged=frozenset({(1, TURN_START)}),
        refused=frozenset(),
        granted=frozenset(),
        shown=None,
        budget=budget,
    )
