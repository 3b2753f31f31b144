"""A client of 2025-11-25 that sends to a random worker each time, and resumes when cut off."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from itertools import count
from typing import Any

import httpx

from mcp_django.protocol import sse
from tests.kit.fleet import Fleet
from tests.kit.processes import Server
from tests.transports.http_session.account import Account

VERSION = "2025-11-25"
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
# Workers send a keepalive twice a second, but a machine may be busy.
PATIENCE = 30
# A call without an end after this many seconds counts as stuck.
LONGEST_SECONDS = 45
# Statuses that mean a temporary problem of a worker.
LATER = (500, 503, 429)

_ids = count(1)


@asynccontextmanager
async def connections(
    *, kept: int = 0, patience: float = PATIENCE
) -> AsyncIterator[httpx.AsyncClient]:
    """Open an HTTP client for many sessions, which keeps up to `kept` connections for reuse.

    If none is kept, a worker that ends cannot close a connection that a request is about to use. A
    request fails if the worker sends nothing for `patience` seconds.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=kept)
    timeout = httpx.Timeout(patience, pool=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, trust_env=False) as http:
        yield http


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return a call of a tool with a progress token, under an id of its own."""
    request_id = next(_ids)
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": request_id}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def request(method: str, **params: Any) -> dict[str, Any]:
    """Return a request under an id of its own."""
    return {"jsonrpc": "2.0", "id": next(_ids), "method": method, "params": params}


class Client:
    """One session; each message goes to a random worker unless told otherwise."""

    def __init__(self, http: httpx.AsyncClient, workers: Fleet, *, version: str = VERSION) -> None:
        self._http = http
        self._version = version
        self._workers = workers
        self.headers = dict(HEADERS)

    async def initialize(self, **capabilities: Any) -> None:
        """Open the session.

        Raises:
            httpx.HTTPError: no session could be opened.
        """
        message = request(
            "initialize",
            protocolVersion=self._version,
            capabilities=capabilities,
            clientInfo={"name": "restless", "version": "1"},
        )
        answer = await self.post(message)
        answer.raise_for_status()
        self.headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        self.headers["mcp-protocol-version"] = self._version
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def post(self, message: Any, *, at: Server | None = None) -> httpx.Response:
        """Send a message and read the whole answer."""
        with self._workers.handing(at or self._workers.any()) as url:
            return await self._http.post(url, json=message, headers=self.headers)

    async def delete(self, *, at: Server | None = None) -> httpx.Response:
        """End the session."""
        with self._workers.handing(at or self._workers.any()) as url:
            return await self._http.delete(url, headers=self.headers)

    def get(self, *, at: Server | None = None, last: str | None = None) -> Any:
        """Open the GET stream, or the rest of the stream that the event id names."""
        headers = self.headers if last is None else {**self.headers, "last-event-id": last}
        return self._stream("GET", at, headers)

    def stream(self, message: Any, *, at: Server | None = None) -> Any:
        """Send a message and read the answer as it comes."""
        return self._stream("POST", at, self.headers, json=message)

    @asynccontextmanager
    async def _stream(
        self, verb: str, at: Server | None, headers: dict[str, str], **body: Any
    ) -> AsyncIterator[httpx.Response]:
        async with AsyncExitStack() as stack:
            with self._workers.handing(at or self._workers.any()) as url:
                opening = self._http.stream(verb, url, headers=headers, **body)
                response = await stack.enter_async_context(opening)
            yield response

    async def follow(
        self, message: dict[str, Any], *, restless: float, at: Server | None = None
    ) -> Account:
        """Send a call, and resume after every broken connection until the call has an end.

        With a probability of `restless`, the client itself disconnects at a random event.
        """
        account = Account(request_id=message["id"], numbers=message["params"]["arguments"]["n"])
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                await self._read(account, self.stream(message, at=at), restless)
                while account.is_refused:
                    # No worker has begun the call, so it is sent again.
                    await self._read(account, self.stream(message), restless)
                while account.ids and not account.is_over and not account.is_unknown:
                    await self._read(account, self.get(last=account.ids[-1]), restless)
        except TimeoutError:
            account.is_stuck = True
        return account

    async def _read(self, account: Account, opening: Any, restless: float) -> None:
        left = random.randint(0, account.numbers) if random.random() < restless else None
        account.is_refused = False
        try:
            async with opening as response:
                if response.status_code in LATER:
                    account.connections.append(str(response.status_code))
                    # The worker has not begun the call.
                    account.is_refused = response.status_code == 503 and not account.ids
                    await asyncio.sleep(0.1)
                elif not response.headers.get("content-type", "").startswith("text/event-stream"):
                    account.connections.append(f"{response.status_code} {await response.aread()!r}")
                    account.is_unknown = True
                else:
                    await _listen(account, response, left)
        except httpx.HTTPError as exc:
            account.connections.append(f"{type(exc).__name__} after {len(account.ids)}")
            account.is_refused = not account.ids and isinstance(exc, httpx.ConnectError)
            # Do not flood a worker that has gone.
            await asyncio.sleep(0.02)


async def _listen(account: Account, response: httpx.Response, left: int | None) -> None:
    """Read events until the stream ends, or `left` events have come."""
    async with aclosing(events(response)) as coming:
        async for event_id, message in coming:
            account.ids.append(event_id)
            if message is not None:
                account.messages.append(message)
            if left is not None and len(account.ids) >= left and not account.is_over:
                account.connections.append(f"left after {len(account.ids)}")
                return
    account.connections.append(f"ended after {len(account.ids)}")
    if not account.is_over:
        # The stream was cut off on purpose, or the worker gave it up.
        await asyncio.sleep(0.02)


async def events(
    response: httpx.Response,
) -> AsyncIterator[tuple[str, dict[str, Any] | None]]:
    """Yield the events of a stream with their ids; an event without data has no message."""
    decoder = sse.EventDecoder()
    async for part in response.aiter_raw():
        for event in decoder.feed(part):
            assert event.id is not None
            yield event.id, json.loads(event.data) if event.data else None
