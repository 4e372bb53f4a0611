"""Five agents that hand work to each other through their inboxes: editor, researcher, writer, checker, publisher.

The model is scripted, so no network is needed. `newsroom_trio.py` and `newsroom_asyncio.py` run them side by side. Kill
one with `kill -9` at any moment and run it again: each agent goes on with what it was at, from its own log.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from turnkeeper import Runtime, Session

TOPICS = ("tides", "moss", "salt", "rust", "ferns")
Effect = Literal["read", "idempotent", "once"]
ROLES = ("editor", "researcher", "writer", "checker", "publisher")
TOOLS: dict[str, tuple[str, Effect]] = {
    "researcher": ("look_up", "read"),
    "writer": ("format", "idempotent"),
    "publisher": ("publish", "once"),
}
"""The tool of a role, and what an interruption of it means: `once` must never be run a second time unasked."""


async def model(role: str, topic: str) -> AsyncIterator[str]:
    """Answer word by word, as a model does."""
    for word in f"The {role} has thought about {topic}, has slept on it, and has nothing to add.".split():
        yield f"{word} "


class Agent:
    """One role. All that it remembers is its session's log; `desk` is where its tools leave their traces."""

    def __init__(self, role: str, session: Session, desk: Path) -> None:
        self.role = role
        self.session = session
        self.desk = desk
        self.results: dict[str, dict[str, Any]] = {}

    async def run(self) -> None:
        """Work off the inbox. The publisher returns when everything is published; the others go on for ever."""
        session = self.session
        job = await self.recall()
        if session.interrupted:
            print(f"{self.role}: turn {session.interrupted.turn} was interrupted: {session.interrupted.calls}")
        if job is not None:
            async with session.turn():
                await session.append("user/message", job)
                await self.work(job)
        if self.has_finished():
            return
        async for message in session.inbox():
            async with session.turn():
                await message.accept("user/message")
                await self.work(message.data)
            if self.has_finished():
                return

    def has_finished(self) -> bool:
        """Say whether this agent knows that all is done."""
        return self.role == "publisher" and len(self.results) == len(TOPICS)

    async def recall(self) -> dict[str, Any] | None:
        """Read what was done; give the job that a crash cut off, if there is one."""
        job: dict[str, Any] | None = None
        async for event in self.session.events():
            if event.type == "user/message":
                job = {"topic": event.data["topic"], "text": event.data["text"]}
            elif event.type == "turn/end" and event.data["reason"] == "completed":
                job = None
            elif event.type == "tool/finished":
                self.results[event.data["id"]] = event.data
        return job

    async def work(self, job: dict[str, Any]) -> None:
        """Think, use the tool, hand over. Done twice it does nothing twice: ids and keys follow from the job."""
        topic = job["topic"]
        async for token in model(self.role, topic):
            self.session.write(token)
        text = f"{job['text']} {self.role}"
        if self.role in TOOLS:
            text = f"{text} ({await self.use_tool(topic)})"
        await self.session.append("assistant/message", {"text": text})
        if self.role != "publisher":
            following = ROLES[ROLES.index(self.role) + 1]
            await self.session.send(following, "newsroom/job", {"topic": topic, "text": text}, key=topic)

    async def use_tool(self, topic: str) -> str:
        """Run this role's tool for a topic, unless an earlier run has, or may have."""
        name, effect = TOOLS[self.role]
        id = f"{name}-{topic}"
        error = self.results.get(id, {"error": "TOOL_NOT_STARTED"}).get("error")
        if error == "TOOL_NOT_STARTED" or (error == "TOOL_OUTCOME_UNKNOWN" and effect != "once"):
            async with self.session.tool(id, name, {"topic": topic}, effect=effect) as call:
                self.leave_trace(name, topic)
                await call.finish("done")
            self.results[id] = {"id": id, "output": "done"}
        elif error == "TOOL_OUTCOME_UNKNOWN":
            print(f"{self.role}: {id} may have been done: outcome unknown, look before you do it again")
        return "unknown" if self.results[id].get("error") else "done"

    def leave_trace(self, tool: str, topic: str) -> None:
        """Do what the tools do: write down that they were here."""
        with open(self.desk / "traces.jsonl", "a") as traces:
            print(json.dumps({"tool": tool, "topic": topic}), file=traces)


async def gather(runtime: Runtime, desk: Path) -> list[Agent]:
    """Open a session for each role, and give the editor its topics: each once, however often this runs."""
    agents = [Agent(role, await runtime.open_session(role, create=True), desk) for role in ROLES]
    for topic in TOPICS:
        await runtime.send("editor", "newsroom/job", {"topic": topic, "text": ""}, key=topic)
    return agents
