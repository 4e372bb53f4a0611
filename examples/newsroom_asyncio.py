"""The newsroom on asyncio: `python newsroom_asyncio.py DIRECTORY`, as often as it takes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from newsroom import gather

from turnkeeper import open_runtime


async def main(desk: Path) -> None:
    """Run the agents until the publisher, the last of them, has everything."""
    async with open_runtime(desk / "store") as runtime, asyncio.TaskGroup() as group:
        *others, publisher = await gather(runtime, desk)
        tasks = [group.create_task(agent.run()) for agent in others]
        await publisher.run()
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
