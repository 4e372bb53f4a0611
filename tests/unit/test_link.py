"""Unit: the client's protocol object, driven by hand: what it sends, when, and what it makes of each answer."""

from __future__ import annotations

from typing import Any

import pytest

from turnkeeper.actors.client.link import BUFFER_BYTES_MAX, COMPANY_STREAMS_MIN, FRAME_BYTES_AIM, WINDOW_SECONDS, Link
from turnkeeper.actors.client.owned_stream import EARLY_BYTES, GROUP_BYTES_MAX, OwnedStream
from turnkeeper.actors.errors import NodeNotAnswering, SessionClosed
from turnkeeper.actors.protocol import error_to_wire
from turnkeeper.runtime.frames import FrameError
from turnkeeper.storage.errors import (
    BlobMissing,
    Conflict,
    Exists,
    Fenced,
    InvalidLine,
    SessionBusy,
    StorageError,
    StoreFull,
)
from turnkeeper.storage.limits import PATCH_BYTES_MAX

from ..driven_link import HEADER, OWNER, Driver


@pytest.fixture
def driver() -> Driver:
    """A link with nothing in it."""
    return Driver()


def line(stream: OwnedStream, size: int = 10) -> bytes:
    """Make a line for the stream's next event; the link doesn't look into it."""
    return b"%d:%b\n" % (stream.head, b"x" * size)


def flush(driver: Driver, *streams: OwnedStream) -> None:
    """Ask for a flush of each stream."""
    for stream in streams:
        driver.link.request_flush(stream)


def test_an_event_that_nobody_flushed_waits_for_the_windows_end(driver: Driver) -> None:
    """The window is fixed: it runs from the first event, and later ones don't move its end."""
    stream = driver.own()
    stream.add(b"one\n")
    driver.pass_time(WINDOW_SECONDS * 0.75)
    stream.add(b"two\n")
    assert driver.sent() == []
    assert driver.link.alarm == 100 + WINDOW_SECONDS
    driver.pass_time(WINDOW_SECONDS * 0.25)
    assert driver.groups() == [["otter", 2, 5, b"one\ntwo\n", None, None, False]]


def test_a_new_window_begins_with_the_first_event_after_a_flush(driver: Driver) -> None:
    """What was flushed leaves its window to nobody."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    assert len(driver.groups()) == 1
    driver.answer(1, [5, 6, 1])
    driver.pass_time(WINDOW_SECONDS * 0.5)
    stream.add(b"two\n")
    driver.pass_time(WINDOW_SECONDS * 0.75)
    assert driver.sent() == []
    driver.pass_time(WINDOW_SECONDS * 0.25)
    assert driver.groups() == [["otter", 2, 6, b"two\n", None, None, False]]


def test_all_streams_of_one_turn_of_the_loop_go_in_one_frame(driver: Driver) -> None:
    """A hundred flushes before the pump runs are one frame, in the order of the flushes."""
    streams = [driver.own(f"s{number}") for number in range(100)]
    for stream in streams:
        stream.add(b"event\n")
        driver.link.request_flush(stream)
    assert [group[0] for group in driver.groups()] == [stream.id for stream in streams]
    assert driver.sent() == []


def test_one_group_of_a_stream_is_unanswered_at_a_time(driver: Driver) -> None:
    """What is flushed while a group is on its way goes together, at once, when that is answered."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    stream.add(b"two\n")
    flush(driver, stream)
    stream.add(b"three\n")
    flush(driver, stream)
    assert driver.sent() == []
    driver.answer(1, [5, 6, 41])
    assert driver.groups() == [["otter", 2, 6, b"two\nthree\n", None, None, False]]
    assert (stream.acknowledged, stream.position) == (6, 41)


def test_an_acknowledgement_frees_the_buffer_and_wakes_who_waits(driver: Driver) -> None:
    """Bytes are counted until they are durable; the wake-up comes once."""
    stream = driver.own()
    woken: list[str] = []
    stream.add(b"12345678\n")
    flush(driver, stream)
    stream.wake = lambda: woken.append("acknowledged")
    driver.sent()
    assert driver.link.buffered_bytes == 9
    driver.answer(1, [5, 6, 77])
    assert (woken, driver.link.buffered_bytes, stream.is_settled, stream.position) == (["acknowledged"], 0, True, 77)


def test_a_lone_stream_goes_at_once_and_company_is_waited_for(driver: Driver) -> None:
    """After a frame of several streams one turn of the loop is waited for, until as many wait as are unanswered."""
    streams = [driver.own(f"s{number}") for number in range(3 * COMPANY_STREAMS_MIN)]
    told: list[bool] = []
    driver.link.wake = lambda: told.append(driver.link.goes_at_once)

    def flush(some: list[OwnedStream]) -> None:
        for stream in some:
            stream.add(b"event\n")
            driver.link.request_flush(stream)

    flush(streams[:2])
    assert told == [True, True], "nothing was sent yet, so nobody's company is known"
    assert len(driver.groups()) == 2
    told.clear()
    flush(streams[2 : COMPANY_STREAMS_MIN + 2])
    assert told == [False] * (COMPANY_STREAMS_MIN - 1) + [True]
    assert len(driver.groups()) == COMPANY_STREAMS_MIN
    told.clear()
    flush(streams[COMPANY_STREAMS_MIN + 2 :])
    assert told.index(True) == COMPANY_STREAMS_MIN + 1, "as many as the two frames have that are unanswered"


def test_a_group_brings_all_patches_of_its_lines_as_one(driver: Driver) -> None:
    """Later values win, and lines that bring none go along: all of it is stored or nothing."""
    stream = driver.own()
    stream.add(b"one\n")
    stream.add(b"two\n", {"open_turn": 6, "turns": 1})
    stream.add(b"three\n", {"open_turn": None})
    stream.add(b"four\n")
    flush(driver, stream)
    patch = {"open_turn": None, "turns": 1}
    assert driver.groups() == [["otter", 2, 5, b"one\ntwo\nthree\nfour\n", patch, None, False]]


def test_patches_that_are_too_large_together_go_in_several_groups(driver: Driver) -> None:
    """Each of them is within the limit; a group ends before the line whose patch would take it beyond."""
    stream = driver.own()
    for name in ("one", "two", "three"):
        stream.add(name.encode() + b"\n", {name: "x" * (PATCH_BYTES_MAX // 2 - 20)})
    flush(driver, stream)
    (first,) = driver.groups()
    assert (first[3], list(first[4])) == (b"one\ntwo\n", ["one", "two"])
    driver.answer(1, [5, 7, 2])
    (second,) = driver.groups()
    assert (second[3], list(second[4])) == (b"three\n", ["three"])


def test_a_line_that_names_blobs_goes_with_no_other_patch(driver: Driver) -> None:
    """Its group may be refused for a missing blob, and whatever can be known to be whole goes before."""
    stream = driver.own()
    stream.add(b"one\n", {"open_turn": 5})
    stream.add(b"two\n")
    stream.add(b"three\n", {"blobs": ["b"]})
    stream.add(b"four\n", {"open_turn": None})
    flush(driver, stream)
    groups = []
    for number, head in enumerate((6, 8, 9), 1):
        (group,) = driver.groups()
        groups.append((group[3], group[4]))
        driver.answer(number, [5, head, head])
    assert groups == [
        (b"one\n", {"open_turn": 5}),
        (b"two\nthree\n", {"blobs": ["b"]}),
        (b"four\n", {"open_turn": None}),
    ]


def test_patches_of_the_same_line_are_one(driver: Driver) -> None:
    """The later value of a key wins."""
    stream = driver.own()
    stream.add(b"one\n")
    stream.patch({"open_turn": None, "title": "old"})
    stream.patch({"owner": None, "title": "new"})
    flush(driver, stream)
    assert driver.groups()[0][4] == {"open_turn": None, "owner": None, "title": "new"}


def test_a_release_without_lines_is_a_patch_alone(driver: Driver) -> None:
    """Closing a session that has nothing unsent still tells the writer; then the link forgets the stream."""
    stream = driver.own()
    assert driver.link.release(stream) is None
    assert driver.groups() == [["otter", 2, 5, b"", {"owner": None}, None, False]]
    driver.answer(1, [5, 5, 0])
    assert stream.is_settled
    assert driver.link.streams == []


def test_nothing_can_be_added_after_the_release(driver: Driver) -> None:
    """The owner is told that it closed the session itself."""
    stream = driver.own()
    driver.link.release(stream)
    assert not stream.takes_lines
    with pytest.raises(SessionClosed):
        stream.take_failure()


def test_the_first_group_of_a_new_stream_brings_its_header(driver: Driver) -> None:
    """The header travels with the first lines, whatever patch they have of their own."""
    stream = driver.reserve()
    stream.add(b"one\n")
    stream.patch({"open_turn": 0})
    stream.add(b"two\n")
    flush(driver, stream)
    assert driver.groups() == [["new", 1, 0, b"one\n", {**HEADER, "open_turn": 0}, None, True]]
    driver.answer(1, [0, 1, 9])
    assert driver.groups() == [["new", 1, 1, b"two\n", None, None, False]]


def test_a_reservation_that_was_never_used_is_given_back(driver: Driver) -> None:
    """A session without events leaves nothing, so its key is free again."""
    stream = driver.reserve()
    request = driver.link.release(stream)
    assert request is not None
    assert driver.sent() == [{"op": "release", "stream": "new", "token": "t", "id": 1}]
    driver.link.receive({"re": 1})
    assert request.reply == {"re": 1}


def test_large_groups_are_cut_between_lines(driver: Driver) -> None:
    """A group holds at most GROUP_BYTES_MAX; the patch stays with its line."""
    stream = driver.own(head=0)
    big = b"x" * (GROUP_BYTES_MAX // 2 - 1) + b"\n"
    for _ in range(3):
        stream.add(big)
    stream.patch({"open_turn": None})
    flush(driver, stream)
    (first,) = driver.groups()
    assert (first[2], len(first[3]), first[4]) == (0, GROUP_BYTES_MAX, None)
    driver.answer(1, [0, 2, 2])
    assert driver.groups() == [["otter", 2, 2, big, {"open_turn": None}, None, False]]


def test_a_frame_ends_when_it_is_large_enough(driver: Driver) -> None:
    """What doesn't fit waits for the next frame, and nothing is forgotten."""
    size = FRAME_BYTES_AIM // 2
    for number in range(3):
        stream = driver.own(f"s{number}")
        stream.add(line(stream, size))
        driver.link.request_flush(stream)
    assert [[group[0] for group in driver.groups()] for _ in range(2)] == [["s0", "s1"], ["s2"]]


def test_many_bytes_go_without_a_flush(driver: Driver) -> None:
    """A producer that never flushes doesn't fill the buffer before the window ends."""
    stream = driver.own()
    stream.add(line(stream, EARLY_BYTES // 2))
    assert driver.sent() == []
    stream.add(line(stream, EARLY_BYTES // 2))
    assert not stream.takes_at_once
    assert stream.takes_lines
    assert len(driver.groups()) == 1
    assert stream.takes_at_once


def test_a_large_line_that_is_sent_from_within_its_call_goes_with_its_number_its_patch_and_its_key(
    driver: Driver,
) -> None:
    """Whoever is told that something waits may take it at once: nothing of it may come later."""
    stream = driver.own()
    taken: list[list[Any]] = []
    driver.link.wake = lambda: taken.extend(driver.groups())
    first = line(stream, EARLY_BYTES)
    assert stream.add(first, {"open_turn": stream.head}) == stream.head - 1
    assert taken == [["otter", 2, stream.head - 1, first, {"open_turn": stream.head - 1}, None, False]]
    driver.answer(1, [stream.head - 1, stream.head, 1])
    taken.clear()
    driver.link.wake = lambda: taken.extend(driver.groups())
    second = line(stream, EARLY_BYTES)
    stream.add_keyed(second, "once")
    assert taken == [["otter", 2, stream.head - 1, second, None, "once", False]]


def test_a_full_buffer_takes_nothing_until_there_is_space(driver: Driver) -> None:
    """The bound counts the bytes of all streams; who waits is woken when an acknowledgement makes space."""
    stream, other = driver.own("a"), driver.own("b")
    woken: list[int] = []
    while not driver.link.is_full:
        stream.add(line(stream, 1024 * 1024))
    driver.link.wake_space = lambda: woken.append(1)
    assert not other.takes_lines
    assert driver.link.buffered_bytes < BUFFER_BYTES_MAX + 2 * 1024 * 1024
    driver.sent()
    driver.answer(1, [5, 6, 1])
    assert (woken, other.takes_at_once) == ([1], True)


def test_after_a_lost_connection_the_unanswered_goes_again_byte_for_byte(driver: Driver) -> None:
    """The same group, the same first and epoch; what was added meanwhile comes behind it."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    (before,) = driver.groups()
    stream.add(b"two\n")
    flush(driver, stream)
    driver.link.lost()
    ((number, groups),) = driver.sent()
    assert groups == [before]
    driver.answer(number, [5, 6, 1])
    assert driver.groups()[0][3] == b"two\n"


def test_answers_of_a_lost_connection_are_not_expected_any_more(driver: Driver) -> None:
    """The next connection's first answer belongs to its own first frame; any other is no answer."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    driver.link.lost()
    with pytest.raises(FrameError):
        driver.answer(1, [5, 6, 1])


@pytest.mark.parametrize(
    "message",
    [
        *([7, []], [1, []], [1, None], [1, ["text"]], [1, [[1, 2]]], [1, [1]], [1]),
        *({"re": 99}, {"re": 1, "stream": "x"}, {"op": "hello"}, "text", None),
    ],
)
def test_what_is_no_answer_ends_the_connection(driver: Driver, message: Any) -> None:
    """A writer that answers something else than what was asked isn't listened to."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.link.ask({"op": "open", "wanted": "x"})
    driver.sent()
    with pytest.raises(FrameError):
        driver.link.receive(message)


def test_what_the_writer_calls_no_request_is_not_sent_again(driver: Driver) -> None:
    """It would be sent for ever, at every new connection: everything raises the writer's words instead."""
    stream = driver.own("a")
    stream.add(b"line\n")
    driver.link.receive({"op": "error", "error": "StorageError", "args": ["a key is a text"]})
    with pytest.raises(StorageError, match="a key is a text"):
        stream.take_failure()
    driver.link.lost()
    assert driver.link.next_output() == b""


def test_a_reserved_stream_asks_again_before_its_lines_go(driver: Driver) -> None:
    """The writer forgot the reservation with the connection; the lines wait for its word."""
    stream = driver.reserve()
    stream.add(b"one\n")
    driver.link.lost()
    flush(driver, stream)
    (asked,) = driver.sent()
    assert (asked["op"], asked["wanted"], asked["create"], asked["owner"]) == ("open", "new", HEADER, OWNER)
    driver.link.receive({"re": asked["id"], "stream": "new", "epoch": 1, "head": 0, "summary": {}, "new": True})
    assert driver.groups() == [["new", 1, 0, b"one\n", HEADER, None, True]]


def test_a_first_group_whose_answer_was_lost_goes_again_as_it_was(driver: Driver) -> None:
    """The writer has it already and grants the next epoch: the group keeps its own, later ones take the new."""
    stream = driver.reserve()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    driver.link.lost()
    (asked,) = driver.sent()
    driver.link.receive({"re": asked["id"], "stream": "new", "epoch": 2, "head": 1, "summary": HEADER, "new": False})
    ((number, groups),) = driver.sent()
    assert groups == [["new", 1, 0, b"one\n", HEADER, None, True]]
    driver.answer(number, [0, 1, 1])
    stream.add(b"two\n")
    flush(driver, stream)
    assert driver.groups() == [["new", 2, 1, b"two\n", None, None, False]]


def test_a_reservation_that_somebody_else_got_ends_the_stream(driver: Driver) -> None:
    """Nothing of it was stored, and all of it is reported so."""
    stream = driver.reserve()
    stream.add(b"one\n")
    driver.link.lost()
    (asked,) = driver.sent()
    driver.link.receive({"re": asked["id"], **error_to_wire(SessionBusy("new", OWNER))})
    assert isinstance(stream.refusal, SessionBusy)
    assert (stream.acknowledged, driver.link.streams, driver.link.buffered_bytes) == (0, [], 0)


def test_an_id_that_became_somebody_elses_while_nothing_was_sent_ends_the_stream(driver: Driver) -> None:
    """A grant of a stream that we never began isn't our stream."""
    stream = driver.reserve()
    driver.link.lost()
    (asked,) = driver.sent()
    driver.link.receive({"re": asked["id"], "stream": "new", "epoch": 4, "head": 9, "summary": HEADER, "new": False})
    assert isinstance(stream.refusal, Exists)


def test_a_lost_owner_drops_what_is_stored_and_reports_the_rest(driver: Driver) -> None:
    """Of three lines one is stored: two never will be, and every call says so from now on."""
    stream = driver.own()
    for _ in range(3):
        stream.add(line(stream))
    flush(driver, stream)
    driver.sent()
    stream.add(line(stream))
    driver.answer(1, Fenced("otter", OWNER, 1))
    assert (stream.acknowledged, stream.head, driver.link.buffered_bytes) == (6, 9, 0)
    for _ in range(2):
        with pytest.raises(Fenced):
            stream.take_failure()
    assert not stream.takes_at_once


def test_a_conflict_is_final_too(driver: Driver) -> None:
    """Somebody else's events stand where ours should: numbers can't be made up."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    driver.answer(1, Conflict("otter", 9, 0))
    assert isinstance(stream.refusal, Conflict)


def test_a_refusal_leaves_the_neighbours_in_the_frame_alone(driver: Driver) -> None:
    """Results come in the order of the groups."""
    bad, good = driver.own("bad"), driver.own("good")
    for stream in (bad, good):
        stream.add(b"event\n")
    flush(driver, bad, good)
    driver.sent()
    driver.answer(1, InvalidLine("bad", 5, "no"), [5, 6, 3])
    assert isinstance(bad.refusal, InvalidLine)
    assert (good.refusal, good.acknowledged) == (None, 6)


def test_a_full_store_is_told_once_and_tried_again_with_growing_delays(driver: Driver) -> None:
    """Nothing is dropped, the next call is told, and the same group goes again without any new event."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    (before,) = driver.groups()
    number = 1
    for delay in (0.2, 0.4, 0.8):
        driver.answer(number, StoreFull(1, 2))
        with pytest.raises(StoreFull):
            stream.take_failure()
        stream.take_failure()
        driver.pass_time(delay * 0.9)
        assert driver.sent() == []
        driver.pass_time(delay * 0.1 + 0.001)
        assert driver.groups() == [before]
        number += 1
    driver.answer(number, [5, 6, 4])
    assert (stream.acknowledged, stream.is_settled) == (6, True)


def test_a_flush_tries_a_refused_group_at_once(driver: Driver) -> None:
    """Who made space needn't wait for the backoff."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    driver.answer(1, StoreFull(1, 2))
    flush(driver, stream)
    assert len(driver.groups()) == 1


def test_what_was_appended_to_a_full_store_goes_behind_the_refused_group(driver: Driver) -> None:
    """When space has returned, everything that came meanwhile is sent without another flush."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    driver.answer(1, StoreFull(1, 2))
    stream.add(b"two\n")
    driver.pass_time(0.2)
    driver.sent()
    driver.answer(2, [5, 6, 1])
    assert driver.groups()[0][2:4] == [6, b"two\n"]


def test_a_failure_that_a_waiter_saw_is_not_told_again(driver: Driver) -> None:
    """Whoever waits for a flush raises it; the next call begins anew."""
    stream = driver.own()
    stream.add(b"one\n")
    flush(driver, stream)
    driver.sent()
    stream.waiting = 1
    driver.answer(1, StoreFull(1, 2))
    stream.waiting = 0
    assert (stream.failures, stream.takes_at_once) == (1, True)
    stream.take_failure()


def test_a_keyed_line_is_a_group_of_its_own_and_bars_the_next_number(driver: Driver) -> None:
    """Earlier lines go before it; nothing is numbered until it is answered."""
    stream = driver.own()
    stream.add(b"one\n")
    stream.add_keyed(b"keyed\n", "k")
    assert not stream.takes_at_once
    assert driver.groups() == [["otter", 2, 5, b"one\n", None, None, False]]
    driver.answer(1, [5, 6, 1])
    assert driver.groups() == [["otter", 2, 6, b"keyed\n", None, "k", False]]
    driver.answer(2, [6, 7, 2])
    assert (stream.keyed_answer, stream.head, stream.acknowledged, stream.takes_at_once) == (6, 7, 7, True)


def test_a_known_key_gives_its_number_back(driver: Driver) -> None:
    """The answer is the old number, and the next line takes the one that the keyed line had."""
    stream = driver.own()
    stream.add_keyed(b"keyed\n", "k")
    driver.sent()
    driver.answer(1, [3, 5, 30])
    assert (stream.keyed_answer, stream.head, stream.acknowledged, stream.position) == (3, 5, 5, None)
    assert stream.add(b"next\n") == 5


def test_a_key_with_other_content_is_refused_to_its_caller_alone(driver: Driver) -> None:
    """The session goes on: a Conflict at the line's own number is about its content."""
    stream = driver.own()
    stream.add_keyed(b"keyed\n", "k")
    driver.sent()
    driver.answer(1, Conflict("otter", 5))
    assert isinstance(stream.keyed_answer, Conflict)
    assert (stream.refusal, stream.head, stream.takes_at_once) == (None, 5, True)


def test_a_keyed_line_of_a_lost_owner_ends_the_stream(driver: Driver) -> None:
    """Being fenced is about the session, not about the line."""
    stream = driver.own()
    stream.add_keyed(b"keyed\n", "k")
    driver.sent()
    driver.answer(1, Fenced("otter", None))
    assert isinstance(stream.refusal, Fenced)
    assert not stream.barred


def test_a_patch_waits_for_the_answer_to_a_keyed_line(driver: Driver) -> None:
    """Only the answer tells where it stands; a release in the meantime isn't forgotten."""
    stream = driver.own()
    stream.add_keyed(b"keyed\n", "k")
    driver.sent()
    driver.link.release(stream)
    assert driver.sent() == []
    driver.answer(1, [3, 5, 30])
    assert driver.groups() == [["otter", 2, 5, b"", {"owner": None}, None, False]]
    driver.answer(2, [5, 5, 0])
    assert driver.link.streams == []


def test_a_patch_of_a_stream_without_lines_goes_into_its_header(driver: Driver) -> None:
    """It is stored with the first line."""
    stream = driver.reserve()
    stream.patch({"parent": "p"})
    assert stream.is_settled
    stream.add(b"one\n")
    flush(driver, stream)
    assert driver.groups()[0][4] == {**HEADER, "parent": "p"}


def test_requests_go_again_after_a_lost_connection(driver: Driver) -> None:
    """What was asked and not answered is asked once more, under its number; what was answered isn't."""
    first, second = driver.link.ask({"op": "statistics"}), driver.link.ask({"op": "watch", "after": 3})
    assert [each["id"] for each in driver.sent()] == [1, 2]
    driver.link.receive({"re": 1, "position": 7})
    driver.link.lost()
    assert driver.sent() == [{"op": "watch", "after": 3, "id": 2}]
    assert first.reply == {"re": 1, "position": 7}
    assert not second.is_answered


def test_a_refused_request_gives_the_error_that_the_writer_named(driver: Driver) -> None:
    """Class and fields come back."""
    request = driver.link.ask({"op": "open", "wanted": "x"})
    driver.sent()
    driver.link.receive({"re": 1, **error_to_wire(SessionBusy("x", OWNER))})
    assert isinstance(request.error, SessionBusy)
    assert request.error.owner == OWNER


def test_an_abandoned_opening_is_released_when_it_is_granted(driver: Driver) -> None:
    """A cancelled open_session leaves no owner behind."""
    request = driver.link.ask({"op": "open", "wanted": "otter", "owner": OWNER, "create": None}, for_caller=True)
    driver.sent()
    driver.link.abandon(request)
    driver.link.receive({"re": 1, "stream": "otter", "epoch": 3, "head": 8, "summary": {}, "new": False})
    assert driver.groups() == [["otter", 3, 8, b"", {"owner": None}, None, False]]


def test_an_unreachable_store_is_told_to_who_waits_and_changes_nothing_else(driver: Driver) -> None:
    """Requests of callers end, lines are kept, a settled stream knows nothing of it."""
    busy, idle = driver.own("busy"), driver.own("idle")
    busy.add(b"one\n")
    flush(driver, busy)
    driver.sent()
    asked, watch = driver.link.ask({"op": "open"}, for_caller=True), driver.link.ask({"op": "watch", "after": 1})
    driver.link.lost()
    driver.link.fail(NodeNotAnswering(7, "stopped"))
    assert isinstance(asked.error, NodeNotAnswering)
    assert not watch.is_answered
    with pytest.raises(NodeNotAnswering):
        busy.take_failure()
    idle.take_failure()
    watched, appended = driver.sent()
    assert (watched["op"], appended[1][0][3]) == ("watch", b"one\n")


def test_a_failure_while_the_connection_stands_asks_nothing_twice(driver: Driver) -> None:
    """What was sent is still being answered, and only what callers wait for ends."""
    watch = driver.link.ask({"op": "watch", "after": 1})
    driver.sent()
    driver.link.fail(NodeNotAnswering(7, "stopped"))
    assert driver.sent() == []
    driver.link.receive({"re": 1, "position": 9})
    assert watch.reply == {"re": 1, "position": 9}


def test_the_end_of_the_client_ends_every_stream(driver: Driver) -> None:
    """From then on each call raises why, and nothing is kept."""
    stream = driver.own()
    stream.add(b"one\n")
    request = driver.link.ask({"op": "statistics"})
    driver.link.end(SessionClosed("otter"))
    assert isinstance(stream.refusal, SessionClosed)
    assert isinstance(request.error, SessionClosed)
    assert (driver.link.buffered_bytes, driver.link.streams) == (0, [])


def test_one_timer_serves_a_stream_that_is_flushed_all_the_time(driver: Driver) -> None:
    """A thousand windows that a flush ended don't pile up."""
    stream = driver.own()
    for number in range(1, 1001):
        stream.add(b"event\n")
        flush(driver, stream)
        driver.sent()
        driver.answer(number, [stream.head - 1, stream.head, number])
    driver.pass_time(WINDOW_SECONDS)
    assert driver.link.alarm is None
    assert driver.sent() == []


def test_the_buffer_can_be_read_line_by_line(driver: Driver) -> None:
    """What is on its way and what waits, in order, from the first unacknowledged number on."""
    stream = driver.own()
    for text in (b"one\n", b"t\rwo\n"):
        stream.add(text)
    flush(driver, stream)
    driver.sent()
    stream.add(b"three\n")
    assert stream.unacknowledged_lines() == [b"one\n", b"t\rwo\n", b"three\n"]
    driver.answer(1, [5, 7, 2])
    assert stream.unacknowledged_lines() == [b"three\n"]


# -- Blobs


class BlobWriter:
    """Stands for the driver's part: what it is asked to put again, and what was named by stored events."""

    def __init__(self, link: Link) -> None:
        self.asked: list[tuple[OwnedStream, str]] = []
        self.named: list[str] = []
        link.put_blob_again = lambda stream, missing: self.asked.append((stream, missing.digest))
        link.blobs_named = self.named.extend


def test_a_missing_blob_is_put_again_and_its_group_sent_again(driver: Driver) -> None:
    """Meanwhile nothing of the stream is sent, whoever flushes; then the same bytes go, and other streams go on."""
    writer = BlobWriter(driver.link)
    stream, other = driver.own(), driver.own("badger")
    stream.add(line(stream), {"blobs": ["d"]})
    flush(driver, stream)
    (group,) = driver.groups()
    driver.answer(1, BlobMissing("otter", "d"))
    assert writer.asked == [(stream, "d")]
    stream.add(line(stream))
    other.add(line(other))
    flush(driver, stream, other)
    assert [entry[0] for entry in driver.groups()] == ["badger"]
    driver.link.blob_settled(stream, None)
    assert driver.groups() == [group]
    driver.answer(2, [5, 6, 1])
    driver.answer(3, [5, 6, 2])
    assert (stream.acknowledged, writer.named, stream.failures) == (6, ["d"], 0)


def test_a_blob_is_put_again_once_for_a_group(driver: Driver) -> None:
    """Missed a second time it is final, and the owner is told which blob; another one of the group has its own try."""
    writer = BlobWriter(driver.link)
    stream = driver.own()
    stream.add(line(stream), {"blobs": ["d", "e"]})
    flush(driver, stream)
    for number, digest in enumerate(("d", "e"), 1):
        driver.groups()
        driver.answer(number, BlobMissing("otter", digest))
        driver.link.blob_settled(stream, None)
    driver.groups()
    driver.answer(3, BlobMissing("otter", "d"))
    assert [digest for _, digest in writer.asked] == ["d", "e"]
    assert isinstance(stream.refusal, BlobMissing)
    assert (stream.acknowledged, stream.head, driver.link.buffered_bytes, driver.link.streams) == (5, 6, 0, [])


def test_a_blob_whose_content_is_gone_is_a_final_refusal(driver: Driver) -> None:
    """So it is without a driver that could put it again."""
    for number, is_driven in ((1, True), (2, False)):
        if is_driven:
            BlobWriter(driver.link)
        else:
            driver.link.put_blob_again = None
        stream = driver.own(f"otter-{number}")
        stream.add(line(stream), {"blobs": ["d"]})
        flush(driver, stream)
        driver.groups()
        missing = BlobMissing(stream.id, "d")
        driver.answer(number, missing)
        if is_driven:
            driver.link.blob_settled(stream, missing)
        assert isinstance(stream.refusal, BlobMissing)


def test_a_blob_that_cant_be_put_again_yet_is_tried_again_later(driver: Driver) -> None:
    """As with every temporary refusal the owner is told, and everything is kept."""
    writer = BlobWriter(driver.link)
    stream = driver.own()
    stream.add(line(stream), {"blobs": ["d"]})
    flush(driver, stream)
    (group,) = driver.groups()
    driver.answer(1, BlobMissing("otter", "d"))
    driver.link.blob_settled(stream, StoreFull(1, 2))
    assert (stream.failures, stream.refusal) == (1, None)
    driver.pass_time(5)
    assert driver.groups() == [group]
    driver.answer(2, BlobMissing("otter", "d"))
    assert len(writer.asked) == 2
    driver.link.blob_settled(stream, None)
    assert driver.groups() == [group]


def test_a_connection_lost_while_a_blob_is_put_again_changes_nothing(driver: Driver) -> None:
    """The group waits for the blob, and for a reservation that has to be made again."""
    BlobWriter(driver.link)
    stream = driver.reserve()
    stream.add(line(stream), {"blobs": ["d"]})
    flush(driver, stream)
    (group,) = driver.groups()
    driver.answer(1, BlobMissing("new", "d"))
    driver.link.lost()
    (again,) = driver.sent()
    assert again["op"] == "open"
    driver.link.receive({"re": again["id"], "stream": "new", "epoch": 1, "head": 0, "summary": {}, "new": True})
    assert driver.sent() == []
    driver.link.blob_settled(stream, None)
    assert driver.groups() == [group]


def test_what_ends_while_a_blob_is_put_again_stays_ended(driver: Driver) -> None:
    """The put comes too late, and nothing is sent."""
    BlobWriter(driver.link)
    stream = driver.own()
    stream.add(line(stream), {"blobs": ["d"]})
    flush(driver, stream)
    driver.groups()
    driver.answer(1, BlobMissing("otter", "d"))
    driver.link.end(SessionClosed("the store"))
    driver.link.blob_settled(stream, None)
    assert driver.link.next_output() == b""


def test_a_keyed_line_brings_its_blobs_and_is_sent_again_as_others_are(driver: Driver) -> None:
    """Its group has its patch; missed twice the line alone is refused, and its number is free again."""
    BlobWriter(driver.link)
    stream = driver.own()
    stream.add_keyed(line(stream), "key", {"blobs": ["d"]})
    for number in (1, 2):
        (group,) = driver.groups()
        assert group[4:6] == [{"blobs": ["d"]}, "key"]
        driver.answer(number, BlobMissing("otter", "d"))
        if number == 1:
            driver.link.blob_settled(stream, None)
    assert isinstance(stream.keyed_answer, BlobMissing)
    assert (stream.head, stream.refusal, stream.barred) == (5, None, False)
