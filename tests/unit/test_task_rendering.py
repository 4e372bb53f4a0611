"""Output as people read it: as a terminal would leave it, in bounded memory, however the bytes arrive."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnkeeper.actors.tasks.rendering import COLUMNS_MAX, LINE_CHARACTERS_MAX, WINDOW_LINES, Renderer, render


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("", ""),
        ("a\n\n  b\t c \n", "a\n\n  b\t c \n"),
        ("no newline", "no newline"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("  0%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        ("long line\rshort", "shortline"),
        ("long line\r\x1b[Kshort", "short"),
        ("long line\x1b[2K\x1b[1Gshort", "short"),
        ("working   \r          \rdone", "done"),
        ("abc\b\bX", "aXc"),
        ("a\bb\bc\n", "c\n"),
        ("\b\b\r\x1b[99D\x1b[99Ax", "x"),
        ("\x1b[31mred\x1b[0m \x1b[38;2;1;2;3mrgb\x1b[m", "red rgb"),
        ("\x1b]8;;http://x\x07link\x1b]8;;\x07 \x1b]0;title\x1b\\end", "link end"),
        ("\x1b[?25lhidden\x1b[?25h \x1b(Bset \x1b=keys \x1bPq#0\x1b\\end", "hidden set keys end"),
        ("\x1b]0;a title without an end\nnext", "\nnext"),
        ("a\x00b\x07c\x7fd\x9be\x0ef", "abcdef"),
        ("page\x0cnext\x0bline", "page\nnext\nline"),
        ("ab\x1b[3Cc", "ab   c"),
        ("ab\x1b[1Dc", "ac"),
        ("abcdef\x1b[3G\x1b[Xx", "abxdef"),
        ("abcdef\x1b[3G\x1b[1Kx", "  xdef"),
        ("\x1b", ""),
        ("a\x1b[3", "a"),
        ("a\x1b[" + "3" * 80 + "mb", "a[" + "3" * 80 + "mb"),
    ],
)
def test_a_line_is_as_a_terminal_leaves_it(output: str, text: str) -> None:
    """What is written over is gone, what steers a terminal is not shown, and plain text stays as it is."""
    assert render(output.encode()) == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("outer 0\n\rinner 9\x1b[A\router 1\n\rinner 5\x1b[A\n\nend", "outer 1\ninner 5\nend"),
        ("a\nb\nc\x1b[2Ax", "ax\nb\nc"),
        ("a\nb\nc\x1b[2F\x1b[Jx", "x"),
        ("a\nb\x1b[A\x1b[Bc", "a\nbc"),
        ("a\nb\nc\x1b[99A\x1b[2Bx", "a\nb\ncx"),
        ("a\nb\nc\x1b[2A\x1b[Ex", "a\nx\nc"),
        ("\x1b[2;3Hx\x1b[1;1Hy", "y\n  x"),
        ("a\nb\x1b7\nc\x1b8x", "a\nbx\nc"),
        ("a\nb\x1b[s\nc\x1b[u\x1b[Mx", "a\nbx\nc"),
        ("a\nb\x1bMx", "ax\nb"),
        ("a\x1bEb", "a\nb"),
        ("a\nb\nc\x1b[1J", "\n\n"),
        ("before\n\x1b[2J\x1b[Hfirst\n\x1b[2J\x1b[Hsecond\n", "before\nfirst\nsecond\n"),
        ("before\n\x1b[2J\x1b[Hone\ntwo\x1b[HONE", "before\nONE\ntwo"),
        ("before\x1bcafter", "before\nafter"),
    ],
)
def test_lines_above_can_be_redrawn(output: str, text: str) -> None:
    """The cursor moves among the last lines, and a screen that is cleared keeps what stood there above it."""
    assert render(output.encode()) == text


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (b"caf\xe9 100%\n", "caf\ufffd 100%\n"),
        (b"rocket \xf0\x9f", "rocket \ufffd"),
        (b"\xed\xa0\x80\xff\xfe", "\ufffd\ufffd\ufffd\ufffd\ufffd"),
        ("\u2028é\u0301漢\U0001f680".encode(), "\u2028é\u0301漢\U0001f680"),
    ],
)
def test_what_is_no_utf8_is_replaced(output: bytes, text: str) -> None:
    """Bytes of another encoding, half characters and surrogates become a replacement character; all else stays."""
    assert render(output) == text


def test_only_the_last_lines_can_be_redrawn() -> None:
    """What has left the window stays as it was, however far up the cursor is moved."""
    lines = [f"line {number}\n" for number in range(WINDOW_LINES + 9)]
    text = render("".join(lines).encode() + b"\x1b[999Anew")
    assert text == "".join(lines).replace("line 10\n", "newe 10\n")


def test_lines_come_as_soon_as_they_are_settled() -> None:
    """What can't change any more is given at once, what can when it is asked for, and nothing twice."""
    renderer = Renderer()
    assert renderer.feed(b"a\nb\nc") == ""
    assert renderer.settle() == "a\nb\n"
    assert renderer.settle() == ""
    assert renderer.feed(b"\rd" + b"\n" * WINDOW_LINES) == "d\n"
    assert renderer.feed(b"e\xc3") == ""
    assert renderer.finish() == "\n" * (WINDOW_LINES - 1) + "e\ufffd"


def test_a_long_line_is_cut_and_says_so() -> None:
    """Of a line that doesn't end the beginning is kept, and how much is missing, in little memory."""
    renderer = Renderer()
    piece = b"x" * 1_000_000
    tracemalloc.start()
    text = "".join(renderer.feed(piece) for _ in range(100))
    text += renderer.feed(b"\nnext\n") + renderer.finish()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(piece)
    missing = 100_000_000 - LINE_CHARACTERS_MAX
    assert text == "x" * LINE_CHARACTERS_MAX + f" … [{missing:,} characters cut]\nnext\n"


def test_long_lines_among_many_are_cut_alike() -> None:
    """A line is cut in the same way whether it comes alone or with many others."""
    lines = (f"{'y' * (LINE_CHARACTERS_MAX + 3)}\n" + "z\n" * WINDOW_LINES).encode()
    renderer = Renderer()
    alone = "".join(renderer.feed(line) for line in lines.splitlines(keepends=True)) + renderer.finish()
    assert render(lines) == alone
    assert alone.startswith("y" * LINE_CHARACTERS_MAX + " … [3 characters cut]\nz\n")


def test_a_line_goes_on_behind_many_others() -> None:
    """The last one of many lines that come at once isn't ended yet."""
    renderer = Renderer()
    lines = "line\n" * (WINDOW_LINES + 1)
    text = renderer.feed(lines.encode() + b"ab") + renderer.feed(b"c\bd") + renderer.finish()
    assert text == lines + "abd"


def test_an_escape_makes_no_long_line() -> None:
    """A few bytes that move the cursor far don't make megabytes of spaces or of lines."""
    text = render(b"\x1b[999999999Gx\n\x1b[999999999Cy\n\x1b[999999999;999999999Hz\x1b[999999999X\x1b[2J" * 100)
    assert len(text) < 100 * 4 * (COLUMNS_MAX + WINDOW_LINES)
    assert render(b"\x1b[999999999Gx") == " " * COLUMNS_MAX + "x"
    assert render(b"y" * 2 * COLUMNS_MAX + b"\r\x1b[999999999Cx") == "y" * 2 * COLUMNS_MAX + "x"


PIECES = [
    *"ab\n\r\b\x00é漢",
    *[
        "\n" * 40,
        "x" * 300,
        "\x1b[A",
        "\x1b[2B",
        "\x1b[3C",
        "\x1b[D",
        "\x1b[K",
        "\x1b[2J",
        "\x1b[J",
        "\x1b[2;2H",
        "\x1b7",
    ],
    *["\x1b8", "\x1b[31m", "\x1b]0;t\x07", "\x1b]8;;x\x1b\\", "\x1bP", "\x1b", "\x1b[", "\x1bc"],
]
OUTPUT = st.binary(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=30).map(lambda all: "".join(all).encode())


@given(OUTPUT, st.sets(st.integers(0, 400), max_size=12))
@example("é\x1b[2A\x1b]0;t\x1b\\漢\r\n".encode(), set(range(40)))
def test_cuts_change_nothing(output: bytes, cuts: set[int]) -> None:
    """However the bytes are cut into pieces, between or inside characters and escapes, the text is the same."""
    places = sorted({0, len(output), *(cut for cut in cuts if cut < len(output))})
    renderer = Renderer()
    pieces = [renderer.feed(output[begin:end]) for begin, end in pairwise(places)]
    assert "".join(pieces) + renderer.finish() == render(output)


@given(OUTPUT)
def test_no_control_character_comes_out(output: bytes) -> None:
    """Whatever goes in: newlines and tabs are the only control characters of the text."""
    assert not [each for each in render(output) if (each < " " and each not in "\n\t") or "\x7f" <= each <= "\x9f"]


@given(st.text(st.characters(exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t"), max_size=200))
def test_plain_text_stays_as_it_is(text: str) -> None:
    """Text without control characters is its own rendering."""
    assert render(text.encode()) == text
