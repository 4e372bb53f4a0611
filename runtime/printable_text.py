"""Text that can be shown anywhere: every character that isn't printable stands there as an escape.

What comes out of a store can hold anything, and some characters steer a terminal or turn a line's direction around.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Give the text with every character that isn't printable, the ends of lines too, as an escape."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
