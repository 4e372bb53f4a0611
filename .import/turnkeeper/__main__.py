"""Run the command line as ``python -m turnkeeper``."""

from __future__ import annotations

from turnkeeper.runtime.cli import main

if __name__ == "__main__":
    main()
