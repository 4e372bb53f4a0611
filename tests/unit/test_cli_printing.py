"""How the command line shows texts, times and tables."""

from __future__ import annotations

import pytest

from turnkeeper.runtime.cli.event_input import BadInput, parse_event
from turnkeeper.runtime.cli.printing import is_coloured, is_terminal, print_table
from turnkeeper.runtime.cli.session_list import cursor
from turnkeeper.runtime.cli.values import full_moment, label, moment
from turnkeeper.runtime.printable_text import printable


class Terminal:
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 你好", "plain ü 你好"),
        ("a\tb\nc", "a\\tb\\nc"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("right\u202eleft", "right\\u202eleft"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_an_escape(text: str, shown: str) -> None:
    """Nothing that came out of a store is sent to a terminal but printable characters."""
    assert printable(text) == shown


def test_a_plain_table_is_aligned_and_whole(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Columns are as wide as their widest cell, numbers stand to the right, and nothing is cut."""
    print_table(("name", "events"), [("a", "1"), ("a longer name", "1,000")], right=("events",))
    import sys

    sys.stdout.flush()
    assert capsysbinary.readouterr().out.decode().splitlines() == [
        "NAME           EVENTS",
        "a                   1",
        "a longer name   1,000",
    ]


def test_colour_is_for_terminals_that_are_not_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR takes the colour, a dumb terminal the drawing too."""
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert is_coloured(terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_coloured(terminal)  # type: ignore[arg-type]
    assert is_terminal(terminal)  # type: ignore[arg-type]
    monkeypatch.setenv("TERM", "dumb")
    assert not is_terminal(terminal)  # type: ignore[arg-type]


def test_times_beyond_every_calendar_are_shown_as_unknown() -> None:
    """An import may bring any number as a time."""
    assert moment(10**30, 0) == "?"
    assert full_moment(10**30) == "?"
    assert full_moment(1_700_000_000_123).endswith(".123")


def test_a_label_is_a_name_and_a_value() -> None:
    """The value may be empty and may hold equals signs; the name must be there."""
    assert label("a=b=c") == ("a", "b=c")
    assert label("a=") == ("a", "")
    for text in ("a", "=b", ""):
        with pytest.raises(Exception, match="no label"):
            label(text)


def test_a_cursor_is_a_position_and_an_id() -> None:
    """Anything else is wrong usage."""
    assert cursor("12:brave-otter") == (12, "brave-otter")
    for text in ("12", "x:brave", "12:", "-1:brave", "\u0661:brave"):
        with pytest.raises(Exception, match="no place in the list"):
            cursor(text)


def test_an_input_line_is_taken_exactly() -> None:
    """Numbers keep their kind, text its characters; what is too big comes as it is, for the encoder to refuse."""
    line = (
        b'{"data": {"i": 18446744073709551615, "f": 1.0, "big": 1180591620717411303424, "t": "\\u00fc"}, "type": "a/b"}'
    )
    assert parse_event(line) == ("a/b", {"i": 2**64 - 1, "f": 1.0, "big": 2**70, "t": "ü"})
    assert isinstance(parse_event(line)[1]["f"], float)


def test_a_member_that_stands_twice_at_any_depth_is_refused() -> None:
    """JSON would silently keep the last one."""
    with pytest.raises(BadInput, match="'x' stands twice"):
        parse_event(b'{"type": "a/b", "data": {"deep": [{"x": 1, "y": 2, "x": 1}]}}')
