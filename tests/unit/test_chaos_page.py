"""Contract of the page of chaos: well-formed, in one file, safe whatever it quotes, readable without its drawings."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from turnkeeper.benchmarks.chaos import report as reports
from turnkeeper.benchmarks.chaos.course import Course, Lane, Mark
from turnkeeper.benchmarks.chaos.page import page_of, write_page
from turnkeeper.benchmarks.chaos.report import HOW_RECOVERY_IS_MEASURED, Report

from ..chaos_reports import BEGAN, COURSE, report_of, round_report, violation

VOID = {"meta"}
HOSTILE = "</pre></title><script>alert(1)</script><img src=x onerror=alert(1)>\"'><b \u202e\x1b[31m\x00\ud800&amp;"


class Page(HTMLParser):
    """A page, read: its elements in order, and the text of each kind of them. Fails where it isn't well-formed."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice: {attrs}"
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.setdefault(tag, []).append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, self.getpos()
        if tag in ("td", "th"):
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def attributes(self, name: str) -> list[str]:
        """Give all values of an attribute."""
        return [attributes[name] for _, attributes in self.elements if name in attributes]

    def count(self, tag: str, kind: str | None = None) -> int:
        """Count elements by their name, and one of their classes."""
        return sum(each == tag and (kind is None or kind in at.get("class", "").split()) for each, at in self.elements)


REPORTS = {
    "nothing": report_of(),
    "clean": report_of(round_report(7)),
    "broken": report_of(round_report(7), round_report(8, violation(), violation(promise="turns", seq=None))),
    "empty round": report_of(round_report(7, course=Course(BEGAN, 0.0, (), ()))),
}


@pytest.fixture(params=list(REPORTS))
def report(request: pytest.FixtureRequest) -> Report:
    """Each kind of report."""
    return REPORTS[request.param]


def test_every_page_is_well_formed_and_alone(report: Report) -> None:
    """One document, which fetches nothing and runs nothing; what it links to is in it, once."""
    text = page_of(report)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n")
    assert {"script", "link", "img", "iframe", "object", "form", "base"}.isdisjoint(page.texts)
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on") or name == "src"
    ]
    assert not re.search(r"url\(|@import|https?:|javascript:", text)
    ids = page.attributes("id")
    assert len(set(ids)) == len(ids)
    assert {link.removeprefix("#") for link in page.attributes("href")} <= set(ids)
    assert all(link.startswith("#") for link in page.attributes("href"))


def test_every_page_can_be_read_by_those_who_see_no_drawing(report: Report) -> None:
    """It has a language and a title; tables say what they are; each mark says what it is, and leads to its line."""
    page = Page(page_of(report))
    assert page.elements[0] == ("html", {"lang": "en"})
    assert "Chaos from seed 7" in page.texts["title"][0]
    assert page.count("table") == page.count("caption") >= 3
    marks = [attributes for tag, attributes in page.elements if tag == "a"]
    assert all(mark["title"] and mark["href"] for mark in marks)
    assert all("scope" in attributes for tag, attributes in page.elements if tag == "th")
    assert set(page.attributes("aria-labelledby")) <= set(page.attributes("id"))


def test_it_is_legible_on_a_phone_in_the_dark_and_on_paper() -> None:
    """Its width is the screen's, and its colours follow what the reader wants; paper gets the light ones."""
    text = page_of(REPORTS["broken"])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    for query in ("screen and (prefers-color-scheme: dark)", "(max-width: 32rem)", "print"):
        assert f"@media {query} {{" in text


def test_what_it_quotes_stays_text() -> None:
    """Whatever stands in a store, a note, a plan, a path or a name: it makes no element, and steers nothing."""
    mark = Mark(1.0, "fault", HOSTILE, HOSTILE, HOSTILE, (), {HOSTILE: HOSTILE}, until=2.0)
    course = replace(COURSE, lanes=(*COURSE.lanes, Lane(HOSTILE, ())), marks=(mark,))
    told = dict.fromkeys(("promise", "subject", "says", "file"), HOSTILE)
    bad = replace(round_report(8, violation(**told, journal=[HOSTILE], notes=[HOSTILE]), course=course), kept=HOSTILE)
    report = report_of(bad)
    report.left_out = {HOSTILE: HOSTILE}
    report.shortest = {HOSTILE: HOSTILE}
    text = page_of(report)
    page = Page(text)
    assert {"script", "img", "b"}.isdisjoint(page.texts)
    assert not re.search("[\u202e\x1b\x00\ud800]", text)
    shown = "</pre></title><script>alert(1)</script>"
    assert all(shown in said for said in page.texts["pre"][:3])
    assert sum(shown in title for title in page.attributes("title")) == 3


def test_a_round_is_drawn_with_lives_strikes_and_violations() -> None:
    """A bar a life, a mark a strike in its place, a span a fault's time, and what was broken beside them."""
    page = Page(page_of(REPORTS["broken"]))
    drawn = 2
    lives = sum(len(lane.lifetimes) for lane in COURSE.lanes)
    killed = sum(life.is_killed for lane in COURSE.lanes for life in lane.lifetimes)
    legend = {"life": 2, "killed": 1, "span": 1, "border": 1}
    lanes = len(COURSE.lanes) + len({"shims", "store"})
    assert page.count("span", "life") == drawn * lives + legend["life"]
    assert page.count("span", "killed") == drawn * killed + legend["killed"]
    assert page.count("span", "span") == drawn * 1 + legend["span"]
    assert page.count("span", "border") == drawn * lanes + legend["border"]
    assert page.count("a", "mark") == drawn * len(COURSE.marks) + 2
    assert page.count("details", "broken") == 1
    assert page.attributes("style").count("left:18.00%") >= drawn, "2.25 s of 12.5 s"
    assert "2.25 s: kill: writer 111: at writer-committed: recovery 181 ms" in page.attributes("title")
    assert "process 130: from 2.40 s, killed at 4.00 s" in page.attributes("title")


def test_a_violation_without_a_moment_in_the_round_is_told_but_not_drawn() -> None:
    """As one of what is left behind, or one whose note is by a clock that was set back."""
    for at in ({"at": BEGAN - 90_000}, {"at": BEGAN + 50.0}):
        page = Page(page_of(report_of(round_report(8, violation(**at)))))
        assert page.count("article") == 1
        assert page.count("div", "breach") == 0
    bare = {"promise": "programs end as they should", "subject": "round-8", "says": "host-0 ended with 1", "seq": None}
    page = Page(page_of(report_of(round_report(8, bare))))
    assert page.count("article") == 1
    assert page.count("h4") == 0


def test_a_violation_is_told_with_what_stands_around_it() -> None:
    """And with the way to play its round again, what was kept of it, and the shortest plan if one was found."""
    report = report_of(round_report(8, violation()))
    report.shortest = {"seed": 8, "hosts": []}
    page = Page(page_of(report))
    (article,) = page.texts["article"]
    for said in (
        "brave-otter",
        "lost: chaos/step 3f2a",
        "event 17",
        "host-0.1.jsonl, line 40",
        '"seq":16',
        '"what":"sent"',
    ):
        assert said in article
    assert "turnkeeper chaos replay 8" in page.texts["code"]
    assert "/tmp/turnkeeper-chaos/round-8" in page.texts["code"]
    assert '"hosts": []' in page.texts["pre"][0]


def test_the_summary_says_how_recovery_was_measured() -> None:
    """With the times of each, and all of them in classes."""
    page = Page(page_of(REPORTS["clean"]))
    assert any(HOW_RECOVERY_IS_MEASURED in text for text in page.texts["p"])
    rows = [" ".join(text.split()) for text in page.texts["tr"]]
    assert "writer 2 181 1,420 1,420" in rows
    assert "either 3 1,420 1,420 1,420" in rows
    assert "100 ms - 200 ms 1" in rows
    assert "clock 0 0 libfaketime is not installed" in rows
    assert "shim 3" in rows
    figures = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert figures["events"] == "4,210"
    assert (figures["flush p50"], figures["flush p99"]) == ("2.0 ms", "4.0 ms")
    assert "flush p50" not in Page(page_of(REPORTS["nothing"])).texts["dt"]


def test_only_broken_rounds_stand_open_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few are all open. Those that are counted only are told to be."""
    few = Page(page_of(report_of(round_report(1), round_report(2))))
    assert [attributes.get("open") for tag, attributes in few.elements if attributes.get("class") == "round"] == [
        "",
        "",
    ]
    monkeypatch.setattr(reports, "ROUNDS_SHOWN_MAX", 8)
    many = page_of(report_of(*(round_report(seed) for seed in range(13)), round_report(13, violation())))
    rounds = [at for tag, at in Page(many).elements if "round" in at.get("class", "").split()]
    assert ["open" in attributes for attributes in rounds] == [False] * 8 + [True]
    assert "More rounds are counted above than shown here: 5." in many


def test_a_page_is_written_whatever_is_in_it(tmp_path: Path) -> None:
    """Half a character pair can't be encoded, and stands there as an escape."""
    path = tmp_path / "page.html"
    write_page(report_of(round_report(8, violation(says="half \ud83e of one, \u00fc"))), path)
    text = path.read_text(encoding="utf-8")
    assert "half \\ud83e of one, \u00fc" in text
