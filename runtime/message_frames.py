"""Frames of what callers and handlers give, which may be anything: what can't cross is refused at who gave it."""

from __future__ import annotations

from typing import Any

from .errors import MessageTooLarge
from .frames import FRAME_BYTES_MAX, FrameTooLong, check_frame, encode_frame, refusal_of


def encode_message(message: Any, **given: int | str) -> bytes:
    """Make a frame of a message, and be sure that the other side can read it.

    `given` says which items of it, by index or key, somebody gave, and what they are to be called: `reply=1`.

    Raises:
        TypeError: A value in it can't cross between processes; names its place.
        MessageTooLarge: It is longer than a frame may be.
    """
    try:
        frame = encode_frame(message)
    except FrameTooLong as error:
        raise MessageTooLarge(error.size, FRAME_BYTES_MAX, "frame") from None
    except TypeError as error:
        refusals = (refusal_of(message[item], name) for name, item in given.items())
        raise TypeError(next(filter(None, refusals), str(error))) from None
    check_frame(frame)
    return frame
