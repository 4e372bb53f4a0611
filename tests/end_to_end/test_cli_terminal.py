"""End to end: what a person sees who runs commands on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

from ..command_line import DEADLINE_SECONDS, CommandLine, event_line

WIDTH = 80


@pytest.fixture
def cli(tmp_path: Path) -> CommandLine:
    """The command line of a store with one session whose title is longer than any line."""
    filled = CommandLine(tmp_path / "store", tmp_path)
    id = filled.new_session("--title", "long " * 50)
    filled.succeed("session", "append", id, stdin=event_line("note/one", text="x" * 500))
    return filled


def seen(cli: CommandLine, *words: str, **variables: str) -> str:
    """Run a command on a terminal, and give what it sends to it."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, WIDTH, 0, 0))
        environment = {**cli.environment, "TERM": "xterm-256color", **variables}
        process = subprocess.Popen(cli.line(*words), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
        os.close(theirs)
        theirs = -1
        content = bytearray()
        while piece := read(ours):
            content += piece
        assert process.wait(DEADLINE_SECONDS) == 0
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return content.decode()


def read(terminal: int) -> bytes:
    """Read from a terminal; nothing at its end, which Linux calls an error."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def lines_of(text: str) -> list[str]:
    """Give what stands on each line once colours are taken away."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\r", "").splitlines()


def test_a_list_fits_the_terminal(cli: CommandLine) -> None:
    """Long titles are cut so that each session is one line, with its whole id."""
    lines = lines_of(seen(cli, "session", "list"))
    id = cli.succeed("session", "list").out.splitlines()[1].split()[0]
    (row,) = (line for line in lines if line.split()[:1] == [id])
    assert len(row.rstrip()) <= WIDTH
    assert "…" in row, "how much of the title is left depends on the length of the id"


def test_events_fit_the_terminal(cli: CommandLine) -> None:
    """An event is one line, cut at its end."""
    lines = lines_of(seen(cli, "session", "show", cli.succeed("session", "list").out.splitlines()[1].split()[0]))
    assert len(lines) == 2
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[1].endswith("…")


def test_no_color_is_honoured(cli: CommandLine) -> None:
    """With NO_COLOR nothing is coloured, but a table is still drawn."""
    id = cli.succeed("session", "list").out.splitlines()[1].split()[0]
    assert "\x1b[" in seen(cli, "session", "show", id)
    assert "\x1b[" not in seen(cli, "session", "show", id, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", seen(cli, "session", "list", NO_COLOR="1"))


def test_a_bar_is_gone_when_the_work_is_done(cli: CommandLine) -> None:
    """Progress is shown while it lasts, and what stays is the result."""
    text = seen(cli, "journal", "verify")
    assert "verifying" in text
    last = text[text.rindex("\x1b[2K") :]
    assert "verifying" not in last
    assert "damaged" not in last
    assert "index" in last
