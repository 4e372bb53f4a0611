"""End to end: given what can't be, a command ends with one line and the right code, and makes nothing by halves."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnkeeper.actors.protocol import PROTOCOL

from ..command_line import DEADLINE_SECONDS, CommandLine, Outcome, event_line
from ..serving import eventually, served_store
from ..stores import make_store


def assert_one_line(outcome: Outcome, code: int, *parts: str) -> None:
    """Hold that a command ended with a code and one line that has these parts, and told scripts the same."""
    assert outcome.code == code, outcome
    assert outcome.err.startswith("turnkeeper: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err
    assert f"turnkeeper: {outcome.error['message']}\n" == outcome.err


@contextlib.contextmanager
def mounted(path: Path, *options: str) -> Iterator[None]:
    """Mount a tmpfs at a new directory."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", *options, "none", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


WRITING = [("session", "new", "--json"), ("serve", "--json")]
USING = [*WRITING, ("session", "list", "--json"), ("journal", "verify", "--json"), ("status", "--json")]


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_a_missing_parent_is_not_made(cli: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A store's own directory is made, those above it are not."""
    store = tmp_path / "missing" / "store"
    assert_one_line(cli.here(*command, "--store", store), 1, "the directory above it is missing", str(store))
    assert not store.parent.exists()


@pytest.mark.parametrize("command", USING, ids=" ".join)
def test_a_path_that_is_a_file_is_no_store(cli: CommandLine, command: tuple[str, ...]) -> None:
    """A file in the store's place is named and left alone."""
    cli.store.write_text("mine")
    assert_one_line(cli.here(*command), 1, "not a directory", str(cli.store))
    assert cli.store.read_text() == "mine"


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_a_path_below_a_file_is_no_store(cli: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A file above the store's place is named as what it is."""
    (tmp_path / "file").write_text("mine")
    store = tmp_path / "file" / "store"
    assert_one_line(cli.here(*command, "--store", store), 1, "Not a directory", str(store))


@pytest.mark.root
@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_a_disk_that_takes_no_writes_takes_no_store(cli: CommandLine, tmp_path: Path, command: tuple[str, ...]) -> None:
    """A read-only file system is named with its reason."""
    with mounted(tmp_path / "disk", "-o", "ro"):
        store = tmp_path / "disk" / "store"
        assert_one_line(cli.here(*command, "--store", store), 1, "Read-only file system", str(store))


@pytest.mark.skipif(os.geteuid() == 0, reason="modes bind everybody but root")
@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_a_directory_without_permission_takes_no_store(
    cli: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """A directory that can't be written is named with its reason."""
    (tmp_path / "closed").mkdir(mode=0o500)
    store = tmp_path / "closed" / "store"
    assert_one_line(cli.here(*command, "--store", store), 1, "Permission denied", str(store))


@pytest.mark.parametrize("command", USING, ids=" ".join)
def test_a_directory_that_others_may_write_is_no_store(cli: CommandLine, command: tuple[str, ...]) -> None:
    """What others could change keeps no promise; the line says what to run."""
    cli.store.mkdir()
    cli.store.chmod(0o777)
    assert_one_line(cli.here(*command), 1, "others may write to it", "chmod go-w")
    assert list(cli.store.iterdir()) == []


@pytest.mark.parametrize("command", USING, ids=" ".join)
def test_a_newer_store_is_left_alone(cli: CommandLine, command: tuple[str, ...]) -> None:
    """A later version's store is neither damaged nor missing, and isn't touched."""
    make_store(cli.store, "journal")
    file = cli.store / "store.json"
    newer = {**json.loads(file.read_text()), "format": 2}
    file.write_text(json.dumps(newer))
    outcome = cli.here(*command)
    assert_one_line(outcome, 1, "written by a newer version (format 2, this one knows 1)", "upgrade")
    assert outcome.error["kind"] == "newer_format"
    assert json.loads(file.read_text()) == newer


@pytest.mark.parametrize("command", USING, ids=" ".join)
def test_a_store_description_of_something_else_is_left_alone(cli: CommandLine, command: tuple[str, ...]) -> None:
    """A store.json that isn't ours is somebody's."""
    cli.store.mkdir(mode=0o700)
    (cli.store / "store.json").write_text('{"shop": "books"}')
    assert_one_line(cli.here(*command), 1, "store.json")
    assert (cli.store / "store.json").read_text() == '{"shop": "books"}'


def test_a_store_url_is_refused(cli: CommandLine) -> None:
    """What is no directory's path makes no directory of that name."""
    assert_one_line(
        cli.here("session", "new", "--json", "--store", "postgresql://host/db"), 1, "a store is a directory"
    )


def test_sockets_without_anybody_behind_are_nobody(cli: CommandLine) -> None:
    """Dead sockets in a store neither keep a reader nor a writer out."""
    id = cli.new_session()
    for name in ("node.sock", "writer.sock"):
        (cli.store / name).unlink(missing_ok=True)
        with contextlib.chdir(cli.store), socket.socket(socket.AF_UNIX) as dead:
            dead.bind(name)
    assert cli.here("status").code == 3
    assert [row["id"] for row in cli.succeed_here("session", "list", "--json").objects] == [id]
    cli.succeed("session", "append", id, stdin=event_line("note/one"))


@pytest.mark.root
def test_a_disk_too_small_for_a_store_is_full(cli: CommandLine, tmp_path: Path) -> None:
    """Where not even an empty store finds room the exit code is 6, and no process is left."""
    with mounted(tmp_path / "disk", "-o", "size=64k"):
        outcome = cli.run("session", "new", "--json", "--store", tmp_path / "disk" / "store")
        assert_one_line(outcome, 6, "are kept in reserve", "make space")
        assert cli.here("status", "--store", tmp_path / "disk" / "store").code == 3


@pytest.mark.root
def test_a_full_disk_refuses_appends_and_takes_them_again_later(cli: CommandLine, tmp_path: Path) -> None:
    """Below the reserve an append ends with 6 and stores nothing; reading goes on; with space it works again."""
    with mounted(tmp_path / "disk", "-o", "size=100m"):
        store = CommandLine(tmp_path / "disk" / "store", tmp_path)
        id = store.new_session()
        ballast = tmp_path / "disk" / "ballast"
        ballast.write_bytes(bytes(80 * 1024**2))
        outcome = store.run("session", "append", id, "--json", stdin=event_line("note/one"))
        assert_one_line(outcome, 6, "are kept in reserve", "make space")
        assert outcome.error["kind"] == "store_full"
        assert len(store.succeed_here("session", "show", id, "--json").objects) == 1
        ballast.unlink()
        assert store.succeed("session", "append", id, "--json", stdin=event_line("note/one")).object == {
            "first": 1,
            "last": 1,
        }


OTHER_VERSION = """
import sys
from turnkeeper.actors import protocol
protocol.PROTOCOL, protocol.VERSION = 99, "9.9"
from turnkeeper.runtime.cli import main
main()
"""


def test_another_version_on_the_other_side_is_named(cli: CommandLine) -> None:
    """A command of another version than what serves the store ends with both versions and the other's pid."""
    with served_store(cli.store) as served:
        for command in ("session new", "session list", "status", "follow"):
            other = [sys.executable, "-c", OTHER_VERSION, *command.split(), "--json"]
            done = subprocess.run(
                other, env=cli.environment, capture_output=True, timeout=DEADLINE_SECONDS, check=False
            )
            outcome = Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
            assert_one_line(outcome, 1, f"protocol {PROTOCOL}", "9.9 (protocol 99)")
            assert outcome.error["kind"] == "version_mismatch", command
            assert outcome.error["pid"] in (served.process.pid, served.writer_pid())


def test_wrong_usage_is_one_line_and_says_where_help_is(cli: CommandLine) -> None:
    """A misspelt command or option ends with 2, also for scripts."""
    for words in (["sesion", "list"], ["session", "lst"], ["session", "list", "--limt", "1"], ["session", "show"]):
        assert_one_line(cli.here(*words, "--json"), 2, "--help")
    assert_one_line(cli.here("session", "list", "--limit", "x", "--json"), 2, "'x' is not a valid integer")
    assert_one_line(cli.here("session", "list", "--json", "--after", "x"), 2, "no place in the list")
    assert_one_line(
        cli.here("session", "show", "x", "--json", "--last", "1", "--to", "2"), 2, "--last goes with neither"
    )
    assert_one_line(cli.here("session", "new", "--json", "--label", "x"), 2, "no label")
    assert_one_line(cli.here("bench", "flush", "--json", "--store", cli.store), 2, "--out")


def test_no_command_prints_help(cli: CommandLine) -> None:
    """A name of a group alone is wrong usage that is answered by its help, on stderr."""
    for words in ([], ["session"], ["journal"]):
        outcome = cli.run(*words)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("Usage: turnkeeper ")


def test_an_output_that_takes_nothing_is_a_failure(cli: CommandLine) -> None:
    """A full disk under a redirected output isn't success."""
    cli.new_session()
    with open("/dev/full", "wb") as full:
        process = cli.start("session", "list", stdout=full)
        _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 1
    assert err.decode() == "turnkeeper: the output can't be written (No space left on device): standard output\n"


def test_a_failure_is_told_although_the_output_is_closed(cli: CommandLine) -> None:
    """The exit code and the line on stderr stand, whoever has stopped reading stdout."""
    cli.new_session()
    process = cli.start("session", "show", "nobody", "--json")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == 3
    assert err.startswith(b"turnkeeper: no session 'nobody': ")


def test_reading_that_is_interrupted_waits_for_no_reader(cli: CommandLine) -> None:
    """Ctrl-C ends a command that is stuck in its output at once, with 130."""
    id = cli.new_session()
    cli.succeed_here("session", "append", id, stdin="".join(event_line("note/n", text="x" * 1000) for _ in range(500)))
    process = cli.start("journal", "cat")
    eventually(lambda: "pipe" in Path(f"/proc/{process.pid}/wchan").read_text())
    process.send_signal(signal.SIGINT)
    assert process.wait(DEADLINE_SECONDS) == 130
    assert process.communicate()[1] == b""


def test_append_without_standard_input_is_wrong_usage(cli: CommandLine) -> None:
    """Started with stdin closed there is nothing to take events from."""
    id = cli.new_session()
    line = " ".join(f"'{word}'" for word in cli.line("session", "append", id))
    done = subprocess.run(
        ["sh", "-c", f"{line} <&-"], env=cli.environment, capture_output=True, timeout=DEADLINE_SECONDS, check=False
    )
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr


def test_a_command_without_standard_streams_does_its_work(cli: CommandLine) -> None:
    """Started with stdout and stderr closed, as some supervisors do, it still works and ends with its code."""
    line = " ".join(f"'{word}'" for word in cli.line("session", "new"))
    done = subprocess.run(["sh", "-c", f"{line} >&- 2>&-"], env=cli.environment, timeout=DEADLINE_SECONDS, check=False)
    assert done.returncode == 0
    assert len(cli.succeed_here("session", "list", "--json").objects) == 1
