"""Unit: JSON objects out of lines, exact or rescued, and the physical lines themselves."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.importing.lines import Line, read_lines
from turnkeeper.actors.importing.prints import Prints
from turnkeeper.actors.importing.records import RECORD_CONTAINERS_MAX, RECORD_DEPTH_MAX, read_records

from ..session_files import compact

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)
objects = st.dictionaries(st.text(), values, min_size=1, max_size=5)


def has_key(value: dict[str, Any]) -> bool:
    """Say what counts as a whole record in these tests."""
    return "key" in value


def read(content: bytes) -> list[dict[str, Any]]:
    """Return the values of a line's records."""
    return [record.value for record in read_records(content, has_key).records]


def faults(content: bytes) -> list[str]:
    """Return what there is to say about a line."""
    return read_records(content, has_key).faults


@given(objects)
def test_every_object_comes_out_as_it_is(value: dict[str, Any]) -> None:
    """What JSON holds exactly is read exactly, and nothing is said about it."""
    line = compact(value)
    content = read_records(line, has_key)
    assert [(record.value, record.raw) for record in content.records] == [(value, line)]
    assert content.faults == []


@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ue018key\0- ', max_size=60).map(str.encode))
def test_any_bytes_give_records_or_faults(line: bytes) -> None:
    """No line raises, and a line that gives nothing and isn't blank says why."""
    content = read_records(line, has_key)
    assert content.records or content.faults or not line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n\0")


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("9007199254740993", 9007199254740993),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", "18446744073709551616"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("12345678901234567890123", "12345678901234567890123"),
        ("1e999", "1e999"),
        ("-1E+400", "-1E+400"),
        ("1e300", 1e300),
        ("0.1", 0.1),
        ("9" * 5000, "9" * 5000),
        ("NaN", None),
        ("-Infinity", None),
    ],
)
def test_numbers_keep_every_digit(literal: str, value: Any) -> None:
    """What 64 bits or a double can't hold becomes text, what JSON has not becomes null, and that is noted."""
    line = f'{{"key":[{literal}]}}'.encode()
    assert read(line) == [{"key": [value]}]
    assert bool(faults(line)) == (value is None or isinstance(value, str))


def test_a_negative_zero_keeps_its_sign() -> None:
    """Also where the exact reader is needed for another member."""
    for line in (b'{"key":-0.0}', b'{"key":-0.0,"n":NaN}'):
        assert math.copysign(1, read(line)[0]["key"]) == -1


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (rb'{"key":"cut \ud83d here"}', {"key": "cut \ufffd here"}),
        (rb'{"key":{"\udc00":["\ud800"]}}', {"key": {"\ufffd": ["\ufffd"]}}),
        (rb'{"key":"\ud83d\ude80 \ud83d"}', {"key": "🚀 \ufffd"}),
    ],
)
def test_lone_surrogates_become_replacement_characters(line: bytes, value: dict[str, Any]) -> None:
    """In strings and keys, with a note; whole pairs are characters."""
    assert read(line) == [value]
    assert faults(line) == ["kept, but a lone surrogate is now U+FFFD"]


def test_the_last_of_equal_keys_counts() -> None:
    """Whichever reader reads it."""
    assert read(b'{"key":1,"key":2}') == [{"key": 2}]
    assert read(b'{"key":1,"key":NaN}') == [{"key": None}]


@pytest.mark.parametrize("depth", [RECORD_DEPTH_MAX + 1, 1100, 20000])
def test_nesting_has_a_bound(depth: int) -> None:
    """A record nested too deep for the journal is damaged, however deep; one just below the bound is read."""
    assert read(b'{"key":' + b"[" * depth + b"]" * depth + b"}") == []
    assert "nested over" in faults(b'{"key":' + b"[" * depth + b"]" * depth + b"}")[0]
    assert len(read(b'{"key":' + b"[" * 400 + b"]" * 400 + b"}")) == 1


def test_a_line_of_very_many_containers_is_refused_before_it_is_read() -> None:
    """It would take a hundred times its size in memory."""
    line = b'{"key":[' + b"[]," * RECORD_CONTAINERS_MAX + b"0]}"
    assert read(line) == []
    assert "objects and arrays" in faults(line)[0]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        (b'{"key":1,"text":"a long st{"key":2}', [2]),
        (b'{"key":1,"text":["a{"key":2}', [2]),
        (b'{"key":1}{"key":2}', [1, 2]),
        (b'{"key":1}\0\0\0\0{"key":2}', [1, 2]),
        (b'{"ke{"key":1,"x":"{\\"key\\":9}"}{"key":2', [1]),
        (b'{"x":"\xc3{"key":2}', [2]),
        (b'{"key":"\xff"}{"key":2}', [2]),
        (b'{"x":{"key":1},"y":tru', [1]),
        (b'{"x":1}{"y":2}', []),
        (b'{"key":1,"text":"a long st', []),
        (b'second"}', []),
    ],
)
def test_whole_records_on_a_damaged_line_are_rescued(line: bytes, kept: list[int]) -> None:
    """Those behind a stub, and several whose newline was lost; never one that stands in a string."""
    assert [value["key"] for value in read(line)] == kept
    assert len(faults(line)) == 1


def test_only_what_counts_as_whole_is_rescued() -> None:
    """An object inside of a complete one is a part of it, not a record."""
    assert read(b'{"inner":{"key":1}}{"cut') == []


def test_a_rescued_record_is_cleaned_like_any_other() -> None:
    """Its notes are told beside the damage."""
    line = rb'{"cut{"key":[NaN,"\ud800"]}'
    assert read(line) == [{"key": [None, "\ufffd"]}]
    assert len(faults(line)) == 3


def test_looking_for_records_in_garbage_ends() -> None:
    """A line that begins an object at every place is given up after some of them."""
    assert read(b'{"x":' * 60_000) == []
    assert read(b'{"x' * 200_000) == []


@pytest.mark.parametrize("line", [b"", b"  ", b"\r", b"\xef\xbb\xbf"])
def test_a_blank_line_is_nothing(line: bytes) -> None:
    """There is no record in it and nothing to say."""
    assert read_records(line, has_key) == ([], [])


def test_nul_bytes_around_a_record_are_filling() -> None:
    """The record is read, the filling noted."""
    assert read(b'\0\0{"key":1}\0') == [{"key": 1}]
    assert faults(b'\0\0{"key":1}\0') == ["3 NUL bytes, as a power cut leaves them"]


@pytest.mark.parametrize("line", [b"null", b"42", b'"text"', b"[]", b"true", b"{}", b'[{"key":1}]', b"1.5"])
def test_json_that_is_no_record_is_told(line: bytes) -> None:
    """With what it is instead."""
    assert read(line) == []
    assert faults(line)[0].startswith("no record but")


@given(
    st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line), max_size=12),
    st.booleans(),
    st.integers(1, 30),
    st.integers(0, 25),
)
def test_lines_are_those_between_newlines(lines: list[bytes], is_ended: bool, step: int, bytes_max: int) -> None:
    """Whatever pieces a file is read in, only 0x0A separates, and a line over the limit has a length but no content."""
    content = b"\n".join(lines) + (b"\n" if is_ended else b"")
    found = list(read_lines(lambda at, n: content[at : at + min(n, step)], 0, len(content), bytes_max=bytes_max))
    expected = content.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line.length for line in found] == [len(line) for line in expected]
    assert [line.content for line in found] == [line if len(line) <= bytes_max else None for line in expected]
    assert [line.number for line in found] == list(range(1, len(expected) + 1))
    assert [content[line.start : line.start + line.length] for line in found] == expected
    if found:
        assert found[-1].stop == len(content)


def test_other_separators_are_content() -> None:
    """Form feeds, carriage returns and the Unicode separators stand in lines."""
    content = "a\r\u0085\u2028\u2029\x0b\x0c\x1c b\n".encode()
    (line,) = read_lines(lambda at, n: content[at : at + n], 0, len(content))
    assert line == Line(1, 0, len(content) - 1, content[:-1], ended=True)


def test_a_file_that_became_shorter_ends_early() -> None:
    """What is gone is not waited for."""
    lines = list(read_lines(lambda at, n: b"ab\ncd"[at : at + n], 0, 100))
    assert [(line.content, line.ended) for line in lines] == [(b"ab", True), (b"cd", False)]


@given(st.lists(st.integers(-(2**63), 2**64 - 1), max_size=3000))
def test_prints_are_a_set(numbers: list[int]) -> None:
    """Adding tells what is new, and what was added is there; numbers that differ only beyond 64 bits are the same."""
    prints, model = Prints(), set[int]()
    for number in numbers:
        plain = number % 2**64 or 1
        assert prints.add(number) == (plain not in model)
        model.add(plain)
    assert all(number in prints for number in numbers)


def test_the_set_grows_with_what_it_holds() -> None:
    """It holds more than its first slots, and nothing else."""
    prints = Prints()
    spread = [hash(str(number)) for number in range(5000)]
    assert all(prints.add(number) for number in spread)
    assert not any(prints.add(number) for number in spread)
    assert not any(hash(f"other {number}") in prints for number in range(5000))


def test_what_is_read_can_be_written_again() -> None:
    """The records of odd lines are JSON that every reader takes."""
    for line in (rb'{"key":["\ud800",NaN,1e999]}', b'{"key":123456789012345678901234}'):
        json.dumps(read(line)[0], allow_nan=False).encode()
