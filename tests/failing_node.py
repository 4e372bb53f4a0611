"""A node whose process supervisor fails where a test tells it to: as often as a file `fail at PLACE` in the store says.

Run as a script in the node's place. The places are calls of the supervisor's own: in its tasks and in its answers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / ".import"))

from turnkeeper.actors.node import node_main
from turnkeeper.actors.node.tasks.live_task import LiveTask
from turnkeeper.actors.node.tasks.supervisor import Supervisor

PLACES: dict[str, tuple[type, str]] = {
    "a tick": (LiveTask, "look_at_output"),
    "a start": (LiveTask, "begin"),
    "a stop": (LiveTask, "stop"),
    "a list": (Supervisor, "_list"),
    "an adoption": (Supervisor, "_adopt"),
}


def main() -> None:
    """Be a node whose process supervisor fails."""
    for place, (owner, name) in PLACES.items():
        setattr(owner, name, _failing(getattr(owner, name), f"fail at {place}"))
    node_main.main()


def _failing(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    def fail_or_call(*arguments: Any, **keywords: Any) -> Any:
        file = Path(name)
        times = int(file.read_text()) if file.exists() else 0
        if times > 0:
            file.write_text(str(times - 1))
            raise RuntimeError(f"told to {name}")
        return call(*arguments, **keywords)

    return fail_or_call


if __name__ == "__main__":
    main()
