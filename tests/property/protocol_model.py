"""An explicit-state model of the append protocol: how a line that was acknowledged stays stored, once, in order.

One stream, two clients, two places for a writer; everything the protocol says about a batch, a grant and an opening,
and everything that may go wrong between two of its steps. A journal's cell is a batch, and a batch holds one run of the
stream: a grant (a run without lines) or the lines of one epoch. The page cache and the disk are two journals; what is
in the first alone is dirty.

The story begins with one batch that is stored and acknowledged: client 0 owns the stream under epoch 1 and has begun a
turn. It wants to append ``a1`` and ``a2``; client 1 takes the stream over, closes the turn and wants to append ``b1``.
A client keeps what is not acknowledged and sends it again, split or merged at will, with one message under way on its
connection; what it sent on connections that are gone may still arrive, early or late, but no answer to it is heard.

``Rules`` has a switch for each rule: with all of them on no world that ``explore`` reaches breaks an ``Invariant``;
with any one off, a trace of fewer than twenty steps does. A power cut is not a step: its every outcome is judged in
every world (``_power_cuts``).

What it leaves out: other streams and the positions they share, segments, refusals that have no part in the order of
things (too large, not JSON), and the life after a power cut, which begins with the journal alone. With the lock there
is one writer at a time, so the second place is used only without it. That nothing is stuck is judged by there being a
step to take, not by one being taken.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeVar

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


# The journal: facts that follow from its cells alone.


def _good_cells(journal: Journal) -> int:
    """Count the good batches before the first bad or unwritten one."""
    return next((number for number, cell in enumerate(journal) if not isinstance(cell, Run)), len(journal))


@lru_cache(JOURNALS_REMEMBERED)
def _events(journal: Journal) -> tuple[Event, ...]:
    """Return the events of the journal's good beginning, in the order of its batches."""
    return tuple(
        Event(cell.epoch, cell.first + offset, line)
        for cell in itertools.takewhile(lambda cell: isinstance(cell, Run), journal)
        if isinstance(cell, Run)
        for offset, line in enumerate(cell.lines)
    )


@lru_cache(JOURNALS_REMEMBERED)
def _lines(journal: Journal) -> frozenset[tuple[int, str]]:
    """Return the lines of the journal's good beginning, each with its epoch."""
    return frozenset((event.epoch, event.line) for event in _events(journal))


@lru_cache(JOURNALS_REMEMBERED)
def _epoch(journal: Journal) -> int:
    """Return the stream's epoch: the greatest of its runs."""
    return max((cell.epoch for cell in journal[: _good_cells(journal)] if isinstance(cell, Run)), default=0)


def _written(journal: Journal, number: int, cell: Cell) -> Journal:
    """Return the journal with a cell written, and no filling behind its last batch."""
    cells = [*journal, *[None] * (number + 1 - len(journal))]
    cells[number] = cell
    while cells and cells[-1] is None:
        cells.pop()
    return tuple(cells)


def _cell(journal: Journal, number: int) -> Cell:
    """Return a cell, which is filling behind the journal's end."""
    return journal[number] if number < len(journal) else None


def _synced(world: World) -> Journal:
    """Return the disk after a sync that did its work."""
    disk = world.disk
    for number in world.dirty:
        disk = _written(disk, number, _cell(world.cache, number))
    return disk


@lru_cache(JOURNALS_REMEMBERED)
def _power_cuts(cache: Journal, disk: Journal, dirty: frozenset[int]) -> tuple[Journal, ...]:
    """Return what a power cut may leave: each dirty cell as it was, as it should be, or, if those differ, torn."""
    outcomes = [disk]
    for number in dirty:
        was, should_be = _cell(disk, number), _cell(cache, number)
        if was != should_be:
            outcomes = [_written(outcome, number, cell) for outcome in outcomes for cell in (was, should_be, TORN)]
    return tuple(outcomes)


@lru_cache(JOURNALS_REMEMBERED)
def _survivors(cache: Journal, disk: Journal, dirty: frozenset[int]) -> frozenset[tuple[int, str]]:
    """Return the lines that every outcome of a power cut has, each with its epoch."""
    return frozenset.intersection(*(_lines(outcome) for outcome in _power_cuts(cache, disk, dirty)))


def closing(events: Sequence[Event], closer: str, rules: Rules) -> str | None:
    """Return the line that closes the turn which these events leave open, or None if they leave none."""
    if any(event.line.startswith("closing") for event in events):
        return None
    line = f"closing after {len(events)}"
    return line if rules.deterministic_closings else f"{line} by {closer}"


# The invariants. One that breaks is a defect of the rules.


@lru_cache(JOURNALS_REMEMBERED)
def _exactly_once_in_order(cache: Journal) -> bool:
    events = _events(cache)
    numbered = all(event.seq == seq for seq, event in enumerate(events))
    return numbered and len({event.line for event in events}) == len(events)


def _acknowledged_to_its_epoch(world: World) -> bool:
    missing = world.acknowledged - _lines(world.cache)
    return not missing or not {line for _, line in missing} & {line for _, line in _lines(world.cache)}


def _acknowledged_is_durable(world: World) -> bool:
    return world.acknowledged <= _survivors(world.cache, world.disk, world.dirty)


@lru_cache(JOURNALS_REMEMBERED)
def _no_false_damage(cache: Journal, disk: Journal, dirty: frozenset[int]) -> bool:
    return not any(
        isinstance(cell, Run) for outcome in _power_cuts(cache, disk, dirty) for cell in outcome[_good_cells(outcome) :]
    )


def _acknowledged_is_readable(world: World) -> bool:
    return world.indexed is None or world.acknowledged <= _lines(world.cache[: world.indexed.cells])


def _refused_is_not_stored(world: World) -> bool:
    stored = _lines(world.cache)
    if not world.refused.isdisjoint(stored):
        return False
    return not any(
        (answer.epoch, line) in stored
        for writer in world.writers
        for answer in writer.answers
        if answer.verdict is Verdict.FULL
        for line in answer.lines[answer.stored :]
    )


def _fenced_stays_out(world: World) -> bool:
    return not any(
        event.epoch < epoch and event.seq >= head for epoch, head in world.granted for event in _events(world.cache)
    )


@lru_cache(JOURNALS_REMEMBERED)
def _closed_once(cache: Journal) -> bool:
    return sum(event.line.startswith("closing") for event in _events(cache)) <= 1


def _closed_as_shown(world: World) -> bool:
    shown = world.shown
    return shown is None or not any(
        event.seq == shown.seq and event.line.startswith("closing") and event.line != shown.line
        for event in _events(world.cache)
    )


def _refused_for_a_reason(world: World) -> bool:
    return all(client.phase is not Phase.MISLED for client in world.clients)


INVARIANTS: Final[tuple[tuple[Invariant, Callable[[World], bool]], ...]] = (
    (Invariant.TURN_CLOSED_ONCE, lambda world: _closed_once(world.cache)),
    (Invariant.EXACTLY_ONCE_IN_ORDER, lambda world: _exactly_once_in_order(world.cache)),
    (Invariant.ACKNOWLEDGED_TO_ITS_EPOCH, _acknowledged_to_its_epoch),
    (Invariant.ACKNOWLEDGED_IS_DURABLE, _acknowledged_is_durable),
    (Invariant.NO_FALSE_DAMAGE, lambda world: _no_false_damage(world.cache, world.disk, world.dirty)),
    (Invariant.ACKNOWLEDGED_IS_READABLE, _acknowledged_is_readable),
    (Invariant.REFUSED_IS_NOT_STORED, _refused_is_not_stored),
    (Invariant.FENCED_STAYS_OUT, _fenced_stays_out),
    (Invariant.CLOSED_AS_SHOWN, _closed_as_shown),
    (Invariant.REFUSED_FOR_A_REASON, _refused_for_a_reason),
)
"""All but ``NEVER_STUCK``, which needs the rules, in the order in which a world that breaks several is blamed."""


def violation(world: World, rules: Rules, ignored: frozenset[Invariant] = frozenset()) -> Invariant | None:
    """Return the first invariant that this world breaks and that isn't ignored, or None."""
    for invariant, holds in INVARIANTS:
        if not holds(world) and invariant not in ignored:
            return invariant
    return Invariant.NEVER_STUCK if _stuck(world, rules) and Invariant.NEVER_STUCK not in ignored else None


def _stuck(world: World, rules: Rules) -> bool:
    pending = any(client.waiting or client.unacknowledged or client.phase is Phase.ASKING for client in world.clients)
    return pending and not any(step.voluntary for step in successors(world, rules))


# What happens: small changes that several steps share.


Member = TypeVar("Member")


def _replaced(members: tuple[Member, ...], number: int, member: Member) -> tuple[Member, ...]:
    return (*members[:number], member, *members[number + 1 :])


def _with_writer(world: World, number: int, writer: Writer) -> World:
    return world._replace(writers=_replaced(world.writers, number, writer))


def _with_client(world: World, number: int, client: Client) -> World:
    return world._replace(clients=_replaced(world.clients, number, client))


def _spent(world: World, what: str) -> World:
    """Return the world with one less of this in its budget."""
    return world._replace(budget=world.budget._replace(**{what: getattr(world.budget, what) - 1}))


def _ended(world: World, number: int) -> World:
    """Return the world after a writer's death: the kernel frees the lock and ends the connections."""
    return world._replace(
        lock=None if world.lock == number else world.lock,
        writers=_replaced(world.writers, number, NO_WRITER),
        clients=tuple(
            client._replace(connection=None, waiting=False) if client.connection == number else client
            for client in world.clients
        ),
    )


def _disconnected(world: World, number: int) -> World:
    """Return the world after a client's connection broke: what it sent may still be read, but no answer is heard."""
    client = world.clients[number]
    if client.connection is None:
        return world
    writer = world.writers[client.connection]
    writer = writer._replace(
        queue=tuple(_unheard(message) if message.client == number else message for message in writer.queue),
        answers=tuple(answer._replace(heard=False) if answer.client == number else answer for answer in writer.answers),
    )
    world = _with_writer(world, client.connection, writer)
    return _with_client(world, number, client._replace(connection=None, waiting=False))


def _unheard(message: Message) -> Message:
    return message._replace(heard=False)


# Opening: cut the tail and rewrite the last batch, sync, index. The writer may be killed after each.


def _rewrites(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Overwrite the torn tail with filling and write the last good batch again, the same bytes in place."""
    good = _good_cells(world.cache)
    end = good if rules.torn_tail_is_cut else len(world.cache)
    dirty = world.dirty | set(range(end, len(world.cache)))
    if rules.rewrite_on_open and good:
        dirty |= {good - 1}
    opened = world._replace(cache=world.cache[:end], dirty=dirty)
    writer = world.writers[number]._replace(stage=Stage.REWRITTEN, end=end)
    yield Step(f"writer {number} opens behind batch {end - 1}", _with_writer(opened, number, writer), True)


def _settles(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Sync what opening wrote."""
    settled = _with_writer(world, number, world.writers[number]._replace(stage=Stage.SETTLED))
    if not rules.sync_on_open:
        yield Step(f"writer {number} leaves what it found to the next sync", settled, True)
        return
    yield Step(f"writer {number} syncs what it found", settled._replace(disk=_synced(world), dirty=frozenset()), True)
    if world.budget.failed_syncs:
        broken = _spent(_ended(world, number), "failed_syncs")._replace(dirty=frozenset())
        yield Step(f"writer {number} fails to sync what it found and ends", broken, False)


def _serves(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Index what was found and serve: the head is the journal's, the epoch the greater of journal's and index's."""
    writer = world.writers[number]
    epoch = max(_epoch(world.cache), 0 if world.indexed is None else world.indexed.epoch)
    serving = writer._replace(stage=Stage.SERVING, head=len(_events(world.cache)), epoch=epoch)
    indexed = world._replace(indexed=Index(writer.end, epoch))
    yield Step(f"writer {number} indexes what it found and serves", _with_writer(indexed, number, serving), True)
    if world.budget.failed_index_transactions:
        broken = _spent(_ended(world, number), "failed_index_transactions")
        yield Step(f"writer {number} fails to index what it found and ends", broken, False)


# Commit: judge, write, sync, index, answer.


class Judgement(NamedTuple):
    """What becomes of a batch's messages: the run to write, if any, the epoch after it, and what waits for the next."""

    run: Run | None
    epoch: int
    answers: tuple[Answer, ...]
    waiting: tuple[Message, ...]


def judge(
    journal: Journal, writer: Writer, messages: tuple[Message, ...], rules: Rules, full: bool = False
) -> Judgement:
    """Judge messages in order, within the batch being built, or, if the disk is ``full``, without writing anything.

    A batch has one run of the stream, so a grant, or lines of another epoch than the run's, wait for the next batch,
    and what came after them waits too.
    """
    head, epoch = writer.head, writer.epoch
    indexed = (event for event in _events(journal[: writer.end]) if event.seq < head)
    stored = {event.seq: (event.epoch, event.line) for event in indexed}
    run: Run | None = None
    answers: list[Answer] = []
    for number, message in enumerate(messages):
        verdict, known = (None, 0) if isinstance(message, Ask) else _judge_append(message, stored, head, epoch, rules)
        if verdict is None and full:
            verdict = Verdict.FULL
        if verdict is not None:
            answers.append(_answer(message, verdict, known))
            continue
        if run is not None and (isinstance(message, Ask) or message.epoch != run.epoch):
            return Judgement(run, epoch, tuple(answers), messages[number:])
        if isinstance(message, Ask):
            epoch += 1
            run = Run(epoch, head, ()) if rules.durable_grants else None
            answers.append(Answer(message.client, message.heard, Verdict.GRANTED, epoch, head, (), 0))
        else:
            fresh = message.lines[known:]
            stored.update((head + offset, (message.epoch, line)) for offset, line in enumerate(fresh))
            run = Run(message.epoch, head, fresh) if run is None else run._replace(lines=run.lines + fresh)
            head += len(fresh)
            answers.append(_answer(message, Verdict.ACKNOWLEDGED, len(message.lines)))
    return Judgement(run, epoch, tuple(answers), ())


def _answer(message: Message, verdict: Verdict, stored: int) -> Answer:
    """Return the answer to a message that is no grant."""
    if isinstance(message, Ask):
        return Answer(message.client, message.heard, verdict, 0, 0, (), 0)
    return Answer(message.client, message.heard, verdict, message.epoch, 0, message.lines, stored)


def _judge_append(
    message: Append, stored: dict[int, tuple[int, str]], head: int, epoch: int, rules: Rules
) -> tuple[Verdict | None, int]:
    """Return the verdict on an append, None if its lines are to be written, and how many of them are stored."""
    known = 0
    fenced = message.epoch != epoch and rules.fencing
    if rules.recognition:
        for seq, line in enumerate(message.lines, message.first):
            there = stored.get(seq)
            if there is None or there[1] != line or (rules.recognition_compares_epochs and there[0] != message.epoch):
                break
            known += 1
    if known == len(message.lines) and (rules.recognition_before_fencing or not fenced):
        return Verdict.ACKNOWLEDGED, known
    told = known if rules.refusals_say_what_is_stored and rules.recognition_before_fencing else 0
    if fenced:
        return Verdict.FENCED, told
    if message.first + known != head:
        return Verdict.CONFLICT, told
    return None, known


def _takes(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Take the queue: all of it, or without what comes late on connections that are gone."""
    queue = world.writers[number].queue
    if not queue:
        return
    yield from _takes_messages(world, number, queue, (), rules)
    heard = tuple(message for message in queue if message.heard)
    if heard and len(heard) < len(queue):
        late = tuple(message for message in queue if not message.heard)
        yield from _takes_messages(world, number, heard, late, rules)


def _takes_messages(
    world: World, number: int, messages: tuple[Message, ...], late: tuple[Message, ...], rules: Rules
) -> Iterator[Step]:
    """Judge these messages and write the batch, if there is anything to write."""
    writer = world.writers[number]
    judgement = judge(world.cache, writer, messages, rules)
    run, epoch, answers, waiting = judgement
    taken = f"{len(messages) - len(waiting)} of {len(messages) + len(late)} messages" + (", some late" if late else "")
    if run is None:
        answering = writer._replace(stage=Stage.INDEXED, epoch=epoch, answers=answers, queue=late + waiting)
        index = world.indexed and world.indexed._replace(epoch=max(world.indexed.epoch, epoch))
        quiet = _with_writer(world, number, answering)._replace(indexed=index)
        yield Step(f"writer {number} has nothing to write for {taken}", quiet, True)
        return
    run = run._replace(writer=number)
    what = f"batch {writer.end} for {taken}: epoch {run.epoch}, {', '.join(run.lines) or 'granted'}"
    dirty = world.dirty | {writer.end}
    writing = writer._replace(stage=Stage.WRITTEN, batch=run, answers=answers, queue=late + waiting)
    written = world._replace(cache=_written(world.cache, writer.end, run), dirty=dirty)
    yield Step(f"writer {number} writes {what}", _with_writer(written, number, writing), True)
    if world.budget.torn_writes:
        torn = _spent(_ended(world, number), "torn_writes")
        torn = torn._replace(cache=_written(world.cache, writer.end, TORN), dirty=dirty)
        yield Step(f"writer {number} is killed while it writes {what}", torn, False)
    if world.budget.full_disks:
        judged = messages[: len(messages) - len(waiting)]
        refusing = _refuses_for_space(world.cache, writer, judged, judgement, rules)
        full = _with_writer(world, number, refusing._replace(stage=Stage.INDEXED, queue=late + waiting))
        yield Step(f"writer {number} has no space for {what}", _spent(full, "full_disks"), False)


def _refuses_for_space(
    journal: Journal, writer: Writer, messages: tuple[Message, ...], unwritten: Judgement, rules: Rules
) -> Writer:
    """Return the writer with its answers to the messages of a batch for which there is no space."""
    if rules.full_disk_judges_again:
        answers = judge(journal, writer, messages, rules, full=True).answers
    else:
        refusals = (Verdict.FENCED, Verdict.CONFLICT)
        answers = tuple(
            answer if answer.verdict in refusals else _as_full(answer, journal, writer) for answer in unwritten.answers
        )
    if rules.full_disk_leaves_heads or unwritten.run is None:
        return writer._replace(answers=answers)
    return writer._replace(answers=answers, head=unwritten.run.head, epoch=unwritten.run.epoch)


def _as_full(answer: Answer, journal: Journal, writer: Writer) -> Answer:
    """Return what a message whose batch was not written is told: FULL, with the number of its lines that are stored."""
    stored = _lines(journal[: writer.end])
    known = sum(1 for _ in itertools.takewhile(lambda line: (answer.epoch, line) in stored, answer.lines))
    return answer._replace(verdict=Verdict.FULL, stored=known)


def _syncs(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Sync the batch. A failed sync leaves the disk as it was and its pages marked clean."""
    writer = world.writers[number]
    synced = _with_writer(world, number, writer._replace(stage=Stage.SYNCED))
    yield Step(f"writer {number} syncs", synced._replace(disk=_synced(world), dirty=frozenset()), True)
    if not rules.sync_before_answers and writer.answers:
        yield Step(f"writer {number} answers before the sync", _answered(world, number, rules), True)
    if not world.budget.failed_syncs:
        return
    broken = _spent(world, "failed_syncs")._replace(dirty=frozenset())
    if rules.failed_sync_ends_the_writer:
        yield Step(f"writer {number} fails to sync and ends", _ended(broken, number), False)
    else:
        yield Step(f"writer {number} fails to sync and will try again", broken, False)


def _indexes(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Index the batch; with it the writer's head and epoch move."""
    writer = world.writers[number]
    assert writer.batch is not None
    end, head, epoch = writer.end + 1, writer.batch.head, max(writer.epoch, writer.batch.epoch)
    moved = writer._replace(stage=Stage.INDEXED, end=end, head=head, epoch=epoch, batch=None)
    yield Step(f"writer {number} indexes", _with_writer(world, number, moved)._replace(indexed=Index(end, epoch)), True)
    if not rules.index_before_answers and writer.answers:
        yield Step(f"writer {number} answers before the index", _answered(world, number, rules), True)
    if not world.budget.failed_index_transactions:
        return
    if rules.failed_index_transaction is FailedIndexTransaction.ENDS_THE_WRITER:
        broken = _spent(_ended(world, number), "failed_index_transactions")
        yield Step(f"writer {number} fails to index and ends", broken, False)
        return
    full = rules.failed_index_transaction is FailedIndexTransaction.ANSWERED_AS_FULL
    verdict = Verdict.FULL if full else Verdict.UNKNOWN
    answers = tuple(answer._replace(verdict=verdict, stored=0) for answer in writer.answers)
    going_on = writer._replace(stage=Stage.INDEXED, end=end, batch=None, answers=answers)
    broken = _spent(_with_writer(world, number, going_on), "failed_index_transactions")
    yield Step(f"writer {number} fails to index and goes on", broken, False)


def _answers(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Answer what the batch took, then serve the next."""
    answered = _answered(world, number, rules)
    serving = answered.writers[number]._replace(stage=Stage.SERVING)
    yield Step(f"writer {number} answers", _with_writer(answered, number, serving), True)


def _answered(world: World, number: int, rules: Rules) -> World:
    """Return the world after a writer's answers arrived at the clients that hear them."""
    answers = world.writers[number].answers
    world = _with_writer(world, number, world.writers[number]._replace(answers=()))
    for answer in answers:
        if answer.heard:
            world = _heard(world, answer, rules)
    return world


def _heard(world: World, answer: Answer, rules: Rules) -> World:
    """Return the world after a client heard an answer: what it keeps, drops and believes now."""
    client = world.clients[answer.client]._replace(waiting=False)
    if answer.verdict is Verdict.GRANTED:
        client = client._replace(phase=Phase.OWNER, epoch=answer.epoch, cursor=answer.head)
        if rules.closings_follow_the_grant:
            line = closing(_events(world.cache)[: answer.head], f"client {answer.client}", rules)
            client = client._replace(unacknowledged=() if line is None else (line,))
        world = world._replace(granted=world.granted | {(answer.epoch, answer.head)})
        return _with_client(world, answer.client, client)
    acknowledged = world.acknowledged | {(answer.epoch, line) for line in answer.lines[: answer.stored]}
    kept = client.unacknowledged[answer.stored :]
    client = client._replace(cursor=client.cursor + answer.stored, unacknowledged=kept)
    refused = world.refused
    if answer.verdict in (Verdict.FENCED, Verdict.CONFLICT):
        refused |= {(answer.epoch, line) for line in kept}
        epoch = max(_epoch(world.cache), 0 if world.indexed is None else world.indexed.epoch)
        misled = answer.verdict is Verdict.CONFLICT or epoch <= answer.epoch
        client = client._replace(phase=Phase.MISLED if misled else Phase.FENCED, epoch=0, cursor=0, unacknowledged=())
    return _with_client(world._replace(acknowledged=acknowledged, refused=refused), answer.client, client)


STAGES: Final[dict[Stage, Callable[[World, int, Rules], Iterator[Step]]]] = {
    Stage.STARTED: _rewrites,
    Stage.REWRITTEN: _settles,
    Stage.SETTLED: _serves,
    Stage.SERVING: _takes,
    Stage.WRITTEN: _syncs,
    Stage.SYNCED: _indexes,
    Stage.INDEXED: _answers,
}


# Who else takes steps: the node, the clients, and the world around them.


def _node_steps(world: World, rules: Rules) -> Iterator[Step]:
    """Start a writer when the lock is free (without that rule: when none seems alive); kill one that hangs."""
    if rules.lock:
        may_start = world.lock is None
    else:
        may_start = all(writer.stage is Stage.OFF or writer.stopped for writer in world.writers)
    place = next((number for number, writer in enumerate(world.writers) if writer.stage is Stage.OFF), None)
    if may_start and place is not None:
        started = _with_writer(world, place, Writer(Stage.STARTED))._replace(lock=place)
        yield Step(f"the node starts writer {place}", started, True)
    for number, writer in enumerate(world.writers):
        if writer.stopped and rules.lock and rules.hung_writer_is_killed:
            yield Step(f"the node kills writer {number}, which hangs", _ended(world, number), True)


def _client_steps(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Connect, ask for the stream, send what is not acknowledged; give up on a writer that hangs."""
    client = world.clients[number]
    if client.connection is None:
        for place, writer in enumerate(world.writers):
            if writer.stage in (Stage.SERVING, Stage.WRITTEN, Stage.SYNCED, Stage.INDEXED) and not writer.stopped:
                connected = _with_client(world, number, client._replace(connection=place))
                yield Step(f"client {number} connects to writer {place}", connected, True)
        return
    if client.waiting:
        if world.writers[client.connection].stopped:
            yield Step(f"client {number} gives up on writer {client.connection}", _disconnected(world, number), True)
        return
    if client.phase is Phase.ASKING:
        yield Step(f"client {number} asks again", _asked(world, number, rules), True)
    elif client.phase in (Phase.NONE, Phase.FENCED) and world.budget.takeovers:
        yield Step(f"client {number} asks for the stream", _spent(_asked(world, number, rules), "takeovers"), False)
    elif client.phase is Phase.OWNER:
        yield from _sends(world, number, client, client.connection)


def _asked(world: World, number: int, rules: Rules) -> World:
    """Return the world after a client asked its writer for the stream."""
    client = world.clients[number]
    assert client.connection is not None
    asking = client._replace(phase=Phase.ASKING, waiting=True)
    if not rules.closings_follow_the_grant and client.phase is not Phase.ASKING:
        cells = len(world.cache) if world.indexed is None else world.indexed.cells
        line = closing(_events(world.cache[:cells]), f"client {number}", rules)
        asking = asking._replace(unacknowledged=() if line is None else (line,))
    writer = world.writers[client.connection]
    queued = writer._replace(queue=(*writer.queue, Ask(number, heard=True)))
    return _with_client(_with_writer(world, client.connection, queued), number, asking)


def _sends(world: World, number: int, client: Client, connection: int) -> Iterator[Step]:
    """Send what is not acknowledged and what the plan has next, as many lines as one likes from the first on."""
    fresh = PLANS[number][client.planned :]
    lines = client.unacknowledged + fresh
    kept = len(client.unacknowledged)
    writer = world.writers[connection]
    for count in range(1, len(lines) + 1):
        message = Append(number, True, client.epoch, client.cursor, lines[:count])
        sending = client._replace(
            unacknowledged=lines[: max(count, kept)], planned=client.planned + max(count - kept, 0), waiting=True
        )
        sent = _with_writer(world, connection, writer._replace(queue=(*writer.queue, message)))
        label = f"client {number} sends {', '.join(message.lines)} at {message.first} under epoch {message.epoch}"
        yield Step(label, _with_client(sent, number, sending), True)


def _accidents(world: World, rules: Rules) -> Iterator[Step]:
    """Kill, stop, continue and cut off as the budget allows; lose an index that nobody has open; let a reader look."""
    budget = world.budget
    for number, writer in enumerate(world.writers):
        if writer.stage is not Stage.OFF and budget.kills:
            yield Step(f"writer {number} is killed when {writer.stage}", _spent(_ended(world, number), "kills"), False)
        if writer.stage is not Stage.OFF and not writer.stopped and budget.stops:
            stopped = _with_writer(world, number, writer._replace(stopped=True))
            yield Step(f"writer {number} is stopped when {writer.stage}", _spent(stopped, "stops"), False)
        if writer.stopped:
            continued = _with_writer(world, number, writer._replace(stopped=False))
            yield Step(f"writer {number} is continued", continued, False)
    if budget.lost_indexes and world.indexed is not None and all(writer.stage is Stage.OFF for writer in world.writers):
        yield Step("the index is lost", _spent(world, "lost_indexes")._replace(indexed=None), False)
    for number, client in enumerate(world.clients):
        if client.connection is not None and budget.lost_connections:
            lost = _spent(_disconnected(world, number), "lost_connections")
            yield Step(f"client {number} loses its connection", lost, False)
        if client.phase in (Phase.ASKING, Phase.OWNER) and budget.killed_hosts:
            fresh = Client(Phase.NONE, planned=client.planned)
            killed = _spent(_with_client(_disconnected(world, number), number, fresh), "killed_hosts")
            yield Step(f"client {number}'s host is killed, and another begins", killed, False)
    yield from _looks(world, rules)


def _looks(world: World, rules: Rules) -> Iterator[Step]:
    """Show a reader the closed form of a turn whose owner is gone. Nothing is written; the first look is remembered."""
    if world.shown is not None or any(client.phase in (Phase.ASKING, Phase.OWNER) for client in world.clients):
        return
    events = _events(world.cache if world.indexed is None else world.cache[: world.indexed.cells])
    line = closing(events, "a reader", rules)
    if line is not None:
        yield Step("a reader looks at the interrupted turn", world._replace(shown=Shown(len(events), line)), False)


def successors(world: World, rules: Rules) -> Iterator[Step]:
    """Yield everything that can happen next. Labels are unique within a world, so a trace of labels names one path."""
    for number, writer in enumerate(world.writers):
        if writer.stage is not Stage.OFF and not writer.stopped:
            yield from STAGES[writer.stage](world, number, rules)
    yield from _node_steps(world, rules)
    for number in range(len(world.clients)):
        yield from _client_steps(world, number, rules)
    yield from _accidents(world, rules)


# Walking: everywhere, or along a trace.


class CounterExample(NamedTuple):
    """A shortest way to a broken invariant."""

    invariant: Invariant
    trace: tuple[str, ...]
    world: World

    def __str__(self) -> str:
        steps = "\n".join(f"  {number:2} {label}" for number, label in enumerate(self.trace, 1))
        return f"broken: {self.invariant}\n{steps}\n{self.world}"


class Exploration(NamedTuple):
    """What a breadth-first walk saw. ``complete`` if there was nothing left to see."""

    worlds: dict[World, tuple[World, str] | None]
    complete: bool
    counter_example: CounterExample | None


def explore(first: World, rules: Rules, worlds_max: int, ignored: frozenset[Invariant] = frozenset()) -> Exploration:
    """Visit worlds breadth first until all are seen, ``worlds_max`` are, or an invariant that isn't ignored breaks."""
    worlds: dict[World, tuple[World, str] | None] = {first: None}
    ahead = deque([first])
    while ahead and len(worlds) < worlds_max:
        world = ahead.popleft()
        for step in successors(world, rules):
            if step.world in worlds:
                continue
            worlds[step.world] = (world, step.label)
            broken = violation(step.world, rules, ignored)
            if broken is not None:
                return Exploration(worlds, False, _counter_example(worlds, step.world, broken))
            ahead.append(step.world)
    return Exploration(worlds, not ahead, None)


def _counter_example(
    worlds: dict[World, tuple[World, str] | None], world: World, invariant: Invariant
) -> CounterExample:
    """Return the way that led to a world."""
    labels: list[str] = []
    here = world
    while (before := worlds[here]) is not None:
        here, label = before
        labels.append(label)
    return CounterExample(invariant, tuple(reversed(labels)), world)


def replay(first: World, trace: Iterable[str], rules: Rules) -> Iterator[World]:
    """Yield the worlds along a trace, the first one too.

    Raises:
        KeyError: a label of the trace names nothing that can happen there under these rules.
    """
    world = first
    yield world
    for label in trace:
        world = {step.label: step.world for step in successors(world, rules)}[label]
        yield world
