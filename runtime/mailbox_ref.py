"""The two sides of an actor's mailbox: the reference through which others ask, and the one task that runs the actor.

An actor's end never cancels its task group. The ask that met a failure is told of it, every later ask and tell is told
how the actor ended, and `stop` raises what nobody was told of: the error of a tell or of `__aexit__`. Only an error of
`__aexit__` while the task group is being cancelled leaves through the group, as from any task.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio

from .actor_ref import ActorEnd, ActorRef
from .errors import ActorNotStarted, ActorUnknown, actor_error, is_answer
from .letters import Arguments, Keywords, Letter, LetterLost, LetterRefused, Sealed, seal_in_loop
from .mailbox import Mailbox, MailboxClosed, MailboxStatistics


class MailboxRef(ActorRef):
    """A reference with the actor's mailbox in it."""

    def __init__(self, name: str, mailbox: Mailbox[Letter], shutdown_seconds: float | None) -> None:
        super().__init__(name)
        self._mailbox = mailbox
        self._shutdown_seconds = shutdown_seconds
        self._handlers: frozenset[str] = frozenset()
        self._seal: Callable[[str, Arguments, Keywords], Sealed] = seal_in_loop
        self._scope = anyio.CancelScope()
        self._send_ahead: Callable[[Letter], None] | None = None
        self._is_idle = False
        self._at_hand: Letter | None = None
        self._stop_deadline: float | None = None
        self._kill_wished = anyio.Event()
        self._end: ActorEnd | None = None
        self._end_known = anyio.Event()
        self._at_end: list[Callable[[ActorEnd], None]] = []
        self._untold: Exception | None = None

    async def ask(
        self,
        method: str,
        /,
        *arguments: Any,
        timeout: float | None = None,  # noqa: ASYNC109
        **keywords: Any,
    ) -> Any:
        letter = self.write(method, arguments, keywords)
        letter.wanted, posted = True, False
        try:
            if timeout is None:  # a scope would be a quarter of what an ask in the loop costs
                await self.post(letter)
                return await letter.wait()
            with anyio.move_on_after(timeout):
                await self.post(letter)
                posted = True
                return await letter.wait()
            if letter.answered:
                return await letter.wait()
        finally:
            letter.wanted = False
        reason = f"no answer within {timeout:g} s"
        raise ActorUnknown(letter.call, reason) if posted else ActorNotStarted(letter.call, f"{reason}, mailbox full")

    async def tell(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        await self.post(self.write(method, arguments, keywords))

    def tell_nowait(self, method: str, /, *arguments: Any, **keywords: Any) -> None:
        self.post_nowait(self.write(method, arguments, keywords))

    async def stop(self, shutdown_seconds: float | None = None) -> ActorEnd:
        seconds = self._shutdown_seconds if shutdown_seconds is None else shutdown_seconds
        if seconds is None:
            return await self.kill()
        self._stop_deadline = anyio.current_time() + seconds
        self._mailbox.close()
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(seconds):
                await self._end_known.wait()
            self._scope.cancel()
            end = await self.wait_ended()
        untold, self._untold = self._untold, None
        if untold is not None:
            raise untold
        return end

    async def kill(self) -> ActorEnd:
        self._kill_wished.set()
        return await self.stop(0)

    async def wait_ended(self) -> ActorEnd:
        await self._end_known.wait()
        assert self._end is not None
        return self._end

    @property
    def end(self) -> ActorEnd | None:
        return self._end

    @property
    def takes_messages(self) -> bool:
        return not self._mailbox.closed

    def statistics(self) -> MailboxStatistics:
        return self._mailbox.statistics()

    # -- For those who carry messages of others

    @property
    def handlers(self) -> frozenset[str]:
        """What the actor can be asked."""
        return self._handlers

    def call_at_end(self, call: Callable[[ActorEnd], None]) -> None:
        """Have this called when the actor has ended, with how, before anybody is told; now if it has."""
        if self._end is None:
            self._at_end.append(call)
        else:
            call(self._end)

    def write(self, method: str, arguments: Arguments, keywords: Keywords) -> Letter:
        """Make a message that the actor can take. Raises AttributeError and TypeError as `ask` does."""
        if method not in self._handlers:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise AttributeError(f"{self.name} has no handler {method!r}; its handlers: {known}")
        message, size = self._seal(method, arguments, keywords)
        return Letter(f"{self.name}.{method}", message, size)

    async def post(self, letter: Letter) -> None:
        """Put a message into the mailbox, as `tell` does; its answer is the letter's."""
        try:
            await self._mailbox.put(letter, letter.size)
            self._begin_ahead(letter)
        except MailboxClosed:
            if self._stop_deadline is None:
                # It is ending by itself, which takes moments, and how it ended belongs into the error.
                await self._end_known.wait()
            raise self._refusal(letter) from None

    def post_nowait(self, letter: Letter) -> None:
        """Put a message into the mailbox, as `tell_nowait` does."""
        try:
            self._mailbox.put_nowait(letter, letter.size)
            self._begin_ahead(letter)
        except MailboxClosed:
            raise self._refusal(letter) from None

    def _begin_ahead(self, letter: Letter) -> None:
        """Send the letter that the actor's task will take next, while that task is yet to be woken."""
        if self._send_ahead is not None and self._is_idle:
            self._is_idle = False
            self._send_ahead(letter)

    def _refusal(self, letter: Letter) -> ActorNotStarted:
        return ActorNotStarted(letter.call, self._end.reason if self._end else "it is ending")


class Life:
    """The other side of a reference, for the one task that runs its actor."""

    def __init__(self, ref: MailboxRef) -> None:
        self._ref = ref

    @property
    def scope(self) -> anyio.CancelScope:
        """What the actor lives in; cancelled when stopping it takes too long."""
        return self._ref._scope

    @property
    def stopping(self) -> bool:
        """Whether somebody stops the actor, and so will be told of its errors."""
        return self._ref._stop_deadline is not None

    @property
    def kill_wished(self) -> anyio.Event:
        """Set when its end must not wait for anything."""
        return self._ref._kill_wished

    def seconds_left(self) -> float:
        """How long the actor, whose end has begun, may still take."""
        deadline = self._ref._stop_deadline
        return (self._ref._shutdown_seconds or 0.0) if deadline is None else max(0.0, deadline - anyio.current_time())

    def take_no_more(self) -> None:
        """Close the mailbox: the actor is about to end. What is in it is still handed out."""
        self._ref._mailbox.close()

    def begin(
        self,
        handlers: frozenset[str],
        seal: Callable[[str, Arguments, Keywords], Sealed] | None = None,
        send_ahead: Callable[[Letter], None] | None = None,
    ) -> None:
        """Say what the actor can be asked, and how messages are sealed for it.

        `send_ahead` may begin with a letter that comes while none is being handled and none waits. It is handed out as
        all others are, a moment later.
        """
        self._ref._handlers = handlers
        self._ref._seal = seal or self._ref._seal
        self._ref._send_ahead = send_ahead

    async def handle_letters(self, handle: Callable[[Letter], Awaitable[Any]]) -> Exception | None:
        """Have letter after letter handled and answered, until the mailbox is closed and empty, or a handler fails.

        Returns the error with which it failed; its sender was told, or `stop` will tell. Raises LetterLost as
        `handle` does: `finish` then answers that letter and those behind it.
        """
        ref = self._ref
        while True:
            ref._is_idle = ref._mailbox.empty
            try:
                letter = ref._at_hand = await ref._mailbox.get()
            except MailboxClosed:
                return None
            finally:
                ref._is_idle = False
            try:
                value = await handle(letter)
            except LetterLost:
                raise
            except LetterRefused as refused:
                self._tell(letter, refused.error)
            except Exception as error:
                self.take_no_more()  # first: what somebody tells it who has heard of its failure would be lost with it
                self._tell(letter, actor_error(error))
                return error
            else:
                ref._at_hand = None
                letter.reply(value)

    def end_with(self, error: Exception, failure: Exception | None) -> None:
        """Say that the actor has ended with an error: the handler's `failure` coming out, or another one.

        Raises:
            Exception: The error itself, where neither a sender nor `stop` is there to be told of it.
        """
        told = error if is_answer(error) else actor_error(error)
        self.finish(f"it failed: {actor_error(error)}", told)
        if failure is None and not self.stopping:
            raise error
        if error is not failure:
            self._keep_untold(told)

    def finish(self, reason: str, error: Exception | None = None, *, normal: bool = False) -> None:
        """Say that the actor has ended, and answer every letter that it leaves."""
        ref = self._ref
        ref._end = ActorEnd(reason, error, normal)
        ref._mailbox.close()
        for call in ref._at_end:
            call(ref._end)
        if ref._at_hand is not None:
            ref._at_hand.lose(reason, error)
        for letter in ref._mailbox.take_all():
            letter.lose(reason)
        ref._end_known.set()

    def _tell(self, letter: Letter, error: Exception) -> None:
        self._ref._at_hand = None
        if not letter.wanted:
            self._keep_untold(error)
        letter.fail(error)

    def _keep_untold(self, error: Exception) -> None:
        # The first one counts: what follows may follow from it.
        self._ref._untold = self._ref._untold or error
