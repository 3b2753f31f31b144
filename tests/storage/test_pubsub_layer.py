"""The pub/sub of a channel layer: what happens when the layer is silent or fails."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import aclosing
from typing import Any

import pytest

from mcp_django.storage import pubsub
from mcp_django.storage.inbox import worker_id
from mcp_django.storage.versions import TopicKey
from tests.transports.stage import PATIENCE

TOOLS = TopicKey("store", "tools")


class SilenceError(Exception):
    """A timeout of the Redis client, whose class is not Python's."""


SilenceError.__name__ = "TimeoutError"


class Layer:
    """A channel layer that returns or raises what the test gave it."""

    def __init__(self, *given: Any) -> None:
        self._given = deque(given)
        self.done: list[str] = []

    async def new_channel(self, prefix: str) -> str:
        self.done.append("channel")
        return f"{prefix}.1"

    async def group_add(self, group: str, channel: str) -> None:
        self.done.append("join")

    async def group_discard(self, group: str, channel: str) -> None:
        self.done.append("leave")

    async def receive(self, channel: str) -> Any:
        given = self._given.popleft()
        if isinstance(given, Exception):
            raise given
        return given


def rung(sender: int) -> dict[str, Any]:
    return {"type": pubsub.MESSAGE_TYPE, "from": sender, "topics": [["store", "tools", ""]]}


async def first_ring(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> list[TopicKey]:
    monkeypatch.setattr(pubsub, "shared_layer", lambda: layer)
    monkeypatch.setattr(pubsub, "BACKOFF_SECONDS", 0)
    async with asyncio.timeout(PATIENCE), aclosing(pubsub.receive_topics()) as rings:
        return await anext(rings)


async def test_silence_is_no_reason_to_leave(monkeypatch, caplog):
    layer = Layer(SilenceError(), TimeoutError(), rung(1))
    assert await first_ring(layer, monkeypatch) == [TOOLS]
    assert layer.done == ["channel", "join", "leave"]
    assert caplog.messages == []


async def test_a_layer_that_fails_is_joined_again(monkeypatch, caplog):
    gone = ConnectionError("gone")
    layer = Layer(gone, gone, rung(1))
    assert await first_ring(layer, monkeypatch) == [TOOLS]
    assert layer.done == ["channel", "join"] * 3 + ["leave"]
    # Logged once, however often it fails within a minute.
    assert caplog.messages == ["The channel layer could not receive."]


async def test_nobody_hears_his_own_ring_twice(monkeypatch):
    other = {**rung(1), "topics": [["store", "prompts", ""]]}
    layer = Layer(rung(worker_id()), other)
    assert await first_ring(layer, monkeypatch) == [TopicKey("store", "prompts")]


class QuietLayer(Layer):
    """A layer that is silent until it has been joined three times, and closes as pub/sub does."""

    def __init__(self) -> None:
        super().__init__()
        self._is_joined_again = asyncio.Event()
        self.is_open = False

    async def new_channel(self, prefix: str) -> str:
        self.is_open = True
        return await super().new_channel(prefix)

    async def group_add(self, group: str, channel: str) -> None:
        assert self.is_open, "There is no such channel."
        await super().group_add(group, channel)
        if self.done.count("join") == 3:
            self._is_joined_again.set()

    async def receive(self, channel: str) -> Any:
        try:
            await self._is_joined_again.wait()
        except asyncio.CancelledError:
            self.is_open = False
            raise
        return rung(1)


async def test_a_quiet_layer_is_joined_again_and_nothing_is_missed_meanwhile(monkeypatch, caplog):
    monkeypatch.setattr(pubsub, "REJOIN_SECONDS", 0.001)
    layer = QuietLayer()
    assert await first_ring(layer, monkeypatch) == [TOOLS]
    assert layer.done[:4] == ["channel", "join", "join", "join"]
    assert caplog.messages == []
