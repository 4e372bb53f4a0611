"""Unit: session files that were torn, glued, overwritten or swollen: the good is kept, the bad told with its line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnkeeper.actors.importing import ImportReport, read_sessions
from turnkeeper.actors.importing.lines import LINE_BYTES_MAX

from ..session_files import (
    Imported,
    Json,
    assert_sound,
    assistant,
    call,
    codex,
    compact,
    conversation,
    encoded,
    import_bytes,
    import_records,
    item,
    meta,
    result,
    rollout,
    text,
    user,
)

MAKERS: list[Callable[[], list[Json]]] = [conversation, rollout]
both_formats = pytest.mark.parametrize("make", MAKERS, ids=["claude-code", "codex"])


def prompts(count: int = 6) -> list[Json]:
    """Make a session of prompts only, so that each record is one message."""
    return [user(number, f"prompt {number}") for number in range(count)]


def said(imported: Imported) -> list[str]:
    """Return the prompts that came through, by their numbers."""
    return [event.data["text"] for event in imported.only() if event.type == "user/message"]


def without(number: int, count: int = 6) -> list[str]:
    """Return the prompts but one."""
    return [f"prompt {n}" for n in range(count) if n != number]


def test_a_record_cut_in_the_middle_of_the_file_is_one_damaged_line(tmp_path: Path) -> None:
    """Everything before and behind it is there, and the line is named."""
    records = prompts()
    imported = import_records(tmp_path, [*records[:2], compact(records[2])[:90], *records[3:]])
    assert said(imported) == without(2)
    (damaged, gap) = imported.problems()
    assert damaged[0] == 3
    assert damaged[1].startswith("not JSON (")
    assert gap == (4, "kept, but its parent record 'uuid-2' is missing")


@both_formats
def test_a_last_record_cut_at_any_byte_costs_only_itself(tmp_path: Path, make: Callable[[], list[Json]]) -> None:
    """Whatever the length of the stub, the records before it come as from the file without it."""
    records = make()
    last = compact(records[-1])
    whole = encoded(records[:-1])
    before = import_bytes(tmp_path, whole).only()
    for length in range(1, len(last)):
        imported = import_bytes(tmp_path, whole + last[:length])
        assert imported.only() == before
        ((line, why),) = imported.problems()
        assert (line, why.startswith("cut off by the end of the file: ")) == (len(records), True)


def test_a_last_record_without_its_newline_is_whole(tmp_path: Path) -> None:
    """Only the newline is missing."""
    imported = import_bytes(tmp_path, encoded(prompts()).rstrip(b"\n"))
    assert said(imported) == without(-1)
    assert imported.problems() == []


@pytest.mark.parametrize("length", [1, 30, 60, 150])
def test_a_record_glued_to_a_stub_is_rescued(tmp_path: Path, length: int) -> None:
    """The stub is lost, the record on the same line kept, and the line named once."""
    records = prompts()
    glued = compact(records[2])[:length] + compact(records[3])
    imported = import_records(tmp_path, [*records[:2], glued, *records[4:]])
    assert said(imported) == without(2)
    assert [line for line, why in imported.problems() if "parent" not in why] == [3]


@both_formats
def test_a_record_written_again_after_a_failed_write_counts_once(
    tmp_path: Path, make: Callable[[], list[Json]]
) -> None:
    """Behind its own stub on the same line, and on a line of its own: the same events, one damaged line."""
    records = make()
    expected = [event.key for event in import_records(tmp_path, records).only()]
    for separator in (b"", b"\n"):
        again = compact(records[6])[:-20] + separator + compact(records[6])
        imported = import_records(tmp_path, [*records[:6], again, *records[7:]])
        assert [event.key for event in imported.only()] == expected
        assert [line for line, _ in imported.problems()] == [7]


def test_a_lost_newline_loses_neither_record(tmp_path: Path) -> None:
    """Two whole records on one line are two records."""
    records = prompts()
    imported = import_records(tmp_path, [*records[:2], compact(records[2]) + compact(records[3]), *records[4:]])
    assert said(imported) == without(-1)
    assert len(imported.problems()) == 1


def test_a_sub_agents_message_inside_of_a_cut_record_is_not_taken_for_a_record(tmp_path: Path) -> None:
    """What lacks the session's id is a part of something else."""
    inner = {"type": "user", "uuid": "inner", "message": {"role": "user", "content": "not mine"}}
    cut = compact({"type": "progress", "data": {"message": inner}, "sessionId": "s"})[:-20]
    assert said(import_records(tmp_path, [*prompts(2), cut + b"}"])) == ["prompt 0", "prompt 1"]


def test_an_item_inside_of_a_cut_compaction_is_not_taken_for_a_record(tmp_path: Path) -> None:
    """What stands in no payload is a part of something else."""
    inner = {"timestamp": "2026", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "old"}]}
    cut = compact(codex("compacted", 2, {"replacement_history": [inner]}))[:-3]
    assert "user/message" not in import_records(tmp_path, [meta(), cut]).types()


def test_raw_newlines_in_a_string_cost_exactly_that_record(tmp_path: Path) -> None:
    """Its pieces are told line by line, the neighbours are whole."""
    records = prompts()
    broken = compact(records[2]).replace(b"prompt 2", b"first\nsecond\nthird")
    imported = import_records(tmp_path, [*records[:2], broken, *records[3:]])
    assert said(imported) == without(2)
    assert [line for line, why in imported.problems() if "parent" not in why] == [3, 4, 5]


def test_nul_bytes_at_the_end_are_one_problem(tmp_path: Path) -> None:
    """As a power cut leaves them: nothing else is lost."""
    imported = import_bytes(tmp_path, encoded(prompts()) + bytes(512))
    assert said(imported) == without(-1)
    assert imported.problems() == [(7, "512 NUL bytes, as a power cut leaves them")]


def test_the_rest_of_an_older_longer_line_is_one_problem(tmp_path: Path) -> None:
    """Left behind by a rewrite in place."""
    imported = import_bytes(tmp_path, encoded(prompts()) + b'go."}}\n')
    assert said(imported) == without(-1)
    assert [line for line, _ in imported.problems()] == [7]


@pytest.mark.parametrize("bad", [b"x\xffy", b"x\xed\xa0\xbdy", b"x\xf0\x9f"], ids=["byte FF", "surrogate", "half"])
def test_a_byte_that_is_not_utf8_costs_only_its_line(tmp_path: Path, bad: bytes) -> None:
    """Each line is decoded by itself."""
    records = prompts()
    imported = import_records(tmp_path, [*records[:2], compact(records[2]).replace(b"prompt 2", bad), *records[3:]])
    assert said(imported) == without(2)
    assert imported.problems()[0][1].startswith("not UTF-8 (byte ")


def test_other_line_separators_are_text(tmp_path: Path) -> None:
    """They stand unescaped in strings, which is valid JSON."""
    odd = "a\u2028b\u2029c\u0085d"
    assert said(import_records(tmp_path, [user(0, odd), user(1, "next")])) == [odd, "next"]


def test_windows_line_ends_are_nothing(tmp_path: Path) -> None:
    """A carriage return before the newline is a blank."""
    imported = import_bytes(tmp_path, encoded(prompts()).replace(b"\n", b"\r\n"))
    assert said(imported) == without(-1)
    assert imported.problems() == []


def test_a_lone_surrogate_can_be_encoded_afterwards(tmp_path: Path) -> None:
    """It becomes U+FFFD, and the line is noted as kept."""
    records = prompts()
    cut = compact(records[2]).replace(b"prompt 2", rb"cut \ud83d emoji")
    imported = import_records(tmp_path, [*records[:2], cut, *records[3:]])
    assert "cut \ufffd emoji" in said(imported)
    assert imported.problems() == [(3, "kept, but a lone surrogate is now U+FFFD")]


@both_formats
def test_numbers_beyond_64_bits_keep_their_digits(tmp_path: Path, make: Callable[[], list[Json]]) -> None:
    """In a record that is kept whole and in one that is mapped."""
    digits = "12345678901234567890123"
    records = [*make(), codex("odd", 60, {"n": "@@"}) | {"sessionId": "s", "uuid": "u"}]
    if make is conversation:
        records += [user(61, "big", n="@@")]
    imported = import_bytes(tmp_path, encoded(records).replace(b'"@@"', digits.encode()))
    found = [event for events in imported.events.values() for event in events if digits in json.dumps(event.data)]
    assert len(found) == (2 if make is conversation else 1)
    assert sum("beyond 64 bits" in why for _, why in imported.problems()) == len(found)


def test_lines_that_are_json_but_no_records_are_told(tmp_path: Path) -> None:
    """Each with its line; the records around them are whole."""
    odd = [b"null", b"42", b'"text"', b"[]", b"true", b"{}"]
    imported = import_records(tmp_path, [*prompts(3), *odd, user(3, "prompt 3")])
    assert said(imported) == without(-1, 4)
    assert [line for line, _ in imported.problems()] == [4, 5, 6, 7, 8, 9]


def test_a_line_over_the_limit_is_passed_over(tmp_path: Path) -> None:
    """It isn't held in memory; its length is told, and the records behind it come."""
    giant = compact(user(1, "x" * (LINE_BYTES_MAX + 1)))
    imported = import_records(tmp_path, [user(0, "prompt 0"), giant, user(2, "prompt 2", parentUuid=None)])
    assert said(imported) == ["prompt 0", "prompt 2"]
    assert imported.problems() == [(2, f"line of {len(giant)} bytes is over the limit of 32 MiB")]


def test_a_message_too_long_for_the_store_keeps_its_place(tmp_path: Path) -> None:
    """Without its content; an opaque record of that length is left out. Both are told with length and limit."""
    records = [user(0, "x" * 5000), assistant(1, text("y" * 5000), usage={"output_tokens": 9}), user(2, "short")]
    records += [{"type": "zz", "sessionId": records[0]["sessionId"], "blob": "z" * 5000}]
    imported = import_records(tmp_path, records, event_bytes_max=4096)
    assert said(imported) == ["", "short"]
    assert imported.of_type("assistant/message")[0]["usage"] == {"output_tokens": 9}
    assert "claude-code/zz" not in imported.types()
    whys = [why for _, why in imported.problems()]
    assert [why.rpartition("; ")[2] for why in whys] == [
        "user/message kept without its content",
        "assistant/message kept without its content",
        "claude-code/zz left out",
    ]
    assert all("bytes is over the limit of 4096 bytes" in why for why in whys)


def test_a_record_is_kept_up_to_the_limit(tmp_path: Path) -> None:
    """A record whose event just fits is kept whole, also where whoever stores it needs a little room."""
    fits = 1024 * 1024 - 2500
    for limit in (1024 * 1024, 1023 * 1024):
        records = [user(0, "x" * fits), user(1, "y" * (1024 * 1024))]
        imported = import_records(tmp_path, records, event_bytes_max=limit)
        assert [len(each) for each in said(imported)] == [fits, 0]
        assert [(line, "over the limit of 1 MiB" in why) for line, why in imported.problems()] == [(2, True)]


def test_a_picture_of_some_mebibytes_is_kept(tmp_path: Path) -> None:
    """The store keeps events of up to 64 MiB, so what stood in one line of the file is one event, whole."""
    imported = import_records(tmp_path, [user(0, "iVBOR" + "QUJD" * 1_000_000)])
    assert [len(each) for each in said(imported)] == [4_000_005]
    assert imported.problems() == []


def test_a_record_that_says_things_twice_is_kept_without_the_second(tmp_path: Path) -> None:
    """A tool's output also stands beside the message: that is left out first."""
    records = [
        user(0, "go"),
        assistant(1, call("toolu-1")),
        user(2, [result("toolu-1", "z" * 3000)], toolUseResult={"stdout": "z" * 3000}),
    ]
    imported = import_records(tmp_path, records, event_bytes_max=4096)
    (finished,) = imported.of_type("tool/finished")
    assert finished["output"] == "z" * 3000
    assert finished["source"]["uuid"] == "uuid-2"
    assert "toolUseResult" not in finished["source"]
    assert imported.problems()[0][1].endswith("tool/finished kept without its record's other members")


def test_calls_too_long_for_the_store_stay_paired(tmp_path: Path) -> None:
    """Arguments and output are left out, the call and its result are not."""
    records = [
        user(0, "go"),
        assistant(1, call("toolu-1", "x" * 5000), call("toolu-2")),
        user(2, [result("toolu-1"), result("toolu-2", "z" * 5000)]),
    ]
    imported = import_records(tmp_path, records, event_bytes_max=4096)
    assert imported.of_type("tool/started")[0]["arguments"] == {}
    assert [(each["output"], each.get("error")) for each in imported.of_type("tool/finished")] == [
        ("done", None),
        (None, "TOOL_OUTPUT_LEFT_OUT"),
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is told by Linux")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """Lines of 2 MB, 200 MB together, and one of 200 MB, read in a process of its own, take a fraction of that."""
    path = tmp_path / "big.jsonl"
    with path.open("wb") as file:
        for number in range(100):
            file.write(encoded([user(number, f"{number} " + "QUJD" * 500_000)]))
        file.writelines([b"QUJD" * 500_000] * 100)
    code = (
        "import re, sys\n"
        "from turnkeeper.actors.importing import ImportReport, read_sessions\n"
        "def peak(): return int(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        "before = peak()\n"
        "events = sum(1 for s in read_sessions(sys.argv[1], ImportReport()) for _ in s.events())\n"
        "print(events, peak() - before)\n"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    events, grown_kib = map(int, done.stdout.split())
    assert events == 300
    assert grown_kib < 60_000


def broken_lines() -> st.SearchStrategy[bytes]:
    """Make files of real records, some cut, doubled, glued or with foreign bytes in them."""
    lines = [compact(each) for each in [*conversation(), *rollout()]]

    def damage(line: bytes, place: int, junk: bytes, how: str) -> bytes:
        place %= len(line)
        return {
            "whole": line + b"\n",
            "cut": line[:place] + b"\n",
            "glued": line[:place] + line,
            "junk": line[:place] + junk + line[place:] + b"\n",
            "instead": line[:place] + junk + line[place + len(junk) :] + b"\n",
        }[how]

    how = st.sampled_from(["whole", "whole", "whole", "cut", "glued", "junk", "instead"])
    line = st.builds(damage, st.sampled_from(lines), st.integers(0, 10_000), st.binary(max_size=6), how)
    return st.lists(line, max_size=12).map(b"".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(broken_lines() | st.binary(max_size=400))
def test_any_bytes_give_events_or_problems(tmp_path: Path, content: bytes) -> None:
    """Nothing raises, what comes out can be stored and is paired, and a file that gives nothing says why."""
    for format in (None, "codex"):
        imported = import_bytes(tmp_path, content, format=format)
        assert imported.events or imported.report.problems


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)


def mangled(record: Json, changes: list[tuple[int, object]]) -> Json:
    """Replace members of a record, at any depth, by anything."""
    holders: list[tuple[Json, str]] = []
    pending: list[Json] = [record]
    while pending:
        holder = pending.pop()
        for name, member in holder.items():
            holders.append((holder, name))
            inner = member if isinstance(member, list) else [member]
            pending += [each for each in inner if isinstance(each, dict)]
    for place, value in changes:
        holder, name = holders[place % len(holders)]
        holder[name] = value
    return record


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.data(), st.sampled_from(MAKERS))
def test_records_with_anything_in_their_members_are_taken(
    tmp_path: Path, data: st.DataObject, make: Callable[[], list[Json]]
) -> None:
    """Types, ids, contents, times of any kind: every record comes through or repeats another, and none raises."""
    changes = st.lists(st.tuples(st.integers(0, 60), values), max_size=2)
    records = [mangled(record, data.draw(changes)) for record in make()]
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    report = ImportReport()
    lines = set()
    for session in read_sessions(path, report, "codex" if make is rollout else "claude-code"):
        events = list(session.events())
        assert_sound(events)
        lines |= {event.line for event in events}
    told = {problem.line for problem in report.problems if "kept" not in problem.why}
    if 0 not in told:
        assert len(set(range(1, len(records) + 1)) - lines - told) <= report.skipped


def test_a_call_that_was_cut_off_leaves_its_result_a_late_one(tmp_path: Path) -> None:
    """For Codex as for Claude Code: the result isn't lost with the line of its call."""
    records: list[Json | bytes] = [
        meta(),
        compact(item(1, "function_call", call_id="c", name="shell", arguments="{}"))[:60],
        item(2, "function_call_output", call_id="c", output="kept"),
    ]
    (late,) = import_records(tmp_path, records).of_type("tool/late-result")
    assert late["output"] == "kept"
