"""Values in, bytes out, the same values back; and what JSON can't hold exactly, named by event, type and path."""

from __future__ import annotations

import datetime
import decimal
import enum
import uuid
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.storage.errors import InvalidValue, TooLarge
from turnkeeper.storage.exact_json import decode_event, encode_event

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=30,
)


def _nested(levels: int) -> dict[str, Any]:
    data: dict[str, Any] = {}
    inner = data
    for level in range(levels - 1):
        inner["a"] = [] if level == levels - 2 else {}
        inner = inner["a"]
    return data


class _Color(enum.Enum):
    RED = 1


class _Word(enum.StrEnum):
    RED = "red"


def _cycle() -> list[Any]:
    inside: list[Any] = []
    inside.append({"again": inside})
    return inside


@given(st.dictionaries(texts, values))
def test_what_goes_in_comes_back_equal(data: dict[str, Any]) -> None:
    """Every value that JSON holds survives, and its line has one newline, at its end."""
    line = encode_event("brave-otter-7f3a", 3, 1_700_000_000_000, "user/message", data)
    assert line.count(b"\n") == 1
    assert line.endswith(b"}}\n")
    event = decode_event(line)
    assert event["data"] == data
    assert repr(event["data"]) == repr(data), "also the kinds of numbers, and -0.0"


@pytest.mark.parametrize("levels", [1, 2, 99, 100, 101, 199, 200, 201, 253, 254, 255, 300, 511, 512])
def test_nesting_is_exact_to_the_limit(levels: int) -> None:
    """512 levels are held, though one call of the encoder holds fewer."""
    data = _nested(levels)
    assert decode_event(encode_event("a", 0, 0, "x/y", data))["data"] == data


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (float("nan"), "$.v"),
        ([1, float("inf")], "$.v[1]"),
        ({"deep": [{"x": float("-inf")}]}, "$.v.deep[0].x"),
        (2**64, "$.v"),
        (-(2**63) - 1, "$.v"),
        (b"bytes", "$.v"),
        (bytearray(b"bytes"), "$.v"),
        ({1, 2}, "$.v"),
        (datetime.datetime(2026, 1, 1), "$.v"),
        (datetime.date(2026, 1, 1), "$.v"),
        (decimal.Decimal("1.5"), "$.v"),
        (uuid.UUID(int=1), "$.v"),
        (object(), "$.v"),
        ({"inner": {1: "one"}}, "$.v.inner"),
        (_cycle(), "$.v[0].again"),
        ("cut \ud83d emoji", "$.v"),
        ({"\udfff": 1}, "$.v"),
        (_Color.RED, "$.v"),
        (_Word.RED, "$.v"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_its_path(value: Any, path: str) -> None:
    """The error names the event's number, its type and the path to the value."""
    with pytest.raises(InvalidValue) as caught:
        encode_event("a", 0, 0, "user/message", {"good": 1, "v": value}, event=4)
    assert (caught.value.event, caught.value.type, caught.value.path) == (4, "user/message", path)


def test_nesting_over_the_limit_is_refused() -> None:
    """513 levels are one too many."""
    with pytest.raises(InvalidValue, match="512 levels"):
        encode_event("a", 0, 0, "x/y", _nested(513))


def test_lone_surrogates_are_replaced_if_asked() -> None:
    """text="replace" gives U+FFFD for a lone surrogate and leaves pairs alone."""
    line = encode_event("a", 0, 0, "x/y", {"t": "a\ud83db\ud83d\ude00", "k\udc00": 1}, text="replace")
    assert decode_event(line)["data"] == {"t": "a\ufffdb\U0001f600", "k\ufffd": 1}


def test_mappings_and_sequences_become_objects_and_lists() -> None:
    """Tuples and other mappings are taken; nothing else is converted silently."""
    line = encode_event("a", 0, 0, "x/y", OrderedDict(t=(1, (2,)), r=range(2)))
    assert decode_event(line)["data"] == {"t": [1, [2]], "r": [0, 1]}


def test_a_line_over_the_limit_is_refused_with_its_size() -> None:
    """One line holds 1 MiB at most."""
    with pytest.raises(TooLarge) as caught:
        encode_event("a", 0, 0, "x/y", {"t": "x" * 1_048_576})
    assert caught.value.size > caught.value.limit == 1_048_576


@pytest.mark.parametrize("type", ["", "cut \ud83d"])
def test_a_type_is_a_string_of_characters(type: str) -> None:
    """An empty type, or one with a lone surrogate, is refused."""
    with pytest.raises(InvalidValue):
        encode_event("a", 0, 0, type, {})


def test_only_0x0a_is_escaped_as_a_line_separator() -> None:
    """U+2028, U+2029, U+0085, form feeds and carriage returns are data, and newlines never raw."""
    text = "a\u2028b\u2029c\x85d\x0ce\rf\ng"
    line = encode_event("a", 0, 0, "x/y", {"t": text})
    assert len(line.split(b"\n")) == 2
    assert decode_event(line)["data"]["t"] == text
