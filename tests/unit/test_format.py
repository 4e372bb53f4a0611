"""The bytes of control lines and event lines: round trips, and what is refused."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.storage.format import (
    NotControlLine,
    Run,
    encode_batch_header,
    encode_run,
    encode_segment_header,
    line_fault,
    parse_batch_header,
    parse_event_prefix,
    parse_segment_header,
)

STORE = "0b1e2f3a-0000-4000-8000-000000000000"

ids = st.from_regex(r"\A[a-z0-9-]{1,64}\Z")
numbers = st.integers(0, 2**62)
runs = st.builds(
    Run,
    ids,
    numbers,
    numbers,
    numbers,
    st.integers(0, 2**20),
    st.integers(0, 2**32 - 1),
    st.none() | st.dictionaries(st.text(max_size=8), st.none() | st.integers(-5, 5) | st.text(max_size=8), max_size=3),
)


def _header(some: list[Run]) -> bytes:
    line, _ = encode_batch_header(
        7, 9, 1_700_000_000_000, sum(r.size for r in some), list(map(encode_run, some)), "0" * 8
    )
    return line


@given(st.lists(runs, max_size=5))
def test_a_batch_header_comes_back_as_it_was(some: list[Run]) -> None:
    """Number, position, time, runs and patches survive encoding."""
    line = _header(some)
    header = parse_batch_header(line)
    assert (header.number, header.position, header.runs, header.length) == (7, 9, some, len(line))
    assert line.endswith(b'"}\n')


def test_the_bytes_of_a_header_are_the_formats() -> None:
    """One header, spelled out: keys in order, no spaces, the seal over everything before it."""
    line = _header([Run("brave-otter-7f3a", 2, 12, 1, 80, 5), Run("calm-owl-0001", 1, 0, 0, 0, 0, {"owner": None})])
    body = (
        b'{"$batch":7,"position":9,"time":1700000000000,"bytes":80,"streams":[["brave-otter-7f3a",2,12,1,80,5],'
        b'["calm-owl-0001",1,0,0,0,0,{"owner":null}]],"prev":"00000000"'
    )
    assert line == body + b',"h":"%08x"}\n' % zlib.crc32(body)
    line, _ = encode_segment_header(3, STORE, 1, 40)
    assert line.startswith(b'{"$segment":3,"format":1,"store":"%b","created":1,"first":40,"h":"' % STORE.encode())
    assert parse_segment_header(line).first == 40


def test_every_flipped_bit_of_a_header_is_noticed() -> None:
    """A control line with any bit changed is no good control line."""
    line = _header([Run("a", 1, 0, 2, 100, 77)])
    for place in range(len(line)):
        for bit in range(8):
            spoiled = line[:place] + bytes([line[place] ^ (1 << bit)]) + line[place + 1 :]
            with pytest.raises(NotControlLine):
                parse_batch_header(spoiled)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_header_or_none(content: bytes) -> None:
    """Parsing what anybody wrote gives NotControlLine and nothing else."""
    for parse in (parse_batch_header, parse_segment_header):
        with pytest.raises(NotControlLine):
            parse(content)
    parse_event_prefix(content)


@pytest.mark.parametrize(
    "fields",
    [
        b'{"$batch":1,"position":1,"time":1,"bytes":5,"streams":[],"prev":"00000000"',
        b'{"$batch":-1,"position":1,"time":1,"bytes":0,"streams":[],"prev":"00000000"',
        b'{"$batch":1.5,"position":1,"time":1,"bytes":0,"streams":[],"prev":"00000000"',
        b'{"$batch":1,"position":1,"time":1,"bytes":0,"streams":[["A/b",1,0,0,0,0]],"prev":"00000000"',
        b'{"$batch":1,"position":1,"time":1,"bytes":0,"streams":[["a",1,0,0]],"prev":"00000000"',
        b'{"$batch":1,"position":1,"time":1,"bytes":0,"streams":{},"prev":"00000000"',
        b'{"$batch":1,"position":1,"bytes":0,"streams":[],"prev":"00000000"',
    ],
)
def test_a_well_sealed_line_with_wrong_fields_is_no_header(fields: bytes) -> None:
    """The seal alone doesn't make a header: its fields have kinds and add up."""
    with pytest.raises(NotControlLine):
        parse_batch_header(fields + b',"h":"%08x"}\n' % zlib.crc32(fields))


def test_an_event_is_named_by_its_first_bytes() -> None:
    """Stream and number are read from a line that may be cut anywhere behind them."""
    assert parse_event_prefix(b'{"stream":"brave-otter-1","seq":42,"ti') == ("brave-otter-1", 42)
    for line in (
        b'{"stream":"brave-ot',
        b'{"stream":"a","seq":4',
        b'{"stream":"A","seq":4,',
        b'{"stream":"a","seq":-4,',
        b"",
    ):
        assert parse_event_prefix(line) is None


def test_a_good_line_has_no_fault() -> None:
    """The frame of an event is its beginning, its end, and no newline between."""
    assert line_fault("a", 3, b'{"stream":"a","seq":3,"time":1,"type":"x/y","data":{}}\n') is None
    assert line_fault("a", 3, b'{"stream":"a","seq":3,"time":1,"type":"x/y","data":{}}') is not None
