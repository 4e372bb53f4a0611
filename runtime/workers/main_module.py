"""Classes and functions that another process is to import, also from the program's main module.

A target is "module:name". If its module is the one that the program was started with, a new process finds it in no
other way than multiprocessing does: it runs that file, or module, once more, under another name. So what the file does
beside defining things has to be guarded, and a program that isn't is refused before it does its work twice.
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import WorkerStartError, error_from_wire, error_to_wire


class UnguardedMain(RuntimeError):
    """The program's main module does its work while a new process only imports it."""

    def __init__(self) -> None:
        super().__init__(
            "a new process is importing this program's main module, which then must not run the program again: "
            "put what it runs under  if __name__ == '__main__':"
        )


def require_guarded_main() -> None:
    """Refuse to go on in a process that is still importing the main module of the one that started it.

    Raises:
        UnguardedMain: It is. Going on would run the program once more in each process that it starts.
    """
    global _main_was_refused
    process = sys.modules.get("multiprocessing.process")
    if process is not None and getattr(process.current_process(), "_inheriting", False):
        _main_was_refused = True
        raise UnguardedMain


def main_module_of(target: str) -> dict[str, bytes]:
    """Say how another process gets at the program's main module; empty if the target isn't in it.

    Raises WorkerStartError: No other process can import the target.
    """
    module, colon, name = target.partition(":")
    if not (module and colon and name) or "<locals>" in name:
        raise WorkerStartError(target, "can't be started: it can't be imported by module and name")
    if module not in ("__main__", "__mp_main__"):
        return {}
    main = sys.modules["__main__"]
    imported_as = getattr(main.__spec__, "name", None)
    if imported_as is not None and imported_as.rpartition(".")[2] != "__main__":
        return {"init_main_from_name": os.fsencode(imported_as)}
    path = getattr(main, "__file__", None)
    if imported_as is None and path is not None and os.path.isfile(path):
        return {"init_main_from_path": os.fsencode(os.path.abspath(path))}
    raise WorkerStartError(
        target,
        "can't be started: it is defined in a program that no other process can import "
        "(python -c, standard input, an interactive session, a package's __main__); put it into a module",
    )


def load(target: str, main: Mapping[str, bytes]) -> Callable[..., Any]:
    """Import a target, from the program's main module if `main_module_of` gave that, and return it.

    Raises whatever the import raises, BaseException among it.
    """
    if main:
        _import_main({word: os.fsdecode(value) for word, value in main.items()})
    importlib.invalidate_caches()
    module, _, name = target.partition(":")
    found: Callable[..., Any] = operator.attrgetter(name)(importlib.import_module(module))
    return found


def load_failure_to_wire(error: BaseException) -> dict[str, Any]:
    """Give what `load` has raised here as plain values."""
    return {**error_to_wire(error), "unguarded": _main_was_refused}


def load_failure_from_wire(target: str, wire: Mapping[str, Any]) -> Exception:
    """Build the error that tells what `load` raised in another process."""
    if wire["unguarded"]:
        return UnguardedMain()
    error = error_from_wire(wire)
    return WorkerStartError(target, f"could not import it: {error}", "\n".join(getattr(error, "__notes__", ())))


def _import_main(preparation: dict[str, str]) -> None:
    """Import the program's main module as multiprocessing does in the processes that it spawns, with its mark on us."""
    # Only here: few targets are in a main module, and this costs 10 ms.
    from multiprocessing import process, spawn

    marks = vars(process.current_process())
    marks["_inheriting"] = True
    try:
        spawn.prepare(preparation)
    finally:
        del marks["_inheriting"]


_main_was_refused = False
"""Whether `require_guarded_main` ever refused in this process, whatever the program made of its error."""
