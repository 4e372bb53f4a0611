"""What every command is given: which store is meant, and whether a script is reading."""

from __future__ import annotations

from dataclasses import dataclass

from turnkeeper.actors.places import StorePlace, store_place
from turnkeeper.storage.store import require_backend


@dataclass(slots=True)
class Invocation:
    """One run of the command line. `given_store` is what `--store` says, None without it."""

    given_store: str | None = None
    is_json: bool = False

    @property
    def store(self) -> str:
        """The absolute path of the store that is meant. Raises StoreRefused, as `place` does."""
        return self.place.path

    @property
    def place(self) -> StorePlace:
        """The store that is meant. Raises StoreRefused for what is no directory's path, or for another's store."""
        place = store_place(self.given_store)
        require_backend(*place)
        return place
