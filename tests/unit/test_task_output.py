"""A task's output in its file: any piece of it, whatever its size and whatever became of the file."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.actors.tasks.output import OUTPUT_BYTES_MAX, Output, read_end, read_output


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Name the file."""
    return str(tmp_path / "output.log")


def write(path: str, content: bytes) -> None:
    """Make the output's file."""
    Path(path).write_bytes(content)


def lines(count: int) -> bytes:
    """Make some numbered lines."""
    return b"".join(b"line %d\n" % number for number in range(count))


def test_a_small_output_is_given_whole(path: str) -> None:
    """Without limits all that is there is given, with its place."""
    write(path, lines(3))
    assert read_output(path) == Output(lines(3), 0, 21, False)
    assert read_output(path, start=7) == Output(b"line 1\nline 2\n", 7, 21, False)
    assert read_output(path, start=21) == Output(b"", 21, 21, False)


@pytest.mark.parametrize(
    ("head", "data", "is_truncated"),
    [
        (0, b"", True),
        (1, b"line 0\n", True),
        (2, b"line 0\nline 1\n", True),
        (3, lines(3), False),
        (9, lines(3), False),
    ],
)
def test_the_first_lines(path: str, head: int, data: bytes, is_truncated: bool) -> None:
    """So many lines from the beginning, or fewer if there are no more."""
    write(path, lines(3))
    assert read_output(path, head=head) == Output(data, 0, len(data), is_truncated)


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize(("last", "offset"), [(0, None), (1, 14), (2, 7), (3, 0), (9, 0)])
def test_the_last_lines(path: str, last: int, offset: int | None, end: bytes) -> None:
    """So many lines up to the end, whether or not the last one is ended."""
    content = lines(3)[:-1] + end
    write(path, content)
    begin = len(content) if offset is None else offset
    assert read_output(path, last=last) == Output(content[begin:], begin, len(content), begin > 0)


def test_a_line_that_ends_where_a_block_does(path: str) -> None:
    """A newline at the end of what is read at once ends a line like any other."""
    write(path, b"a\n" + b"x" * 65_535 + b"\n")
    assert read_output(path, last=1).offset == 2
    assert read_output(path, last=2).offset == 0


def test_lines_from_a_place_on(path: str) -> None:
    """First and last lines are counted from the place that is asked for."""
    write(path, lines(9))
    assert read_output(path, start=14, head=1).data == b"line 2\n"
    assert read_output(path, start=56, last=5) == Output(b"line 8\n", 56, 63, False)


@given(st.lists(st.sampled_from([b"\n", b"a", b"bc\n", b"\n\n", b"x" * 70_000, b"y" * 65_536 + b"\n"]), max_size=12))
def test_first_and_last_lines_are_those_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes]
) -> None:
    """Read block by block from either end, lines are the same as if all was read and split."""
    path = str(tmp_path_factory.getbasetemp() / "some-output.log")
    content = b"".join(parts)
    write(path, content)
    split = content.splitlines(keepends=True)
    for count in (1, 2, 5):
        assert read_output(path, head=count).data == b"".join(split[:count])
        assert read_output(path, last=count).data == b"".join(split[-count:])


def test_the_last_bytes(path: str) -> None:
    """So many bytes from the end, or all if there are fewer; what can't be read is a note."""
    write(path, lines(3))
    assert read_end(path, 8) == Output(b"\nline 2\n", 13, 21, True)
    assert read_end(path, 99) == Output(lines(3), 0, 21, False)
    os.remove(path)
    assert read_end(path, 8) == Output(b"", 0, 0, False, "the output's file is not there")


def test_of_a_file_of_any_size_only_a_piece_is_read(path: str) -> None:
    """First lines, last lines and pieces of many gigabytes take no more memory than a piece."""
    with open(path, "wb") as file:
        file.write(b"first\n")
        file.seek(40 * 1024**3)
        file.write(b"\nlast but one\nlast\n")
    size = os.path.getsize(path)
    tracemalloc.start()
    assert read_output(path, head=1) == Output(b"first\n", 0, 6, True)
    assert read_output(path, last=2) == Output(b"last but one\nlast\n", size - 18, size, True)
    middle = read_output(path, start=10**9)
    assert (len(middle.data), middle.offset, middle.truncated) == (OUTPUT_BYTES_MAX, 10**9, True)
    assert middle.end == middle.offset + len(middle.data)
    endless = read_output(path, last=9)
    assert (endless.end, len(endless.data), endless.truncated) == (size, OUTPUT_BYTES_MAX, True)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * OUTPUT_BYTES_MAX


def test_a_piece_is_readable(path: str) -> None:
    """Its text is what a terminal would show."""
    write(path, b"\x1b[31m  0%\r100%\x1b[0m caf\xe9\n")
    assert read_output(path).text == "100% caf\ufffd\n"


def test_last_lines_are_those_of_the_screen(path: str) -> None:
    """Where a program goes up to redraw lines, the text has the last lines as they stand in the end."""
    frames = b"".join(b"\router %d\n\rinner %d\x1b[A" % (number, number) for number in range(9))
    write(path, b"first\n" + frames + b"\n\n")
    assert read_output(path, last=2).text == "outer 8\ninner 8\n"
    assert read_output(path, last=9).text == "first\nouter 8\ninner 8\n"
    assert read_output(path, last=0).text == ""
    write(path, b"first\n" + frames)
    assert read_output(path, last=2).text == "outer 8\ninner 8"


def test_what_became_of_the_file_is_a_note(path: str) -> None:
    """A file that is missing, emptied, replaced by something else or unreadable is no error: the piece says so."""
    assert read_output(path, start=5) == Output(b"", 5, 5, False, "the output's file is not there")
    write(path, b"abc")
    assert read_output(path, start=5) == Output(b"", 3, 3, False, "the output was truncated: it has 3 bytes")
    os.remove(path)
    os.mkdir(path)
    what = "it is no plain file any more"
    assert read_output(path, last=3) == Output(b"", 0, 0, False, f"the output's file can't be read ({what})")
    os.rmdir(path)
    os.mkfifo(path)
    assert read_output(path).note == f"the output's file can't be read ({what})"
    os.remove(path)
    os.symlink("/etc/hostname", path)
    assert read_output(path).note == "the output's file can't be read (Too many levels of symbolic links)"
    assert read_output(f"{path}/output.log").note == "the output's file can't be read (Not a directory)"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_rights_is_a_note(path: str) -> None:
    """So is one that may not be read."""
    write(path, b"abc")
    os.chmod(path, 0)
    assert read_output(path).note == "the output's file can't be read (Permission denied)"


def test_wrong_questions_are_refused(path: str) -> None:
    """First and last lines at once, or less than none, are mistakes of the caller."""
    write(path, b"abc")
    with pytest.raises(ValueError, match="not for both"):
        read_output(path, head=1, last=1)
    for wrong in ({"start": -1}, {"head": -1}, {"last": -1}):
        with pytest.raises(ValueError, match="negative"):
            read_output(path, **wrong)
