"""A task whose files are taken away under it: a look tells its status and what is gone, and it can be stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from turnkeeper.runtime.tasks import control, directory, looking, tree

from ..shims import Shims, Started, own_identity, until


def _delete(task: Started) -> None:
    shutil.rmtree(task.path)


def _rename(task: Started) -> None:
    os.rename(task.path, task.path + ".old")


def _replace(task: Started) -> None:
    shutil.copytree(task.path, task.path + ".new")
    os.rename(task.path, task.path + ".old")
    os.rename(task.path + ".new", task.path)


def _empty(task: Started) -> None:
    _rename(task)
    os.mkdir(task.path)


def _unlock(task: Started) -> None:
    os.unlink(f"{task.path}/lock")


def _replace_lock(task: Started) -> None:
    _unlock(task)
    Path(task.path, "lock").touch()


def _truncate(task: Started) -> None:
    for name in ("run.json", "spec.json"):
        os.truncate(f"{task.path}/{name}", 0)


DAMAGES: dict[str, tuple[Callable[[Started], None], str | None, str | None]] = {
    "directory deleted": (_delete, "files deleted", "directory deleted"),
    "directory renamed": (_rename, "files deleted", "directory deleted"),
    "directory replaced by a copy": (_replace, "files replaced", "its shim was killed"),
    "directory replaced by an empty one": (_empty, "files deleted", "files deleted"),
    "lock deleted": (_unlock, "files deleted", None),
    "lock replaced": (_replace_lock, "files replaced", None),
    "state truncated": (_truncate, None, None),
}


@pytest.mark.parametrize(("damage", "gone", "lost"), DAMAGES.values(), ids=DAMAGES)
def test_a_running_task_is_running_and_can_be_stopped(
    shims: Shims, damage: Callable[[Started], None], gone: str | None, lost: str | None
) -> None:
    """By its shim's identity, where files say nothing any more; its end is known where it can still be written."""
    task = shims.shell("trap 'exit 6' TERM; echo; while :; do sleep 0.01; done", grace=5.0)
    task.said()
    shim = task.shim
    damage(task)
    look = looking.look(task.path, shim, settle=True)
    assert (look.stage, look.gone, look.end) == ("running", gone, None)
    assert control.order_stop(task.path, shim, grace=5.0)
    until(lambda: not tree.is_alive(shim["pid"], shim["start"]))
    end = looking.look(task.path, shim, settle=True).end
    assert end is not None
    assert end["lost"] == lost if lost else (end["how"], end["by"]) == ({"code": 6}, "stop")
    assert not control.order_stop(task.path, shim, grace=5.0)


def test_a_task_that_nobody_knows_anything_of_is_lost(shims: Shims) -> None:
    """No directory, no shim known to anybody: not running, not unstarted, and no error."""
    task = shims.start("/bin/sleep", "600")
    path = task.path + ".old"
    os.rename(task.path, path)
    assert task.look().end == {"lost": "directory deleted"}
    assert control.order_stop(path, directory.read_map(f"{path}/run.json") or {}, grace=0.0)
    until(lambda: looking.look(path).stage == "ended")


@pytest.mark.root
def test_a_directory_that_nothing_can_be_changed_in_keeps_the_end(shims: Shims) -> None:
    """The end stands in the file that was made for it, under its temporary name, and a look finds it."""
    task = shims.shell("trap 'exit 6' TERM; echo; while :; do sleep 0.01; done", grace=5.0)
    task.said()
    made = subprocess.run(["chattr", "+i", task.path], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"no directory can be made immutable here: {made.stderr.strip()}")
    try:
        assert task.look().stage == "running"
        task.stop(5.0)
        end = task.wait()
        assert (end["how"], end["by"]) == ({"code": 6}, "stop")
        assert not os.path.exists(f"{task.path}/exit.json")
    finally:
        subprocess.run(["chattr", "-i", task.path], check=True)


def test_a_deleted_output_file_costs_the_output_alone(shims: Shims) -> None:
    """The command goes on writing into the file that has no name any more, and its size is known."""
    task = shims.shell("echo one; sleep 0.1; echo two; exit 2")
    task.said()
    os.unlink(f"{task.path}/output.log")
    end = task.wait()
    assert (end["how"], end["output_bytes"]) == ({"code": 2}, 8)


def test_a_directory_is_discarded_only_if_no_shim_has_it(shims: Shims) -> None:
    """One that was made and never handed over goes, with all in it; a running task's stays."""
    made, running = shims.make(["/bin/true"]), shims.start("/bin/sleep", "600")
    assert not directory.discard(running.path)
    assert running.look().stage == "running"
    assert directory.discard(made.path)
    assert not os.path.exists(made.path)
    assert directory.discard(made.path)
    shims.hand_over(made)
    running.stop(0.0)
    running.wait()
    shims.catch_up()
    assert not os.path.exists(made.path)
    assert "No such file" in shims.log()
    Path(shims.root, "spawner.log").write_text("")


def test_a_directory_begun_twice_is_whole(tmp_path: Path) -> None:
    """Making goes on where a maker died, and says where it can't."""
    (tmp_path / "tasks" / "task-1").mkdir(parents=True)
    (tmp_path / "tasks" / "task-1" / "spec.json.tmp").write_text("{")
    spec, variables = {"argv": [b"\xff\n", "é"]}, {b"A\xff": b"\xfe"}
    path = directory.make(str(tmp_path / "tasks"), "task-1", spec, variables)
    assert directory.make(str(tmp_path / "tasks"), "task-1", spec, variables) == path
    found = directory.read_map(f"{path}/spec.json")
    assert found == {"argv": ["\udcff\n", "é"], "id": "task-1", "boot": own_identity()["boot"]}
    assert [directory.as_bytes(each) for each in found["argv"]] == [b"\xff\n", "é".encode()]
    assert directory.read_map(f"{path}/env.json") == {"A\udcff": "\udcfe"}
    assert looking.look(path).stage == "unstarted"
    (tmp_path / "tasks" / "file").touch()
    with pytest.raises(FileExistsError):
        directory.make(str(tmp_path / "tasks"), "file", {}, {})


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"3", b"\xff", b"[" * 100_000, b'{"a": 1}\n{"b": 2}'], ids=lambda each: repr(each[:9])
)
def test_a_file_that_holds_no_object_reads_as_none(tmp_path: Path, content: bytes) -> None:
    """Whatever stands there, reading it fails nobody."""
    (tmp_path / "file").write_bytes(content)
    assert directory.read_map(str(tmp_path / "file")) is None


def test_what_is_no_file_reads_as_none(tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes into and a link are no files of a task's."""
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text("{}")
    (tmp_path / "link").symlink_to("real")
    for name in ("directory", "pipe", "link", "missing", "real/below"):
        assert directory.read_map(str(tmp_path / name)) is None
    assert directory.read_map(str(tmp_path / "real")) == {}
