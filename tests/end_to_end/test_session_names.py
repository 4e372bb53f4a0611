"""End to end: names of sessions, which are data: unique in the store, and no part of any path."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.blocking import connect
from turnkeeper.actors.errors import InvalidValue, NotFound
from turnkeeper.actors.session import header as session_header
from turnkeeper.actors.session import opening as session_opening

pytestmark = pytest.mark.parametrize("kept_by", ["journal", "sqlite"])

KEYS = [
    "../../../outside",
    "/etc/passwd",
    "a/b",
    "a\\b",
    ".",
    "CON",
    "case",
    "CASE",
    unicodedata.normalize("NFC", "é"),
    unicodedata.normalize("NFD", "é"),
    "with space",
    "line\nbreak",
    "nul\0byte",
    "*",
    "x" * 256,
]
"""Names that a host may have, and that a file system would refuse, change or take for others."""


def test_a_host_may_name_a_session_as_it_likes(store: Path) -> None:
    """Each name is one session of its own, found by exactly that name, and none of them shows in a path."""
    ids = {}
    with connect(store) as runtime:
        for key in KEYS:
            with runtime.create_session(key=key) as session:
                session.append("my/key", {"key": key})
                ids[key] = session.id
        assert len(set(ids.values())) == len(KEYS)
        for key, id in ids.items():
            (event,) = runtime.read(key)
            assert (event.stream, event.data) == (id, {"key": key})
            with runtime.open_session(key, create=True) as session:
                assert session.id == id
        assert {each.key: each.id for each in runtime.sessions(limit=100)} == ids
    paths = [str(path.relative_to(store)) for path in store.rglob("*")]
    assert not [path for path in paths for id in ids.values() if id in path]
    assert sorted(os.listdir(store.parent)) == [store.name]


def test_an_id_that_is_taken_is_drawn_again(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever chance says, a new session never gets the id of one that is there, open or reserved."""
    drawn = iter(["red-fox-0000", "red-fox-0000", "red-fox-0001", "red-fox-0001", "red-fox-0002"])
    for module in (session_header, session_opening):
        monkeypatch.setattr(module, "new_session_id", lambda: next(drawn))
    with connect(store) as runtime:
        stored, reserved = runtime.create_session(), runtime.create_session()
        stored.append("my/n", {"n": 0})
        stored.close()
        third = runtime.create_session()
        assert [each.id for each in (stored, reserved, third)] == ["red-fox-0000", "red-fox-0001", "red-fox-0002"]
        assert [event.data["n"] for event in runtime.read("red-fox-0000")] == [0]


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("k" * 257, "a key has 1 to 256 characters, and this one has 257"),
        ("", "a key has 1 to 256 characters, and this one has 0"),
        ("a\ud83d", "a key can be encoded as UTF-8, and this one has a lone surrogate"),
        (7, "a key is a text, not int"),
    ],
)
def test_a_key_that_cant_be_one_is_refused_at_the_call(store: Path, key: Any, why: str) -> None:
    """Of a session or of an event; nothing is made, and whoever asks for such a name is told that it names nothing."""
    with connect(store) as runtime, runtime.create_session() as session:
        session.append("my/n", {"n": 0})
        for make in (
            lambda: runtime.create_session(key=key),
            lambda: runtime.open_session(key, create=True),
            lambda: session.append("my/n", {"n": 1}, key=key),
        ):
            with pytest.raises(InvalidValue, match=why):
                make()
        wanted_error = NotFound if isinstance(key, str) else TypeError
        for ask in (runtime.open_session, runtime.read, lambda name: next(runtime.follow(name, after=0))):
            with pytest.raises(wanted_error):
                ask(key)
        assert session.append("my/n", {"n": 1}, key="good") == 1
        assert [each.id for each in runtime.sessions()] == [session.id]
