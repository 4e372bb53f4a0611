"""Ids that people can remember and say: two words and hex digits, such as brave-otter-7f3a.

They fit storage's form of an id, are the same on a case-insensitive file system, and are random: that nobody else has
the id yet is for the writer to say. The words come from the system's randomness, so a host that seeds its own, or
counts on its own sequence, is neither repeated nor disturbed. Nothing here looks at a store.
"""

from __future__ import annotations

import re
import secrets
from functools import cache
from hashlib import blake2b
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final, cast

from turnkeeper.storage.limits import ID_PATTERN

if TYPE_CHECKING:
    from coolname import RandomGenerator

INBOX_PREFIX: Final = "inbox-"
"""With this before it, a session's id is its inbox's."""

TASK_PREFIX: Final = "task-"
"""With this each task's id begins, and no session's."""

SLUG_CHARACTERS_MAX: Final = 24
"""How much of a task's key is seen in its id."""


def new_session_id() -> str:
    """Make an id that is very likely new."""
    while True:
        id = f"{_words().generate_slug(2)}-{secrets.token_hex(2)}"
        if ID_PATTERN.match(inbox_id(id)) and not id.startswith((INBOX_PREFIX, TASK_PREFIX)):
            return id


def inbox_id(session: str) -> str:
    """Give the id of a session's inbox."""
    return f"{INBOX_PREFIX}{session}"


def new_task_id() -> str:
    """Make the id of a task without a key. It is new for certain: nobody asks whether it is."""
    return f"{TASK_PREFIX}{_words().generate_slug(2)[:40]}-{secrets.token_hex(4)}"


def task_id_of_key(key: str) -> str:
    """Give the id of the task that a host named by a key: always the same, so that a key needs no look-up.

    The beginning of the key can be read in it. `check_key` has passed the key.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", key.lower())[:SLUG_CHARACTERS_MAX].strip("-")
    digest = blake2b(key.encode(), digest_size=6).hexdigest()
    return f"{TASK_PREFIX}{slug}-{digest}" if slug else f"{TASK_PREFIX}{digest}"


def is_task_id(id: str) -> bool:
    """Say whether an id is a task's, whether or not there is such a task."""
    return id.startswith(TASK_PREFIX)


def new_token() -> str:
    """Make the random token that tells one opening of a session from every other."""
    return secrets.token_hex(16)


@cache
def _words() -> RandomGenerator:
    # The word lists take 30 ms to load: only a program that makes a session pays for them.
    from coolname import RandomGenerator
    from coolname.data import config

    return RandomGenerator(cast("Any", config), rand=SystemRandom())
