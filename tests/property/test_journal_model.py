"""The journal against a model, one list a stream: random programs of requests, deaths, torn tails, lost indexes."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from turnkeeper.storage import journal as journal_module
from turnkeeper.storage.errors import Conflict, Exists, Fenced, NotFound, SessionBusy
from turnkeeper.storage.requests import Append, Appended, Grant, Granted
from turnkeeper.storage.verify import verify

from ..stores import StoreInTest, create, event, owner

STREAMS = st.sampled_from(["a", "b", "c", "d"])


class _Stream:
    """What the model knows of a stream: its lines with the epoch of each, its epoch, its owner."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, bytes]] = []
        self.epoch = 1
        self.owner: str | None = None
        self.keys: dict[str, int] = {}


class JournalMachine(RuleBasedStateMachine):
    """Drives a journal and its model side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, _Stream] = {}
        self.tokens = 0
        place = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=place, prefix="turnkeeper-test-"))

    @initialize()
    def make(self) -> None:
        """Begin with an empty store."""
        self.store = StoreInTest(self.directory / "store")
        self.journal = self.store.open()

    def teardown(self) -> None:
        """Check everything once more, with the index and without, and let go."""
        if hasattr(self, "store"):
            self.check_everything()
            self.store.end()
        shutil.rmtree(self.directory)

    # -- requests and what the model says of them

    def _append(self, request: Append) -> Any:
        """Apply an append to the model; give the kind of answer that is due, with its figures."""
        stream = self.model.get(request.stream)
        offered = [line + b"\n" for line in request.lines.split(b"\n")[:-1]]
        if stream is None:
            if not request.create:
                return NotFound
            stream = self.model[request.stream] = _Stream()
            stream.lines = [(1, line) for line in offered]
            stream.owner = (request.patch or {})["owner"]["token"]
            return (0, len(offered))
        stored = 0
        while stored < len(offered) and request.first + stored < len(stream.lines):
            if stream.lines[request.first + stored] != (request.epoch, offered[stored]):
                break
            stored += 1
        if stored == len(offered):
            return (request.first, request.first + len(offered))
        if request.create and stored == 0:
            return Exists
        if request.epoch != stream.epoch:
            return (Fenced, stored)
        if request.first + stored != len(stream.lines):
            return (Conflict, len(stream.lines), stored)
        stream.lines += [(request.epoch, line) for line in offered[stored:]]
        return (request.first, len(stream.lines))

    def _expect(self, request: Append, answer: Any, due: Any) -> None:
        if isinstance(due, type):
            assert isinstance(answer, due), (request, answer)
        elif isinstance(due[0], int):
            assert isinstance(answer, Appended), (request, answer)
            assert (answer.first, answer.head) == due
        elif due[0] is Fenced:
            assert isinstance(answer, Fenced), (request, answer)
            assert answer.stored == due[1]
        else:
            assert isinstance(answer, Conflict), (request, answer)
            assert (answer.expected, answer.stored) == due[1:]

    def _request(self, stream: str, back: int, count: int, epoch_offset: int, word: str) -> Append:
        """Make an append whose first may lie behind or beyond the head, and whose epoch may be old."""
        known = self.model.get(stream)
        if known is None:
            return create(stream, b"".join(event(stream, seq, word) for seq in range(count)))
        first = max(0, len(known.lines) - back)
        text = b"".join(event(stream, seq, word) for seq in range(first, first + count))
        return Append(stream, max(1, known.epoch - epoch_offset), first, text)

    appends = st.tuples(STREAMS, st.integers(-1, 3), st.integers(1, 4), st.integers(0, 1), st.sampled_from("xyz"))

    @rule(many=st.lists(appends, min_size=1, max_size=6))
    def append_many(self, many: list[tuple[str, int, int, int, str]]) -> None:
        """Commit several appends at once: each answer is the one that the model gives in turn."""
        requests, due = [], []
        for arguments in many:
            request = self._request(*arguments)
            requests.append(request)
            due.append(self._append(request))
        for request, answer, expected in zip(requests, self.journal.commit(requests), due, strict=True):
            self._expect(request, answer, expected)
        self.journal.between_commits()

    @rule(stream=STREAMS, takeover=st.booleans())
    def grant(self, stream: str, takeover: bool) -> None:
        """Ask for a stream: refused while a living owner has it, unless taken over."""
        self.tokens += 1
        token = f"t{self.tokens}"
        (answer,) = self.journal.commit([Grant(stream, owner(token), takeover=takeover)])
        known = self.model.get(stream)
        if known is None:
            assert isinstance(answer, NotFound)
        elif known.owner in self.store.alive and not takeover:
            assert isinstance(answer, SessionBusy)
        else:
            assert isinstance(answer, Granted)
            known.epoch += 1
            known.owner = token
            self.store.alive.add(token)
            assert (answer.epoch, answer.head) == (known.epoch, len(known.lines))

    @rule(stream=STREAMS)
    def release(self, stream: str) -> None:
        """The owner gives its stream back, by a patch alone."""
        known = self.model.get(stream)
        if known is not None:
            (answer,) = self.journal.commit([Append(stream, known.epoch, len(known.lines), b"", {"owner": None})])
            assert isinstance(answer, Appended)
            known.owner = None

    @rule(stream=STREAMS, key=st.sampled_from(["k1", "k2"]))
    def append_with_key(self, stream: str, key: str) -> None:
        """A line with a key is stored once."""
        known = self.model.get(stream)
        if known is None:
            return
        head = len(known.lines)
        line = event(stream, head, f"under {key}", time=self.tokens)
        (answer,) = self.journal.commit([Append(stream, known.epoch, head, line, key=key)])
        assert isinstance(answer, Appended)
        if key not in known.keys:
            known.lines.append((known.epoch, line))
            known.keys[key] = head
        assert (answer.first, answer.head) == (known.keys[key], known.keys[key] + 1)

    # -- deaths

    @rule()
    def close_and_open(self) -> None:
        """A clean close and opening changes nothing."""
        self.store.close()
        self.journal = self.store.open()
        assert self.journal.report.rebuilt == ""
        assert self.journal.report.findings == []

    @rule(anew=st.booleans(), garbage=st.binary(max_size=60))
    def die(self, anew: bool, garbage: bytes) -> None:
        """The writer dies in mid-write: garbage stands at the end, and the index may be gone."""
        end = self.journal.statistics()["end"]
        segment = self.journal.statistics()["segment"]
        kept = self.store.index_entries()
        self.store.kill()
        with self.store.segment(segment).open("r+b") as file:
            file.seek(end)
            file.write(garbage)
        if anew:
            self.store.delete_index()
        self.journal = self.store.open()
        assert {finding.kind for finding in self.journal.report.findings} <= {"torn tail"}
        assert self.store.index_entries() == kept

    @invariant()
    def heads_agree(self) -> None:
        """Head, epoch and owner of each stream are the model's."""
        for stream, known in self.model.items():
            row = self.journal.row(stream)
            assert (row.head, row.epoch) == (len(known.lines), known.epoch)
            assert (row.summary.get("owner") or {}).get("token") == known.owner

    @rule()
    def check_everything(self) -> None:
        """Every line is there, once, in order; verify finds nothing."""
        found = self.store.events()
        assert {stream: [line + b"\n" for line in some] for stream, some in found.items()} == {
            stream: [line for _, line in known.lines] for stream, known in self.model.items()
        }
        verification = verify(str(self.store.path), self.journal.index_directory, deep=True)
        assert verification.damaged == []
        assert verification.index_ok, verification.index_why
        assert verification.events == sum(len(known.lines) for known in self.model.values())


def _run(monkeypatch: pytest.MonkeyPatch, examples: int, steps: int) -> None:
    monkeypatch.setattr(journal_module, "SEGMENT_BYTES", 3000)
    run_state_machine_as_test(
        JournalMachine, settings=settings(max_examples=examples, stateful_step_count=steps, deadline=None)
    )


def test_random_programs_agree_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some dozens of programs over several segments, in every test run."""
    _run(monkeypatch, 15, 25)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_programs_agree_with_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of longer programs."""
    _run(monkeypatch, 1500, 60)


def test_bytes_once_acknowledged_are_never_written_again(tmp_path: Path) -> None:
    """Later appends and openings leave the prefix of the journal as it was."""
    rng = random.Random(5)
    store = StoreInTest(tmp_path / "store")
    journal = store.open()
    journal.commit([create("a", event("a", 0))])
    acknowledged = b""
    for seq in range(1, 60):
        journal.commit([Append("a", 1, seq, event("a", seq, "x" * rng.randrange(200)))])
        content = store.content()
        assert content.startswith(acknowledged)
        acknowledged = content
        if rng.random() < 0.2:
            store.kill()
            journal = store.open()
    store.end()
