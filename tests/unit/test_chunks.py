"""Unit: text that is written token by token: when it is cut, what it is cut into, and what keeps it waiting."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import orjson
import pytest

from turnkeeper.actors.client import link as link_module
from turnkeeper.actors.client.chunks import (
    CHANNEL_BYTES_MAX,
    CHUNK_BYTES,
    HELD_CHUNK_BYTES_MAX,
    TEXT_BYTES_MAX,
    Chunks,
)
from turnkeeper.actors.client.link import WINDOW_SECONDS
from turnkeeper.actors.client.owned_stream import RETRY_SECONDS_FIRST, OwnedStream
from turnkeeper.actors.errors import SessionClosed
from turnkeeper.storage.errors import Fenced, InvalidValue, StoreFull, TooLarge

from ..driven_link import Driver


class Written:
    """A stream that text is written to, by hand."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.stream: OwnedStream = self.driver.own(head=0)
        self.chunks = self.stream.text = Chunks(self.stream)

    def write(self, *tokens: str, channel: str = "text") -> None:
        """Write some tokens."""
        for token in tokens:
            self.chunks.write(token, channel)

    def append(self, text: str = "an event") -> None:
        """Add another line, as a session does."""
        self.chunks.cut()
        self.stream.add(orjson.dumps({"seq": self.stream.head, "type": "my/event", "data": {"text": text}}) + b"\n")

    def lines(self) -> list[dict[str, Any]]:
        """Give what was numbered and isn't acknowledged, in order."""
        return [orjson.loads(line) for line in self.stream.unacknowledged_lines()]

    def data(self) -> list[Any]:
        """Give the data of those."""
        return [line["data"] for line in self.lines()]


@pytest.fixture
def written() -> Written:
    """A stream without any text yet."""
    return Written()


def test_tokens_are_one_chunk_that_takes_its_number_when_it_is_cut(written: Written) -> None:
    """Until then there is no line and no number; the event has the type, and the text in order."""
    written.write("to", "ken", " ", "ü", "")
    assert (written.stream.head, written.lines()) == (0, [])
    written.chunks.cut()
    (line,) = written.lines()
    assert (line["stream"], line["seq"], line["type"]) == ("otter", 0, "assistant/chunk")
    assert (line["data"], written.stream.head) == ({"text": "token ü"}, 1)
    written.chunks.cut()
    assert written.stream.head == 1


def test_another_channel_begins_another_chunk(written: Written) -> None:
    """The usual channel isn't named, any other is; coming back to one begins a third chunk, as order counts."""
    written.write("a", "b")
    written.write("c", "d", channel="thinking")
    written.write("e")
    written.chunks.cut()
    assert written.data() == [{"text": "ab"}, {"text": "cd", "channel": "thinking"}, {"text": "e"}]


def test_what_is_large_enough_is_cut_at_once(written: Written) -> None:
    """At 4 KiB of UTF-8, with the token that makes it so; ten thousand tokens are tens of lines."""
    written.write("é" * (CHUNK_BYTES // 2 - 1), "x")
    assert written.stream.head == 0
    written.write("y")
    assert written.data() == [{"text": "é" * (CHUNK_BYTES // 2 - 1) + "xy"}]
    written.chunks.write("rest")
    tokens = [f" {number}" for number in range(10_000)]
    written.write(*tokens)
    written.chunks.cut()
    assert "".join(data["text"] for data in written.data()[1:]) == "rest" + "".join(tokens)
    assert 10 < written.stream.head < 20


def test_a_text_of_any_size_up_to_the_bound_becomes_chunks_that_fit_a_line(written: Written) -> None:
    """Also where each character takes six bytes in JSON, or four in UTF-8."""
    for text in ("\x01" * 100_000, "🦦" * 100_000, "a" * TEXT_BYTES_MAX):
        before = len(written.lines())
        written.write(text)
        written.chunks.cut()
        chunks = [data["text"] for data in written.data()[before:]]
        assert "".join(chunks) == text
        assert all(len(chunk.encode()) <= HELD_CHUNK_BYTES_MAX for chunk in chunks)


def test_the_window_is_fixed_and_runs_from_the_first_token(written: Written) -> None:
    """Later tokens don't move its end; then the text is cut and sent, and the next token begins another window."""
    driver = written.driver
    written.write("one ")
    driver.pass_time(WINDOW_SECONDS * 0.75)
    written.write("two")
    assert driver.sent() == []
    driver.pass_time(WINDOW_SECONDS * 0.25)
    ((_, _, first, lines, *_),) = driver.groups()
    assert (first, orjson.loads(lines)["data"]) == (0, {"text": "one two"})
    written.write("three")
    driver.answer(1, [0, 1, 1])
    driver.pass_time(WINDOW_SECONDS * 0.75)
    assert (driver.sent(), written.stream.head) == ([], 1)
    driver.pass_time(WINDOW_SECONDS * 0.25)
    assert driver.groups()[0][2] == 1


def test_a_cut_before_another_event_leaves_the_window_as_it_is(written: Written) -> None:
    """What was written first is sent when its own window ends, with what was appended to it."""
    driver = written.driver
    written.write("text")
    driver.pass_time(WINDOW_SECONDS * 0.75)
    written.append()
    driver.pass_time(WINDOW_SECONDS * 0.25)
    assert driver.groups()[0][3].count(b"\n") == 2


def test_text_behind_events_goes_with_them(written: Written) -> None:
    """It doesn't wait longer than what was appended before it."""
    driver = written.driver
    written.append()
    driver.pass_time(WINDOW_SECONDS * 0.75)
    written.write("text")
    driver.pass_time(WINDOW_SECONDS * 0.25)
    assert driver.groups()[0][3].count(b"\n") == 2


def test_text_behind_what_is_on_its_way_has_a_window_of_its_own(written: Written) -> None:
    """Whether that is the first time or another one after a refusal, nobody needs to flush."""
    driver, stream = written.driver, written.stream
    written.append()
    driver.link.request_flush(stream)
    driver.groups()
    driver.answer(1, StoreFull(0, 1))
    with pytest.raises(StoreFull):
        stream.take_failure()
    driver.pass_time(RETRY_SECONDS_FIRST)
    assert len(driver.groups()) == 1
    written.write("text")
    driver.answer(2, [0, 1, 1])
    driver.pass_time(WINDOW_SECONDS)
    assert driver.groups()[0][2] == 1


def test_text_behind_what_waits_for_an_answer_has_a_window_of_its_own(written: Written) -> None:
    """The window of that is over already: it goes with the next group, and the text when its own time has come."""
    driver, stream = written.driver, written.stream
    written.append()
    driver.link.request_flush(stream)
    driver.groups()
    written.append()
    driver.pass_time(WINDOW_SECONDS)
    written.write("text")
    driver.answer(1, [0, 1, 1])
    assert driver.groups()[0][3].count(b"\n") == 1
    driver.answer(2, [1, 2, 2])
    driver.pass_time(WINDOW_SECONDS)
    assert driver.groups()[0][2] == 2


def test_a_large_text_that_nobody_flushes_is_sent_before_its_window_ends(written: Written) -> None:
    """As with everything that is appended, bytes don't pile up; what is left of it has its window."""
    written.write("x" * (TEXT_BYTES_MAX - 10), "rest")
    assert written.driver.groups()[0][2] == 0
    written.driver.answer(1, [0, 1, 1])


# -- What keeps it waiting


def test_text_before_a_mark_is_cut_without_what_comes_behind_it(written: Written) -> None:
    """A call that waits for its turn is preceded by what was written before it, and followed by the rest."""
    written.write("before")
    mark = written.chunks.mark()
    written.write("behind")
    written.chunks.cut(mark)
    assert written.data() == [{"text": "before"}]
    later = written.chunks.mark()
    written.chunks.cut(mark)
    assert written.data() == [{"text": "before"}]
    written.chunks.cut(later)
    assert written.data() == [{"text": "before"}, {"text": "behind"}]


def test_text_waits_while_the_next_number_isnt_known_and_is_cut_soon_after(written: Written) -> None:
    """Behind a keyed line, whose number may come back, and behind calls that wait: neither size nor window cuts it."""
    driver, stream = written.driver, written.stream
    stream.add_keyed(b"keyed\n", "k")
    driver.groups()
    written.write("x" * CHUNK_BYTES, "y")
    driver.pass_time(WINDOW_SECONDS)
    assert (driver.sent(), stream.head) == ([], 1)
    driver.answer(1, [7, 1, 1])
    stream.calls_queued = 1
    driver.pass_time(WINDOW_SECONDS)
    assert (driver.sent(), stream.head) == ([], 0)
    stream.calls_queued = 0
    driver.pass_time(WINDOW_SECONDS)
    assert driver.groups()[0][2] == 0
    assert written.data() == [{"text": "x" * CHUNK_BYTES + "y"}]


def test_a_full_buffer_makes_fewer_and_larger_chunks(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be eight lines is one, cut when there is space again."""
    monkeypatch.setattr(link_module, "BUFFER_BYTES_MAX", 10)
    driver = written.driver
    written.append()
    driver.link.request_flush(written.stream)
    driver.groups()
    written.write(*["x" * 1024] * 32)
    driver.pass_time(WINDOW_SECONDS)
    assert written.stream.head == 1
    driver.answer(1, [0, 1, 1])
    driver.pass_time(WINDOW_SECONDS)
    assert written.data() == [{"text": "x" * HELD_CHUNK_BYTES_MAX}]


def test_text_that_waits_is_bounded(written: Written) -> None:
    """At 1 MiB the next text is refused, whole and each time; what was taken stays, and goes when it can."""
    stream = written.stream
    stream.add_keyed(b"keyed\n", "k")
    written.driver.groups()
    written.write("x" * (TEXT_BYTES_MAX - 1))
    for _ in range(2):
        with pytest.raises(TooLarge, match="text that waits to be stored in otter"):
            written.write("yy")
    written.write("y")
    written.driver.answer(1, [0, 1, 1])
    with pytest.raises(TooLarge):
        written.write("z" * (TEXT_BYTES_MAX + 1))
    written.write("z")
    written.chunks.cut()
    assert "".join(data["text"] for data in written.data()) == "x" * (TEXT_BYTES_MAX - 1) + "yz"


# -- Refusals


@pytest.mark.parametrize(
    ("text", "channel", "path"),
    [
        (b"bytes", "text", "$.text"),
        (None, "text", "$.text"),
        ("\ud83d", "text", "$.text"),
        ("text", "", "$.channel"),
        ("text", 1, "$.channel"),
        ("", None, "$.channel"),
        ("text", "\ud83d", "$.channel"),
    ],
)
def test_what_is_no_text_is_refused(written: Written, text: Any, channel: Any, path: str) -> None:
    """By event, type and path, whether a chunk grows already or not; nothing of it is taken."""
    for _ in range(2):
        with pytest.raises(InvalidValue) as caught:
            written.chunks.write(text, channel)
        assert (caught.value.type, caught.value.path) == ("assistant/chunk", path)
        written.write("a")
    written.chunks.cut()
    assert written.data() == [{"text": "aa"}]


def test_a_channels_name_is_short(written: Written) -> None:
    """It stands in every chunk of it."""
    with pytest.raises(TooLarge, match="channel"):
        written.write("text", channel="c" * CHANNEL_BYTES_MAX)
    written.write("text", channel="c" * 100)


def test_a_failure_is_told_to_the_next_write_once(written: Written) -> None:
    """The text of that call wasn't taken, that of the next one is."""
    driver = written.driver
    written.append()
    driver.link.request_flush(written.stream)
    driver.groups()
    driver.answer(1, StoreFull(0, 1))
    with pytest.raises(StoreFull):
        written.write("not taken")
    written.write("taken")
    written.chunks.cut()
    assert written.data()[1:] == [{"text": "taken"}]


def test_text_that_is_lost_with_the_ownership_counts_among_what_isnt_stored(written: Written) -> None:
    """As the events that it would have been; each further write raises."""
    driver, stream = written.driver, written.stream
    written.append()
    driver.link.request_flush(stream)
    driver.groups()
    written.write("a")
    written.write("b", channel="thinking")
    driver.answer(1, Fenced("otter", None, 0))
    assert (stream.acknowledged, stream.head, stream.has_text) == (0, 3, False)
    for _ in range(2):
        with pytest.raises(Fenced):
            written.write("c")


def test_a_release_takes_the_text_along(written: Written) -> None:
    """It is cut before the owner goes, and nothing can be written afterwards."""
    written.write("last words")
    written.driver.link.release(written.stream)
    ((_, _, _, lines, patch, *_),) = written.driver.groups()
    assert (orjson.loads(lines)["data"], patch) == ({"text": "last words"}, {"owner": None})
    with pytest.raises(SessionClosed):
        written.write("more")


def test_a_release_behind_a_keyed_line_takes_the_text_along_too(written: Written) -> None:
    """Once the line is answered, the text gets its number, and then the owner goes."""
    driver, stream = written.driver, written.stream
    stream.add_keyed(b"keyed\n", "k")
    driver.groups()
    written.write("last words")
    driver.link.release(stream)
    driver.answer(1, [0, 1, 1])
    ((_, _, first, lines, patch, *_),) = driver.groups()
    assert (first, orjson.loads(lines)["data"], patch) == (1, {"text": "last words"}, {"owner": None})


# -- What is live of it


def test_what_is_live_is_the_event_that_it_will_be(written: Written) -> None:
    """With its number, its time and all of its text so far; when it is cut there is nothing live."""
    written.append()
    assert written.chunks.value() is None
    written.write("a", "b", channel="thinking")
    live = written.chunks.value()
    written.chunks.cut()
    line = written.lines()[-1]
    assert live == {"seq": 1, "time": line["time"], "data": {"text": "ab", "channel": "thinking"}}
    assert live["data"] == line["data"]
    assert written.chunks.value() is None


def test_nothing_is_live_while_its_number_isnt_known(written: Written) -> None:
    """Behind a keyed line or a call that waits it could be another event's number."""
    written.stream.add_keyed(b"keyed\n", "k")
    written.write("a")
    assert written.chunks.value() is None
    written.driver.groups()
    written.driver.answer(1, [0, 1, 1])
    assert written.chunks.value() == {"seq": 1, "time": written.chunks.value()["time"], "data": {"text": "a"}}  # type: ignore[index]


def test_a_new_value_is_told_once_for_each_time_that_it_is_asked_for(written: Written) -> None:
    """Whoever is told asks anew when it has fetched the value; refused text is no news."""
    told: list[object] = []
    written.write("a")
    written.chunks.tell = told.append
    written.write("b", "c")
    assert told == [written.chunks]
    written.chunks.tell = told.append
    with pytest.raises(InvalidValue):
        written.chunks.write("\ud83d")
    assert told == [written.chunks]


def test_a_dropped_streams_text_is_collected(written: Written) -> None:
    """Nothing holds what was released and acknowledged."""
    gone = weakref.ref(written.chunks)
    driver, stream = written.driver, written.stream
    written.write("text")
    driver.link.release(stream)
    driver.groups()
    driver.answer(1, [0, 1, 1])
    del stream, written.stream, written.chunks
    driver.pass_time(1.0)
    gc.collect()
    assert gone() is None
