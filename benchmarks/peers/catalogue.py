"""Which peers there are, and whether they are installed: who isn't gets a row that says how, who fails one with why.

Nothing here loads a library; that happens in the processes in which they are measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Final

INSTALL: Final = "pip install 'turnkeeper[peers]'"

WHY_CHARACTERS_MAX: Final = 300


def installed_version(distribution: str) -> str | None:
    """Give the version of a distribution as pip names it, None if it isn't installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def failure(installed: str, error: Exception) -> str:
    """Say in one line that a peer doesn't work here, so that the others are measured all the same."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return " ".join(f"{installed} fails here: {type(first).__name__}: {first}".split())[:WHY_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class KeeperPeer:
    """A peer that keeps sessions: `module` of this package has the function `opener`, an `OpenKeeper`.

    One without a distribution needs nothing but Python. `sessions_max` is how many sessions it can flush at once
    without any of them waiting for seconds.
    """

    name: str
    module: str
    opener: str = "open_keeper"
    distribution: str | None = None
    sessions_max: int = 100

    @property
    def installed(self) -> str | None:
        """What is installed of it, with its version; None if nothing is."""
        if self.distribution is None:
            return "Python alone"
        found = installed_version(self.distribution)
        return None if found is None else f"{self.distribution} {found}"


OURS: Final = KeeperPeer("turnkeeper", "our_sessions")
AGENTS: Final = KeeperPeer("Agents SDK's SQLiteSession", "agents_session", distribution="openai-agents")
LANGGRAPH: Final = KeeperPeer(
    "LangGraph's SQLite saver, a state of one message", "langgraph_saver", distribution="langgraph-checkpoint-sqlite"
)
LANGGRAPH_CONVERSATION: Final = KeeperPeer(
    "LangGraph's SQLite saver, a state of 100 messages",
    "langgraph_saver",
    "open_conversation_keeper",
    "langgraph-checkpoint-sqlite",
)
LANGGRAPH_HISTORY: Final = KeeperPeer(
    "LangGraph's SQLite saver, a state of all messages", "langgraph_saver", distribution="langgraph-checkpoint-sqlite"
)
DBOS: Final = KeeperPeer("DBOS on SQLite", "dbos_workflows", distribution="dbos", sessions_max=10)
JSON_LINES: Final = KeeperPeer("a JSONL file", "plain_keepers", "open_files")
SQLITE: Final = KeeperPeer("a table of SQLite", "plain_keepers", "open_table")

FLUSHING: Final = (AGENTS, LANGGRAPH, LANGGRAPH_CONVERSATION, DBOS)
"""Those whose flushes are measured beside ours: what programs write themselves is among the baselines already."""

READING: Final = (JSON_LINES, SQLITE, AGENTS, LANGGRAPH_HISTORY, DBOS)
"""Those whose sessions are read beside ours."""
