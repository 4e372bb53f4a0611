"""Wake the node up: something has changed in a task's directory.

A datagram is a wake-up and never the truth, so nothing waits until it is heard and nobody misses one that is lost.
"""

from __future__ import annotations

import socket

TASK_SOCKET = "../../task.sock"
"""What the node binds, from a task's directory."""

# Plain numbers, and below a socket without the comforts of Python's own: what runs in a shim is a copy for each.
_FAMILY = int(socket.AF_UNIX)
_KIND = int(socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


class Bell:
    """What one shim tells the node, in order; its present directory is the task's."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._unheard: list[bytes] = []

    @property
    def is_silent(self) -> bool:
        """Whether nothing is left to tell."""
        return not self._unheard

    def ring(self, word: str) -> None:
        """Tell the node a word about the task."""
        self._unheard.append(f"{word} {self._task}".encode())
        self.ring_again()

    def ring_again(self) -> None:
        """Tell what the node had no room for. With no node, nothing is left to tell: it looks when it comes."""
        if self.is_silent:
            return
        try:
            bell = socket.SocketType(_FAMILY, _KIND)
            try:
                while self._unheard:
                    bell.sendto(self._unheard[0], TASK_SOCKET)
                    del self._unheard[0]
            finally:
                bell.close()
        except BlockingIOError:
            pass
        except OSError:
            self._unheard.clear()
