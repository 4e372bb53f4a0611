"""Contract B20: two backends that are given the same random program answer alike, over reopenings and deaths."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from turnkeeper.storage import drafting
from turnkeeper.storage import reading as reading_module
from turnkeeper.storage.backend import Backend, BackendReader
from turnkeeper.storage.contract import creation, event, events, fork, owner, post
from turnkeeper.storage.errors import InvalidFork, InvalidLine, NotFound, StorageError, StoreFull
from turnkeeper.storage.requests import Append, Grant, Patch, Request, Result
from turnkeeper.storage.sqlite import answering

from .backends import BACKENDS, DirectoryStore

IDS = ("aa", "ab", "b", "p")
NAMES = (*IDS, "a", "key 1", "key 2", "z", "")
TOKENS = ("s", "t")
LONGEST_LINE = 2000
"""The limit of a line here, in bytes, so that longer ones are quickly made."""

_words = st.sampled_from(["x", "x", "x", "y"])
_long_words = st.sampled_from(["x", "x" * (LONGEST_LINE - len(event("aa", 0, ""))), "x" * LONGEST_LINE])
_summaries = st.one_of(
    st.none(),
    st.fixed_dictionaries({"title": _words}),
    st.fixed_dictionaries({"open_turn": st.one_of(st.none(), st.integers(0, 6))}),
    st.fixed_dictionaries({"deleted_to": st.one_of(st.none(), st.integers(-1, 6))}),
    st.fixed_dictionaries({"deleted_to": st.integers(0, 6), "title": _words}),
    st.fixed_dictionaries({"owner": st.none()}),
)
_patches = st.one_of(
    st.fixed_dictionaries(
        {"title": st.one_of(st.none(), _words), "labels": st.dictionaries(_words, st.one_of(st.none(), _words))}
    ),
    st.fixed_dictionaries({"deleted": st.one_of(st.none(), st.integers(1, 9))}),
    st.just({"open_turn": None}),
)


def _append(known: Known, id: str, draw: st.DrawFn) -> Request:
    """Draw an append whose number may lie behind or beyond the head, and whose epoch may be old."""
    first = max(0, known.head(id) - draw(st.sampled_from([0, 0, 0, 1, 2, 3, -1, -2])))
    texts = draw(st.sampled_from([_words, _words, _words, _words, _words, _words, _words, _words, _long_words]))
    lines = b"".join(event(id, first + place, draw(texts)) for place in range(draw(st.sampled_from([1, 2, 3, 0]))))
    epoch = max(1, known.epoch(id) - draw(st.sampled_from([0, 0, 0, 1])))
    key = draw(st.sampled_from([None, None, None, "k", "l"]))
    return Append(id, epoch, first, lines, draw(_summaries), key)


def _creation(known: Known, id: str, draw: st.DrawFn) -> Request:
    key = draw(st.sampled_from([{}, {"key": "key 1"}, {"key": "key 2"}]))
    lines = b"".join(event(id, seq, draw(_words)) for seq in range(draw(st.integers(0, 3))))
    return creation(id, lines, cwd=draw(_words), **key)


def _fork(known: Known, id: str, draw: st.DrawFn) -> Request:
    parent = draw(st.sampled_from(IDS))
    seq = max(-1, known.head(parent) - draw(st.integers(-1, 3)))
    return fork(id, parent, seq, event(id, seq) if draw(st.booleans()) and seq >= 0 else b"")


def _grant(known: Known, id: str, draw: st.DrawFn) -> Request:
    return Grant(id, owner(draw(st.sampled_from(TOKENS))), draw(st.booleans()))


def _patch(known: Known, id: str, draw: st.DrawFn) -> Request:
    return Patch(id, draw(_patches))


def _post(known: Known, id: str, draw: st.DrawFn) -> Request:
    """Draw a post to a stream that may have an owner, in the name of one that may have been taken over."""
    author = draw(st.sampled_from([None, None, *IDS]))
    epoch = max(0, known.epoch(author or "") - draw(st.sampled_from([0, 0, 0, 1])))
    summary, author_and_epoch = draw(_summaries), None if author is None else (author, epoch)
    key, text = draw(st.sampled_from(["k", "l", "m"])), draw(_words)
    return post(draw(st.sampled_from([id, "p", "p"])), key, text, patch=summary, author=author_and_epoch)


_KINDS: list[Callable[[Known, str, st.DrawFn], Request]] = [
    *(_append, _append, _append),
    *(_creation, _fork, _grant, _patch, _post, _post),
]


class Known:
    """What is stored before a commit, to draw requests that come near it."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def head(self, id: str) -> int:
        """Give a stream's head; 0 for one that isn't there."""
        return self._field(id, "head", 0)

    def epoch(self, id: str) -> int:
        """Give a stream's epoch; 1 for one that isn't there."""
        return self._field(id, "epoch", 1)

    def _field(self, id: str, name: str, default: int) -> int:
        try:
            value: int = getattr(self._backend.row(id), name)
        except NotFound:
            return default
        return value


@st.composite
def _requests(draw: st.DrawFn, known: Known) -> list[Request]:
    """Draw what one commit is given. A backend may group a commit's events by stream, so they are drawn so."""
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=5))
    drawn = [kind(known, draw(st.sampled_from(IDS)), draw) for kind in kinds]
    return sorted(drawn, key=lambda request: request.stream)


def comparable(answer: Result) -> Any:
    """Give what has to be the same of an answer: all but wording, and how much space there is."""
    if isinstance(answer, InvalidFork | InvalidLine):
        return type(answer), answer.args[:2]
    if isinstance(answer, StoreFull):
        return StoreFull
    if isinstance(answer, StorageError):
        return type(answer), answer.args
    return answer


def observed(reader: BackendReader) -> dict[str, Any]:
    """Look at everything that a reader can see."""
    rows = reader.rows(100, include_deleted=True)
    bounds: list[dict[str, int]] = [{}, {"start": 2}, {"stop": 3}, {"start": 1, "limit": 2}, {"size_max": 100}]
    return {
        "rows": rows,
        "listed": [row.id for row in reader.rows(100)],
        "titled": [row.id for row in reader.rows(2, title="x")],
        "labelled": [row.id for row in reader.rows(100, label=("x", "y"))],
        "placed": [row.id for row in reader.rows(100, cwd=("x", "z"), kind="session")],
        "owned": [row.id for row in reader.rows(2, having="owner", include_deleted=True)],
        "after": [row.id for row in reader.rows(100, (rows[0].position, rows[0].id))] if rows else [],
        "pages": {(id, number): _tried(reader.read, id, **bound) for id in IDS for number, bound in enumerate(bounds)},
        "last": {id: _tried(reader.read_last, id, 2) for id in IDS},
        "named": {name: _tried(reader.row, name) for name in NAMES},
        "scan": reader.scan(0, 1 << 20),
        "next": reader.next_position(),
    }


def _tried(function: Callable[..., Any], *arguments: Any, **bounds: int) -> Any:
    try:
        return function(*arguments, **bounds)
    except StorageError as error:
        return type(error), error.args


class Twins(RuleBasedStateMachine):
    """Drives the backends side by side."""

    def __init__(self) -> None:
        super().__init__()
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=place, prefix="turnkeeper-test-"))
        self.stores: list[DirectoryStore] = []
        self.backends: list[Backend] = []

    @initialize()
    def make(self) -> None:
        """Begin with stores that have one stream, which was taken over once."""
        self.stores = [DirectoryStore(self.directory / name, name) for name in BACKENDS]
        self.backends = [store.open() for store in self.stores]
        self._commit([creation("aa", events("aa", 0, 3, "x"), key="key 1"), Grant("aa", owner("s"))])
        self._commit([Append("aa", 2, 3, events("aa", 3, 2, "x")), post("p", "k", "x")])

    def teardown(self) -> None:
        """Let go of everything."""
        for store in self.stores:
            store.end()
        shutil.rmtree(self.directory)

    @rule(data=st.data(), times=st.integers(1, 6))
    def commit(self, data: st.DataObject, times: int) -> None:
        """Commit the same requests to each, some times."""
        for _ in range(times):
            self._commit(data.draw(_requests(Known(self.backends[0]))))

    @rule(data=st.data())
    def commit_without_space(self, data: st.DataObject) -> None:
        """Commit one request; of several it is for each backend to say what was refused because another was."""
        for store in self.stores:
            store.is_full = True
        self._commit(data.draw(_requests(Known(self.backends[0])))[:1])
        for store in self.stores:
            store.is_full = False

    def _commit(self, requests: list[Request]) -> None:
        answers = []
        for store, backend in zip(self.stores, self.backends, strict=True):
            store.now += 1
            answers.append([comparable(answer) for answer in backend.commit(requests)])
            backend.between_commits()
        for one, other in pairwise(answers):
            assert one == other, requests

    @rule(token=st.sampled_from([*TOKENS, *IDS]))
    def live_or_die(self, token: str) -> None:
        """Let an owner die, or live again."""
        for store in self.stores:
            store.alive ^= {token}

    @rule(orderly=st.booleans())
    def reopen(self, orderly: bool) -> None:
        """Open each again, closed in order or as its writer's death leaves it."""
        for store in self.stores:
            (store.close if orderly else store.die)()
            with closing(store.reader()) as reader:
                observed(reader)
        self.backends = [store.open() for store in self.stores]

    @invariant()
    def readers_see_the_same(self) -> None:
        """Everything that can be read is equal, and nothing is missing."""
        views = []
        for store, backend in zip(self.stores, self.backends, strict=True):
            with closing(store.reader()) as reader:
                views.append(observed(reader))
            assert backend.next_position == views[-1]["next"]
            assert all(_tried(backend.row, id) == views[-1]["named"][id] for id in IDS)
        for one, other in pairwise(views):
            assert one == other


@pytest.fixture(autouse=True)
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the limit of these tests."""
    for module in (drafting, answering):
        monkeypatch.setattr(module, "LINE_BYTES_MAX", LONGEST_LINE)


@pytest.fixture(autouse=True)
def looks_through_all_summaries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the journal's lists go over to that after one stream, and not only in stores of thousands."""
    monkeypatch.setattr(reading_module, "ROWS_WALKED_MAX", 1)


def test_backends_answer_alike() -> None:
    """Some programs in every run."""
    run_state_machine_as_test(Twins, settings=settings(max_examples=25, stateful_step_count=12, deadline=None))


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_backends_answer_alike_for_long() -> None:
    """Many and long programs."""
    run_state_machine_as_test(Twins, settings=settings(max_examples=2_000, stateful_step_count=40, deadline=None))
