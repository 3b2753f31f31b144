"""The bell between processes: a channel layer that carries the names of topics, never payloads.

One channel for each process, in one group. A ring may get lost and costs latency then, never data.
Without a layer, or with one that lives in memory, processes find out by polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import InMemoryChannelLayer, get_channel_layer

from mcp_django.conf import get_settings
from mcp_django.store.topics import Topic
from mcp_django.store.workers import worker_id

logger = logging.getLogger("mcp_django")

GROUP = "mcp_django.bell"
KIND = "mcp_django.ring"
# A layer forgets members after a while; it is told again long before.
REJOIN_SECONDS = 60
STOP_ATTEMPTS = 3
BACKOFF_SECONDS = 1

_sending: set[asyncio.Task[None]] = set()


def shared_layer() -> Any:
    """The layer that reaches other processes, ``None`` when there is none."""
    layer = get_channel_layer(get_settings().channel_layer)
    return None if layer is None or isinstance(layer, InMemoryChannelLayer) else layer


def poll_seconds() -> float:
    """How long a process goes without looking by itself."""
    settings = get_settings()
    if settings.poll_seconds is not None:
        return settings.poll_seconds
    return 0.5 if shared_layer() is None else 5.0


def send(topics: Iterable[Topic], loop: asyncio.AbstractEventLoop | None) -> None:
    """Ring in all other processes; ``loop`` is one of this process that serves, if there is one."""
    layer = shared_layer()
    if layer is None:
        return
    message = {
        "type": KIND,
        "from": worker_id(),
        "topics": [[one.server, one.kind, one.uri] for one in topics],
    }
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not None:
        _spawn(layer, message)
    elif loop is not None:
        loop.call_soon_threadsafe(_spawn, layer, message)
    else:
        async_to_sync(_send)(layer, message)


def _spawn(layer: Any, message: dict[str, Any]) -> None:
    task = asyncio.get_running_loop().create_task(_send(layer, message))
    _sending.add(task)
    task.add_done_callback(_sending.discard)


async def _send(layer: Any, message: dict[str, Any]) -> None:
    try:
        await layer.group_send(GROUP, message)
    except Exception:
        # The rows are the truth; whoever listens will look by itself.
        logger.warning("The channel layer could not ring.", exc_info=True)


async def rings() -> AsyncGenerator[list[Topic], None]:
    """What is rung in any other process, as long as somebody iterates."""
    layer = shared_layer()
    channel = None
    receiving: asyncio.Future[Any] | None = None
    loop = asyncio.get_running_loop()
    try:
        joined = 0.0
        while not _is_cancelled():
            try:
                if channel is None:
                    channel = await layer.new_channel("mcp_django")
                if loop.time() - joined >= REJOIN_SECONDS or not joined:
                    await layer.group_add(GROUP, channel)
                    joined = loop.time()
                if receiving is None:
                    receiving = asyncio.ensure_future(layer.receive(channel))
                # No timeout around it: to a layer a `receive` that is cancelled ends the channel.
                await asyncio.wait([receiving], timeout=REJOIN_SECONDS)
                if not receiving.done():
                    continue
                received, receiving = receiving, None
                message = received.result()
            except Exception as exc:
                if _is_silence(exc):
                    continue
                logger.warning("The channel layer cannot be heard.", exc_info=True)
                await _stop(receiving)
                channel, receiving, joined = None, None, 0.0
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            if message.get("from") != worker_id():
                yield [Topic(*names) for names in message["topics"]]
    finally:
        await _stop(receiving)
        if channel is not None:
            await _leave(layer, channel)


async def _stop(receiving: asyncio.Future[Any] | None) -> None:
    """End what waits for a ring, which may take a first cancellation for something else."""
    if receiving is None:
        return
    for _ in range(STOP_ATTEMPTS):
        receiving.cancel()
        await asyncio.wait([receiving], timeout=BACKOFF_SECONDS)
        if receiving.done():
            if not receiving.cancelled():
                receiving.exception()  # looked at, whatever it is
            return


def _is_silence(exc: Exception) -> bool:
    """Whether nothing was rung for so long that the Redis client gave up waiting.

    Its limit may be as short as the layer's own. Leaving the group for that would lose rings.
    """
    return type(exc).__name__ == "TimeoutError"


def _is_cancelled() -> bool:
    """Whether this task was told to end, even if what it waited for swallowed that.

    ``asyncio.wait_for`` of Python 3.11 does, and Redis clients use it: a bell that is left would
    go on being heard.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _leave(layer: Any, channel: str) -> None:
    try:
        await layer.group_discard(GROUP, channel)
    except Exception:
        logger.debug("The channel layer was gone already.", exc_info=True)
