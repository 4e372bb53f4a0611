"""The failpoints of spawner and shims: their names, and where they are (see `turnkeeper.runtime.failpoints`)."""

from __future__ import annotations

from collections.abc import Mapping

SPAWNER: Mapping[str, str] = {
    "spawner-forks": "before os:fork",
}

SHIM: Mapping[str, str] = {
    "shim-begins": "before turnkeeper.runtime.tasks.shim:run",
    "shim-has-lock": "behind turnkeeper.runtime.tasks.directory:take_lock",
    "shim-spawns": "before turnkeeper.runtime.tasks.shim:_spawn",
    "shim-spawned": "behind turnkeeper.runtime.tasks.shim:_spawn",
    "shim-supervises": "before turnkeeper.runtime.tasks.running:Running.supervise",
    "shim-knows-end": "before turnkeeper.runtime.tasks.directory:write_exit",
    "shim-wrote-end": "behind turnkeeper.runtime.tasks.directory:write_exit",
}
