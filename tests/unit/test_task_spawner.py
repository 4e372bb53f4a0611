"""How a spawner prepares the memory that its forks share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from turnkeeper.runtime.tasks import spawner

SCRIPT = f"""
import sys
sys.path.insert(0, {str(Path(spawner.__file__).parents[3])!r})
from turnkeeper.runtime.tasks import spawner

def begins_pool(size):
    return id(bytes(size - sys.getsizeof(b""))) % spawner.POOL_BYTES == spawner.POOL_HEAD_BYTES

sizes = range(48, spawner.SMALL_BYTES_MAX + 1, spawner.SIZE_STEP_BYTES)
before = sum(map(begins_pool, sizes))
filling = spawner.fill_pools()
print(before, sum(map(begins_pool, sizes)), len(sizes), sum(map(sys.getsizeof, filling)))
"""


def test_forks_begin_with_new_pools() -> None:
    """After the filling objects of nearly all sizes begin a pool, as hardly any did before; the filling is bounded."""
    done = subprocess.run([sys.executable, "-I", "-S", "-P", "-c", SCRIPT], capture_output=True, text=True, check=True)
    before, after, sizes, filled = map(int, done.stdout.split())
    assert before < sizes / 3
    assert after > sizes * 2 / 3
    assert 0 < filled < 8_000_000
