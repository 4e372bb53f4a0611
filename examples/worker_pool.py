"""A pool of worker processes for work that keeps a processor busy, with a job that fails and one that never ends.

`python worker_pool.py DIRECTORY [trio|asyncio]` tells what became of each job, and ends by itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import anyio

from turnkeeper import ActorError, ActorNotStarted, ActorUnknown, ChildSpec, Supervisor, open_runtime

WORKERS = [f"worker-{number}" for number in range(1, max(2, os.cpu_count() or 1) + 1)]
JOB_SECONDS_MAX = 4.0
JOBS = [5_000, 10_000, -1, 15_000, 0, 20_000]


class Counter:
    """Counts primes, the slow way. It blocks its loop, which in a process of its own is nobody else's."""

    async def count(self, below: int) -> int:
        """Return how many primes there are below a number."""
        if below < 0:
            raise ValueError(f"{below} is no number to count to")
        while below == 0:
            pass
        return sum(all(number % divisor for divisor in range(2, int(number**0.5) + 1)) for number in range(2, below))


async def main(store: str) -> None:
    """Have the jobs done by whichever worker is free."""
    async with open_runtime(store) as runtime:
        # None: a worker that is stopped is killed at once. One that counts for ever wouldn't heed anything else.
        children = [ChildSpec(name, Counter, process=True, shutdown_seconds=None) for name in WORKERS]
        pool = await runtime.supervise(*children, name="pool")
        jobs = iter(JOBS)
        async with anyio.create_task_group() as tasks:
            for name in WORKERS:
                tasks.start_soon(keep_busy, pool, name, jobs)
        print(f"{sum(child.restarts for child in pool.children())} restarts")


async def keep_busy(pool: Supervisor, name: str, jobs: Iterator[int]) -> None:
    """Give one worker job after job, until there are no more."""
    worker = pool.ref(name)
    for job in jobs:
        try:
            print(f"{await worker.ask('count', job, timeout=JOB_SECONDS_MAX)} primes below {job}")
        except ActorError as error:  # what the handler raised; the next ask goes to the worker's successor
            print(f"{job} failed: {error}")
        except ActorUnknown as error:  # it may be at it still
            print(f"{job} was given up: {error}")
            await pool.restart_child(name)
        except ActorNotStarted as error:  # nobody began with it, so another one may
            print(f"{job} is left: {error}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend=sys.argv[2] if len(sys.argv) > 2 else "asyncio")
