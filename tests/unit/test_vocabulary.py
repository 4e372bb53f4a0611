"""Unit: which types may be appended, how a program's own are registered, and how older data is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.core_types import CORE_PREFIXES, CORE_TYPES, TASK_TYPES
from turnkeeper.actors.errors import InvalidValue
from turnkeeper.actors.folding import FOLDED
from turnkeeper.actors.records import Event
from turnkeeper.actors.vocabulary import WORDS_KEPT_MAX, Vocabulary


def event(type: str, seq: int, **data: Any) -> Event:
    """Make an event as it was read."""
    return Event(1, "a", seq, type, data, 0)


# -- Names


def test_every_core_type_may_be_appended_and_has_its_own_prefix() -> None:
    """The core types are known from the beginning, and what folding goes by is among them."""
    vocabulary = Vocabulary()
    assert all(vocabulary.word(type).check for type in CORE_TYPES)
    assert {type.partition("/")[0] for type in CORE_TYPES} <= CORE_PREFIXES
    assert set(CORE_TYPES) >= FOLDED


@pytest.mark.parametrize("type", ["note/seen", "x/y/z", "acme.inc/päge-2", "turns/start", "Turn/start", "codex/a"])
def test_a_type_of_ones_own_is_name_and_word(type: str) -> None:
    """Any name but the core ones, a slash and a word."""
    assert Vocabulary().word(type).check is None


@pytest.mark.parametrize(
    ("type", "why"),
    [
        ("", "isn't empty"),
        (7, "isn't empty"),
        ("note", "name/word"),
        ("/seen", "name/word"),
        ("note/", "name/word"),
        ("a//b", "name/word"),
        ("note/a b", "name/word"),
        ("note/*", "name/word"),
        ("note/a\n", "name/word"),
        ("note/\ud800", "name/word"),
        ("n/" + "x" * 255, "256 characters at most, and this has 257"),
        ("turn/began", "there is turn/start, turn/end;"),
        ("task/began", "there is task/stalled, task/ended;"),
        ("task/requested", "turnkeeper alone writes it, into the stream of the task"),
        ("task/started", "turnkeeper alone writes it, into the stream of the task"),
        ("snapshot/mine", "there is snapshot;"),
        ("assistant", "there is assistant/message, assistant/chunk;"),
    ],
)
def test_what_is_no_type_is_refused_and_says_why(type: Any, why: str) -> None:
    """Core prefixes are turnkeeper's, so that a later version can add words to them."""
    with pytest.raises(InvalidValue) as caught:
        Vocabulary().word(type)
    assert caught.value.path == "type"
    assert why in caught.value.why
    assert len(str(caught.value)) < 300


def test_names_that_were_met_are_remembered_within_a_bound() -> None:
    """A program that makes up types without end costs no memory without end."""
    vocabulary = Vocabulary()
    for number in range(WORDS_KEPT_MAX + 10):
        vocabulary.word(f"note/{number}")
    assert len(vocabulary.words) == len(CORE_TYPES) + WORDS_KEPT_MAX
    assert vocabulary.word("note/0") is vocabulary.word("note/0")


# -- Registration


def test_a_check_refuses_with_a_value_error_and_its_words() -> None:
    """On one line, with the check's exception as the cause; another exception is the program's own and passes."""

    def check(data: Mapping[str, Any]) -> None:
        if data["page"] < 1:
            raise ValueError("pages count\nfrom 1")

    vocabulary = Vocabulary()
    vocabulary.register("note/seen", check=check)
    word = vocabulary.word("note/seen")
    assert word.check is not None
    word.check("note/seen", {"page": 1})
    with pytest.raises(InvalidValue, match=r"^event 0 \(note/seen\) at \$: pages count from 1$") as caught:
        word.check("note/seen", {"page": 0})
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(KeyError):
        word.check("note/seen", {})


def test_a_check_may_name_the_place_itself() -> None:
    """An InvalidValue of its own passes as it is."""

    def check(data: Mapping[str, Any]) -> None:
        raise InvalidValue(0, "note/seen", "$.page", "missing")

    vocabulary = Vocabulary()
    vocabulary.register("note/seen", check=check)
    with pytest.raises(InvalidValue, match=r"\$\.page: missing"):
        vocabulary.words["note/seen"].check("note/seen", {})  # type: ignore[misc]


def test_registering_a_type_that_was_met_counts_from_then_on() -> None:
    """Whoever looks words up in the same table finds the registered one."""
    vocabulary = Vocabulary()
    met = vocabulary.word("note/seen")
    vocabulary.register("note/seen", critical=True)
    assert vocabulary.word("note/seen") is not met
    assert vocabulary.word("note/seen").is_critical
    assert vocabulary.known == ["note/seen"]


@pytest.mark.parametrize(
    ("type", "options", "why"),
    [
        ("turn/start", {}, "core types are known already"),
        ("turn/began", {}, "no such core type"),
        ("note", {}, "name/word"),
        ("my/own", {"version": 0}, "without a gap to 0"),
        ("my/own", {"version": 3, "upgrades": {1: dict}}, r"without a gap to 3, not \[1\]"),
        ("my/own", {"version": 2, "upgrades": {1: dict, 2: dict}}, r"without a gap to 2, not \[1, 2\]"),
        ("my/own", {"version": 2, "upgrades": {0: dict, 1: dict}}, "without a gap"),
        ("known/one", {}, "known/one is registered already"),
    ],
)
def test_what_cant_be_registered_says_why(type: str, options: dict[str, Any], why: str) -> None:
    """A mistake in the program is told at once, and nothing is registered."""
    vocabulary = Vocabulary()
    vocabulary.register("known/one")
    with pytest.raises(ValueError, match=why):
        vocabulary.register(type, **options)
    assert vocabulary.known == ["known/one"]


# -- Versions


def numbered() -> Vocabulary:
    """Make a vocabulary whose type had two versions before the present one."""
    vocabulary = Vocabulary()
    vocabulary.register(
        "my/own",
        version=3,
        upgrades={
            1: lambda data: {"steps": [*data.get("steps", []), 1]},
            2: lambda data: {"steps": [*data["steps"], 2]},
        },
    )
    return vocabulary


@pytest.mark.parametrize(
    ("seq", "schemas", "steps"),
    [
        (0, {}, [1, 2]),
        (4, {"my/own": [[3, 5]]}, [1, 2]),
        (5, {"my/own": [[3, 5]]}, []),
        (5, {"my/own": [[2, 3], [3, 6]]}, [2]),
        (6, {"my/own": [[2, 3], [3, 6]]}, []),
        (9, {"my/own": [[3, 3], [1, 8]]}, [1, 2]),
        (9, {"my/own": [[4, 8]]}, []),
        (9, {"other/own": [[3, 3]]}, [1, 2]),
    ],
)
def test_an_event_is_read_through_the_upgrades_from_its_version_on(
    seq: int, schemas: dict[str, list[list[int]]], steps: list[int]
) -> None:
    """Its version is the last one that began at or before it, 1 before any; a newer one than is known is left alone."""
    vocabulary = numbered()
    read = event("my/own", seq, steps=[])
    other = event("my/other", seq, steps=[])
    vocabulary.upgrade([read, other], schemas)
    assert read.data["steps"] == steps
    assert other.data == {"steps": []}


def test_a_version_from_which_no_upgrade_leads_stays_as_it_is() -> None:
    """The chain may begin later than with version 1."""
    vocabulary = Vocabulary()
    vocabulary.register("my/own", version=3, upgrades={2: lambda data: {**data, "new": True}})
    read = [event("my/own", 0), event("my/own", 5)]
    vocabulary.upgrade(read, {"my/own": [[2, 5]]})
    assert [each.data for each in read] == [{}, {"new": True}]


@pytest.mark.parametrize(
    ("upgrade", "why"),
    [(lambda data: data["gone"], "failed: KeyError: 'gone'"), (lambda data: [data], "gave a list")],
)
def test_an_upgrade_that_fails_is_named_with_the_event(upgrade: Any, why: str) -> None:
    """The event's number, its type and the version; the event is left as it was."""
    vocabulary = Vocabulary()
    vocabulary.register("my/own", version=2, upgrades={1: upgrade})
    read = event("my/own", 17, x=1)
    with pytest.raises(InvalidValue, match=r"^event 17 \(my/own\) at \$: its upgrade from version 1 ") as caught:
        vocabulary.upgrade([read], {})
    assert why in str(caught.value)
    assert read.data == {"x": 1}


# -- The document


def test_the_architecture_names_each_core_type_with_its_members() -> None:
    """The table has every core type, and of each exactly its shape's members, `?` where they may be missing."""
    known = {**CORE_TYPES, **TASK_TYPES}
    rows: dict[str, set[str]] = {}
    for line in (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text().split("\n"):
        types, members = (re.findall(r"`([^`]+)`", cell) for cell in [*line.split("|"), "", "", ""][1:3])
        if any(type in known for type in types):
            rows |= {type: set(members) for type in types}
    assert rows == {type: {*shape.required, *(f"{name}?" for name in shape.optional)} for type, shape in known.items()}
