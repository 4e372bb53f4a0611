"""Contract of what people see of chaos: rounds as they go, and the report at their end."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from turnkeeper.benchmarks.chaos.course import Course
from turnkeeper.benchmarks.chaos.report import HOW_RECOVERY_IS_MEASURED, Report
from turnkeeper.runtime.cli import chaos_screen
from turnkeeper.runtime.cli.chaos_screen import live_screen, print_report

from ..chaos_reports import BEGAN, report_of, round_report, violation

QUIET = Course(BEGAN, 3.0, (), ())


class Terminal(io.TextIOWrapper):
    """A terminal that keeps what is sent to it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self) -> bool:
        return True

    @property
    def seen(self) -> str:
        """What was sent."""
        self.flush()
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Make standard output and standard error a terminal with colour, for the rest of a test."""
    made = Terminal()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


def printed(report: Report, capsysbinary: pytest.CaptureFixture[bytes]) -> str:
    """Print a report into a pipe, and give what came out of it."""
    print_report(report)
    sys.stdout.flush()
    return capsysbinary.readouterr().out.decode()


def test_a_report_tells_what_was_done_and_how_soon_it_was_overcome(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Counts, kills and faults by kind, what wasn't done and why, times of recovery and how they were measured."""
    text = printed(report_of(round_report(7), round_report(8)), capsysbinary)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for line in (
        "seed 7",
        "rounds 2 in 61 s",
        "events 8,420",
        "tasks 82",
        "flush p50 / p99 2.0 ms / 4.0 ms",
        "violations 0",
        "shim 6",
        "slow 2 0",
        "eio 0 2",
        "clock 0 0 libfaketime is not installed",
        "writer 4 181 ms 1,420 ms 1,420 ms",
        "either 6 1,420 ms 1,420 ms 1,420 ms",
        f"100 ms - 200 ms 2 {'#' * 20}",
        "200 ms - 500 ms 0",
        f"1 s - 2 s 4 {'#' * 40}",
        HOW_RECOVERY_IS_MEASURED,
        "Every promise was kept in 2 rounds.",
    ):
        assert line in lines
    assert "\x1b" not in text


def test_what_didn_t_happen_has_no_table(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Without kills, faults and recoveries there is only what was found."""
    report = report_of(round_report(7, course=QUIET))
    report.left_out = {}
    text = printed(report, capsysbinary)
    assert "kills            0" in text
    for heading in ("KILLED", "FAULT ", "RECOVERY", "#", HOW_RECOVERY_IS_MEASURED):
        assert heading not in text


def test_a_violation_is_told_with_what_stands_around_it(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """What steers a terminal is shown as an escape; and how to play it again, and what was kept, is the last word."""
    bad = violation(subject="a\x1b[31m", says="ended with 1\nTraceback:\n  \x1b]0;x", journal=["{\u202e}"])
    text = printed(report_of(round_report(7), round_report(8, bad), round_report(9, violation())), capsysbinary)
    lines = text.splitlines()
    begin = lines.index("seed 8: acknowledged is found: a\\x1b[31m: ended with 1")
    assert lines[begin + 1 : begin + 6] == [
        "    Traceback:",
        "      \\x1b]0;x",
        "    journal  {\\u202e}",
        '    notes  host-0.1.jsonl:40: {"what":"sent","at":1002.2}',
        '    notes  runner.jsonl:9: {"what":"strike","kind":"kill"}',
    ]
    assert lines[-5:] == [
        "A promise was broken in 2 of 3 rounds: acknowledged is found 2 x.",
        "what is left of it: /tmp/turnkeeper-chaos/round-8",
        "what is left of it: /tmp/turnkeeper-chaos/round-9",
        "play it again: turnkeeper chaos replay 8",
        "play it again: turnkeeper chaos replay 9",
    ]
    assert "\x1b" not in text


def test_many_violations_are_counted_and_some_told(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is in the JSON and on the page, and it says so."""
    monkeypatch.setattr(chaos_screen, "VIOLATIONS_MAX", 2)
    text = printed(report_of(round_report(7, *(violation(says=f"no. {n}") for n in range(5)))), capsysbinary)
    assert "no. 1" in text
    assert "no. 2" not in text
    assert "... and 3 more, which --json and --html tell" in text
    assert "violations       5" in text


def test_on_a_terminal_the_verdict_has_a_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless NO_COLOR forbids it; the words say it anyhow."""
    terminal = on_a_terminal(monkeypatch)
    print_report(report_of(round_report(7)))
    assert "\x1b[32mEvery promise was kept in 1 round.\x1b[0m" in terminal.seen
    print_report(report_of(round_report(7, violation())))
    assert "\x1b[31mA promise was broken in 1 of 1 round:" in terminal.seen
    before = len(terminal.seen)
    monkeypatch.setenv("NO_COLOR", "1")
    print_report(report_of(round_report(7, violation())))
    later = terminal.seen[before:]
    assert "\nA promise was broken in 1 of 1 round:" in later
    assert "\x1b[31m" not in later
    assert "\x1b[32m" not in later


def test_in_a_pipe_each_round_that_is_over_is_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    """On stderr, once, however often it is shown: stdout is for the result."""
    report = report_of()
    with live_screen() as show:
        show(report, 7, "playing")
        report.take(round_report(7))
        show(report, 8, "playing")
        show(report, 8, "judging")
        report.take(round_report(8, violation(), violation(promise="turns\n\x1b[2J")))
        show(report, 9, "playing")
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "turnkeeper: round 1: seed 7: every promise kept; 7 kills, 2 faults, 4,210 events, 14.2 s",
        "turnkeeper: round 2: seed 8: BROKEN: acknowledged is found 1 x, turns\\n\\x1b[2J 1 x; "
        "7 kills, 2 faults, 4,210 events, 14.2 s",
    ]


def test_on_a_terminal_the_figures_grow_and_are_gone_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It shows the round that is played, what was done so far, and in red what was broken."""
    terminal = on_a_terminal(monkeypatch)
    with live_screen() as show:
        show(report_of(round_report(7), replace(round_report(8), broken={"turns": 2})), 9, "playing")
    text = terminal.seen
    assert "seed 9: playing" in text
    assert "8,420" in text
    assert "1,420 ms / 1,420 ms / 1,420 ms" in text
    assert "\x1b[1;31mviolations: turns 2 x" in text
    assert text.endswith("\x1b[1A\x1b[2K"), "the lines that it took are cleared"
    before = len(text)
    monkeypatch.setenv("NO_COLOR", "1")
    with live_screen() as show:
        show(report_of(round_report(7, violation())), 8, "playing")
    assert "violations: acknowledged is found 1 x" in terminal.seen[before:]
    assert "31m" not in terminal.seen[before:]
