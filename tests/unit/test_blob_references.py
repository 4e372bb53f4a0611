"""Unit: references to blobs in an event's data, and stubs in place of data."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.blob_references import (
    BLOB_MARK,
    SPILL_BYTES,
    as_content,
    blob_of_stub,
    blobs_named_in,
    check_media_type,
    digest_referred_to,
    is_plain,
    reference_to,
    stub_for,
)
from turnkeeper.actors.folding import FOLDED, TurnState
from turnkeeper.storage.exact_json import encode_data, encode_event

DIGEST = "0123456789abcdef" * 4
OTHER = "f" * 64

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.just('"blob":"'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=12,
)


def planted(value: Any, reference: dict[str, Any], way: list[int]) -> Any:
    """Put a reference somewhere into a value, the way saying where."""
    if not way:
        return reference
    inner = planted(value, reference, way[1:])
    return [value, inner] if way[0] else {"x": value, "y": {"z": inner}}


@given(value=JSON, way=st.lists(st.integers(0, 1), max_size=5))
def test_a_reference_is_found_wherever_it_stands(value: Any, way: list[int]) -> None:
    """And an encoded line with one always has the mark that the quick look looks for."""
    data = {"data": planted(value, reference_to(DIGEST, 5, "image/png"), way), "more": value}
    assert DIGEST in blobs_named_in(data)
    assert BLOB_MARK in encode_data("my/type", data)
    assert not is_plain(encode_event("otter", 0, 1, "my/type", data))


@given(text=st.text())
def test_no_string_looks_like_a_reference(text: str) -> None:
    """Quotes in strings are escaped, so ordinary text costs the quick look alone."""
    assert BLOB_MARK not in encode_data("my/type", {"text": f'{{"blob":"{DIGEST}"{text}', "list": ['"$blob":"', text]})


@pytest.mark.parametrize(
    "other",
    [
        {"blob": DIGEST},
        {"blob": DIGEST, "bytes": "5", "media_type": "x"},
        {"blob": DIGEST.upper(), "bytes": 5, "media_type": "x"},
        {"blob": [DIGEST], "bytes": 5, "media_type": "x"},
        {"hash": DIGEST, "bytes": 5, "media_type": "x"},
    ],
)
def test_what_has_another_form_is_no_reference(other: dict[str, Any]) -> None:
    """A program's own members of that name name no blob."""
    assert blobs_named_in({"list": [other]}) == []


def test_a_blob_that_is_referred_to_twice_is_named_once() -> None:
    """Different ones are all named."""
    one, two = reference_to(DIGEST, 1, "a/b"), reference_to(OTHER, 2, "c/d")
    assert sorted(blobs_named_in({"a": [one, two], "b": one})) == [DIGEST, OTHER]


@pytest.mark.parametrize("ref", [{}, {"blob": 5}, {"blob": "../x"}, "text", None, [DIGEST], {"$blob": DIGEST}])
def test_what_is_no_reference_is_refused(ref: Any) -> None:
    """With a text that shows what was given."""
    with pytest.raises(ValueError, match="put_blob"):
        digest_referred_to(ref)


def test_a_blob_is_bytes_and_its_media_type_a_string() -> None:
    """Anything else is the caller's mistake, and is told before anything is written."""
    assert [as_content(each) for each in (b"x", bytearray(b"x"), memoryview(b"xx")[:1])] == [b"x"] * 3
    for wrong in ("text", 5, None, [1]):
        with pytest.raises(TypeError, match="encode it first"):
            as_content(wrong)
    check_media_type("image/png")
    with pytest.raises(TypeError, match="image/png"):
        check_media_type(None)


def test_a_stub_says_where_its_data_is() -> None:
    """Digest and size come back; other data has none."""
    assert blob_of_stub(stub_for(DIGEST, 300_000, "my/type", {"x": 1})) == (DIGEST, 300_000)
    for data in ({}, {"$blob": DIGEST}, {"$blob": 5, "bytes": 5}, {"$blob": "x", "bytes": 5}, {"blob": DIGEST}):
        assert blob_of_stub(data) is None


def test_only_what_stands_in_its_line_and_names_nothing_is_plain() -> None:
    """A long line isn't, nor is one that has a reference or looks like a stub; the words alone make no difference."""
    stub = stub_for(DIGEST, 5, "my/type", {})
    reference = reference_to(DIGEST, 5, "a/b")
    for data, plain in (
        ({"text": "a $blob of snake_case"}, True),
        ({"blob": 5, "media_type": "$"}, True),
        ({"text": "x" * SPILL_BYTES}, False),
        (stub, False),
        ({"inner": [reference]}, False),
    ):
        assert is_plain(encode_event("otter", 0, 1, "my/type", data, bytes_max=2**20)) == plain


def test_a_stub_folds_as_its_data_does() -> None:
    """So an opening closes what was left open without reading a blob."""
    large = "x" * 1000
    events: list[tuple[str, dict[str, Any]]] = [
        ("turn/start", {"turn": 7, "prompt": large}),
        (
            "assistant/message",
            {"text": large, "tool_calls": [{"id": c, "name": "write", "arguments": large} for c in "abc"]},
        ),
        ("tool/started", {"id": "b", "name": "write", "arguments": large, "effect": "idempotent"}),
        ("tool/finished", {"id": "a", "output": large}),
        ("tool/started", {"id": "z", "name": "late", "arguments": {}}),
        ("tool/late-result", {"id": "b", "output": large}),
        ("session/rewound", {"to": 3, "previous": None, "why": large}),
    ]
    whole, stubs = TurnState(), TurnState()
    for seq, (type, data) in enumerate(events):
        stub = stub_for(DIGEST, 9, type, data)
        assert large not in str(stub)
        assert whole.fold(seq, type, data) == stubs.fold(seq, type, stub)
        assert whole == stubs
    assert whole.fold(9, "turn/end", {"reason": large}) == stubs.fold(
        9, "turn/end", stub_for(DIGEST, 9, "turn/end", {})
    )
    assert whole == stubs
    assert {type for type, _ in events} | {"turn/end"} == FOLDED
