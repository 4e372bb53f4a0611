"""Unit: which directory is the store, by what was said, the environment and the system."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnkeeper.actors.errors import StoreRefused
from turnkeeper.actors.places import default_store_path, make_parents_of_default, store_path, store_place


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("TURNKEEPER_STORE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path


def test_the_given_path_comes_first_then_the_environment_then_the_users_own(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest word wins; an empty variable says nothing."""
    assert store_path() == str(home / ".local/share/turnkeeper/store")
    monkeypatch.setenv("TURNKEEPER_STORE", "")
    assert store_path() == default_store_path()
    monkeypatch.setenv("TURNKEEPER_STORE", str(home / "by environment"))
    assert store_path() == str(home / "by environment")
    assert store_path(home / "given") == str(home / "given")


def test_a_path_is_made_absolute_and_its_tilde_resolved(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts the node may stand in another directory."""
    monkeypatch.chdir(home)
    assert store_path("~/agents") == str(home / "agents")
    assert store_path("./here/../agents") == str(home / "agents")


@pytest.mark.parametrize(
    ("platform", "data", "expected"),
    [
        ("linux", "/data", "/data/turnkeeper/store"),
        ("darwin", "/data", "~/Library/Application Support/turnkeeper/store"),
    ],
)
def test_each_system_has_its_place_for_data(
    monkeypatch: pytest.MonkeyPatch, platform: str, data: str, expected: str
) -> None:
    """XDG's variable counts where XDG does."""
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setenv("XDG_DATA_HOME", data)
    assert default_store_path() == os.path.expanduser(expected)


@pytest.mark.parametrize("url", ["postgresql://host/store", "sqlite:", "sqlite:sqlite:agents", "http://host/"])
def test_a_url_is_no_directory(url: str) -> None:
    """Nothing of that name is made."""
    with pytest.raises(StoreRefused, match="a store is a directory"):
        store_path(url)


def test_a_path_may_say_what_keeps_the_store(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite where the path says so; without a word, whatever keeps the store that is there."""
    assert store_place("sqlite:~/agents") == (str(home / "agents"), "sqlite")
    assert store_place("~/agents") == (str(home / "agents"), None)
    monkeypatch.setenv("TURNKEEPER_STORE", f"sqlite:{home}/store")
    assert store_place() == (str(home / "store"), "sqlite")
    assert store_path() == str(home / "store")


def test_only_the_users_own_store_gets_its_parents_made(home: Path) -> None:
    """Above any other path a missing directory is more likely a mistake."""
    make_parents_of_default(str(home / "no" / "such" / "store"))
    assert list(home.iterdir()) == []
    make_parents_of_default(store_path())
    assert (home / ".local/share/turnkeeper").is_dir()
    assert not (home / ".local/share/turnkeeper/store").exists()
