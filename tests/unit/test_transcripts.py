"""Unit: transcripts to replay, those that are shipped and those from other programs' session files."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import pytest

from turnkeeper.benchmarks.stores import transcripts
from turnkeeper.benchmarks.stores.transcripts import NoTranscripts, Step, Transcript, from_paths, shipped
from turnkeeper.storage.exact_json import encode_data

from ..session_files import CODEX_SESSION, SESSION, assistant, call, conversation, encoded, result, rollout, text, user

NAMES = [
    "bug-hunt",
    "data-cleanup",
    "dependency-upgrade",
    "documentation",
    "incident",
    "refactor",
    "review-handover",
    "test-writing",
]


def steps(transcript: Transcript) -> list[Step]:
    """Return a transcript's steps, turn after turn."""
    return [step for turn in transcript.turns for step in turn]


def assert_replayable(transcript: Transcript) -> None:
    """Hold what every replay relies on: known types, storable data, calls started and finished within a turn, once."""
    ids = set[str]()
    for turn in transcript.turns:
        open_calls = set[str]()
        assert turn
        for type, data in turn:
            encode_data(type, data)
            if type == "tool/started":
                assert data["id"] not in ids
                assert {"name", "arguments", "effect"} < set(data)
                ids.add(data["id"])
                open_calls.add(data["id"])
            elif type == "tool/finished":
                open_calls.remove(data["id"])
                assert "output" in data
            else:
                assert type in ("user/message", "assistant/message")
                assert isinstance(data["text"], str)
        assert not open_calls


def test_eight_transcripts_are_shipped() -> None:
    """In the order of their names, each of them whole."""
    assert [transcript.name for transcript in shipped()] == NAMES


@pytest.mark.parametrize("transcript", shipped(), ids=NAMES)
def test_a_shipped_transcript_is_like_real_work(transcript: Transcript) -> None:
    """Several turns that each begin with a person's words, answers with their usage, outputs of a real size."""
    assert_replayable(transcript)
    assert len(transcript.turns) >= 2
    assert 15 <= len(steps(transcript)) <= 40
    for turn in transcript.turns:
        assert [step.type for step in turn].index("user/message") == 0
        assert turn[-1].type == "assistant/message"
    for type, data in steps(transcript):
        if type == "assistant/message":
            assert set(data) == {"text", "model", "usage"}
            assert data["usage"]["input_tokens"] > data["usage"]["output_tokens"] > 0
        if type == "tool/started":
            assert data["effect"] in ("read", "idempotent", "once")
        if type == "tool/finished":
            assert 150 <= len(data["output"].encode()) <= 4096


def test_shipped_transcripts_hold_more_than_ascii() -> None:
    """Letters of many languages, signs and emoji, so that a replay meets them."""
    characters = set("".join(encode_data("", {"": transcript.turns}).decode() for transcript in shipped()))
    assert set("éöŁễ☕👍…") <= characters


def test_shipped_files_hold_one_step_a_line() -> None:
    """With exactly a type and its data, compact, as UTF-8; what the loader returns is all that stands there."""
    folder = resources.files(transcripts.__package__) / "transcripts"
    for transcript in shipped():
        lines = (folder / f"{transcript.name}.jsonl").read_text("utf-8").removesuffix("\n").split("\n")
        records = [json.loads(line) for line in lines]
        assert [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in records] == lines
        assert [{"type": type, "data": data} for type, data in steps(transcript)] == records


def test_session_files_of_other_programs_become_transcripts(tmp_path: Path) -> None:
    """Exchanges are turns, steps have the members that are replayed, the rest is left behind."""
    (tmp_path / "a.jsonl").write_bytes(encoded(conversation()))
    (tmp_path / "b.jsonl").write_bytes(encoded(rollout()))
    claude, codex = from_paths([tmp_path])
    for transcript in (claude, codex):
        assert_replayable(transcript)
    assert (claude.name, codex.name) == (f"claude-code:{SESSION}", f"codex:{CODEX_SESSION}")
    assert [[step.type for step in turn] for turn in claude.turns] == [
        [
            *("user/message", "assistant/message", "assistant/message", "assistant/message"),
            *("tool/started", "tool/finished", "assistant/message"),
        ],
        ["user/message", "assistant/message", "tool/started", "tool/finished", "assistant/message"],
    ]
    assert claude.turns[0][0].data == {"text": "List the boats."}
    assert claude.turns[0][5].data == {"id": "toolu-1", "output": "anna\nbertha\n"}
    assert codex.turns[-1][-1].data == {"id": "call-3", "output": None, "error": "TOOL_OUTCOME_UNKNOWN"}


def test_a_result_that_came_too_late_is_not_replayed(tmp_path: Path) -> None:
    """Its call has an end in the turn where it was made."""
    records = [user(0, "go"), assistant(1, call("toolu-1")), user(2, "stop"), user(3, [result("toolu-1")])]
    (tmp_path / "a.jsonl").write_bytes(encoded(records))
    (transcript,) = from_paths([tmp_path])
    assert_replayable(transcript)
    assert [step.data["output"] for step in steps(transcript) if step.type == "tool/finished"] == [None]


def test_a_long_session_is_cut_off_without_leaving_a_call_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is replayed is bounded, and whole as far as it goes."""
    monkeypatch.setattr(transcripts, "TRANSCRIPT_BYTES_MAX", 3000)
    records = [user(0, "go")]
    for number in range(1, 200, 3):
        records += [
            assistant(number, text("x" * 100), call(f"toolu-{number}"), call(f"toolu-{number + 1}")),
            user(number + 1, [result(f"toolu-{number}", "y" * 100)]),
            user(number + 2, [result(f"toolu-{number + 1}", "z" * 100)]),
        ]
    (tmp_path / "a.jsonl").write_bytes(encoded(records))
    (transcript,) = from_paths([tmp_path])
    assert_replayable(transcript)
    assert 5 < len(steps(transcript)) < 40


def test_no_more_transcripts_are_read_than_wanted(tmp_path: Path) -> None:
    """The first ones, file by file, path by path."""
    for number in range(5):
        (tmp_path / f"{number}.jsonl").write_bytes(encoded([user(0, "go", sessionId=f"s{number}")]))
    paths = [tmp_path / "3.jsonl", tmp_path]
    names = [transcript.name for transcript in from_paths(paths, transcripts_max=3)]
    assert names == ["claude-code:s3", "claude-code:s0", "claude-code:s1"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "a.jsonl:0: an empty file"),
        (b"\x89PNG\r\n\x1a\n\0\0", "a.jsonl:0: no session file (claude-code or codex)"),
        (encoded([{"type": "summary", "summary": "s", "leafUuid": "l"}]), ""),
    ],
    ids=["empty", "no session", "nothing in it"],
)
def test_nothing_to_replay_is_an_error_that_says_why(tmp_path: Path, content: bytes, why: str) -> None:
    """With the paths, and the first things that were found wrong."""
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(NoTranscripts) as error:
        from_paths([tmp_path])
    assert str(error.value).startswith(f"nothing to replay in {tmp_path}")
    assert why in str(error.value)


def test_no_path_at_all_is_the_same_error() -> None:
    """There is nothing to replay in it either."""
    with pytest.raises(NoTranscripts, match="no path"):
        from_paths([])
