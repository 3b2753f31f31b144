"""Official clients that stay connected while the test uses the browser in its own thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mcp import Client
from mcp_types import ToolListChangedNotification

from tests.interop.sdk import connected

SECONDS = 60
Tell = Callable[[Any], None]
Talk = Callable[[Tell], Awaitable[None]]


@dataclass
class Talking:
    """A client's conversation under way; its messages arrive in order."""

    _told: queue.Queue[Any] = field(default_factory=queue.Queue)

    def next(self) -> Any:
        """Return the client's next message; raise an error of the conversation."""
        message = self._told.get(timeout=SECONDS)
        if isinstance(message, BaseException):
            raise message
        return message

    async def run(self, talk: Talk) -> None:
        try:
            await talk(self._told.put)
        except BaseException as exc:  # noqa: BLE001 - it is raised where the test waits
            self._told.put(exc)


@contextmanager
def talking(talk: Talk) -> Iterator[Talking]:
    """Run a conversation in a thread with an event loop, since Playwright's runs in this thread."""
    conversation = Talking()
    thread = threading.Thread(target=lambda: asyncio.run(conversation.run(talk)), daemon=True)
    thread.start()
    yield conversation
    thread.join(SECONDS)
    assert not thread.is_alive()


async def names(client: Client) -> set[str]:
    """Return the names of the tools that a client gets, on all pages."""
    tool_names: set[str] = set()
    cursor = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tool_names |= {tool.name for tool in page.tools}
        cursor = page.next_cursor
        if cursor is None:
            return tool_names


def listening(url: str, token: str, *, changes: int) -> Talk:
    """Return a client with a listen stream, which reports its tools first and after each change.

    It ends after `changes` changes. Notifications without a change do not count: a client that
    connects shortly after a change is notified of it, too.
    """

    async def talk(tell: Tell) -> None:
        async with (
            connected(url, token) as client,
            client.listen(tools_list_changed=True) as heard,
        ):
            tell(shown := await names(client))
            left = changes
            while left:
                event = type(await anext(heard)).__name__
                before, shown = shown, await names(client)
                if shown != before:
                    tell(event)
                    tell(shown)
                    left -= 1

    return talk


def in_a_session(url: str, token: str, *, changes: int) -> Talk:
    """Return the same for a client with a session of 2025-11-25."""

    async def talk(tell: Tell) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def hear(message: Any) -> None:
            if isinstance(message, ToolListChangedNotification):
                heard.put_nowait(message.method)

        async with connected(url, token, mode="legacy", message_handler=hear) as client:
            tell(client.protocol_version)
            tell(shown := await names(client))
            left = changes
            while left:
                event = await heard.get()
                before, shown = shown, await names(client)
                if shown != before:
                    tell(event)
                    tell(shown)
                    left -= 1

    return talk


def doing(
    url: str, token: str, work: Callable[[Client, Tell], Awaitable[None]], **options: Any
) -> Talk:
    """Return a client that does this work and disconnects."""

    async def talk(tell: Tell) -> None:
        async with connected(url, token, **options) as client:
            await work(client, tell)

    return talk
