"""The actors benchmark on a small input: every message arrives, or there are no figures."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from turnkeeper.benchmarks.actors import actors
from turnkeeper.benchmarks.driving.exchanges import (
    TEXT,
    Exchanger,
    ask_figures,
    play_ping_pong,
    tell_figures,
    time_asks,
    time_tells,
)
from turnkeeper.benchmarks.peers.catalogue import INSTALL, installed_version
from turnkeeper.benchmarks.workplace import run_alone

SIZES = actors.Sizes(tells=1_500, asks=3, rounds=2)
UNKNOWN, BROKEN = "no_such_actor_library", "broken_actor_library"
CHANNEL, PING_PONG = "a memory channel of trio", "msgpack over a Unix socket"


def test_each_way_is_compared_with_what_trio_and_msgpack_can_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the loop (more messages than a mailbox holds), in a worker process and by name; on trio and asyncio.

    A library that isn't installed, or fails, is left out, and a line says what would bring it, or why.
    """
    monkeypatch.setattr(actors, "LIBRARIES", (UNKNOWN, BROKEN))
    monkeypatch.setattr(actors, "installed_version", {BROKEN: "7"}.get)
    result = run_alone("actors", partial(actors.measure, SIZES, libraries=(UNKNOWN, BROKEN)), tmp_path)
    runs = [run for run in result["runs"] if run["figures"]]
    assert [(run["name"], run["params"]["loop"], run["params"]["against"]) for run in runs] == [
        (name, loop, against)
        for name, against in [
            ("tell in the loop, us_a_tell", CHANNEL),
            ("ask a worker, p50_us", PING_PONG),
            ("ask by name, p50_us", PING_PONG),
        ]
        for loop in ("trio", "asyncio")
    ]
    for run in runs:
        compared = run["name"].rpartition(" ")[2]
        ours, theirs = run["rounds"]["figures"][compared], run["rounds"]["base"][compared]
        assert run["rounds"]["ratio"] == pytest.approx([a / b for a, b in zip(ours, theirs, strict=True)], rel=0.01)
        assert all(0 < value < 1_000_000 for value in [*run["figures"].values(), *run["base"].values()])
    left_out = [run for run in result["runs"] if not run["figures"]]
    assert [run["name"] for run in left_out] == ["tell in the loop"] * 2 + ["ask a worker"] * 2
    module = f"turnkeeper.benchmarks.peers.{BROKEN}_actors"
    assert {run["params"]["against"]: run["params"]["left_out"] for run in left_out} == {
        UNKNOWN: INSTALL,
        BROKEN: f"{BROKEN} 7 fails here: ModuleNotFoundError: No module named '{module}'",
    }
    assert json.loads((tmp_path / "actors.json").read_text()) == result
    assert [path.name for path in tmp_path.iterdir()] == ["actors.json"]


@pytest.mark.parametrize(
    ("library", "told"),
    [
        ("pykka", "tell in the loop"),
        ("xoscar", "tell in the loop"),
        pytest.param("ray", "tell a worker", marks=pytest.mark.long),
    ],
)
def test_another_library_is_measured_where_it_is_installed(tmp_path: Path, library: str, told: str) -> None:
    """Telling and asking, all messages of which arrive; no process of it is left, and no file."""
    version = installed_version(library)
    if version is None:
        pytest.skip(f"{library} isn't installed: {INSTALL}")
    sizes = actors.Sizes(20, 3, 1, heavy_messages=5)
    result = run_alone("actors", partial(actors.measure, sizes, libraries=(library,)), tmp_path)
    theirs = [run for run in result["runs"] if run["params"]["against"] == library]
    assert [run["name"].partition(",")[0] for run in theirs] == [told] * 2 + ["ask a worker"] * 2
    assert {run["params"]["installed"] for run in theirs} == {f"{library} {version}"}
    assert all(0 < value < 1_000_000 for run in theirs for value in run["base"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["actors.json"]
    assert [pid for pid in filter(str.isdecimal, os.listdir("/proc")) if is_at_work(pid, str(tmp_path))] == []


def is_at_work(pid: str, directory: str) -> bool:
    """Say whether a process works in the directory, which may be gone."""
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(directory)
    except OSError:
        return False


def test_ray_is_left_out_of_what_is_to_be_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed or not: its rows say why, and nothing of ours is measured for them."""
    monkeypatch.setattr(actors, "_measure", lambda *arguments: [])
    for version, why in [("2.60", "takes too long for --quick"), (None, INSTALL)]:
        monkeypatch.setattr(actors, "installed_version", lambda library, version=version: version)
        result = run_alone("actors", partial(actors.measure, SIZES, libraries=("ray",)))
        assert [(run["name"], run["params"]["left_out"]) for run in result["runs"]] == [
            ("tell a worker", why),
            ("ask a worker", why),
        ]


def test_the_ping_pong_lies_in_its_directory_however_deep_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A socket's path is short, the user's may not be; what a killed process leaves is removed with the directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    place = tmp_path / ("deep" * 30)
    place.mkdir()
    with Exchanger(play_ping_pong, str(place)) as ping_pong:
        ping_pong.wait_ready()
        assert len(list(place.glob("*/socket"))) == 1
        assert list((tmp_path / "temporary").iterdir()) == []
        assert 0 < ping_pong.burst(3)["p50_us"] < 1_000_000
    assert list(place.iterdir()) == []


@pytest.mark.trio
async def test_a_burst_that_loses_a_message_gives_no_figures() -> None:
    """A quick way that drops what it is told, or answers wrongly, must not win."""

    async def take(text: str) -> None:
        assert text == TEXT

    async def taken() -> int:
        return 4

    async def answer_wrongly(text: str) -> str:
        return text[1:]

    with pytest.raises(RuntimeError, match="of 5 messages 4 arrived"):
        await time_tells(5, take, taken)
    with pytest.raises(RuntimeError, match="of 5 messages 0 arrived"):
        await time_asks(5, answer_wrongly)
    assert (await time_tells(4, take, taken)).keys() == tell_figures(0, 1, 1).keys() == {"us_a_tell"}


def test_figures_of_asks_are_microseconds() -> None:
    """Of a way there and back: the median, and the slowest but one in a hundred."""
    assert ask_figures([1_000 * (each + 1) for each in range(101)], 101) == {"p50_us": 51.0, "p99_us": 100.0}
