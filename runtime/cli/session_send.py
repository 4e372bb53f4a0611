"""`turnkeeper session send`: a message into a session's inbox."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import click

from turnkeeper.actors.errors import InvalidValue, TooLarge
from turnkeeper.actors.runtime_opening import open_runtime
from turnkeeper.storage.store import describe

from .commands import command
from .completing import complete_session
from .event_input import INPUT_BYTES_MAX, BadInput, parse_data
from .failures import Failure
from .input_lines import input_whole
from .invocation import Invocation
from .loop import run_in_loop
from .printing import print_json, print_text


@command(
    "send", example="""echo '{"text": "and lint it"}' | turnkeeper session send brave-otter-7f3a --type user/message"""
)
@click.argument("id", shell_complete=complete_session)
@click.option("--type", required=True, help="What it is, such as user/message, or a type of your own: name/word.")
@click.option("--key", help="Send it once: again with this key it is answered with the first one's number.")
def send(invocation: Invocation, id: str, type: str, key: str | None) -> None:
    """Send a message to a session, and print its number in the session's inbox.

    Its data is one JSON object on standard input. The message is stored when the command ends; the session, whether
    anybody has it open now or not, gets it until it accepts it.
    """
    if sys.stdin is None:
        raise click.UsageError("standard input is closed, and the message's data comes from there")
    describe(invocation.store)
    try:
        seq = run_in_loop(partial(_send, invocation.store, id, type, key, sys.stdin.fileno()))
    except BadInput as error:
        raise _bad_input(str(error)) from None
    except InvalidValue as error:
        if error.path in ("type", "key"):
            raise click.UsageError(f"--{error.path}: {error.why}") from None
        raise _bad_input(f"{error.type} at {error.path}: {error.why}") from None
    except TooLarge as error:
        raise _bad_input(error.message()) from None
    if invocation.is_json:
        print_json({"seq": seq})
    else:
        print_text(str(seq))


async def _send(store: str, id: str, type: str, key: str | None, descriptor: int) -> int:
    data: dict[str, Any] = parse_data(await input_whole(descriptor, INPUT_BYTES_MAX))
    async with open_runtime(store) as runtime:
        return await runtime.send(id, type, data, key=key)


def _bad_input(why: str) -> Failure:
    return Failure("invalid_input", why, "standard input", "nothing was sent; mend it and send it again")
