"""Unit: which files an import reads, what it says of the others, and that it neither hangs on them nor raises."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from turnkeeper.actors.importing import FORMATS, ImportReport, UnknownFormat, find_files, read_sessions
from turnkeeper.actors.importing.files import open_session_file
from turnkeeper.actors.importing.report import PROBLEMS_MAX

from ..session_files import (
    CODEX_SESSION,
    SESSION,
    compact,
    conversation,
    encoded,
    import_bytes,
    import_path,
    import_records,
    rollout,
    user,
)


def found(path: Path) -> list[str]:
    """Return what is found below a path, relative to it."""
    return [str(each.relative_to(path)) for each in find_files(path, ImportReport())]


def whys(path: Path) -> dict[str, str]:
    """Import a path; return the reason of each problem by the file's name."""
    return {Path(each.file).name: each.why for each in import_path(path).report.problems}


def test_all_files_below_a_folder_are_found_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Sub-folders stand among the files by their names, however deep."""
    for name in ("b.jsonl", "a/z.jsonl", "a/deep/er/x.jsonl", "c.txt", "Ärger.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert found(tmp_path) == ["a/deep/er/x.jsonl", "a/z.jsonl", "b.jsonl", "c.txt", "Ärger.jsonl"]


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """Each folder is entered once, by whatever name; linked files are read."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.jsonl").touch()
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a" / "x.jsonl")
    assert found(tmp_path) == ["a/x.jsonl", "link.jsonl"]


def test_a_folder_is_imported_whole_whatever_else_lies_in_it(tmp_path: Path) -> None:
    """Sessions of both programs come, each bad file is one problem, and what is no session file is passed over."""
    (tmp_path / "claude.jsonl").write_bytes(encoded(conversation()))
    (tmp_path / "day").mkdir()
    (tmp_path / "day" / "codex.jsonl").write_bytes(encoded(rollout()))
    (tmp_path / "unnamed").write_bytes(encoded([user(0, "go", sessionId="without a suffix")]))
    (tmp_path / "notes.md").write_text("# Notes\n")
    (tmp_path / "picture.png").write_bytes(bytes(range(256)))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "nul.jsonl").write_bytes(bytes(413))
    (tmp_path / "blank.jsonl").write_bytes(b"\n \n\r\n")
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)) * 9)
    (tmp_path / "strange.jsonl").write_bytes(b'{"id":1}\n{"id":2}\n')
    (tmp_path / "x.jsonl").mkdir()
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    os.mkfifo(tmp_path / "pipe.jsonl")
    imported = import_path(tmp_path)
    assert list(imported.events) == [
        f"claude-code:{SESSION}",
        f"codex:{CODEX_SESSION}",
        "claude-code:without a suffix",
    ]
    reported = {Path(each.file).name: (each.line, each.why) for each in imported.report.problems}
    assert reported == {
        "empty.jsonl": (0, "an empty file"),
        "nul.jsonl": (0, "nothing but filling: 413 NUL bytes or blanks"),
        "blank.jsonl": (0, "nothing but filling: 5 NUL bytes or blanks"),
        "binary.jsonl": (0, "no session file (claude-code or codex)"),
        "strange.jsonl": (0, "no session file (claude-code or codex)"),
        "x.jsonl": (0, "a folder named like a session file"),
        "gone.jsonl": (0, "can't be read: no such file or directory"),
        "loop.jsonl": (0, "can't be read: too many levels of symbolic links"),
        "pipe.jsonl": (0, "a FIFO, not a session file"),
    }


def test_special_files_are_told_and_not_waited_for(tmp_path: Path) -> None:
    """A FIFO nobody writes to, a socket and a device, each given by its own path."""
    os.mkfifo(tmp_path / "pipe")
    assert whys(tmp_path / "pipe") == {"pipe": "a FIFO, not a session file"}
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "sock"))
        assert whys(tmp_path / "sock") == {"sock": "a socket, not a session file"}
    assert whys(Path("/dev/zero")) == {"zero": "a device, not a session file"}


def test_a_file_that_turned_into_a_fifo_is_refused_when_it_is_opened(tmp_path: Path) -> None:
    """The open doesn't wait for a writer, and looks again at what it got."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="a FIFO"), open_session_file(tmp_path / "pipe"):
        pass


def test_a_missing_or_impossible_path_is_told(tmp_path: Path) -> None:
    """A path that isn't there, one that no system takes, and one that is too long."""
    assert whys(tmp_path / "missing") == {"missing": "can't be read: no such file or directory"}
    assert "null" in whys(Path("a\0b"))["a\0b"]
    assert list(whys(tmp_path / ("x" * 5000)).values()) == ["can't be read: file name too long"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_told(tmp_path: Path) -> None:
    """The others are imported."""
    (tmp_path / "a.jsonl").write_bytes(encoded(conversation()))
    (tmp_path / "b.jsonl").touch(mode=0)
    assert whys(tmp_path) == {"b.jsonl": "can't be read: permission denied"}


def test_a_name_of_any_bytes_can_be_printed(tmp_path: Path) -> None:
    """Reports and origins are text that can be encoded."""
    path = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    path.write_bytes(encoded(conversation()) + b"torn\n")
    imported = import_path(path)
    assert imported.report.problems[0].file.encode().endswith("caf\ufffd.jsonl".encode())
    assert imported.headers[f"claude-code:{SESSION}"].origin["file"] == "caf\ufffd.jsonl"


def test_content_decides_the_format_not_the_name(tmp_path: Path) -> None:
    """By the first record that is known, behind damage, strangers and filling."""
    (tmp_path / "codex.log").write_bytes(b"\0\0\n{torn\n{}\n" + encoded([{"unknown": 1}, *conversation()]))
    imported = import_path(tmp_path / "codex.log")
    assert list(imported.events) == [f"claude-code:{SESSION}"]


def test_a_file_whose_only_record_stands_behind_a_stub_is_recognised(tmp_path: Path) -> None:
    """The rescued record counts."""
    imported = import_bytes(tmp_path, compact(user(0, "cut"))[:70] + compact(user(1, "whole")) + b"\n")
    assert [each["text"] for each in imported.of_type("user/message")] == ["whole"]


def test_a_given_format_is_the_only_one_taken(tmp_path: Path) -> None:
    """A file of the other is no session file then; a format that isn't there is an error at once."""
    assert FORMATS == ("claude-code", "codex")
    assert import_records(tmp_path, conversation(), format="claude-code").events
    other = import_records(tmp_path, conversation(), format="codex")
    assert other.problems() == [(0, "no session file (codex)")]
    with pytest.raises(UnknownFormat, match="'word' is no known format; there are claude-code, codex"):
        read_sessions(tmp_path, ImportReport(), "word")


def test_what_is_appended_while_reading_belongs_to_the_next_import(tmp_path: Path) -> None:
    """The file is as long as when it was opened, so a file that grows as fast as it is read comes to an end."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(encoded([user(0, "go")]))
    texts = []
    for session in read_sessions(path, ImportReport()):
        for event in session.events():
            with path.open("ab") as file:
                file.write(encoded([user(1, "more")]))
            texts.append(event.data.get("text"))
    assert texts == [None, "go", None]


def test_events_of_a_closed_file_are_an_error_that_is_reported(tmp_path: Path) -> None:
    """Reading a session when its turn is over never reads another file instead."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(encoded(conversation()))
    report = ImportReport()
    (session,) = list(read_sessions(path, report))
    with path.open("rb"):  # it has the closed one's descriptor now
        assert list(session.events()) == []
    assert "can't be read further" in report.problems[0].why


def test_a_report_is_bounded(tmp_path: Path) -> None:
    """Problems beyond the bound are counted, and the totals say so."""
    report = ImportReport()
    for line in range(PROBLEMS_MAX + 5):
        report.add_problem(tmp_path, line, "bad")
    assert len(report.problems) == PROBLEMS_MAX
    assert report.totals()["damaged_lines_left_out"] == 5


def test_the_totals_are_what_the_command_prints(tmp_path: Path) -> None:
    """Counts, and each problem with file, line and reason."""
    report = ImportReport(sessions=1, events=7, skipped=2)
    report.add_problem(tmp_path / "a.jsonl", 3, "torn")
    assert report.totals() == {
        "sessions": 1,
        "events": 7,
        "skipped": 2,
        "damaged_lines": [{"file": str(tmp_path / "a.jsonl"), "line": 3, "why": "torn"}],
    }


def test_thousands_of_empty_files_are_passed_over_quickly(tmp_path: Path) -> None:
    """Each is told, and the one with a session is found among them."""
    for number in range(2000):
        (tmp_path / f"{number}.jsonl").touch()
    (tmp_path / "999x.jsonl").write_bytes(encoded(conversation()))
    imported = import_path(tmp_path)
    assert list(imported.events) == [f"claude-code:{SESSION}"]
    assert len(imported.report.problems) == 2000
