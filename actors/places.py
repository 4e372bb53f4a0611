"""Where the store is: the path that was given, else $TURNKEEPER_STORE, else the user's data directory.

A path may have the name of a backend before it, `sqlite:DIR`: a store that is made there is kept by it, and one that is
there must be. Without it a new store is a journal.
"""

from __future__ import annotations

import os
import re
import sys
from os import PathLike
from typing import NamedTuple

from turnkeeper.storage.errors import StoreRefused
from turnkeeper.storage.store import BackendName, make_directory

STORE_VARIABLE = "TURNKEEPER_STORE"

_URL = re.compile(r"[a-z][a-z0-9+]+:")
_SQLITE = "sqlite:"


class StorePlace(NamedTuple):
    """The store's absolute path, and what has to keep it; None where that wasn't said."""

    path: str
    backend: BackendName | None


def store_place(store: str | PathLike[str] | None = None) -> StorePlace:
    """Give the place of the store that is meant; nothing is made or looked at.

    Raises StoreRefused for any other URL than `sqlite:DIR`: this version keeps stores in directories only.
    """
    path = os.fspath(store) if store is not None else os.environ.get(STORE_VARIABLE) or default_store_path()
    backend: BackendName | None = "sqlite" if path.startswith(_SQLITE) else None
    directory = path.removeprefix(_SQLITE)
    if not directory or _URL.match(directory):
        raise StoreRefused(path, "a store is a directory; give its path")
    return StorePlace(os.path.abspath(os.path.expanduser(directory)), backend)


def store_path(store: str | PathLike[str] | None = None) -> str:
    """Give the absolute path of the store that is meant, as `store_place` does."""
    return store_place(store).path


def default_store_path() -> str:
    """Give the path of the user's own store."""
    if sys.platform == "darwin":
        home = os.path.join("~", "Library", "Application Support")
    else:
        home = os.environ.get("XDG_DATA_HOME") or os.path.join("~", ".local", "share")
    return os.path.abspath(os.path.expanduser(os.path.join(home, "turnkeeper", "store")))


def make_parents_of_default(path: str) -> None:
    """Make what lies above the user's own store, if that is what `path` is; above any other path nothing is made."""
    if path == default_store_path():
        make_directory(os.path.dirname(path), parents=True)
