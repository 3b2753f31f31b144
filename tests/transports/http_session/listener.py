"""A client that is notified of changes on its GET stream, and reconnects when that ends."""

from __future__ import annotations

import asyncio
import time

import httpx

from tests.transports.http_session.client import Client, events


class Listener:
    """Reads the GET stream of a session, and reconnects until it is closed."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.heard: list[float] = []
        """When each notification of a changed list came."""
        self.refusals: list[int] = []
        self.connections = 0
        self._is_closed = False
        self._news = asyncio.Event()
        self._last: str | None = None

    async def listen(self) -> None:
        """Read the stream, and reconnect when it ends."""
        while not self._is_closed:
            try:
                await self._read()
            except httpx.HTTPError:
                await asyncio.sleep(0.02)

    async def _read(self) -> None:
        self.connections += 1
        async with self.client.get(last=self._last) as response:
            if response.status_code != 200:
                self.refusals.append(response.status_code)
                await asyncio.sleep(0.1)
                return
            async for event_id, message in events(response):
                self._last = event_id
                if message and message["method"] == "notifications/tools/list_changed":
                    self.heard.append(time.monotonic())
                    self._news.set()

    async def hears(self, *, after: float, within: float) -> bool:
        """Return whether a notification comes in time that is not older than `after`."""
        try:
            async with asyncio.timeout(within):
                while not self.heard or self.heard[-1] < after:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True
