"""Where the store is: the path that was given, else $TURNKEEPER_STORE, else the user's data directory."""

from __future__ import annotations

import os
import re
import sys
from os import PathLike

from turnkeeper.storage.errors import StoreRefused
from turnkeeper.storage.store import make_directory

STORE_VARIABLE = "TURNKEEPER_STORE"

_URL = re.compile(r"[a-z][a-z0-9+]+:")


def store_path(store: str | PathLike[str] | None = None) -> str:
    """Give the absolute path of the store that is meant; nothing is made or looked at.

    Raises StoreRefused for a URL: this version keeps stores in directories only.
    """
    path = os.fspath(store) if store is not None else os.environ.get(STORE_VARIABLE) or default_store_path()
    if _URL.match(path):
        raise StoreRefused(path, "a store is a directory; give its path")
    return os.path.abspath(os.path.expanduser(path))


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
