"""A process that opens a store again and again, as told on stdin: for tests that start many of them.

Commands, a line each: `open N SECONDS` joins, appends to a stream of its own for so long and says how long each joining
took; `node` says whose client it is; `leave` leaves. An answer is one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import anyio

from turnkeeper.actors.client.joining import Attachment, join
from turnkeeper.runtime.frame_socket import FrameSocket
from turnkeeper.runtime.frames import FrameError

from ..stores import event


class Opener:
    """A client with nothing but frames: what isn't acknowledged is sent again, over a connection that stands."""

    def __init__(self, path: str, name: str) -> None:
        self._path = path
        self._name = name
        self._joined: list[float] = []
        self._attachment: Attachment | None = None
        self._writer: FrameSocket | None = None

    async def open(self, number: str, seconds: str) -> dict[str, Any]:
        """Join and append; say how many seconds each joining took and how many events were acknowledged."""
        self._joined = []
        await self._join(first=True)
        over = time.monotonic() + float(seconds)
        stream = f"{self._name}-{number}"
        seq = 0
        while time.monotonic() < over:
            append = [stream, 1, seq, event(stream, seq), None if seq else {"id": stream}, None, seq == 0]
            _, (result,) = await self._append([seq, [append]])
            assert result[:2] == [seq, seq + 1], f"event {seq} was answered by {result}"
            seq += 1
        return {"joined": self._joined, "acknowledged": seq}

    async def node(self) -> dict[str, Any]:
        """Say whose client this process is now; one who died is replaced first."""
        attachment = await self._living()
        return {"node": attachment.hello["pid"]}

    async def leave(self) -> dict[str, Any]:
        """Say goodbye."""
        if self._writer is not None:
            self._writer.close()
        if self._attachment is not None:
            await self._attachment.leave()
        self._writer = self._attachment = None
        return {}

    async def _join(self, *, first: bool) -> Attachment:
        begun = time.monotonic()
        self._attachment = await join(self._path, create=True, first=first)
        self._joined.append(time.monotonic() - begun)
        return self._attachment

    async def _living(self) -> Attachment:
        """Return the attachment, made anew if its node has died."""
        assert self._attachment is not None
        message: Any = {}
        while message is not None:
            with anyio.move_on_after(0.02) as waiting:
                message = await self._attachment.receive()
            if waiting.cancelled_caught:
                return self._attachment
        self._attachment.close()
        return await self._join(first=False)

    async def _append(self, frame: list[Any]) -> Any:
        while True:
            try:
                if self._writer is None:
                    assert self._attachment is not None
                    self._writer, _ = await self._attachment.reach_writer()
                await self._writer.send(frame)
                answer = await self._writer.receive()
                if answer is not None:
                    return answer
            except (OSError, FrameError):
                pass
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            await self._living()


async def main(path: str, name: str) -> None:
    """Obey stdin until it ends."""
    opener = Opener(path, name)
    for line in sys.stdin:
        command, *arguments = line.split()
        answer = await getattr(opener, command)(*arguments)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], backend=sys.argv[3])
