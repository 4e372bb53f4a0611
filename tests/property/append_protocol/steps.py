"""Everything that can happen next in a world of the model, by the protocol's rules and by accident."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from .journals import closing, epoch_of, events_of, good_cells, lines_of, synced_disk, with_cell
from .judging import Judgement, judge
from .worlds import (
    NO_WRITER,
    PLANS,
    TORN,
    Answer,
    Append,
    Ask,
    Client,
    FailedIndexTransaction,
    Index,
    Journal,
    Message,
    Phase,
    Rules,
    Shown,
    Stage,
    Step,
    Verdict,
    World,
    Writer,
)

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
    good = good_cells(world.cache)
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
    yield Step(
        f"writer {number} syncs what it found", settled._replace(disk=synced_disk(world), dirty=frozenset()), True
    )
    if world.budget.failed_syncs:
        broken = _spent(_ended(world, number), "failed_syncs")._replace(dirty=frozenset())
        yield Step(f"writer {number} fails to sync what it found and ends", broken, False)


def _serves(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Index what was found and serve: the head is the journal's, the epoch the greater of journal's and index's."""
    writer = world.writers[number]
    epoch = max(epoch_of(world.cache), 0 if world.indexed is None else world.indexed.epoch)
    serving = writer._replace(stage=Stage.SERVING, head=len(events_of(world.cache)), epoch=epoch)
    indexed = world._replace(indexed=Index(writer.end, epoch))
    yield Step(f"writer {number} indexes what it found and serves", _with_writer(indexed, number, serving), True)
    if world.budget.failed_index_transactions:
        broken = _spent(_ended(world, number), "failed_index_transactions")
        yield Step(f"writer {number} fails to index what it found and ends", broken, False)


# Commit: judge, write, sync, index, answer.


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
    written = world._replace(cache=with_cell(world.cache, writer.end, run), dirty=dirty)
    yield Step(f"writer {number} writes {what}", _with_writer(written, number, writing), True)
    if world.budget.torn_writes:
        torn = _spent(_ended(world, number), "torn_writes")
        torn = torn._replace(cache=with_cell(world.cache, writer.end, TORN), dirty=dirty)
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
    stored = lines_of(journal[: writer.end])
    known = sum(1 for _ in itertools.takewhile(lambda line: (answer.epoch, line) in stored, answer.lines))
    return answer._replace(verdict=Verdict.FULL, stored=known)


def _syncs(world: World, number: int, rules: Rules) -> Iterator[Step]:
    """Sync the batch. A failed sync leaves the disk as it was and its pages marked clean."""
    writer = world.writers[number]
    synced = _with_writer(world, number, writer._replace(stage=Stage.SYNCED))
    yield Step(f"writer {number} syncs", synced._replace(disk=synced_disk(world), dirty=frozenset()), True)
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
            line = closing(events_of(world.cache)[: answer.head], f"client {answer.client}", rules)
            client = client._replace(unacknowledged=() if line is None else (line,))
        world = world._replace(granted=world.granted | {(answer.epoch, answer.head)})
        return _with_client(world, answer.client, client)
    acknowledged = world.acknowledged | {(answer.epoch, line) for line in answer.lines[: answer.stored]}
    kept = client.unacknowledged[answer.stored :]
    client = client._replace(cursor=client.cursor + answer.stored, unacknowledged=kept)
    refused = world.refused
    if answer.verdict in (Verdict.FENCED, Verdict.CONFLICT):
        refused |= {(answer.epoch, line) for line in kept}
        epoch = max(epoch_of(world.cache), 0 if world.indexed is None else world.indexed.epoch)
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
        line = closing(events_of(world.cache[:cells]), f"client {number}", rules)
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
    events = events_of(world.cache if world.indexed is None else world.cache[: world.indexed.cells])
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
