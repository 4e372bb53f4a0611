"""Unit: what an event's data has to be, and how it is said where it isn't."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.core_types import CORE_TYPES
from turnkeeper.actors.errors import InvalidValue
from turnkeeper.actors.shapes import ANYTHING, COUNT, LIST, NAME, OBJECT, TEXT, ListOf, OneOf, OrNull, Shape

INNER = Shape({"id": NAME}, {"rest": OBJECT})
SHAPE = Shape(
    {"id": NAME, "text": TEXT},
    {
        "n": COUNT,
        "any": ANYTHING,
        "list": LIST,
        "object": OBJECT,
        "how": OneOf("fast", "slow"),
        "maybe": OrNull(COUNT),
        "parts": ListOf("a list of parts", INNER),
    },
)
RIGHT: dict[str, Any] = {"id": "a", "text": ""}


def refusal(data: Any) -> tuple[str, str]:
    """Give path and reason of a refusal."""
    with pytest.raises(InvalidValue) as caught:
        SHAPE.check("my/type", data)
    assert (caught.value.event, caught.value.type) == (0, "my/type")
    return caught.value.path, caught.value.why


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"n": 0},
        {"any": None},
        {"any": [1, {"x": 2}]},
        {"list": []},
        {"list": (1, 2)},
        {"object": {}},
        {"object": MappingProxyType({})},
        {"how": "slow"},
        {"maybe": None},
        {"maybe": 7},
        {"parts": []},
        {"parts": [{"id": "a"}, {"id": "b", "rest": {}, "more": 1}]},
        {"parts": ({"id": "a"},)},
        {"more": float("nan"), "and": {"more": Ellipsis}},
    ],
    ids=repr,
)
def test_what_has_the_shape_passes(members: dict[str, Any]) -> None:
    """Members that the shape doesn't name are the program's, whatever they are; any mapping will do."""
    SHAPE.check("my/type", RIGHT | members)
    SHAPE.check("my/type", MappingProxyType(RIGHT | members))


@pytest.mark.parametrize(
    ("members", "path", "why"),
    [
        ({"id": ""}, "$.id", "must be a text that isn't empty, not ''"),
        ({"id": 7}, "$.id", "must be a text that isn't empty, not 7"),
        ({"text": None}, "$.text", "must be a text, not null"),
        ({"text": b"x"}, "$.text", "must be a text, not a bytes"),
        ({"n": -1}, "$.n", "must be an integer from 0 on, not -1"),
        ({"n": True}, "$.n", "must be an integer from 0 on, not true"),
        ({"n": 1.0}, "$.n", "must be an integer from 0 on, not 1.0"),
        ({"list": "abc"}, "$.list", "must be a list, not 'abc'"),
        ({"list": {}}, "$.list", "must be a list, not an object"),
        ({"object": [1]}, "$.object", "must be an object, not a list"),
        ({"how": "x" * 50}, "$.how", f"must be one of fast, slow, not '{'x' * 40}'…"),
        ({"how": ["fast"]}, "$.how", "must be one of fast, slow, not a list"),
        ({"maybe": "1"}, "$.maybe", "must be an integer from 0 on or null, not '1'"),
        ({"parts": {"id": "a"}}, "$.parts", "must be a list of parts, not an object"),
        ({"parts": [{"id": "a"}, 7]}, "$.parts[1]", "must be an object, not 7"),
        ({"parts": [{}]}, "$.parts[0].id", "must be a text that isn't empty, and is missing"),
        ({"parts": [{"id": "a", "rest": []}]}, "$.parts[0].rest", "must be an object, not a list"),
    ],
    ids=repr,
)
def test_what_has_not_is_named_with_its_place(members: dict[str, Any], path: str, why: str) -> None:
    """The path leads to the value, and the reason says what it has to be and what it is, in short."""
    assert refusal(RIGHT | members) == (path, why)
    assert refusal(MappingProxyType(RIGHT | members)) == (path, why)


def test_a_missing_member_and_what_is_no_mapping_are_named() -> None:
    """A required member has to be there, and an event's data is an object."""
    assert refusal({"id": "a"}) == ("$.text", "must be a text, and is missing")
    assert refusal([1]) == ("$", "must be an object, not a list")


plain = st.none() | st.booleans() | st.integers(-2, 2) | st.floats() | st.sampled_from(["", "a", "once"])
values = st.recursive(plain, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["id", "name"]), inner))


@given(st.sampled_from(list(CORE_TYPES)), st.data())
def test_the_quick_look_says_what_the_close_one_does(type: str, data: st.DataObject) -> None:
    """Whatever is drawn for a core type's members: refused at once, or not, exactly as the whole check finds."""
    shape = CORE_TYPES[type]
    members = [*shape.required, *shape.optional, "more"]
    drawn = data.draw(st.dictionaries(st.sampled_from(members), values))
    fault = shape.fault(drawn, "$")
    assert _refused(shape, drawn) == (fault is not None)
    assert _refused(shape, MappingProxyType(drawn)) == (fault is not None)


def _refused(shape: Shape, data: Mapping[str, Any]) -> bool:
    try:
        shape.check("a/b", data)
    except InvalidValue:
        return True
    return False
