"""A reference to a supervised actor, which outlives its incarnations.

A message goes to the incarnation that is up. Between two, `ask` and `tell` wait for the next one, and `tell_nowait`
raises ActorNotStarted. What an incarnation certainly did not begin before it ended, `ask` asks of the next one, within
its timeout; what it may have begun is never delivered again: that ends with ActorUnknown, or with the handler's error.
A `tell` that waits in the mailbox of an incarnation that ends goes with it; ask for what must not be missed.
"""

from __future__ import annotations

from typing import Any, Protocol

import anyio

from ..actor_ref import ActorEnd, ActorRef, Down
from ..errors import ActorNotStarted, ActorUnknown
from ..letters import Arguments, Keywords, Letter
from ..mailbox import MailboxStatistics
from ..mailbox_ref import MailboxRef


class Gone(Exception):
    """There is no incarnation, and there will be none unless somebody asks the supervisor for it."""

    def __init__(self, end: ActorEnd) -> None:
        super().__init__(end.reason)
        self.end = end


class Incarnations(Protocol):
    """What a reference needs of its supervisor; `path` names a child, or goes down the tree."""

    def present(self, path: tuple[str, ...]) -> MailboxRef | None:
        """Give the incarnation that is up now."""

    async def wait_present(self, path: tuple[str, ...], but_not: ActorRef | None) -> MailboxRef:
        """Wait for one that is up, for another one than `but_not`. Raises Gone."""

    def gone(self, path: tuple[str, ...]) -> ActorEnd | None:
        """Say how the last one ended, if there will be no other; None if there is one, or will be."""

    async def monitor(self, name: str, *below: str) -> Down:
        """Wait until the present one has ended."""

    async def stop_below(self, path: tuple[str, ...], shutdown_seconds: float | None) -> ActorEnd:
        """Stop it for good."""


class PassedLetter:
    """A message on its way through the mailboxes of incarnations, to the first one that begins with it."""

    def __init__(self, ref: SupervisedRef, method: str, arguments: Arguments, keywords: Keywords) -> None:
        self.call = f"{ref.name}.{method}"
        self.reached: MailboxRef | None = None
        """The incarnation that it was last at the door of."""
        self.is_posted = False
        """Whether it is in that one's mailbox, or was taken out of it."""
        self._ref = ref
        self._message = (method, arguments, keywords)
        self._letter: Letter | None = None
        self._is_wanted = False

    def write_to(self, incarnation: MailboxRef) -> Letter:
        """Give it the form in which this incarnation takes it. Raises as `MailboxRef.write`."""
        if self._letter is None or incarnation is not self.reached:
            self.reached, self._letter = incarnation, incarnation.write(*self._message)
            self._letter.wanted = self._is_wanted
        return self._letter

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for the answer."""
        return self._is_wanted

    @wanted.setter
    def wanted(self, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        if self._letter is not None:
            self._letter.wanted = is_wanted

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.is_posted and self._letter is not None and self._letter.answered

    async def wait(self) -> Any:
        """Wait for the answer, of the next incarnation too if this one ends before it begins; return or raise it."""
        while True:
            try:
                return await self.answer()
            except ActorNotStarted:
                if self.reached is None or self.reached.takes_messages:
                    raise
            await self._ref.post(self)

    async def answer(self) -> Any:
        """Wait for what becomes of it in the mailbox that it is in; return or raise that."""
        assert self._letter is not None
        return await self._letter.wait()


class SupervisedRef(ActorRef):
    """A reference to one child of a supervisor. Stopping it is stopping the child, which then stays down."""

    def __init__(self, supervisor: Incarnations, path: tuple[str, ...]) -> None:
        super().__init__(path[-1])
        self._supervisor = supervisor
        self._path = path
        self._handlers: frozenset[str] = frozenset()

    async def ask(
        self,
        method: str,
        /,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
        **keywords: Any,
    ) -> Any:
        letter = self.write(method, arguments, keywords)
        letter.wanted = True
        try:
            with anyio.move_on_after(timeout):
                await self.post(letter)
                return await letter.wait()
            if letter.answered:
                return await letter.answer()
        finally:
            letter.wanted = False
        if letter.is_posted:
            raise ActorUnknown(letter.call, f"no answer within {timeout:g} s")
        if letter.reached is not None and letter.reached.takes_messages:
            raise ActorNotStarted(letter.call, f"no answer within {timeout:g} s, mailbox full")
        raise ActorNotStarted(letter.call, f"no incarnation of it was up within {timeout:g} s")

    async def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        await self.post(self.write(method, arguments, keywords))

    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        self.post_nowait(self.write(method, arguments, keywords))

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        return await self._supervisor.stop_below(self._path, shutdown_seconds)

    async def wait_ended(self) -> ActorEnd:
        """Wait until it has ended for good: stopped, finished, or with its supervisor."""
        ended: ActorRef | None = None
        while True:
            try:
                ended = await self._supervisor.wait_present(self._path, ended)
            except Gone as gone:
                last = self._supervisor.present(self._path)
                return gone.end if last is None else await last.wait_ended()
            await ended.wait_ended()

    async def monitor(self) -> Down:
        """Wait until the incarnation that is up now has ended and tell it; between two, how the last one did."""
        return await self._supervisor.monitor(*self._path)

    @property
    def end(self) -> ActorEnd | None:
        """How it ended for good; None while it lives or is to be started again."""
        return self._supervisor.gone(self._path)

    @property
    def takes_messages(self) -> bool:
        present = self._supervisor.present(self._path)
        return present is not None and present.takes_messages

    def statistics(self) -> MailboxStatistics:
        present = self._supervisor.present(self._path)
        return MailboxStatistics(0, 0, 0) if present is None else present.statistics()

    # -- For those who carry messages of others

    @property
    def handlers(self) -> frozenset[str]:
        """What it can be asked; between two incarnations, what the last one that was looked at could."""
        present = self._supervisor.present(self._path)
        if present is not None:
            self._handlers = present.handlers
        return self._handlers

    def write(self, method: str, arguments: Arguments, keywords: Keywords) -> PassedLetter:
        """Make a message to it. Raises as `ask` does if an incarnation is up; otherwise posting it does."""
        letter = PassedLetter(self, method, arguments, keywords)
        present = self._supervisor.present(self._path)
        if present is not None:
            letter.write_to(present)
        return letter

    async def post(self, letter: PassedLetter) -> None:
        """Put a message into the mailbox of the next incarnation that takes it, as `tell` does."""
        ended = letter.reached if letter.is_posted else None
        letter.is_posted = False
        while True:
            try:
                present = await self._supervisor.wait_present(self._path, ended)
            except Gone as gone:
                raise ActorNotStarted(letter.call, gone.end.reason) from None
            try:
                await present.post(letter.write_to(present))
            except ActorNotStarted:
                ended = present
            else:
                letter.is_posted = True
                return

    def post_nowait(self, letter: PassedLetter) -> None:
        """Put a message into the mailbox of the present incarnation, as `tell_nowait` does."""
        present = self._supervisor.present(self._path)
        if present is None:
            end = self.end
            raise ActorNotStarted(letter.call, "it is not up now" if end is None else end.reason)
        present.post_nowait(letter.write_to(present))
        letter.is_posted = True
