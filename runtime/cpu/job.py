"""What runs in a process for CPU work: one function after another, each on plain values and bytes.

The process is trio-parallel's, started and ended by the keeper (keeper.py). What is to be done comes as one packed
message, and its answer goes back as one frame; large byte strings of both lie in memory that the keeper holds, and are
opened here by its path. No event loop is loaded, so that a new process is soon ready.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from ..errors import error_to_wire
from ..frames import encode_frame, unpack
from ..large_bytes import Memory, Slimmed, put_back, take_out
from ..message_frames import encode_message
from ..workers.main_module import load, load_failure_to_wire


def encode_order(target: str, main: Mapping[str, bytes], slim: Slimmed) -> bytes:
    """Make the frame that says what is to be done: a function, and its arguments without the large byte strings.

    Raises TypeError, MessageTooLarge: The arguments can't cross.
    """
    order = {"function": target, "main": main, "arguments": slim.arguments, "places": slim.places}
    return encode_message(order, arguments="arguments")


def run_job(order: bytes, given: str | None, room: str) -> bytes:
    """Do what is ordered; return the frame of `["result", value, *places]`, `["failed", error]` or `["unimported", …]`.

    `given` is the path of the memory with the large arguments; a large result goes into the empty one at `room`.
    """
    words = unpack(order)
    try:
        function = _function(words["function"], words["main"])
    except BaseException as error:
        return encode_frame(["unimported", load_failure_to_wire(error)])
    own = os.getpid()
    try:
        arguments = words["arguments"]
        if words["places"]:
            memories = [] if given is None else [Memory(os.open(given, os.O_RDONLY | os.O_CLOEXEC))]
            put_back(arguments, {}, words["places"], deque(memories))
            del memories
        result = function(*arguments)
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(f"{words['function']} is an async function, and only plain ones are run here")
        slim = take_out([result], {})
        answer = encode_message(["result", *slim.arguments, *slim.places], result=1)
        if slim.large:
            slim.copy_into(Memory(os.open(room, os.O_RDWR | os.O_CLOEXEC)))
        return answer
    except BaseException as error:
        # An exit too: whatever a function does, the process is there for the next one.
        return encode_frame(["failed", error_to_wire(error)])
    finally:
        if os.getpid() != own:
            os._exit(1)  # a child that the function forked: its answer would be taken for the next one's
        _flush()


def _function(target: str, main: Mapping[str, bytes]) -> Callable[..., Any]:
    if target not in _functions:
        _functions[target] = load(target, main)
    return _functions[target]


def _flush() -> None:
    """Write out what was printed: by itself that would appear when the process ends, or never if it is killed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is closed, or nobody reads it
            stream.flush()


_functions: dict[str, Callable[..., Any]] = {}
"""Those that were imported, by their targets: finding one again would be a good part of what a small job costs."""
