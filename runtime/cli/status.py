"""`turnkeeper status`: what serves a store, and what it is doing."""

from __future__ import annotations

import time
from typing import Any

from turnkeeper.actors.client.asking import ask_status
from turnkeeper.storage.store import describe

from .commands import command
from .failures import Failure
from .invocation import Invocation
from .printing import print_figures, print_json
from .values import moment


def not_served(store: str) -> Failure:
    """Make the failure of a command that needs somebody to serve the store, and starts nobody."""
    return Failure("not_served", "nobody serves this store", store, "whatever opens it starts what serves it")


@command("status", example="turnkeeper status --json | jq .pids")
def status(invocation: Invocation) -> None:
    """Print what serves the store is doing. Starts nothing; the exit code is 3 if nobody serves."""
    store = invocation.store
    describe(store)
    answer = ask_status(store)
    if answer is None:
        raise not_served(store)
    figures = {name: value for name, value in answer.items() if name != "op"}
    if figures["position"] is not None:
        figures["position"] -= 1  # the writer says which one is next; people go on behind the last one
    if invocation.is_json:
        print_json(figures)
    else:
        _print(figures)


def _print(figures: dict[str, Any]) -> None:
    pids, flush = figures["pids"], figures["flush_ms"]
    attached = ", ".join(f"{client['name']} ({client['pid']})" for client in figures["attached"])
    shims = f"(shims: {', '.join(map(str, pids['shims']))})" if pids["shims"] else ""
    print_figures(
        [
            ("state", figures["state"]),
            ("since", moment(figures["since"], time.time())),
            ("node", f"process {pids['node']}"),
            ("writer", f"process {pids['writer']}" if pids["writer"] else "none at present"),
            ("spawner", f"process {pids['spawner']}" if pids["spawner"] else "none at present"),
            ("opening", _opening(figures["opening"])),
            ("clients", f"{figures['clients']}  {attached}".rstrip()),
            ("position", _number(figures["position"])),
            ("sessions", _number(figures["sessions"])),
            ("tasks", f"{_number(figures['tasks'])} unfinished  {shims}".rstrip()),
            ("queue", f"{_number(figures['queue_bytes'])} bytes"),
            ("flush", f"p50 {_milliseconds(flush['p50'])}, p99 {_milliseconds(flush['p99'])}"),
            *([("disk", f"full at the last append: {figures['full']}")] if figures["full"] else []),
        ]
    )


def _opening(opening: dict[str, Any] | None) -> str:
    """Say how long the writer that serves now took to open the store, and what it found."""
    if opening is None:
        return "under way"
    moments = opening["moments"]
    said = [_milliseconds((moments["open"] - moments["start"]) * 1000)]
    if moments["replaying"] is not None:
        replay = _milliseconds((moments["open"] - moments["replaying"]) * 1000)
        said[0] += f", {replay} of it from the index on ({opening['hopped_batches']:,} batches)"
    if opening["torn_bytes"]:
        said.append(f"a torn tail of {opening['torn_bytes']:,} bytes")
    if opening["rebuilt"]:
        said.append(f"the index was built anew: {opening['rebuilt']}")
    if opening["findings"]:
        said.append(f"{opening['findings']:,} findings, see node.log")
    return "; ".join(said)


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _milliseconds(value: float | None) -> str:
    return "?" if value is None else f"{value:.2f} ms"
