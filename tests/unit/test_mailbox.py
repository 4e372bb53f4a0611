"""Contract of the mailbox: bounded in messages and bytes, in order, nothing dropped, nobody left waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from turnkeeper.runtime.errors import MessageTooLarge
from turnkeeper.runtime.mailbox import Mailbox, MailboxClosed, MailboxFull, MailboxStatistics

pytestmark = pytest.mark.anyio

DEADLINE_SECONDS = 10


@pytest.fixture
def full() -> Mailbox[int]:
    """A mailbox with room for two messages, which holds 1 and 2."""
    mailbox = Mailbox[int](messages_max=2)
    mailbox.put_nowait(1)
    mailbox.put_nowait(2)
    return mailbox


async def outcome(wait: Callable[[], Awaitable[Any]]) -> Any:
    """Return what the call returns, or the type of the mailbox's error that it raises; hang never."""
    with anyio.fail_after(DEADLINE_SECONDS):
        try:
            return await wait()
        except (MailboxClosed, MailboxFull) as error:
            return type(error)


async def test_messages_come_in_the_order_in_which_they_were_put() -> None:
    """First in, first out, whether the sender waits or not."""
    mailbox = Mailbox[int]()
    for number in range(6):
        if number % 2:
            mailbox.put_nowait(number)
        else:
            await mailbox.put(number)
    assert [await mailbox.get() for _ in range(6)] == list(range(6))


async def test_a_full_mailbox_makes_its_senders_wait_in_their_order(full: Mailbox[int]) -> None:
    """Senders beyond the bound wait and get in one by one, first come first served."""
    async with anyio.create_task_group() as group:
        for number in (3, 4, 5):
            group.start_soon(full.put, number)
            await anyio.wait_all_tasks_blocked()
        assert full.statistics() == MailboxStatistics(messages=2, bytes=0, senders_waiting=3)
        assert [await full.get() for _ in range(5)] == [1, 2, 3, 4, 5]


async def test_a_sender_that_does_not_wait_is_refused(full: Mailbox[int]) -> None:
    """put_nowait on a full mailbox raises and changes nothing."""
    with pytest.raises(MailboxFull):
        full.put_nowait(3)
    assert full.statistics().messages == 2


async def test_nobody_overtakes_who_waits() -> None:
    """A small message does not pass a large one that waits for room."""
    mailbox = Mailbox[str](bytes_max=10)
    await mailbox.put("six", 6)
    async with anyio.create_task_group() as group:
        group.start_soon(mailbox.put, "five", 5)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(MailboxFull):
            mailbox.put_nowait("one", 1)
        assert await mailbox.get() == "six"
    assert await mailbox.get() == "five"


async def test_bytes_are_bounded_as_messages_are() -> None:
    """The sum of sizes never passes the bound; a message larger than all of it is refused at once."""
    mailbox = Mailbox[str](bytes_max=10)
    mailbox.put_nowait("ten", 10)
    mailbox.put_nowait("nothing", 0)
    with pytest.raises(MailboxFull):
        mailbox.put_nowait("one", 1)
    with pytest.raises(MessageTooLarge, match="a message of 11 bytes is over its mailbox's limit of 10: see bytes_max"):
        mailbox.put_nowait("eleven", 11)
    with pytest.raises(MessageTooLarge):
        await mailbox.put("eleven", 11)
    assert mailbox.statistics() == MailboxStatistics(messages=2, bytes=10, senders_waiting=0)


async def test_an_empty_mailbox_makes_its_owner_wait() -> None:
    """Waiting returns with the next message, and a cancelled wait takes none."""
    mailbox = Mailbox[int]()
    with anyio.move_on_after(0.01):
        await mailbox.get()
    async with anyio.create_task_group() as group:

        async def send() -> None:
            await anyio.wait_all_tasks_blocked()
            mailbox.put_nowait(7)

        group.start_soon(send)
        assert await outcome(mailbox.get) == 7


async def test_a_cancelled_sender_leaves_nothing_and_lets_the_next_one_in() -> None:
    """Who gives up waiting takes its message along; those behind it don't wait any longer than they must."""
    mailbox = Mailbox[str](bytes_max=10)
    await mailbox.put("six", 6)
    async with anyio.create_task_group() as group:
        giving_up = anyio.CancelScope()

        async def give_up() -> None:
            with giving_up:
                await mailbox.put("five", 5)

        group.start_soon(give_up)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(mailbox.put, "four", 4)
        await anyio.wait_all_tasks_blocked()
        giving_up.cancel()
    assert mailbox.statistics() == MailboxStatistics(messages=2, bytes=10, senders_waiting=0)
    assert [await mailbox.get(), await mailbox.get()] == ["six", "four"]


async def test_a_sender_cancelled_as_it_gets_in_leaves_its_message_or_none_of_it(full: Mailbox[int]) -> None:
    """Room and cancellation at one moment: the put is whole or not at all, and later messages still flow."""
    put: list[int] = []
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def send() -> None:
            with scope:
                await full.put(3)
                put.append(3)

        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        assert await full.get() == 1
        scope.cancel()
    full.close()
    assert full.take_all() == [2, *put]


async def test_a_closed_mailbox_refuses_and_hands_out_the_rest(full: Mailbox[int]) -> None:
    """After closing, senders are refused, those that wait too; the owner gets what was in and then the end."""
    async with anyio.create_task_group() as group:
        outcomes: list[Any] = []

        async def send(number: int) -> None:
            outcomes.append(await outcome(lambda: full.put(number)))

        group.start_soon(send, 3)
        group.start_soon(send, 4)
        await anyio.wait_all_tasks_blocked()
        full.close()
    assert outcomes == [MailboxClosed, MailboxClosed]
    with pytest.raises(MailboxClosed):
        full.put_nowait(5)
    assert [await outcome(full.get) for _ in range(3)] == [1, 2, MailboxClosed]


async def test_closing_wakes_an_owner_that_waits() -> None:
    """A get that waits on an empty mailbox ends when it is closed."""
    mailbox = Mailbox[int]()
    async with anyio.create_task_group() as group:

        async def close() -> None:
            await anyio.wait_all_tasks_blocked()
            mailbox.close()

        group.start_soon(close)
        assert await outcome(mailbox.get) is MailboxClosed


async def test_messages_that_nobody_will_get_can_be_taken_out(full: Mailbox[int]) -> None:
    """Who must answer for the rest takes it all at once, with its bytes."""
    full.close()
    assert full.take_all() == [1, 2]
    assert full.statistics() == MailboxStatistics(messages=0, bytes=0, senders_waiting=0)


async def test_an_owner_with_messages_at_hand_lets_others_run() -> None:
    """Taking message after message passes the loop on each time."""
    mailbox = Mailbox[int]()
    for number in range(10):
        mailbox.put_nowait(number)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(count_turns)
        for _ in range(10):
            await mailbox.get()
        group.cancel_scope.cancel()
    assert turns >= 9


@pytest.mark.parametrize("bounds", [{"messages_max": 0}, {"bytes_max": -1}])
def test_a_mailbox_without_room_is_refused(bounds: dict[str, int]) -> None:
    """Bounds that would make every sender wait for ever are an error at once."""
    with pytest.raises(ValueError, match="room for one message"):
        Mailbox[int](**bounds)
