"""Actors: plain classes whose async methods handle one message at a time, and the references through which others ask.

The public coroutine methods of a class are its handlers. If it has `__aenter__` and `__aexit__`, they bracket its life.
Its reference (actor_ref.py) is the same for an actor in the loop and for one in a worker process (worker.py): a bounded
mailbox in this loop, in front of whatever does the work. An actor ends when it is stopped, when its task group is
cancelled, or when it fails: when a handler raises what is no registered error (errors.py). It isn't started again here.

An actor's end never cancels its task group. The ask that met a failure is told of it, every later ask and tell is told
how the actor ended, and `stop` raises what nobody was told of: the error of a tell or of `__aexit__`. Only an error of
`__aexit__` while the task group is being cancelled leaves through the group, as from any task.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import anyio
from anyio.abc import TaskGroup, TaskStatus

from .actor_ref import ActorEnd, ActorRef
from .errors import ActorNotStarted, ActorUnknown, actor_error, is_answer
from .mailbox import BYTES_MAX, MESSAGES_MAX, Mailbox, MailboxClosed, MailboxStatistics

SHUTDOWN_SECONDS = 3.0
"""How long an actor that is stopped may take to handle what it has and to leave, if nothing else is said. With the two
seconds that a process has after SIGTERM, all is over in five."""

VALUE_BYTES = 16
"""What each value of a message counts for in a mailbox, beside its text or bytes."""

Arguments: TypeAlias = tuple[Any, ...]
Keywords: TypeAlias = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


class Sealed(NamedTuple):
    """A message in the form in which its actor takes it, and what it counts for in the mailbox, in bytes."""

    message: Any
    size: int


class Letter:
    """One message on its way through a mailbox, with the place for its answer."""

    def __init__(self, call: str, message: Any, size: int) -> None:
        self.call = call
        self.message = message
        self.size = size
        self.begun = False
        """Whether the actor may have seen it. Set before it can."""
        self.wanted = False
        """Whether somebody waits for the answer."""
        self.answered = False
        """Whether there is an answer. The first one counts."""
        self._answer_known: anyio.Event | None = None
        self._reply: Any = None
        self._error: Exception | None = None

    def reply(self, value: Any) -> None:
        """Answer with a value."""
        self._answer(value, None)

    def fail(self, error: Exception) -> None:
        """Answer with an exception."""
        self._answer(None, error)

    def lose(self, reason: str, cause: Exception | None = None) -> None:
        """Answer that there will be no answer; `cause` is what ended the actor while it was at it."""
        error = ActorUnknown(self.call, reason) if self.begun else ActorNotStarted(self.call, reason)
        error.__cause__ = cause
        self.fail(error)

    async def wait(self) -> Any:
        """Wait for the answer; return or raise it."""
        if not self.answered:
            # Made only here: nobody waits for tells, and an event is a good part of what a letter costs.
            if self._answer_known is None:
                self._answer_known = anyio.Event()
            await self._answer_known.wait()
        if self._error is not None:
            raise self._error
        return self._reply

    def _answer(self, value: Any, error: Exception | None) -> None:
        if not self.answered:
            self._reply, self._error, self.answered = value, error, True
            if self._answer_known is not None:
                self._answer_known.set()


class LetterLost(Exception):
    """Raised instead of handling a letter: whoever should do it will never answer."""


class LetterRefused(Exception):
    """Raised by handling a letter: the actor answers with this error, and lives on."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class MailboxRef(ActorRef):
    """A reference with the actor's mailbox in it."""

    def __init__(self, name: str, mailbox: Mailbox[Letter], shutdown_seconds: float) -> None:
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
        self._at_end: list[Callable[[], None]] = []
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

    def call_at_end(self, call: Callable[[], None]) -> None:
        """Have this called when the actor has ended, before anybody is told; now if it has."""
        if self._end is None:
            self._at_end.append(call)
        else:
            call()

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
        return self._ref._shutdown_seconds if deadline is None else max(0.0, deadline - anyio.current_time())

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
            call()
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


async def spawn_in_loop(
    task_group: TaskGroup,
    actor: Callable[..., Any],
    *arguments: Any,
    name: str | None = None,
    messages_max: int = MESSAGES_MAX,
    bytes_max: int = BYTES_MAX,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
) -> MailboxRef:
    """Make an actor by `actor(*arguments)`, a class or what makes one, in this loop; return once it is ready.

    It lives in the task group until it ends. What is sent to it is handed on as it is, not copied; its mailbox counts
    the text and bytes in it. Cancelled before the actor is ready, nothing of it is left.

    Raises:
        TypeError: `actor` makes none.
        Exception: What its constructor or its `__aenter__` raised, as it is.
    """
    maker: object = actor
    if not callable(maker) or inspect.iscoroutinefunction(maker):
        raise TypeError(f"an actor is made by a class, or by a function that returns one, and not by {maker!r}")
    mailbox = Mailbox[Letter](messages_max=messages_max, bytes_max=bytes_max)
    ref = MailboxRef(name or str(getattr(actor, "__name__", "actor")), mailbox, shutdown_seconds)
    await task_group.start(without_interrupts(_live_in_loop), Life(ref), actor, arguments, name=ref.name)
    return ref


async def _live_in_loop(
    life: Life, make: Callable[..., Any], arguments: Arguments, *, task_status: TaskStatus[None]
) -> None:
    failure: Exception | None = None
    try:
        with life.scope:
            actor = make(*arguments)
            async with AsyncExitStack() as stack:
                if hasattr(actor, "__aenter__"):
                    await stack.enter_async_context(actor)
                life.begin(handlers_of(type(actor)))
                task_status.started()
                failure = await life.handle_letters(partial(_handle_in_loop, actor))
                if failure is not None:
                    raise failure
    except Exception as error:
        life.end_with(error, failure)
    except BaseException:
        life.finish("it was cancelled")
        raise
    else:
        life.finish("it was stopped", normal=True)


async def _handle_in_loop(actor: Any, letter: Letter) -> Any:
    method, arguments, keywords = letter.message
    letter.begun = True
    try:
        return await getattr(actor, method)(*arguments, **keywords)
    except Exception as error:
        if is_answer(error):
            raise LetterRefused(error) from None
        raise


def handlers_of(actor_class: type) -> frozenset[str]:
    """Return the names of a class's handlers: its public coroutine methods."""
    return frozenset(
        name for name, method in inspect.getmembers(actor_class, inspect.iscoroutinefunction) if name[0] != "_"
    )


def seal_in_loop(method: str, arguments: Arguments, keywords: Keywords) -> Sealed:
    """Leave a message as it is, and weigh it."""
    return Sealed((method, arguments, keywords), _weight(arguments) + _weight(keywords))


def without_interrupts(function: Function) -> Function:
    """Keep trio from raising KeyboardInterrupt inside the async function; trio raises it in the main task instead.

    Other loops never raise it inside a task of ours. trio is not imported for this: where it runs, it is there.
    """
    trio = sys.modules.get("trio")
    protected: Function = function if trio is None else trio.lowlevel.enable_ki_protection(function)
    return protected


def _weight(value: Any) -> int:
    if isinstance(value, str | bytes | bytearray | memoryview):
        return len(value) + VALUE_BYTES
    if isinstance(value, Mapping):
        return VALUE_BYTES + sum(_weight(key) + _weight(content) for key, content in value.items())
    if isinstance(value, list | tuple):
        return VALUE_BYTES + sum(map(_weight, value))
    return VALUE_BYTES
