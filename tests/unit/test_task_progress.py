"""Progress as tasks print it: what counts, what doesn't, and that neither cuts nor size matter."""

from __future__ import annotations

import json
import math
import tracemalloc
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnkeeper.actors.tasks.progress import LINE_BYTES_MAX, SEARCHED_BYTES_MAX, Pace, ProgressReader


def progress(*pieces: str | bytes, ended: bool = True) -> dict[str, Any] | None:
    """Give what a reader knows that was fed the pieces."""
    reader = ProgressReader()
    for piece in pieces:
        reader.feed(piece.encode() if isinstance(piece, str) else piece)
    return reader.value(ended=ended)


def report(**members: Any) -> str:
    """Make a line that reports progress."""
    return f"TURNKEEPER_PROGRESS {json.dumps(members)}\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("42%", {"percent": 42}),
        ("Progress: 42.5 %", {"percent": 42.5, "phase": "Progress"}),
        ("[ 42%] Building CXX object main.o", {"percent": 42}),
        ("tests/test_x.py ......            [ 42%]", {"percent": 42, "phase": "tests/test_x.py"}),
        ("2026-05-04 12:00:01 INFO Downloading model: 7%", {"percent": 7, "phase": "Downloading model"}),
        ("[download]  42.0% of 40.00MiB at 1.2MiB/s ETA 00:20", {"percent": 42, "phase": "download"}),
        (" 1950K .......... ..........  42% 1.2M 5s", {"percent": 42}),
        ("10%...20%...30%", {"percent": 30}),
        ("3/10", {"percent": 30, "current": 3, "total": 10}),
        ("3/10 tests", {"percent": 30, "current": 3, "total": 10, "unit": "tests"}),
        ("[3/10] Compiling main.o", {"percent": 30, "current": 3, "total": 10}),
        ("Step 3/10 : RUN make", {"percent": 30, "current": 3, "total": 10, "phase": "Step"}),
        ("Page 3 of 10", {"percent": 30, "current": 3, "total": 10, "phase": "Page"}),
        ("1,234/5,678 files", {"percent": 21.7, "current": 1234, "total": 5678, "unit": "files"}),
        ("12.5/40.0 MB", {"percent": 31.2, "current": 12.5, "total": 40.0, "unit": "MB"}),
        (
            "Downloading 512 kB / 1 MB",
            {"percent": 50, "current": 0.5, "total": 1, "unit": "MB", "phase": "Downloading"},
        ),
        (
            "batch:  50%|#####     | 50/100 [00:01<00:02, 9.1it/s]",
            {"percent": 50, "current": 50, "total": 100, "unit": "it", "phase": "batch"},
        ),
        (
            "Epoch 1/10:  73%|###  | 73/100 [00:01<00:02, 1.2s/batch]",
            {"percent": 73, "current": 73, "total": 100, "unit": "batch", "phase": "Epoch 1/10"},
        ),
        ("\x1b[32m 42%\x1b[0m", {"percent": 42}),
        ("999999/1000000", {"percent": 99.9, "current": 999999, "total": 1000000}),
    ],
)
def test_common_forms_are_recognised(line: str, expected: dict[str, Any]) -> None:
    """What tools print for people is read as progress, with its phase, numbers and unit."""
    assert progress(line + "\n") == {**expected, "reported": False}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("50/0 items", {"current": 50, "unit": "items"}),
        ("12it [00:01, 9.1it/s]", {"current": 12, "unit": "it"}),
        ("scan: 12it [00:01, 9.1it/s]", {"current": 12, "unit": "it", "phase": "scan"}),
    ],
)
def test_without_a_total_there_is_no_percentage(line: str, expected: dict[str, Any]) -> None:
    """An unknown total makes progress indeterminate: there is no percentage, which is not 0."""
    assert progress(line + "\n") == {**expected, "reported": False}


@pytest.mark.parametrize(
    "line",
    [
        *["103%", "-5%", "1e9%", "nan%", "7/3 tests", "10-20%", ">50%", "½%"],
        *[
            "coverage 87% of lines",
            "CPU at 100%",
            "file 50%off.png saved",
            "Memory: 1.2GB/4GB",
            "87% of lines",
            "loss: 5%",
        ],
        *["3/10/2026", "2026/3/10", "on 3/10 we met", "10.0.0.1/24", "a/3/10/b", "http://host/1/2", "24/7 support"],
        *[
            "100% tests passed, 0 tests failed out of 3",
            "3/10 tests failed",
            "1/2 cup",
            "width: 50%",
            "see page 3/10 for",
        ],
        *["diff --git a/1 b/2", "@@ -1,7 +1,7 @@", "Warning: 5% off", "%d% done", "x TURNKEEPER_PROGRESS {}"],
    ],
)
@pytest.mark.parametrize("end", ["", "\n", " and more\n"])
def test_other_figures_are_no_progress(line: str, end: str) -> None:
    """Percentages and ratios of other things, dates, paths and nonsense are not taken for progress."""
    assert progress(line + end) is None


def test_a_redrawn_line_needs_no_form() -> None:
    """In a line that is written over, a figure counts wherever it stands; written once, in prose, it doesn't."""
    assert progress("so far 42% went well\n") is None
    assert progress("\rso far 42% went well") == {"percent": 42, "phase": "so far", "reported": False}
    assert progress("so far 42% went well\rthe end\n") == {"percent": 42, "phase": "so far", "reported": False}
    assert progress("so far 41% went well\rso far 42% went well\r\n") == {
        "percent": 42,
        "phase": "so far",
        "reported": False,
    }


def test_reported_beats_guessed_for_the_rest_of_the_task() -> None:
    """From the first report on, what is printed beside it isn't guessed from any more."""
    reader = ProgressReader()
    reader.feed(b"90%\n")
    assert reader.value() == {"percent": 90, "reported": False}
    reader.feed(report(percent=10, message="linking").encode())
    reader.feed(b"95%\n\r96%")
    assert reader.value(ended=True) == {"percent": 10, "message": "linking", "reported": True}


def test_a_report_says_what_it_says() -> None:
    """All members of a report are taken, bounded; a percentage follows from the numbers, a total of 0 is none."""
    line = report(current=3, total=4, unit="files", phase="p" * 300, message="two\nlines \x1b[31m\ud83d", other=1)
    assert progress(line) == {
        "percent": 75,
        "current": 3,
        "total": 4,
        "unit": "files",
        "phase": "p" * 100,
        "message": "two lines [31m",
        "reported": True,
    }
    assert progress(report(current=3, total=0)) == {"current": 3, "reported": True}
    assert progress(report(percent=None)) == {"reported": True}


@pytest.mark.parametrize(
    "content",
    [
        *['{"percent": 101}', '{"percent": -1}', '{"percent": NaN}', '{"percent": Infinity}', '{"percent": true}'],
        *['{"percent": "5"}', '{"current": 5, "total": 4}', '{"current": 1e300}', '{"phase": 3}', '{"message": []}'],
        *["[5]", "5", "{", "", "[" * 4000, '{"percent": ' + "9" * 4000 + "}"],
    ],
)
def test_a_wrong_report_counts_for_nothing(content: str) -> None:
    """A report with any member that makes no sense is ignored as a whole, and guessing goes on."""
    assert progress("5%\n", f"TURNKEEPER_PROGRESS {content}\n", "7%\n") == {"percent": 7, "reported": False}


def test_a_new_name_is_a_new_phase() -> None:
    """What stands before the figure names the phase."""
    assert progress("Fetching: 100%\nUnpacking: 5%\n") == {"percent": 5, "phase": "Unpacking", "reported": False}


def test_a_figure_that_falls_back_begins_a_new_phase() -> None:
    """The same name from the beginning again is counted; a small step back is none."""
    assert progress("90%\n100%\n3%\n50%\n45%\n") == {"percent": 45, "phase": "2", "reported": False}
    assert progress("unpack: 100%\nunpack: 3%\n2it [00:01, 1it/s]\n") == {"current": 2, "unit": "it", "reported": False}
    assert progress("unpack: 9%\nunpack: 0%\n") == {"percent": 0, "phase": "unpack (2)", "reported": False}
    assert progress("9it [00:09, 1it/s]\n", "1it [00:01, 1it/s]\n") == {
        "current": 1,
        "unit": "it",
        "phase": "2",
        "reported": False,
    }
    assert progress(report(percent=90), report(percent=5)) == {"percent": 5, "phase": "2", "reported": True}


def test_of_nested_bars_the_outer_one_counts() -> None:
    """Bars below each other that are redrawn by moving up: the uppermost tells how far the task is, until they end."""
    reader = ProgressReader()
    for epoch in (1, 2):
        for batch in (0, 50, 100):
            outer = (epoch - 1) * 50
            reader.feed(f"\rEpoch {epoch}/2: {outer}%\n\r  batch: {batch}%|##| {batch}/100\x1b[A".encode())
    assert reader.value() == {"percent": 50, "phase": "Epoch 2/2", "reported": False}
    reader.feed(b"\n\n\nUploading: 7%\n")
    assert reader.value() == {"percent": 7, "phase": "Uploading", "reported": False}


def test_a_line_that_may_go_on_is_not_taken_at_its_last_digit() -> None:
    """`3/1` may become `3/10`; a line's end or the task's says that it won't."""
    assert progress("\r2/10", "\r3/10", ended=False) == {"percent": 20, "current": 2, "total": 10, "reported": False}
    assert progress("\r2/10", "\r3/10") == {"percent": 30, "current": 3, "total": 10, "reported": False}
    assert progress("\r 2%", "\r 3%", ended=False) == {"percent": 3, "reported": False}


LINES = st.sampled_from(
    [
        *[
            "42%",
            "\r  7%|##| 7/100 [00:01<00:02, 9.1it/s]",
            "\n",
            "\r\n",
            "\r",
            "\x1b[A",
            "\x1b[2K\x1b[1G",
            "\b\b\b",
            "3/10",
        ],
        *[
            "Epoch 1/2: 50%",
            "é 3/10 tests",
            "12.3/40.0 MB",
            report(percent=3),
            report(current=1, total=2),
            "coverage 8%",
        ],
        *[
            "x" * (LINE_BYTES_MAX - 30),
            "x" * 40,
            "\x1b[12;3",
            "TURNKEEPER_PROGRESS {}",
            "\x1b]8;;http://h\x07a\x1b]8;;\x07",
        ],
    ]
)


@given(st.lists(LINES, max_size=12), st.sets(st.integers(0, SEARCHED_BYTES_MAX), max_size=20))
@example(["so far 42% went well", "\r", "\n"], set(range(100)))
@example(["42%", "\r", "\n", "x\r", "\x1b[12", "A7%"], set(range(100)))
def test_cuts_change_nothing(lines: list[str], cuts: set[int]) -> None:
    """However the output is cut into pieces, the same is known in the end."""
    output = "".join(lines).encode()[:SEARCHED_BYTES_MAX]
    places = sorted({0, len(output), *(cut for cut in cuts if cut < len(output))})
    assert progress(*(output[begin:end] for begin, end in pairwise(places))) == progress(output)


@given(st.binary(max_size=300) | st.text("0123456789%/ .:|-\r\n\x1b[AMB()oftesting", max_size=80).map(str.encode))
def test_no_output_makes_a_wrong_figure(output: bytes) -> None:
    """Whatever is printed: a percentage lies between 0 and 100, a part isn't more than its whole, all is finite."""
    value = progress(output) or {}
    assert 0 <= value.get("percent", 0) <= 100
    assert value.get("current", 0) <= value.get("total", math.inf)
    assert all(math.isfinite(each) for each in value.values() if isinstance(each, float))


def test_of_much_output_the_end_counts() -> None:
    """Of a large piece the last line counts, wherever it stands, and the last report even if it stands far before."""
    noise = "some line without a figure\n" * 4 * (SEARCHED_BYTES_MAX // 20)
    assert progress("5%\n" + "6%\n" * SEARCHED_BYTES_MAX + "7%\n") == {"percent": 7, "reported": False}
    assert progress(report(percent=1) + report(percent=2) + noise + "50%\n") == {"percent": 2, "reported": True}


def test_a_line_without_end_takes_no_memory() -> None:
    """100 MB without a newline are passed over, and the line behind them counts again."""
    reader = ProgressReader()
    piece = b"42% " * 65536
    tracemalloc.start()
    for _ in range(400):
        reader.feed(piece)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * len(piece)
    assert reader.value(ended=True) is None
    reader.feed(b"\n43%\n")
    assert reader.value() == {"percent": 43, "reported": False}


def test_a_long_line_says_nothing() -> None:
    """What is longer than any display's line isn't searched, in one piece or in several."""
    assert progress("." * (LINE_BYTES_MAX - 4) + " 42%\n") == {"percent": 42, "reported": False}
    assert progress("." * (LINE_BYTES_MAX - 3) + " 42%\n") is None
    assert progress("." * LINE_BYTES_MAX, "." * 30, " 42%\n") is None


def test_what_follows_skipped_bytes_may_be_the_rest_of_a_line() -> None:
    """Behind bytes that were passed over, reading begins with the next whole line."""
    reader = ProgressReader()
    reader.feed(b"41%\nover")
    reader.skip()
    reader.feed(b"42%")
    assert reader.value(ended=True) == {"percent": 41, "reported": False}
    reader.feed(b"\n43%\n")
    assert reader.value() == {"percent": 43, "reported": False}


def test_a_pace_gives_the_newest_value_and_always_the_last() -> None:
    """Values come at most so often, the newest one each time, and what waits at the end is not lost."""
    pace: Pace[int] = Pace(per_second=4)
    assert pace.take(0.0) is None
    taken = []
    for tick in range(129):
        pace.put(tick)
        value = pace.take(tick / 128)
        taken += [] if value is None else [value]
    assert taken == [0, 32, 64, 96, 128]
    pace.put(200)
    assert pace.take(1.01) is None
    assert pace.take(1.01, is_last=True) == 200
    assert pace.due(1.02) is None


def test_a_pace_says_when_the_next_value_may_come() -> None:
    """Nothing waits: never; the first one: at once; the next one: a fifth of a second behind the last."""
    pace: Pace[str] = Pace(per_second=5)
    assert pace.due(3.0) is None
    pace.put("a")
    assert pace.due(3.0) == 3.0
    assert pace.take(3.0) == "a"
    pace.put("b")
    assert pace.due(3.1) == pytest.approx(3.2)
    assert pace.due(9.0) == 9.0
