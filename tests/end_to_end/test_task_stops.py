"""Stopping a task's whole tree, and nothing but it: real processes below a real shim, without any node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from turnkeeper.runtime.tasks import spawner, tree

from ..shims import SLEEPER, Shims, marked, until

TREES = {
    "four deep": 'sh -c \'sh -c "sh -c \\"echo; exec sleep 600\\" & wait" & wait\' & wait',
    "pipeline": "echo; yes | cat >/dev/null",
    "ignores SIGTERM": "trap '' TERM; echo; while :; do sleep 600; done",
    "ended, its child ignores SIGTERM": "(trap '' TERM; while [ -e /proc/$$ ]; do :; done; echo; sleep 600) & exit 0",
    "double fork": "( ( setsid sh -c 'echo; exec sleep 600' & ) ; ); sleep 600",
    "process session of its own": "setsid sh -c 'echo; exec sleep 600' & wait",
    "no environment, session of its own": "env -i setsid /bin/sh -c 'echo; exec /bin/sleep 600' & wait",
    "stopped": "sh -c 'echo; kill -STOP $$; sleep 600' & wait",
    "stopped itself": "echo; kill -STOP $$; sleep 600",
    "goes on forking": "trap '' TERM; echo; while :; do sleep 600 & sleep 0.001; done",
}
CHAINS = {
    "chain of forks": "",
    "chain of forks, each in a session of its own": "os.setsid()",
}
CHAIN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(flush=True)
while True:
    {each}
    if os.fork():
        os._exit(0)
"""


@pytest.mark.parametrize("script", TREES.values(), ids=TREES)
def test_a_stop_ends_the_whole_tree(shims: Shims, script: str) -> None:
    """Whatever a command made of its processes, none is left when its end is written, and that is soon."""
    task = shims.shell(script, grace=0.1)
    task.said()
    below = [each.pid for each in tree.below(task.shim["pid"])]
    assert below
    task.stop(0.1)
    end = task.wait(5.0)
    assert end["by"] == ("itself" if script.endswith("exit 0") else "stop")
    assert not any(tree.process_of(pid) for pid in below)
    assert marked(task.id) == []
    assert task.look().is_tree_empty


@pytest.mark.parametrize("each", CHAINS.values(), ids=CHAINS)
def test_a_stop_ends_what_forks_and_exits_faster_than_it_is_found(shims: Shims, each: str) -> None:
    """A process that is always just gone is killed through the group of the one before."""
    script = CHAIN.format(each=each or "pass")
    task = shims.start(sys.executable, "-I", "-S", "-c", script)
    task.said()
    task.stop(0.0)
    task.wait()
    assert marked(task.id) == []


def test_a_stop_waits_as_long_as_its_grace_and_another_only_shortens_it(shims: Shims) -> None:
    """Nothing is killed before; a later order with less grace counts, one with more doesn't."""
    task = shims.shell("trap 'echo told' TERM; echo; while :; do sleep 0.01; done", grace=600.0)
    task.said()
    task.stop(600.0)
    until(lambda: b"told" in task.output())
    assert task.look().stage == "running"
    began = time.monotonic()
    task.stop(0.2)
    task.stop(600.0)
    os.kill(task.shim["pid"], signal.SIGTERM)
    assert task.wait()["how"] == {"signal": signal.SIGKILL}
    assert 0.2 <= time.monotonic() - began < 10


def test_what_a_command_starts_to_clean_up_has_the_grace_as_well(shims: Shims) -> None:
    """SIGTERM reaches what was there at the stop, not what a command begins because of it."""
    task = shims.shell("trap 'sleep 0.3 && echo clean; exit 4' TERM; echo; while :; do sleep 0.01; done")
    task.said()
    task.stop(10.0)
    end = task.wait()
    assert (end["how"], end["by"]) == ({"code": 4}, "stop")
    assert task.output().endswith(b"clean\n")


def test_a_stopped_process_gets_its_chance_to_end(shims: Shims) -> None:
    """It goes on, as it would never act on SIGTERM otherwise, and has the grace."""
    task = shims.shell("trap 'exit 5' TERM; echo; kill -STOP $$; while :; do sleep 0.01; done")
    task.said()
    until(lambda: (found := tree.process_of(task.leader)) and found.is_stopped)
    task.stop(60.0)
    end = task.wait()
    assert (end["how"], end["by"]) == ({"code": 5}, "stop")


def test_a_timeout_stops_the_whole_tree(shims: Shims) -> None:
    """The command's children end with it, also those that hold its output."""
    task = shims.shell("sh -c 'echo; exec sleep 600' & wait", timeout=0.2)
    task.said()
    end = task.wait()
    assert (end["by"], end["how"]) == ("timeout", {"signal": signal.SIGTERM})
    assert marked(task.id) == []


def test_survivors_are_named_at_the_commands_end_and_can_be_stopped(shims: Shims) -> None:
    """The task has ended at once although its output is held; the end says which processes are left, then none is."""
    task = shims.shell(f"{SLEEPER.format(600)}; exit 3")
    look = until(lambda: (found := task.look()).stage == "left" and found)
    assert look.end is not None
    assert (look.end["how"], look.end["by"], look.is_tree_empty) == ({"code": 3}, "itself", False)
    (survivor,) = look.end["survivors"]
    found = tree.process_of(survivor["pid"])
    assert found is not None
    assert survivor == {"pid": found.pid, "start": found.start, "command": "sleep 600"}
    task.stop(1.0)
    assert task.wait() == {**look.end, "survivors": []}
    assert task.look().is_tree_empty


def test_what_ends_in_a_stop_is_no_survivor(shims: Shims) -> None:
    """A command that ends a moment before its children do, as all were told to, leaves nothing."""
    slow = "trap 'sleep 0.02; exit' TERM; echo; while :; do sleep 0.01; done"
    for _ in range(5):
        task = shims.shell(f'sh -c "{slow}" & exec sleep 600')
        task.said()
        task.stop(5.0)
        assert task.wait()["by"] == "stop"
        assert not Path(task.path, "leader.json").exists()


def test_members_of_the_shims_own_group_end_without_it(shims: Shims) -> None:
    """A process that joined its shim's process group is killed, and the shim is there to say so."""
    script = "import os, signal, time\nif os.fork(): os._exit(0)\nsignal.signal(15, 1)\nos.setpgid(0, os.getsid(0))\n"
    task = shims.start(sys.executable, "-I", "-S", "-c", script + "print(flush=True)\ntime.sleep(600)")
    task.said()
    task.stop(0.0)
    assert task.wait()["how"] == {"code": 0}


def test_nobody_else_is_touched_by_a_stop(shims: Shims) -> None:
    """Another task, its shim, and processes of no task go on."""
    other = shims.shell("sleep 600 & sleep 600")
    until(lambda: len(tree.below(other.shim["pid"])) == 3)
    before = {each.pid: each.start for each in tree.below(other.shim["pid"])}
    bystander = subprocess.Popen(["/bin/sleep", "600"], start_new_session=True)
    task = shims.shell(TREES["goes on forking"])
    task.said()
    task.stop(0.0)
    task.wait()
    assert {each.pid: each.start for each in tree.below(other.shim["pid"])} == before
    assert all(map(tree.is_alive, before, before.values()))
    assert bystander.poll() is None
    bystander.kill()
    bystander.wait()
    other.stop(0.0)
    other.wait()


def test_trees_are_found_where_the_kernel_lists_no_children(tmp_path: Path) -> None:
    """Without CONFIG_PROC_CHILDREN all of /proc is looked through, and the whole tree ends just so."""
    script = tmp_path / "spawner.py"
    script.write_text(_WITHOUT_CHILDREN_FILES.format(path=spawner.__file__))
    shims = Shims(tmp_path, str(script))
    task = shims.shell(TREES["four deep"])
    task.said()
    task.stop(5.0)
    assert task.wait()["by"] == "stop"
    survivor = shims.shell(f"trap '' TERM; {SLEEPER.format(600)}; exit 0")
    look = until(lambda: (found := survivor.look()).stage == "left" and found)
    assert look.end is not None
    assert [each["command"] for each in look.end["survivors"]] == ["sleep 600"]
    survivor.stop(0.0)
    survivor.wait()
    shims.close()
    assert shims.log() == ""


_WITHOUT_CHILDREN_FILES = """
import runpy
script = runpy.run_path({path!r})
from turnkeeper.runtime.tasks import tree
def refuse(parent): raise AssertionError("there are no such files")
tree.has_children_files, tree._children_by_files = lambda: False, refuse
script["main"]()
"""


def test_a_dead_childs_group_is_killed_and_never_ones_own() -> None:
    """What its parent left, in the group of a child that nobody reaped yet, is killed though it isn't below."""
    command = [sys.executable, "-c", _KILL_BELOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    assert (done.returncode, done.stdout.split()[1:], done.stderr) == (0, ["before", "True", "after", "False"], "")


_KILL_BELOW = """
import os, subprocess
from turnkeeper.runtime.tasks import tree
left = subprocess.Popen(["/bin/sh", "-c", "sleep 600 >/dev/null & echo $!"], process_group=0, stdout=subprocess.PIPE)
pid = int(left.stdout.readline())
start = tree.process_of(pid).start
own = subprocess.Popen(["/bin/true"])
for child in (left, own):
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
print(pid, "before", tree.is_alive(pid, start))
tree.kill_below(os.getpid())
while tree.is_alive(pid, start):
    pass
print("after", tree.is_alive(pid, start))
for child in (left, own):
    child.wait()
left.stdout.close()
"""


def test_both_ways_to_find_children_agree(monkeypatch: pytest.MonkeyPatch, shims: Shims) -> None:
    """What the children's files say and what a scan of /proc says is the same tree."""
    task = shims.shell("sh -c 'sleep 600 & sleep 600' & sleep 600")
    until(lambda: len(tree.below(task.shim["pid"])) == 5)
    by_files = {each.pid: (each.parent, each.start) for each in tree.below(task.shim["pid"])}
    monkeypatch.setattr(tree, "has_children_files", lambda: False)
    assert {each.pid: (each.parent, each.start) for each in tree.below(task.shim["pid"])} == by_files
    task.stop(0.0)
    task.wait()
