"""Openings of a store that come to nothing once its node was joined: the reason comes out, and nothing is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from turnkeeper.actors.client import client as client_module
from turnkeeper.actors.errors import NodeNotAnswering
from turnkeeper.actors.runtime_opening import open_runtime

pytestmark = pytest.mark.anyio


class Unanswering:
    """A place among the clients of a node whose writer says nothing; who waits for it is told so, if at all."""

    wanted = None

    def __init__(self, *, gives_up: bool) -> None:
        self.hello = {"store": "store", "writer": 7}
        self.gives_up = gives_up
        self.has_left = False

    async def receive(self) -> None:
        await anyio.sleep_forever()

    async def reach_writer(self) -> None:
        if self.gives_up:
            raise NodeNotAnswering(7, "stopped")
        await anyio.sleep_forever()

    async def leave(self) -> None:
        await anyio.lowlevel.checkpoint()
        self.has_left = True


@pytest.fixture
def unanswering(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Unanswering:
    """The place that every opening gets."""
    place = Unanswering(gives_up=request.param)

    async def join(*_: Any, **__: Any) -> Unanswering:
        return place

    monkeypatch.setattr(client_module, "join", join)
    return place


@pytest.mark.parametrize("unanswering", [True], indirect=True)
async def test_an_opening_says_that_the_writer_does_not_answer(unanswering: Unanswering, tmp_path: Path) -> None:
    """What comes out is the reason itself, and the node was told goodbye."""
    with pytest.raises(NodeNotAnswering):
        async with open_runtime(tmp_path):
            pytest.fail("the body must not run")
    assert unanswering.has_left


@pytest.mark.parametrize("unanswering", [False], indirect=True)
async def test_an_opening_that_waits_can_be_cancelled(unanswering: Unanswering, tmp_path: Path) -> None:
    """Cancelling ends it at once, and the node is told goodbye all the same."""
    with anyio.move_on_after(0.05) as scope:
        async with open_runtime(tmp_path):
            pytest.fail("the body must not run")
    assert scope.cancelled_caught
    assert unanswering.has_left
