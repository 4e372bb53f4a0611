"""Start our own processes: the node's candidate, the writer and the spawner.

Each is `python -P FILE` in a process session of its own, with few variables in its environment and no descriptor but
those named here. Node and writer get one line of JSON (their boot) on stdin, and a pipe as stdout. The file finds its
package by its own place; the starter's import path comes last, so what lies in a host's directory can't shadow the
standard library, installed packages or turnkeeper itself. Standard library only; nothing here waits for a process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from turnkeeper.storage.errors import StoreRefused

from .protocol import PROTOCOL, VERSION

_NODE_FILE = os.path.join(os.path.dirname(__file__), "node", "node_main.py")
_SPAWNER_FILE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "runtime", "tasks", "spawner.py")
_WRITER_FILE = os.path.join(os.path.dirname(__file__), "writer", "writer_main.py")
_KEPT_VARIABLES = ("PATH", "HOME", "LANG", "TZ", "TMPDIR")
_KEPT_PREFIXES = ("LC_", "LD_", "FAKETIME_", "TURNKEEPER_")


def start_candidate(
    path: str, *, create: bool, durability: str | None = None, backend: str | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that becomes the node of the store at `path`, absolute, if nobody holds the store's lock.

    With `create` a missing store is made; `durability` and `backend` are what it gets, and one that is there must have.
    The first line that it says is its word: `ready`, `busy`, or `error` with the error's wire form as JSON.
    Raises StoreRefused where no process can be started.
    """
    boot = {"protocol": PROTOCOL, "version": VERSION, "path": path}
    boot |= {"create": create, "durability": durability, "backend": backend}
    try:
        candidate = _start(_NODE_FILE, cwd="/", stderr=subprocess.STDOUT)
    except OSError as error:
        raise StoreRefused(path, f"its node can't be started ({error.strerror or error})") from error
    _send_boot(candidate, boot)
    assert candidate.stdin is not None
    candidate.stdin.close()
    candidate.stdin = None
    return candidate


def start_writer(
    path: str, store: str, *, store_file: int, listener: int, distrust_index: bool
) -> subprocess.Popen[bytes]:
    """Start the writer in the present directory, the store's; closing its stdin is the order to end.

    `path` and `store`, the UUID, are what it calls itself by. It inherits `store_file`, which carries the lock, and the
    listening socket. Raises OSError where no process can be started.
    """
    writer = _start(_WRITER_FILE, pass_fds=(store_file, listener))
    _send_boot(writer, {"path": path, "store": store, "listener": listener, "distrust_index": distrust_index})
    return writer


def start_spawner(requests: int, descriptors: int) -> subprocess.Popen[bytes]:
    """Start a spawner in the present directory, the store's; it reads from the socket `requests`, until its end.

    `descriptors` is how many files each of its tasks may have open.
    Raises OSError where no process can be started.
    """
    # Nothing of what is installed or set up here is its business: it forks, and stays as small as it can.
    arguments = (str(descriptors),)
    return _start(_SPAWNER_FILE, options=("-I", "-S", "-P"), arguments=arguments, stdin=requests, stdout=None)


def _start(
    file: str,
    *,
    options: Sequence[str] = ("-P",),
    arguments: Sequence[str] = (),
    stdin: int = subprocess.PIPE,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = None,
    cwd: str | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise OSError("this Python doesn't know its own executable")
    return subprocess.Popen(
        [sys.executable, *options, file, *arguments],
        bufsize=0,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        cwd=cwd,
        env=_environment(),
        start_new_session=True,
        umask=0o077,
    )


def _send_boot(process: subprocess.Popen[bytes], boot: Mapping[str, Any]) -> None:
    """Write the boot line. A process that died before reading it is found dead by whoever waits for its word."""
    assert process.stdin is not None
    line = json.dumps({**boot, "import_path": [each for each in sys.path if os.path.isabs(each)]}).encode() + b"\n"
    with contextlib.suppress(BrokenPipeError):
        while line:
            line = line[process.stdin.write(line) :]


def _environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if name in _KEPT_VARIABLES or name.startswith(_KEPT_PREFIXES)
    }
