"""The options of the commands that start a task, and what they make of them for `Runtime.start_task`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from .completing import complete_session
from .values import duration, size

Function = TypeVar("Function", bound=Callable[..., Any])


def variables(context: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """Read variables of the environment, `NAME=VALUE`; the value may be empty."""
    found = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{each!r} is no variable; write NAME=VALUE", context, param)
        found[name] = value
    return found


def starting_options(function: Function) -> Function:
    """Give a command the options of a start, and the command to start as `argv`."""
    options = [
        click.option("--key", help="Your own name for it: again with this key it gives the same task, started once."),
        click.option("--session", metavar="ID", help="The session it belongs to.", shell_complete=complete_session),
        click.option("--group", metavar="G", help="A name to list and stop tasks by."),
        click.option("--timeout", type=duration, metavar="TIME", help="Stop it after this time, such as 30s or 1h30m."),
        click.option(
            "--grace", type=duration, default="5s", show_default=True, metavar="TIME", help="Between TERM and KILL."
        ),
        click.option(
            "--limit",
            type=size,
            default="4GiB",
            show_default=True,
            metavar="SIZE",
            help="What its output may take, such as 100MB; more stops it.",
        ),
        click.option("--stall", type=duration, metavar="TIME", help="Tell the session after such a time of silence."),
        click.option(
            "--env", metavar="NAME=VALUE", multiple=True, callback=variables, help="A variable; may be repeated."
        ),
        click.option("--cwd", type=click.Path(), help="Its working directory.  [default: the present one]"),
        click.argument("argv", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] CMD..."),
    ]
    for option in reversed(options):
        function = option(function)
    return function
