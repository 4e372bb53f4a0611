"""The forms of commands: each takes `--store` and `--json`, shows one example, and is loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from .invocation import Invocation

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Command(click.Command):
    """A command that takes the global options behind its name, too; the one that comes last counts."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options())


class Group(click.Group):
    """A group whose members are named by where they are: name to `module:attribute`, loaded when first needed."""

    def __init__(self, *args: Any, members: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(global_options())
        self._members = members

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._members.get(cmd_name)
        if place is None:
            return None
        module, _, attribute = place.partition(":")
        member = getattr(import_module(module, __package__), attribute)
        assert isinstance(member, click.Command)
        return member


def command(name: str, *, example: str, takes_command: bool = False) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function that takes an `Invocation` first; its docstring is the help.

    One that `takes_command` leaves the options behind its first argument to that.
    """
    settings = {"allow_interspersed_args": not takes_command}

    def decorate(function: Callable[..., Any]) -> Command:
        make = click.command(name, cls=Command, epilog=example_text(example), context_settings=settings)
        return make(click.pass_obj(function))

    return decorate


def example_text(example: str) -> str:
    """Give an example as a help text ends with it, exempt from wrapping."""
    return f"\b\nExample:\n  {example}"


def global_options() -> list[click.Option]:
    """Make the options that every command and group takes."""
    return [
        click.Option(
            ["--store"],
            metavar="DIR",
            expose_value=False,
            is_eager=True,
            callback=_set_store,
            help="The store's directory; sqlite:DIR for one that SQLite keeps.  "
            "[default: $TURNKEEPER_STORE, else the user's data directory]",
            shell_complete=_complete_directory,
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set_json,
            help="Print JSON only, one object or one object a line.",
        ),
    ]


def _complete_directory(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def _set_store(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is None:
        return
    if not value:
        raise click.BadParameter("an empty path", ctx, param)
    ctx.ensure_object(Invocation).given_store = value


def _set_json(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(Invocation).is_json = True
