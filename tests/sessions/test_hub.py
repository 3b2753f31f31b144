"""The hub's own tasks: they end when nobody listens, and go on when something fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mcp_django.store import bell
from mcp_django.store.hub import hub
from mcp_django.store.topics import Topic

PATIENCE = 5
STREAM = Topic("", "stream", "1")


class DeafLayer:
    """A layer that forgets that it was cancelled, as Redis clients do on Python 3.11."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.is_left = asyncio.Event()

    async def new_channel(self, prefix: str) -> str:
        return prefix

    async def group_add(self, group: str, channel: str) -> None: ...

    async def group_discard(self, group: str, channel: str) -> None:
        self.is_left.set()

    async def receive(self, channel: str) -> dict[str, Any]:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return {"type": bell.KIND, "topics": [["", "stream", "1"]]}
        raise AssertionError("unreachable")


def listen() -> Callable[[], None]:
    return hub().subscribe([STREAM], lambda _: None)


async def nobody_else_works() -> bool:
    """Whether this test's own task is the only one left."""
    async with asyncio.timeout(PATIENCE):
        while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
    return True


async def test_a_cancellation_that_gets_lost_in_the_layer_ends_the_hub_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = DeafLayer()
    monkeypatch.setattr(bell, "shared_layer", lambda: layer)
    leave = listen()
    async with asyncio.timeout(PATIENCE):
        await layer.is_asked.wait()
        leave()
        await layer.is_left.wait()
    assert await nobody_else_works()


async def test_a_hub_that_stumbles_begins_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks = asyncio.Event()
    stumbles = iter([True])

    def poll_seconds() -> float:
        if next(stumbles, False):
            raise LookupError("no such layer")
        looks.set()
        return 60

    monkeypatch.setattr(bell, "poll_seconds", poll_seconds)
    monkeypatch.setattr("mcp_django.store.hub.BACKOFF_SECONDS", 0)
    leave = listen()
    async with asyncio.timeout(PATIENCE):
        await looks.wait()
    leave()
    assert await nobody_else_works()
    assert "The hub stumbled; it begins again." in caplog.messages
