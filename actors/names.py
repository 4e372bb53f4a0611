"""Names that programs give: a session's key, an event's key, what they ask for. Checked before they are sent.

The writer takes nothing for a name but a text of a bounded length, and cuts off who sends it something else: so a name
that can't be one is refused here, where its caller hears of it. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from turnkeeper.storage.errors import InvalidValue, NotFound

NAME_CHARACTERS_MAX: Final = 256
"""The longest name, key or token."""


def check_key(key: object, of: str) -> None:
    """Raise InvalidValue for what can't be the key of a session or an event, `of` which it is said to be."""
    why = ""
    if not isinstance(key, str):
        why = f"a key is a text, not {type(key).__name__}"
    elif not 0 < len(key) <= NAME_CHARACTERS_MAX:
        why = f"a key has 1 to {NAME_CHARACTERS_MAX} characters, and this one has {len(key):,}"
    elif not is_encodable(key):
        why = "a key can be encoded as UTF-8, and this one has a lone surrogate"
    if why:
        raise InvalidValue(0, of, "key", why)


def check_wanted(wanted: object) -> None:
    """Raise TypeError for what is no text, and NotFound for a text that can't name anything."""
    if not isinstance(wanted, str):
        raise TypeError(f"a session is named by a text (its id, a beginning of it, or its key), not {wanted!r:.100}")
    if not 0 < len(wanted) <= NAME_CHARACTERS_MAX or not is_encodable(wanted):
        raise NotFound(wanted[:NAME_CHARACTERS_MAX].encode(errors="replace").decode())


def is_name(value: Any) -> bool:
    """Say whether what came by a socket is a text that can name something."""
    return value.__class__ is str and 0 < len(value) <= NAME_CHARACTERS_MAX


def is_encodable(text: str) -> bool:
    """Say whether UTF-8 can hold a text: whether it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
