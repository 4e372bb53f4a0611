"""Contract of child specs: what can be a child, and that mistakes show where they are written."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from turnkeeper.runtime.supervision.child_spec import ChildSpec, Tree


class Idler:
    """An actor that does nothing."""

    async def idle(self) -> None:
        """Do nothing."""


class Deaf:
    """What can't be asked anything."""


class Caller:
    """An object that is called as an async function is."""

    async def __call__(self, *, started: Callable[[], None]) -> None:
        """Be ready at once, and end."""
        started()


async def idle(place: str, *, started: Callable[[], None]) -> None:
    """Be ready at once, and end."""
    started()


@pytest.mark.parametrize(
    ("spec", "is_actor", "is_function"),
    [
        (ChildSpec("a class", Idler), True, False),
        (ChildSpec("what makes an actor", lambda: Idler()), True, False),
        (ChildSpec("a worker", Idler, process=True), True, False),
        (ChildSpec("a worker by name", "some.module:Idler", process=True), True, False),
        (ChildSpec("a function", idle, ("here",)), False, True),
        (ChildSpec("a callable object", Caller()), False, True),
        (ChildSpec("a function with arguments", partial(idle, "here")), False, True),
        (ChildSpec("a tree", Tree((ChildSpec("leaf", Idler),))), False, False),
    ],
    ids=lambda value: value.name if isinstance(value, ChildSpec) else "",
)
def test_a_child_is_an_actor_a_function_or_a_tree(spec: ChildSpec, is_actor: bool, is_function: bool) -> None:
    """What is to be started says which."""
    assert (spec.is_actor, spec.is_function) == (is_actor, is_function)


spec: Any = ChildSpec
tree: Any = Tree


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (partial(spec, "deaf", Deaf), "Deaf is no actor's class: it has no handler, a public async method"),
        (partial(spec, "", Idler), "a child needs a name, not ''"),
        (partial(spec, Idler, "clerk"), "a child needs a name, not <class"),
        (partial(spec, "clerk", Idler, "abc"), "the arguments of child 'clerk' have to be a tuple, not 'abc'"),
        (
            partial(spec, "clerk", Idler, restart="always"),
            "'clerk' is permanent or transient or temporary, not 'a",
        ),
        (partial(spec, "clerk", Idler, blocked_seconds=0), "blocked after some seconds, not 0"),
        (partial(spec, "clerk", Idler, shutdown_seconds=-1), "'clerk' needs shutdown_seconds from 0 on, or None"),
        (partial(spec, "clerk", Idler, shutdown_seconds=float("nan")), "'clerk' needs shutdown_seconds from 0 on"),
        (partial(spec, "clerk", Idler, ready_seconds=0), "'clerk' needs .* ready_seconds"),
        (partial(spec, "clerk", Idler, messages_max=0), "'clerk' needs room for one message"),
        (partial(spec, "clerk", 7), "'clerk' can't be started: 7 is no class, function or Tree"),
        (partial(spec, "clerk", "module:Clerk"), "'clerk' is given by name, 'module:Clerk', which needs process"),
        (partial(spec, "clerk", idle, process=True), "'clerk' can't be a process: <function idle"),
        (partial(spec, "branch", Tree(()), process=True), "'branch' can't be a process: Tree"),
        (partial(spec, "branch", Tree(()), ("a",)), "'branch' is a tree, which takes no arguments"),
        (partial(tree, (), strategy="all_for_one"), "a strategy is one_for_one, one_for_all, rest_for_one, not 'all_"),
        (partial(tree, ChildSpec("clerk", Idler)), "have to be a tuple of ChildSpec"),
        (partial(tree, (Idler,)), "have to be a tuple of ChildSpec"),
        (partial(tree, (ChildSpec("clerk", Idler),) * 2), "2 children of one supervisor have the name 'clerk'"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(make: Callable[[], Any], said: str) -> None:
    """With one line that names the child and what is wrong with it, before anything is started."""
    with pytest.raises((TypeError, ValueError), match=said) as caught:
        make()
    assert "\n" not in str(caught.value)
