"""Ids that people can remember and say: two words and four hex digits, such as brave-otter-7f3a.

They fit storage's form of an id, are the same on a case-insensitive file system, and are random: that nobody else has
the id yet is for the writer to say. The words come from the system's randomness, so a host that seeds its own, or
counts on its own sequence, is neither repeated nor disturbed. Nothing here looks at a store.
"""

from __future__ import annotations

import secrets
from functools import cache
from random import SystemRandom
from typing import TYPE_CHECKING, Any, cast

from turnkeeper.storage.limits import ID_PATTERN

if TYPE_CHECKING:
    from coolname import RandomGenerator

INBOX_PREFIX = "inbox-"
"""With this before it, a session's id is its inbox's."""


def new_session_id() -> str:
    """Make an id that is very likely new."""
    while True:
        id = f"{_words().generate_slug(2)}-{secrets.token_hex(2)}"
        if ID_PATTERN.match(inbox_id(id)):
            return id


def inbox_id(session: str) -> str:
    """Give the id of a session's inbox."""
    return f"{INBOX_PREFIX}{session}"


def new_token() -> str:
    """Make the random token that tells one opening of a session from every other."""
    return secrets.token_hex(16)


@cache
def _words() -> RandomGenerator:
    # The word lists take 30 ms to load: only a program that makes a session pays for them.
    from coolname import RandomGenerator
    from coolname.data import config

    return RandomGenerator(cast("Any", config), rand=SystemRandom())
