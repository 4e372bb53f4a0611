"""Unit: what another process imports of a program, and a program that would then run twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from turnkeeper.runtime.workers.main_module import UnguardedMain, require_guarded_main

DEADLINE_SECONDS = 20


def test_a_main_module_that_is_only_imported_must_not_run_the_program(tmp_path: Path) -> None:
    """In a process that multiprocessing started, the check passes in the work and refuses during the import of main."""
    require_guarded_main()
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import multiprocessing\n"
        "from turnkeeper.runtime.workers.main_module import UnguardedMain, require_guarded_main\n"
        "try:\n"
        "    require_guarded_main()\n"
        "except UnguardedMain as error:\n"
        "    print('import:', error, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=require_guarded_main)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    print('work:', child.exitcode)\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True
    )
    assert done.stdout.splitlines() == [f"import: {UnguardedMain()}", "work: 0"]
