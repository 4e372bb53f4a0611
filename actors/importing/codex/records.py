"""What the records of a Codex session say, in the present form and in the older one without a payload."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..content import text_of
from ..dialect import Json, short
from ..records import read_records

FORMAT = "codex"

WRAPPED = {"session_meta", "response_item", "event_msg", "turn_context", "compacted", "world_state"}
"""Types of the records that every version writes with a payload, or without any type."""

CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
    "tool_search_call": "arguments",
}
"""Items that are a call with an output item of its own, and the member with the arguments."""

OUTPUTS = {"function_call_output": "output", "custom_tool_call_output": "output", "tool_search_output": "tools"}
"""The output items, and the member with the output."""

CALL_NAMES = {"local_shell_call": "local_shell", "tool_search_call": "tool_search"}
"""Calls of built-in tools, which have no name."""

_ITEMS = {"message", "reasoning", *CALLS, *OUTPUTS}
_NO_PROMPTS = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<permissions instructions>",
    "<skill>",
    "# AGENTS.md instructions for ",
)


class Item(NamedTuple):
    """A record in the present form, whichever it was written in."""

    kind: str
    payload: Json | None

    @property
    def word(self) -> str:
        """The most telling type word."""
        inner = self.payload.get("type") if self.payload and self.kind in ("response_item", "event_msg") else None
        return inner if isinstance(inner, str) else self.kind


def item_of(value: Json) -> Item:
    """Return a record's kind and payload; an object that has no type is a session's first record or nothing known."""
    kind, payload = value.get("type"), value.get("payload")
    if not isinstance(kind, str):
        is_meta = (
            isinstance(value.get("id"), str) and "timestamp" in value and ("instructions" in value or "git" in value)
        )
        return Item("session_meta", value) if is_meta else Item("unknown", None)
    if isinstance(payload, dict):
        return Item(kind, payload)
    return Item("response_item", value) if kind in _ITEMS else Item(kind, None)


def parent_of(meta: Json) -> str:
    """Return the id of the session that this one was forked from or started by; empty if there is none."""
    source = meta.get("source")
    agent = source.get("subagent") if isinstance(source, dict) else None
    spawn = agent.get("thread_spawn") if isinstance(agent, dict) else None
    spawned_by = spawn.get("parent_thread_id") if isinstance(spawn, dict) else None
    return next(filter(None, map(short, (meta.get("forked_from_id"), meta.get("parent_thread_id"), spawned_by))), "")


def is_prompt(item: Item) -> bool:
    """Say whether an item is what a person said, not what the program put into the conversation for it."""
    payload = item.payload
    if item.kind != "response_item" or item.word != "message" or payload is None or payload.get("role") != "user":
        return False
    content = payload.get("content")
    return isinstance(content, str | list) and not text_of(content).lstrip().startswith(_NO_PROMPTS)


def arguments_of(value: Any) -> Json:
    """Return a call's arguments: most calls have them as the text of a JSON object."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str) and value.strip().startswith("{"):
        if value.strip("{} ") == "":
            return {}
        records, faults = read_records(value.encode(), lambda _: False)
        if records and not faults:
            return records[0].value
    return {"input": value}


def source_of(value: Json, payload: Json, mapped: tuple[str, ...]) -> Json:
    """Return what of the record has no place in the event."""
    rest = {name: each for name, each in payload.items() if name not in mapped}
    if payload is value:
        return rest
    return {name: each for name, each in value.items() if name != "payload"} | {"payload": rest}
