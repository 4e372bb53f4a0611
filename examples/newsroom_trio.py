"""The newsroom on trio: `python newsroom_trio.py DIRECTORY`, as often as it takes."""

from __future__ import annotations

import sys
from pathlib import Path

import trio
from newsroom import gather

from turnkeeper import open_runtime


async def main(desk: Path) -> None:
    """Run the agents until the publisher, the last of them, has everything."""
    async with open_runtime(desk / "store") as runtime, trio.open_nursery() as nursery:
        *others, publisher = await gather(runtime, desk)
        for agent in others:
            nursery.start_soon(agent.run)
        await publisher.run()
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]))
