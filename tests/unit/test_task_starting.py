"""Unit: what a task can't be started with is refused in one clear line, and what it can be reaches the command."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnkeeper.actors.errors import TaskRefused
from turnkeeper.actors.tasks.starting import ARGUMENT_BYTES_MAX, Start, checked_start, is_seconds, located


def started(argv: Any, **arguments: Any) -> Start:
    """Check and locate, as a start does."""
    return located(checked_start(argv, **arguments))


def own_umask() -> int:
    """Give this process's umask."""
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


LARGE = pytest.param(10**5000, id="large")


def refusal(argv: Any = ("/bin/true",), **arguments: Any) -> str:
    """Give the line with which a start is refused."""
    with pytest.raises(TaskRefused) as refused:
        started(argv, **arguments)
    line = str(refused.value)
    assert "\n" not in line
    assert len(line) < 700
    return line.removeprefix("the task can't be started: ")


def executable(path: Path, content: str = "#!/bin/sh\n") -> Path:
    """Make a file that can be run."""
    path.write_text(content)
    path.chmod(0o755)
    return path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that this process is in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_nothing_is_said_of_has_its_default() -> None:
    """The whole environment and the directory are this process's; the owner's end ends the task."""
    assert started(["/bin/true"]).as_map() == {
        "argv": [b"/bin/true"],
        "program": b"/bin/true",
        "cwd": os.getcwdb(),
        "umask": own_umask(),
        "env": dict(os.environb),
        "environment": [],
        "key": None,
        "group": None,
        "timeout": None,
        "grace": 5.0,
        "limit": 4 * 1024**3,
        "stall": None,
        "keep": False,
    }


def test_what_is_said_is_taken() -> None:
    """Times may be whole numbers; the names of what is set or removed are told, sorted."""
    start = started(
        ["sh", "-c", ""],
        key="ci-17",
        group="ci",
        cwd="/",
        env={"B": "2", "A": None},
        timeout=900,
        grace=0.5,
        limit=1,
        stall=60,
        on_owner_exit="keep",
    )
    assert (start.key, start.group, start.cwd, start.keep) == ("ci-17", "ci", b"/", True)
    assert (start.timeout, start.grace, start.limit, start.stall) == (900, 0.5, 1, 60)
    assert start.environment == ["A", "B"]


def test_a_variable_is_added_or_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are this process's own, and it is left as it is."""
    monkeypatch.setenv("GONE", "1")
    monkeypatch.setenv("STAYS", "2")
    start = started(["/bin/true"], env={"NEW": "3", "GONE": None, "NEVER": None})
    assert (start.env[b"NEW"], start.env[b"STAYS"]) == (b"3", b"2")
    assert b"GONE" not in start.env
    assert (os.environ["GONE"], "NEW" in os.environ) == ("1", False)


def test_bytes_that_are_no_utf8_reach_the_command_unchanged(here: Path) -> None:
    """In arguments, in the environment and in the directory's name."""
    place = os.path.join(os.fsencode(here), b"caf\xe9")
    os.mkdir(place)
    text = os.fsdecode(b"\xff\xfe")
    start = started(["/bin/echo", text], cwd=os.fsdecode(place), env={"NAME" + text: text})
    assert start.environment == ["NAME\\xff\\xfe"]
    assert (start.argv[1], start.cwd, start.env[b"NAME\xff\xfe"]) == (b"\xff\xfe", place, b"\xff\xfe")


# -- Arguments


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "argv is empty; it begins with the program"),
        ([""], "argv[0] is empty; it is the program"),
        ("ls -l", "argv is a list, of the program and each of its arguments, not the text 'ls -l'"),
        (b"ls", "argv is a list, of the program and each of its arguments, not the text b'ls'"),
        (None, "argv is a list of texts, not NoneType"),
        ({"ls"}, "argv is a list of texts, not set"),
        (["sleep", 5], "argv[1] is a text, not 5"),
        (["sleep", b"5"], "argv[1] is a text, not b'5'"),
        (["echo", "a\0b"], "argv[1] has a NUL, with which the system ends a text: 'a\\x00b'"),
        (["echo", "\ud800"], "argv[1] has a lone surrogate, the half of a character that was cut"),
    ],
)
def test_what_is_no_command_is_refused(argv: Any, said: str) -> None:
    """The line names the argument by its place."""
    assert refusal(argv) == said


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"A=B": "1"}, "a name in env isn't empty and has no '=', unlike 'A=B'"),
        ({"": "1"}, "a name in env isn't empty and has no '=', unlike ''"),
        ({"A\0": "1"}, "a name in env has a NUL, with which the system ends a text: 'A\\x00'"),
        ({1: "1"}, "a name in env is a text, not 1"),
        (["A=1"], "env is a mapping of names to texts, not list"),
        ({"A": "secret\0"}, "env['A'] has a NUL, with which the system ends a text"),
        ({"A": 12345}, "env['A'] is a text, not int"),
        ({"A": "\udfff"}, "env['A'] has a lone surrogate, the half of a character that was cut"),
    ],
)
def test_what_is_no_environment_is_refused(env: Any, said: str) -> None:
    """The line names the variable, and never shows a value: it may be a secret."""
    assert refusal(env=env) == said


@pytest.mark.parametrize("name", ["timeout", "grace", "stall"])
@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), float("inf"), True, "5", 1e12, LARGE])
def test_what_is_no_time_is_refused(name: str, value: Any) -> None:
    """Seconds are a number above zero that a clock can count."""
    assert refusal(**{name: value}).startswith(f"{name} is a")


def test_a_grace_has_to_be_said() -> None:
    """Without one a task couldn't be stopped; without the others it has none of them."""
    assert refusal(grace=None) == "grace is a number of seconds above 0 up to 315,360,000 (ten years), not None"
    assert started(["/bin/true"], timeout=None, stall=None).timeout is None


@pytest.mark.parametrize(
    ("value", "is_one"), [(0, True), (0.5, True), (True, False), (-1, False), (float("nan"), False), ("1", False)]
)
def test_a_time_for_other_calls_may_be_nothing(value: Any, is_one: bool) -> None:
    """To stop at once is a wish; less than nothing is none."""
    assert is_seconds(value) is is_one


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1 MB", 2**62 + 1])
def test_what_is_no_limit_is_refused(limit: Any) -> None:
    """A limit is a whole number of bytes."""
    assert refusal(limit=limit) == f"limit is a whole number of bytes from 1 to 2**62, not {limit!r}"


def test_an_unknown_word_for_the_owners_end_is_refused() -> None:
    """There are two."""
    assert refusal(on_owner_exit="die") == "on_owner_exit is kill or keep, not 'die'"


@pytest.mark.parametrize("name", ["key", "group"])
@pytest.mark.parametrize("value", ["", "x" * 257, 5, "\ud800"])
def test_what_is_no_name_is_refused(name: str, value: Any) -> None:
    """Names are texts of 1 to 256 characters."""
    assert refusal(**{name: value}).startswith(f"{name}: a {name} ")


# -- Sizes


def test_one_argument_that_is_too_long_is_refused() -> None:
    """The longest that the system takes isn't; with the byte that ends it, it has 128 KiB."""
    assert started(["/bin/true", "x" * (ARGUMENT_BYTES_MAX - 1)]).argv[1]
    said = refusal(["/bin/true", "x" * ARGUMENT_BYTES_MAX])
    assert said == "argv[1] has 131,072 bytes, and the system takes 131,071; hand over as much as that in a file"


def test_one_variable_that_is_too_long_is_refused() -> None:
    """Its name counts too, and its value isn't shown."""
    fitting = "x" * (ARGUMENT_BYTES_MAX - len("A=") - 1)
    assert started(["/bin/true"], env={"A": fitting}).env[b"A"]
    assert refusal(env={"A": fitting + "x"}).startswith("the variable 'A' has 131,072 bytes")


@pytest.fixture
def small_stack() -> Iterator[None]:
    """Less stack than usual, of which a quarter is for arguments."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1024 * 1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))


def test_more_than_the_stack_has_room_for_is_refused(small_stack: None) -> None:
    """Arguments and environment together take a quarter of the stack's limit at most, pointers included."""
    assert started(["/bin/true", *["x" * 100_000] * 2], env={}).argv
    said = refusal(["/bin/true", *["x" * 100_000] * 3])
    assert said.startswith("argv and env together have 3")
    assert refusal(["/bin/true", *[""] * 50_000]).startswith("argv and env together have")


def test_a_stack_without_a_limit_doesnt_lift_the_systems_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes 6 MiB, whatever the stack's limit says."""
    monkeypatch.setattr(os, "sysconf", lambda name: 2**62)
    assert started(["/bin/true", *["x" * 100_000] * 50]).argv
    assert refusal(["/bin/true", *["x" * 100_000] * 63]).startswith("argv and env together have 6,3")


# -- Files


def test_a_program_is_searched_in_the_tasks_own_path(here: Path) -> None:
    """Not in this process's; what isn't executable is passed over for what comes behind it."""
    for name in ("first", "second"):
        (here / name).mkdir()
    (here / "first" / "tool").write_text("#!/bin/sh\n")
    tool = executable(here / "second" / "tool")
    path = f"{here}/first:{here}/second"
    assert started(["tool"], env={"PATH": path}).program == os.fsencode(tool)
    assert refusal(["tool"]).startswith("the program 'tool' isn't in the task's PATH (")
    assert refusal(["sh"], env={"PATH": path}) == (
        f"the program 'sh' isn't in the task's PATH ({path!r}); install it, or give its path"
    )


def test_a_relative_place_in_path_is_one_of_the_tasks_directory(here: Path) -> None:
    """An empty one is that directory itself."""
    (here / "work" / "bin").mkdir(parents=True)
    inner, own = executable(here / "work" / "bin" / "inner"), executable(here / "work" / "own")
    for name, found, path in (("inner", inner, "bin"), ("own", own, "/nowhere:")):
        start = started([name], cwd=str(here / "work"), env={"PATH": path})
        assert os.path.samefile(start.program, found)
        assert start.program.startswith(b"/")


def test_without_a_path_there_is_the_systems() -> None:
    """As a shell has it."""
    assert os.path.basename(started(["sh"], env={"PATH": None}).program) == b"sh"


def test_a_program_with_a_slash_is_one_of_the_tasks_directory(here: Path) -> None:
    """Not of this process's, and not one of PATH."""
    (here / "work").mkdir()
    executable(here / "run")
    tool = executable(here / "work" / "run")
    assert os.path.samefile(started(["./run"], cwd="work").program, tool)
    assert started(["./run"], cwd="work").argv == [b"./run"]
    tool.unlink()
    said = refusal(["./run"], cwd="work")
    assert said == f"the program './run' (in '{here}/work') isn't there; install it, or give another path"


def test_what_cant_be_run_is_refused_and_says_why(here: Path) -> None:
    """Missing, a directory, no regular file, not executable, behind what is no directory: each is another line."""
    (here / "folder").mkdir()
    (here / "plain").write_text("#!/bin/sh\n")
    os.mkfifo(here / "pipe", 0o755)
    for name, why in {
        "missing": "isn't there; install it, or give another path",
        "plain/below": "isn't there; install it, or give another path",
        "folder": "is a directory; give a file that can be run",
        "pipe": "is no regular file; give one that can be run",
        "plain": "isn't executable for this user; make it so: chmod +x",
        "x" * 300: "can't be looked at: File name too long; give another path",
    }.items():
        path = f"{here}/{name}"
        assert refusal([path]).endswith(f" {why}")
        assert refusal([path]).startswith(f"the program '{here}/")


def test_what_is_found_in_path_and_cant_be_run_is_named(here: Path) -> None:
    """The first of them; a name that is too long for a file is just not there."""
    (here / "tool").mkdir()
    path = {"PATH": str(here)}
    assert refusal(["tool"], env=path) == (
        f"the program 'tool' is only '{here}/tool' in PATH, which is a directory; give a file that can be run"
    )
    assert "isn't in the task's PATH" in refusal(["x" * 300], env=path)


def test_a_script_that_names_no_interpreter_isnt_found_out_here(here: Path) -> None:
    """Only running it shows that; it then becomes the task's end."""
    assert started([str(executable(here / "script", "echo hello\n"))]).program


def test_a_directory_that_cant_be_entered_is_refused(here: Path) -> None:
    """Missing, a file, empty, a text that is no path: each is another line."""
    (here / "file").write_text("")
    assert refusal(cwd="missing") == "the directory 'missing' isn't there; make it, or give another cwd"
    assert refusal(cwd="file") == "the directory 'file' is no directory; give another cwd"
    assert refusal(cwd="file/below") == ("the directory 'file/below' can't be used: Not a directory; give another cwd")
    assert refusal(cwd="") == "cwd is empty; give a directory, or leave it out for this process's own"
    assert refusal(cwd="a\0b") == "cwd has a NUL, with which the system ends a text: 'a\\x00b'"
    assert refusal(cwd=5) == "cwd is a text, not 5"


def test_a_directory_without_rights_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may not enter it is told here; root may, so the system's word is taken for granted."""
    monkeypatch.setattr(os, "access", lambda *path, **how: False)
    assert refusal(cwd=str(here)).endswith("can't be entered by this user; give another cwd")


def test_a_directory_of_this_process_that_was_removed_is_no_default(here: Path) -> None:
    """Then it has to be given."""
    (here / "gone").mkdir()
    os.chdir(here / "gone")
    (here / "gone").rmdir()
    assert refusal() == "cwd has to be given: this process's own directory was removed"
    assert started(["/bin/true"], cwd="/").cwd == b"/"
    os.chdir(here)


def test_a_relative_directory_is_one_of_this_process(here: Path) -> None:
    """It is absolute from then on, and a link stays a link."""
    (here / "real").mkdir()
    (here / "link").symlink_to("real")
    assert started(["/bin/true"], cwd="link").cwd == os.fsencode(here / "link")
