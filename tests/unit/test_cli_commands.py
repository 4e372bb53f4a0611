"""The commands as such: each has help with an example, takes the global options, and loads no more than it needs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from turnkeeper.runtime.cli import program as program_module
from turnkeeper.runtime.cli.invocation import Invocation
from turnkeeper.runtime.cli.program import NAME, program
from turnkeeper.storage import store

SECONDS_MAX = 60


def all_commands() -> Iterator[tuple[str, ...]]:
    """Yield the words of every command and group."""

    def walk(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        context = click.Context(group)
        for name in group.list_commands(context):
            member = group.get_command(context, name)
            if isinstance(member, click.Group):
                yield from walk(member, (*words, name))
            else:
                yield (*words, name)

    return walk(program, ())


COMMANDS = list(all_commands())


def run(*words: str) -> tuple[str, Invocation]:
    """Run a command line that only prints, and give what it printed and what it was told."""
    invocation, printed = Invocation(), list[str]()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(click, "echo", lambda text, **options: printed.append(text))
            patch.setattr("click.decorators.echo", lambda text, **options: printed.append(text))
            with program.make_context(NAME, list(words), obj=invocation) as context:
                program.invoke(context)
    except click.exceptions.Exit:
        pass
    return "\n".join(printed), invocation


def test_the_commands_are_those_that_are_promised() -> None:
    """Nothing is missing, and nothing is there that doesn't work yet."""
    assert [" ".join(words) for words in COMMANDS if words] == [
        "demo",
        "serve",
        "status",
        "stop",
        "session",
        "session new",
        "session list",
        "session show",
        "session append",
        "session send",
        "session fork",
        "session rewind",
        "session set",
        "session delete",
        "session undelete",
        "session stop",
        "session import",
        "task",
        "task start",
        "task run",
        "task list",
        "task show",
        "task output",
        "task follow",
        "task wait",
        "task stop",
        "task clean",
        "follow",
        "journal",
        "journal verify",
        "journal stats",
        "journal rebuild",
        "journal repair",
        "journal cat",
        "bench",
        "bench flush",
        "bench recovery",
        "bench load",
        "bench list",
        "bench fork",
        "bench import",
        "bench follow",
        "bench disk",
        "bench memory",
        "bench tasks",
        "bench actors",
        "bench all",
        "bench compare",
        "chaos",
        "chaos run",
        "chaos replay",
    ]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_gives_one_example(words: tuple[str, ...]) -> None:
    """The help of each ends with one example, which is a call of that very command."""
    text, _ = run(*words, "--help")
    assert text.count("Example:") == 1
    example = text.rpartition("Example:")[2].strip()
    assert " ".join((NAME, *words)) in example.replace("--store ~/agents ", "").replace("--store /var/lib/agents ", "")
    assert "\n" not in example


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_global_options_stand_before_or_behind(words: tuple[str, ...]) -> None:
    """Each command and group takes both options; the last one counts."""
    _, before = run("--store", "/one", "--json", *words, "--help")
    assert (before.given_store, before.is_json) == ("/one", True)
    _, behind = run("--store", "/one", *words, "--store", "/two", "--json", "--help")
    assert (behind.given_store, behind.is_json) == ("/two", True)


def test_an_empty_store_is_wrong_usage() -> None:
    """A script's empty variable doesn't silently mean the user's own store."""
    with pytest.raises(click.BadParameter, match="an empty path"):
        run("--store", "", "session", "list")


@pytest.mark.parametrize(
    ("words", "forbidden"),
    [
        (("session", "list"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("task", "list"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("task", "show", "x"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("task", "output", "x"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("task", "clean"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("session", "show", "x"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("journal", "cat"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("journal", "verify"), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil"}),
        (("status",), {"anyio", "asyncio", "trio", "rich", "multiprocessing", "psutil", "lmdb"}),
        (("session", "append", "x"), {"trio", "rich", "multiprocessing"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_command_loads_only_what_it_needs(tmp_path: Path, words: tuple[str, ...], forbidden: set[str]) -> None:
    """Commands that look load no event loop, and what isn't drawn needs no drawing."""
    code = (
        "import sys; from turnkeeper.runtime.cli.program import run; run(sys.argv[1:]); "
        "print(*sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "--store", str(tmp_path / "none"), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert "there is no store here" in done.stderr
    assert forbidden & set(done.stderr.split()) == set()


def test_a_shell_is_offered_commands_and_options(tmp_path: Path) -> None:
    """Completion works as click makes it, for names of commands and for options."""

    def offered(*words: str) -> list[str]:
        variables = {"_TURNKEEPER_COMPLETE": "bash_complete", "COMP_WORDS": " ".join((NAME, *words))}
        environment = {**variables, "COMP_CWORD": str(len(words)), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        command = [sys.executable, "-m", "turnkeeper"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
        return [line.partition(",")[2] for line in done.stdout.splitlines() if line]

    assert offered("jour") == ["journal"]
    assert offered("session", "sh") == ["show"]
    assert offered("journal", "verify", "--de") == ["--deep"]
    assert offered("session", "list", "--status", "cr") == ["crashed"]
    assert offered("session", "show", "a") == []


def test_a_store_on_a_refused_file_system_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What keeps no promise about locks and syncs is named, and the command ends with 1."""
    monkeypatch.setattr(store, "refused_file_system", lambda path: "NFS")
    (tmp_path / "store").mkdir(mode=0o700)
    assert program_module.run(["session", "list", "--store", str(tmp_path / "store")]) == 1
    assert capfd.readouterr().err == (
        f"turnkeeper: NFS keeps no promise about locks and syncs: {tmp_path}/store: use a directory on a local disk\n"
    )
