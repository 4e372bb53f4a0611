"""What a writer of the model decides on the messages of one batch."""

from __future__ import annotations

from typing import NamedTuple

from .journals import events_of
from .worlds import Answer, Append, Ask, Journal, Message, Rules, Run, Verdict, Writer


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
    indexed = (event for event in events_of(journal[: writer.end]) if event.seq < head)
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
