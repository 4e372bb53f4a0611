"""The command line, as people and scripts meet it: `turnkeeper`, or `python -m turnkeeper`.

The root of the layers: it may import everything, and nothing imports it. Each command stands in a module that is loaded
only when it is asked for, so that looking at a store loads no event loop. Whatever happens, a command ends with one of
the documented exit codes and says at most one line about why; `failures` has the codes.
"""

from __future__ import annotations

import sys
from typing import NoReturn

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 and the signal's number, as shells count."""


def main() -> NoReturn:
    """Run the command that the program's arguments name, and exit with its code."""
    try:
        from .program import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)
