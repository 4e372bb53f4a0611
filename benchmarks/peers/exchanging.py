"""How a peer's exchanges are started: its library is loaded by the process that exchanges, and by no other."""

from __future__ import annotations

from importlib import import_module
from multiprocessing.connection import Connection


def exchange(starter: Connection, library: str, kind: str, directory: str) -> None:
    """Be the process of `library` that serves bursts of `kind`, "tell" or "ask", with a directory for its files."""
    getattr(import_module(f"turnkeeper.benchmarks.peers.{library}_actors"), f"{kind}_{library}")(starter, directory)
