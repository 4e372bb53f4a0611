"""A supervisor tree with an actor that crashes: who is started again, what a monitor tells, and when all gives up.

`python supervised.py DIRECTORY [trio|asyncio]` tells what happens, and ends by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import anyio

from turnkeeper import ActorError, ActorNotStarted, ActorRef, ChildSpec, RestartPolicy, Tree, open_runtime


class Reader:
    """Tells how long words are, and counts the texts; an empty text is its bug."""

    def __init__(self) -> None:
        self._texts = 0

    async def read(self, text: str) -> tuple[float, int]:
        """Return the mean length of the words, and how many texts there were."""
        words = text.split()
        self._texts += 1
        return sum(map(len, words)) / len(words), self._texts


async def tick(*, started: Callable[[], None]) -> None:
    """Be a child that is no actor: a function that is ready when it says so, and lives until it returns."""
    started()
    await anyio.sleep_forever()


def policy(intensity: int) -> RestartPolicy:
    """Allow so many restarts a minute, each after 10 ms."""
    return RestartPolicy(intensity, period_seconds=60, backoff_first=0.01, backoff_max=0.01)


READERS = Tree(
    # When one of them dies, those behind it are started again with it, in this order.
    (ChildSpec("first", Reader), ChildSpec("second", Reader), ChildSpec("third", Reader)),
    strategy="rest_for_one",
    policy=policy(intensity=2),
)


async def main(store: str) -> None:
    """Crash one reader until its supervisor gives up, again and again, until that one's supervisor does, too."""
    async with open_runtime(store) as runtime:
        children = ChildSpec("clock", tick), ChildSpec("readers", READERS)
        root = await runtime.supervise(*children, policy=policy(intensity=1), name="root")
        first, second, third = (root.ref("readers", name) for name in ("first", "second", "third"))
        for reader in (first, second, third):
            await reader.ask("read", "a text")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell_end, second)
            await crash(second)
        # The references go to the new ones, which know nothing of what the old ones knew.
        for reader in (second, first, third):
            print(f"{reader.name} has read {(await reader.ask('read', 'a text'))[1]}")
        while await crash(second):
            print(*(f"{child.name} {child.phase}, {child.restarts} restarts;" for child in root.children()))
        print(f"{root.name}: {(await root.wait_ended()).reason}")  # told here, it isn't raised on leaving


async def crash(reader: ActorRef) -> bool:
    """Ask what a reader fails at, and say whether there was one. That message is never given to another one."""
    try:
        await reader.ask("read", "")
    except ActorError as error:
        print(f"{reader.name} failed: {error}")
    except ActorNotStarted as error:
        print(error)
        return False
    return True


async def tell_end(actor: ActorRef) -> None:
    """Wait until the actor, as it is now, has ended."""
    down = await actor.monitor()
    print(f"monitor: {down.name} is down, {down.reason}")


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], backend=sys.argv[2] if len(sys.argv) > 2 else "asyncio")
