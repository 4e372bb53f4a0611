"""The program: finds the command, runs it, and turns whatever it ends with into lines and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from turnkeeper import __version__

from .commands import Group, example_text
from .failures import Failure, failure_of
from .invocation import Invocation
from .printing import OutputError, abandon_output, flush_output, print_json, print_note

NAME = "turnkeeper"
_COMPLETION_VARIABLE = "_TURNKEEPER_COMPLETE"

_HELP = """Durable sessions for agents: what was acknowledged survives the death of whatever served it.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 busy, 5 damaged, 6 store full.

\b
Completion in bash (or zsh, fish): eval "$(_TURNKEEPER_COMPLETE=bash_source turnkeeper)"
"""

program = Group(
    NAME,
    help=_HELP,
    epilog=example_text(f"{NAME} --store ~/agents session list --limit 5"),
    members={
        "demo": ".demo:demo",
        "serve": ".serve:serve",
        "status": ".status:status",
        "stop": ".stop:stop",
        "session": ".program:session",
        "task": ".program:task",
        "follow": ".follow:follow",
        "journal": ".program:journal",
        "bench": ".program:bench",
        "chaos": ".program:chaos",
    },
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=lambda ctx, param, value: _print_version(ctx, value),
            help="Print the version.",
        )
    ],
)

session = Group(
    "session",
    help="Sessions: the logs of agents.",
    epilog=example_text(f"{NAME} session list"),
    members={
        "new": ".session_new:new",
        "list": ".session_list:list_sessions",
        "show": ".session_show:show",
        "append": ".session_append:append",
        "send": ".session_send:send",
        "fork": ".session_fork:fork",
        "rewind": ".session_rewind:rewind",
        "set": ".session_set:set_session",
        "delete": ".session_delete:delete",
        "undelete": ".session_delete:undelete",
        "stop": ".session_stop:stop",
        "import": ".session_import:import_sessions",
    },
)

task = Group(
    "task",
    help="Tasks: commands in the background, whose ends and outputs are kept.",
    epilog=example_text(f"{NAME} task start -- make test"),
    members={
        "start": ".task_start:start",
        "run": ".task_run:run",
        "list": ".task_list:list_all",
        "show": ".task_show:show",
        "output": ".task_output:output",
        "follow": ".task_follow:follow",
        "wait": ".task_wait:wait",
        "stop": ".task_stop:stop",
        "clean": ".task_clean:clean",
    },
)

journal = Group(
    "journal",
    help="The journal: what the store keeps, as it lies on disk.",
    epilog=example_text(f"{NAME} journal verify"),
    members={
        "verify": ".journal_verify:verify_journal",
        "stats": ".journal_stats:stats",
        "rebuild": ".journal_rebuild:rebuild",
        "repair": ".journal_repair:repair_session",
        "cat": ".journal_cat:cat",
    },
)

bench = Group(
    "bench",
    help="Measurements on this machine, beside what else could do the same.",
    epilog=example_text(f"{NAME} bench flush --quick"),
    members={
        "flush": ".bench:flush",
        "recovery": ".bench:recovery",
        "load": ".bench:load",
        "list": ".bench:list_sessions",
        "fork": ".bench:fork",
        "import": ".bench:import_files",
        "follow": ".bench:follow",
        "disk": ".bench:disk",
        "memory": ".bench:memory",
        "tasks": ".bench:tasks",
        "actors": ".bench:actors",
        "all": ".bench:all_suites",
        "compare": ".bench_compare:compare_results",
    },
)

chaos = Group(
    "chaos",
    help="Kills and faults from a seed, and a judgement of what is left.",
    epilog=example_text(f"{NAME} chaos run --seconds 600"),
    members={
        "run": ".chaos:run",
        "replay": ".chaos:replay",
    },
)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and give its exit code. Raises KeyboardInterrupt for Ctrl-C and nothing else."""
    if instruction := os.environ.get(_COMPLETION_VARIABLE):
        from click.shell_completion import shell_complete

        return shell_complete(program, {"obj": Invocation()}, NAME, _COMPLETION_VARIABLE, instruction)
    _replace_closed_streams()
    invocation = Invocation()
    try:
        code = _run_command(arguments, invocation)
        flush_output()
    except OutputError as error:
        abandon_output()
        code = 0 if error.is_closed else _tell(_output_failure(error))
    except KeyboardInterrupt:
        # Nothing may wait any more for somebody to read what was printed so far.
        abandon_output()
        raise
    return code


def _replace_closed_streams() -> None:
    """Give a program that was started without stdout or stderr somewhere to print to: nowhere."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end


def _run_command(arguments: Sequence[str], invocation: Invocation) -> int:
    try:
        with program.make_context(NAME, list(arguments), obj=invocation) as context:
            program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return error.exit_code
    except OutputError:
        raise
    except Exception as error:
        failure = failure_of(error, _store_named(invocation))
        if (invocation.is_json or _asks_for_json(arguments)) and not failure.told:
            _tell_scripts(failure)
        return _tell(failure)
    return 0


def _tell(failure: Failure) -> int:
    print_note(failure.message)
    return failure.exit_code


def _tell_scripts(failure: Failure) -> None:
    """Print the failure as JSON, behind whatever was printed; an output that is closed must not hide it."""
    try:
        print_json(failure.as_map())
        flush_output()
    except OutputError:
        abandon_output()


def _output_failure(error: OutputError) -> Failure:
    return Failure("failed", f"the output can't be written ({error})", "standard output", "")


def _store_named(invocation: Invocation) -> str:
    """Name the store for a message, even if it is one that is refused."""
    try:
        return invocation.store
    except Exception:
        return str(invocation.given_store)


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """Look for the option where a wrong command line kept it from being parsed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _print_version(context: click.Context, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(f"{NAME} {__version__} (Python {sys.version.split()[0]})")
        context.exit()
