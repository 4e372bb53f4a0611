"""The content of messages: text, or blocks of which some are text."""

from __future__ import annotations

from typing import Any


def text_of(content: Any) -> str:
    """Return the text of the content, of all its text blocks if it has blocks; empty for anything else."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [each.get("text") if isinstance(each, dict) else each for each in content]
    return "\n".join(each for each in texts if isinstance(each, str))


def message_of(content: str | list[Any]) -> dict[str, Any]:
    """Return a message's data: the text, and the blocks where they are more than one plain text."""
    message: dict[str, Any] = {"text": text_of(content)}
    if isinstance(content, list) and not _is_one_text(content):
        message["content"] = content
    return message


def _is_one_text(content: list[Any]) -> bool:
    return len(content) == 1 and isinstance(content[0], dict) and set(content[0]) == {"type", "text"}
