"""A connection of the test client over a transport, in place of ``MemoryConnection``."""

from __future__ import annotations

import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from mcp_django.test.answers import ErrorResponse
from mcp_django.test.loop import ServingLoop
from mcp_django.test.messages import Channel, Message
from mcp_django.test.refusals import check_response

# As long as SQLite waits for the lock of a file.
LOCKED_SECONDS = 5
LOOK_SECONDS = 0.005

AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class RemoteConnection:
    """Sends requests over a channel; ``hear`` gets progress and log messages.

    ``answer`` gets each question that a handshake revision asks meanwhile, by key, and returns
    the answers by key, or nothing to leave them open: then the call is given up.
    """

    def __init__(
        self, channel: Channel, *, hear: Callable[[Message], None], answer: AnswerQuestions
    ) -> None:
        self._channel = channel
        self._hear = hear
        self._answer = answer
        self._loop = ServingLoop()
        _let_threads_wait()
        # A client that nobody closes leaves no thread behind.
        weakref.finalize(self, self._loop.stop, is_awaited=False)

    def request(self, message: Message) -> Message:
        """Send a request from a thread and wait for its response."""
        return self._loop.run(self._exchange(message))

    async def arequest(self, message: Message) -> Message:
        """Send a request from an event loop and wait for its response."""
        return await self._loop.arun(self._exchange(message))

    def notify(self, method: str) -> None:
        """Send a notification."""
        self._loop.run(self._channel.send({"jsonrpc": "2.0", "method": method}))

    @asynccontextmanager
    async def listen(self, message: Message) -> AsyncIterator[AsyncIterator[Message]]:
        """Send a request that is answered by notifications, and read them.

        Raises:
            MCPError: it is refused.
        """
        coming = self._channel.exchange(message)
        try:
            first = await self._loop.arun(_next(coming))
            if first is None or "method" not in first:
                _refuse(first)
            yield self._rest(first, coming)
        finally:
            await self._loop.arun(self._leave(message, coming))

    def close(self) -> None:
        """Leave the server, and end the loop."""
        try:
            self._loop.run(self._channel.close())
        finally:
            self._loop.stop()

    async def _rest(
        self, said: Message | None, coming: AsyncGenerator[Message, None]
    ) -> AsyncIterator[Message]:
        while said is not None:
            yield said
            said = await self._loop.arun(_next(coming))

    async def _leave(self, message: Message, coming: AsyncGenerator[Message, None]) -> None:
        await self._channel.cancel(message)
        await coming.aclose()

    async def _exchange(self, message: Message) -> Message:
        async with aclosing(self._channel.exchange(message)) as coming:
            try:
                response = await self._follow(coming)
            except BaseException:
                await self._channel.cancel(message)
                raise
            if "result" in response and "id" not in response:
                await self._channel.cancel(message)
        check_response(response)
        return response

    async def _follow(self, coming: AsyncGenerator[Message, None]) -> Message:
        """The response; without an id, that of a call whose question stays open."""
        async for said in coming:
            if "method" not in said:
                return said
            if "id" not in said:
                self._hear(said)
                continue
            question = {"question": {"method": said["method"], "params": said.get("params", {})}}
            answers = self._answer(question)
            if answers is None:
                return {"result": {"resultType": "input_required", "inputRequests": question}}
            reply = {"jsonrpc": "2.0", "id": said["id"], "result": answers["question"]}
            await self._channel.send(reply)
        raise EOFError("The server ended its answer without a response.")


def _let_threads_wait() -> None:
    """Let the server's threads and the test's wait for each other's locks, as with a file.

    On SQLite, Django makes the database of tests in memory, which its connections share. There a
    second writer is refused at once, whatever the timeout (https://sqlite.org/sharedcache.html).
    """
    connection_created.connect(_make_patient, dispatch_uid=__name__)
    for connection in connections.all(initialized_only=True):
        _make_patient(connection)


def _make_patient(connection: Any, **kwargs: Any) -> None:
    if connection.vendor != "sqlite" or not connection.is_in_memory_db():
        return
    if _execute_patiently not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute_patiently)


def _execute_patiently(execute: Callable[..., Any], *statement: Any) -> Any:
    until = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            return execute(*statement)
        except OperationalError as exc:
            code = getattr(exc.__cause__, "sqlite_errorname", "")
            if not code.startswith("SQLITE_LOCKED") or time.monotonic() > until:
                raise
        # SQLite can tell when a lock is gone, but Python's module has no door to that.
        time.sleep(LOOK_SECONDS)


def _refuse(response: Message | None) -> None:
    check_response(response or {})
    if response is not None and "error" in response:
        raise ErrorResponse(response["error"])
    raise TypeError("subscriptions/listen answered without a stream")


async def _next(coming: AsyncGenerator[Message, None]) -> Message | None:
    return await anext(coming, None)
