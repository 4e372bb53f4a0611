"""Following a task's output while the task does things to its file; each step comes between two looks."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnkeeper.actors.tasks.output import Output
from turnkeeper.actors.tasks.output_following import GROWING_SECONDS, IDLE_SECONDS, OutputFollowing

Step = Callable[[], object]

TRUNCATED = "the output was truncated, and is read from its beginning"
GONE = "the output's file is not there"
ANOTHER = "another file stands in the output's place, and is read, too"


class Task:
    """A task that writes to its file, step by step: one each time a follower waits. It has ended when all are done."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.waits: list[float] = []
        self.steps: list[Step] = []

    async def ended(self, seconds: float) -> bool:
        """Do the next step instead of waiting."""
        await anyio.lowlevel.checkpoint()
        self.waits.append(seconds)
        if self.steps:
            self.steps.pop(0)()
        return not self.steps

    def print(self, text: str) -> Step:
        """Write to where the command's output goes."""
        return lambda: self.file.write(text.encode())

    def append(self, text: str) -> Step:
        """Write to what stands at the path."""

        def step() -> None:
            with self.path.open("ab") as file:
                file.write(text.encode())

        return step

    def empty(self) -> None:
        """Empty the file, as `: > file` does."""
        os.truncate(self.path, 0)

    def rename(self) -> None:
        """Move it out of the way."""
        self.path.rename(self.path.with_suffix(".1"))

    def remove(self) -> None:
        """Delete it."""
        self.path.unlink()

    def change(self, name: str) -> None:
        """Do to the file what is named so, if there is one."""
        changes = {"empty": self.empty, "rename": self.rename, "remove": self.remove}
        if name in changes and self.path.exists():
            changes[name]()

    async def follow(self, *steps: Step, start: int = 0, limit: int | None = None) -> list[Output]:
        """Follow to the end while the steps are done."""
        self.steps = list(steps)
        following = OutputFollowing(str(self.path), self.ended, start=start, limit=limit)
        return [piece async for piece in following]


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Task]:
    """Make a task with an empty output."""
    task = Task(tmp_path / "output.log")
    with task.file:
        yield task


def told(pieces: Sequence[Output]) -> list[tuple[int, bytes, str | None]]:
    """Give what of the pieces matters here, and check the rest."""
    assert all(piece.end == piece.offset + len(piece.data) for piece in pieces)
    return [(piece.offset, piece.data, piece.note) for piece in pieces]


pytestmark = pytest.mark.anyio


async def test_what_is_written_comes_piece_by_piece(task: Task) -> None:
    """Each look gives what is new, with its place, and the last one what was written before the end."""
    pieces = await task.follow(task.print("one\n"), task.print("two\n"), lambda: None, task.print("half"))
    assert told(pieces) == [(0, b"one\n", None), (4, b"two\n", None), (8, b"half", None)]


async def test_following_begins_where_it_is_told_to(task: Task) -> None:
    """What was read before isn't given again."""
    task.print("one\ntwo\n")()
    assert told(await task.follow(task.print("three\n"), start=4)) == [(4, b"two\n", None), (8, b"three\n", None)]


async def test_emptied_and_written_anew(task: Task) -> None:
    """After a truncation it goes on at the beginning, says so, and gives each line once."""
    pieces = await task.follow(task.print("1\n2\n3\n"), task.empty, task.print("4\n"), task.print("5\n"))
    assert told(pieces) == [(0, b"1\n2\n3\n", None), (0, b"", TRUNCATED), (0, b"4\n", None), (2, b"5\n", None)]


@pytest.mark.parametrize("text", ["4\n5\n6\n", "4\n5\n6\n7\n"])
async def test_emptied_and_grown_beyond_the_place_between_two_looks(task: Task, text: str) -> None:
    """That it is as long as before, or longer, hides nothing."""

    def write_anew() -> None:
        task.empty()
        task.print(text)()

    task.print("1\n2\n3\n")()
    assert told(await task.follow(write_anew)) == [(0, b"1\n2\n3\n", None), (0, text.encode(), TRUNCATED)]


async def test_a_place_that_is_not_there_any_more(task: Task) -> None:
    """Whoever goes on behind the end of a file that was emptied meanwhile reads it from the beginning."""
    task.print("1\n")()
    assert told(await task.follow(start=100)) == [(0, b"1\n", TRUNCATED)]


async def test_renamed_and_begun_anew(task: Task) -> None:
    """Both files are read: the old one, into which the command goes on writing, and the new one."""
    pieces = await task.follow(
        task.print("old\n"), task.rename, task.append("new\n"), task.print("old 2\n"), task.append("new 2\n")
    )
    assert told(pieces) == [
        (0, b"old\n", None),
        (4, b"", GONE),
        (0, b"new\n", ANOTHER),
        (4, b"old 2\n", None),
        (4, b"new 2\n", None),
    ]


async def test_both_files_are_read_before_it_waits(task: Task) -> None:
    """That one of them is at its end doesn't mean that there is nothing more to read."""

    def begin_another() -> None:
        task.rename()
        task.append("new")()

    def write_both() -> None:
        task.append("x" * 700_000)()
        task.print("old")()

    pieces = await task.follow(task.print("old"), begin_another, write_both, task.empty)
    assert sum(len(piece.data) for piece in pieces) == len("oldnewold") + 700_000


async def test_renamed_again_and_again(task: Task) -> None:
    """Each new file is read to its end, and no more than two are held open."""
    open_files: list[int] = []
    count = partial(os.listdir, "/proc/self/fd")
    before = len(count())
    steps: list[Step] = []
    for text in ("a", "b", "c"):
        steps += [task.append(text), task.rename, task.append(text.upper()), lambda: open_files.append(len(count()))]
    pieces = await task.follow(*steps)
    assert b"".join(piece.data for piece in pieces) == b"aAbBcC"
    assert open_files == [before + 2, before + 2, before + 2]
    assert len(count()) == before


async def test_deleted_while_the_command_writes_on(task: Task) -> None:
    """The file is gone, which is said once, and what the command writes is read all the same."""
    pieces = await task.follow(task.print("one\n"), task.remove, lambda: None, task.print("two\n"))
    assert told(pieces) == [(0, b"one\n", None), (4, b"", GONE), (4, b"two\n", None)]


async def test_not_there_yet(task: Task) -> None:
    """A file that comes later is read from then on, and that it wasn't there is nothing to tell."""
    task.remove()
    assert told(await task.follow(lambda: None, task.append("one\n"))) == [(0, b"one\n", None)]


async def test_never_there(task: Task) -> None:
    """At the end it is said that there was nothing to read."""
    task.remove()
    assert told(await task.follow(lambda: None, start=3)) == [(3, b"", GONE)]


async def test_something_else_in_its_place(task: Task) -> None:
    """A directory, or whatever can't be read, is said once."""

    def replace() -> None:
        task.remove()
        task.path.mkdir()

    pieces = await task.follow(replace, lambda: None, task.print("one\n"))
    what = "the output's file can't be read (it is no plain file any more)"
    assert told(pieces) == [(0, b"", what), (0, b"one\n", None)]


async def test_what_is_to_be_cut_off_is_not_given(task: Task) -> None:
    """Behind the limit nothing counts until the task has ended; so the cut isn't taken for a new beginning."""
    steps = [task.print("0123456789"), task.print("more"), lambda: os.truncate(task.path, 8), task.print("[cut]")]
    pieces = await task.follow(*steps, limit=8)
    assert told(pieces) == [(0, b"01234567", None), (8, b"[cut]", None)]


async def test_survivors_do_not_prolong_it(task: Task) -> None:
    """What is written behind the end belongs to nobody who follows to the end."""
    task.print("x" * 500_000)()
    following = OutputFollowing(str(task.path), task.ended)
    size = 0
    async for piece in following:
        size += len(piece.data)
        if not piece.truncated:
            task.steps = []
        task.print("more")()
    assert size <= 500_000 + 3 * 4


async def test_cancelled_it_loses_nothing(task: Task) -> None:
    """A step of the iteration that is cancelled while it waits is done again by the next one."""
    released = False

    async def ended(seconds: float) -> bool:
        if not released:
            await anyio.sleep_forever()
        return True

    task.print("one\n")()
    following = OutputFollowing(str(task.path), ended)
    assert (await anext(following)).data == b"one\n"
    with anyio.move_on_after(0):
        await anext(following)
    task.print("two\n")()
    released = True
    assert [piece.data async for piece in following] == [b"two\n"]


async def test_looks_become_rare_while_nothing_comes(task: Task) -> None:
    """It looks often while the file grows and for a while after, and seldom then."""
    await task.follow(*[lambda: None] * 12, task.print("x"), lambda: None)
    assert task.waits == [GROWING_SECONDS] * 9 + [IDLE_SECONDS] * 4 + [GROWING_SECONDS]


async def test_much_output_takes_no_memory(task: Task) -> None:
    """A file of any size goes by in pieces of a bounded size."""
    os.truncate(task.path, 200 * 1024**2)
    following = OutputFollowing(str(task.path), task.ended)
    tracemalloc.start()
    size = 0
    async for piece in following:
        size += len(piece.data)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size == 200 * 1024**2
    assert most < 4 * 1024**2


WRITING = ("print", "append", "much", "much more")
STEPS = st.lists(st.sampled_from([*WRITING, "empty", "rename", "remove", "nothing"]), max_size=15)


@given(STEPS)
@example(["print", "rename", "append", "print", "empty", "append", "remove", "append", "print"])
def test_each_line_is_seen_once(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    """Whatever a task does between two looks: each line it wrote is seen, and seen once."""
    task = Task(tmp_path_factory.mktemp("output") / "output.log")
    lines = [f"{number} {'x' * (700_000 if 'much' in name else 3)}\n" for number, name in enumerate(names)]
    steps: list[Step] = []
    for name, line in zip(names, lines, strict=True):
        if name in WRITING:
            steps.append(task.append(line) if name in ("append", "much more") else task.print(line))
        else:
            steps.append(partial(task.change, name))
    with task.file:
        pieces = anyio.run(task.follow, *steps, backend="asyncio")
    written = [line for name, line in zip(names, lines, strict=True) if name in WRITING]
    seen = b"".join(piece.data for piece in pieces).decode()
    assert sorted(seen.splitlines(keepends=True)) == sorted(written)
