"""Contract of reports: every run, mark and left-out suite is told in all forms, and nothing is drawn without data."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from turnkeeper.benchmarks.measuring.durability import PROCESS_DEATH
from turnkeeper.benchmarks.measuring.runs import Run
from turnkeeper.benchmarks.report.markdown import markdown_of
from turnkeeper.benchmarks.report.page import page_of
from turnkeeper.benchmarks.report.plots import plots_of
from turnkeeper.benchmarks.report.results import Result, read_result
from turnkeeper.benchmarks.report.tables import Cell, section_of
from turnkeeper.benchmarks.report.wording import label_of, number
from turnkeeper.benchmarks.report.writing import write_report

from ..bench_results import NASTY_NAME, flush_runs, memory_run, open_run, outage_run, result_of

VOID = {"meta"}


def whole_result() -> Result:
    """Give a result that has something of everything."""
    left_out = Run("open", {"against": "another", "left_out": "pip install <it>"}, {})
    runs = [*flush_runs(), open_run("warm"), open_run("cold"), memory_run(), left_out]
    return result_of(*runs, left_out={"tasks": "this takes 9 GB <of disk>"})


class Page(HTMLParser):
    """A page, read: fails where it isn't well-formed, and keeps ids and what is shown."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value for name, value in attrs if name == "id" and value]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data


@pytest.fixture(scope="module")
def text() -> str:
    """Give the page of the whole result."""
    return page_of(whole_result())


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    """Give it as it is read."""
    return Page(text)


def test_the_page_is_one_file_and_safe_whatever_it_quotes(page: Page, text: str) -> None:
    """It is well-formed, has no script, no two elements with one id, and no markup that a name brought along."""
    assert len(set(page.ids)) == len(page.ids)
    assert not {"script", "b-", "img", "link", "iframe"} & set(page.tags)
    assert "files | of \\u202e <b>sessions" in page.text
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text).replace("http-equiv", "")


def test_the_page_tells_everything(page: Page) -> None:
    """How marks stand, each figure with its bounds, what was left out and why, on what it was measured and by what."""
    for told in (
        "turnkeeper bench all --out results",
        "0.22",  # ours, the median
        "0.18 to 0.266",
        "2.16",  # the ratio's median
        "left out: pip install <it>",
        "Left out: this takes 9 GB <of disk>",
        "0123456789ab",
        "✗ missed",
        "✓ met",
        "8.0 GB",
        "outlives the death of the process, no power loss",
        "† keeps events that don't outlive a power loss",
    ):
        assert told in page.text, told


def test_runs_that_differ_in_the_other_alone_are_one_table() -> None:
    """Ours once, below it the others, each with its figures and the ratio of ours over it."""
    first, second = section_of(result_of(*flush_runs()).measured[0]).tables
    assert (first.title, first.words, second.words) == ("flush", "sessions 1", "sessions 100")
    assert first.columns == ["p50, ms", "p99, ms", "/s", "ratio of p50"]
    assert [line.subject for line in first.lines] == ["turnkeeper", "append", NASTY_NAME]
    ours, append, files = map(first.cells, first.lines)
    assert ours == [
        Cell("0.22", "0.18 to 0.266"),
        Cell("0.44", "0.361 to 0.531"),
        Cell("4,545", "3,766 to 5,545"),
        None,
    ]
    assert append[-1] == Cell("2.16", "1.82 to 2.54")
    assert files[0] == Cell("0.402", "0.36 to 0.449")
    assert [line.is_lesser for line in first.lines] == [False, False, True]


def test_drawings_stand_in_the_page(page: Page, text: str) -> None:
    """As elements with their text as text, in the page's own colour, and twice the same."""
    plots = {plot.name: plot.svg for plot in plots_of(whole_result().runs)}
    assert list(plots) == ["latency", "throughput", "recovery", "memory"]
    assert page.tags.count("svg") == len(plots)
    assert "append" in plots["latency"]
    assert "100 sessions, closed loop" in plots["throughput"]
    assert "warm cache" in plots["recovery"]
    assert "currentColor" in plots["memory"]
    assert all("<metadata>" not in svg for svg in plots.values())
    assert all(svg in text for svg in plots.values()), "the same result is not drawn the same"


@pytest.mark.parametrize(
    ("runs", "names"),
    [
        ([], []),
        ([memory_run()], ["memory"]),
        ([open_run("warm")], ["recovery"]),
        ([Run("open", {"cache": "warm", "events": 10}, {"open_ms": 1.0}, compared="open_ms")], []),
        ([outage_run("the writer was killed", size) for size in (10**8, 10**9)], ["outages"]),
        ([outage_run("the writer was killed", 10**8), outage_run("the node was killed", 10**9)], []),
        (flush_runs()[:2], ["latency"]),
    ],
)
def test_nothing_is_drawn_without_its_data(runs: list[Run], names: list[str]) -> None:
    """One size is no curve, one session no throughput, and an empty result no drawing at all."""
    assert [plot.name for plot in plots_of(runs)] == names
    assert page_of(result_of(*runs))


def test_a_long_name_goes_on_in_a_second_line() -> None:
    """In one it would take the room of what is drawn, of which the drawing then says that there is none left."""
    name = "a library's SQLite saver, a state of one hundred messages"
    runs = [replace(run, params={**run.params, "against": name}) for run in flush_runs()]
    latencies, throughput = plots_of(runs)
    for svg in (latencies.svg, throughput.svg):
        lines = re.findall(r">([^<>]+)</t(?:ext|span)>", svg)
        assert {"a library's SQLite saver,", "a state of one hundred", "messages"} <= set(lines)


def test_markdown_tells_everything() -> None:
    """Rows have as many cells as their heads, whatever a name brings along; the flushes are one table more."""
    text = markdown_of(whole_result())
    for told in (
        "`turnkeeper bench all --out results`",
        "| flush of one session on trio, p50 over append + fdatasync | ≤ 1.6 | 2.16 (1.82 to 2.54) | ✗ missed |",
        "| **turnkeeper on trio** | **0.22 / 0.44 ms** | **0.22 / 0.44 ms; 4,545/s** | a power loss |",
        "Left out: this takes 9 GB <of disk>",
        "another: pip install <it>",
        "| files \\| of \u202e <b>sessions †: per_second ",
    ):
        assert told in text, told
    tables = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(tables) == 3
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_who_keeps_less_or_has_fewer_sessions_is_marked_in_the_table_of_flushes() -> None:
    """What is quick because it promises less isn't told as if it promised the same."""
    (run, *_) = flush_runs()[2:]
    run.params |= {"against": "quick", "survives": PROCESS_DEATH, "base_sessions": 10}
    row = next(line for line in markdown_of(result_of(run)).splitlines() if line.startswith("| quick | 0.1"))
    assert row.endswith(f"/s with 10 sessions | {PROCESS_DEATH} |")


def test_a_report_is_three_files(tmp_path: Path) -> None:
    """JSON to be read again, Markdown, and the page."""
    paths = write_report(whole_result(), "report", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert read_result(tmp_path).as_map() == whole_result().as_map()


@pytest.mark.parametrize(
    ("figure", "label"),
    [
        ("p50_ms", "p50, ms"),
        ("p999_ms", "p99.9, ms"),
        ("most_ms", "longest, ms"),
        ("per_second", "/s"),
        ("events_per_second", "events, /s"),
        ("mb_per_second", "MB/s"),
        ("us_a_tell", "µs a tell"),
        ("bytes_an_event", "bytes an event"),
        ("kb_a_task", "KB a task"),
        ("tasks_cpu_percent", "tasks cpu, %"),
        ("ms", "ms"),
        ("seconds", "s"),
        ("zombies", "zombies"),
    ],
)
def test_a_figure_is_named_with_its_unit(figure: str, label: str) -> None:
    """The name says both."""
    assert str(label_of(figure)) == label


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.25013, "0.25"),
        (95312.7, "95,313"),
        (4, "4"),
        (4.0444, "4.04"),
        (0.000012, "1.2e-05"),
        (0, "0"),
        (-36.2, "-36.2"),
    ],
)
def test_a_number_has_three_digits_or_all_before_the_point(value: float, text: str) -> None:
    """More would be noise."""
    assert number(value) == text
