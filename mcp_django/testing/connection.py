"""The test client over a transport, and the event loop that runs it."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connections
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from mcp_django.protocol.revisions import Revision
from mcp_django.tenants import as_tenant, current_tenant
from mcp_django.testing.answers import ErrorResponse
from mcp_django.testing.transports import ClientChannel, Message, check_response
from mcp_django.transports.memory import BaseClient

# The default lock timeout of SQLite database files.
LOCKED_SECONDS = 5
POLL_SECONDS = 0.005


class RemoteClient(BaseClient):
    """A client over a channel; a call whose client request is left unanswered is cancelled."""

    def __init__(self, channel: ClientChannel, revision: Revision, **declared: Any) -> None:
        super().__init__(revision, **declared)
        self._channel = channel
        self._loop = _ServingLoop()
        for connection in connections.all(initialized_only=True):
            _add_lock_retry(connection)
        # The thread ends even if the client is not closed.
        weakref.finalize(self, self._loop.stop, is_awaited=False)

    def send(self, message: Message) -> Message:
        """Send a message from a thread; return its response, empty for a notification."""
        return self._loop.run(self._converse(message))

    async def asend(self, message: Message) -> Message:
        """Send a message from an event loop; otherwise like ``send``."""
        return await self._loop.arun(self._converse(message))

    @asynccontextmanager
    async def listen(self, message: Message) -> AsyncIterator[AsyncIterator[Message]]:
        """Send a request that is answered with a stream; yield an iterator of notifications.

        Raises:
            MCPError: the request was rejected.
        """
        coming = self._channel.exchange(message)
        try:
            first = await self._loop.arun(_next(coming))
            if first is None or "method" not in first:
                check_response(first or {})
                if first is not None and "error" in first:
                    raise ErrorResponse(first["error"])
                raise TypeError("The server answered subscriptions/listen without a stream.")
            yield self._rest(first, coming)
        finally:
            await self._loop.arun(self._leave(message, coming))

    def close(self) -> None:
        """Close the channel, which ends the session, and stop the event loop."""
        self._is_initialized = False
        try:
            self._loop.run(self._channel.close())
        finally:
            self._loop.stop()

    async def _rest(
        self, message: Message | None, coming: AsyncGenerator[Message, None]
    ) -> AsyncIterator[Message]:
        while message is not None:
            yield message
            message = await self._loop.arun(_next(coming))

    async def _leave(self, message: Message, coming: AsyncGenerator[Message, None]) -> None:
        await self._channel.cancel(message)
        await coming.aclose()

    async def _converse(self, message: Message) -> Message:
        if "id" not in message:
            await self._channel.send(message)
            return {}
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
        """Return the response, or one without an id if a client request is left unanswered."""
        async for message in coming:
            if "method" not in message:
                return message
            if "id" not in message:
                if self._hear is not None:
                    self._hear(message)
                continue
            question = {
                "question": {"method": message["method"], "params": message.get("params", {})}
            }
            answers = None if self._answer is None else self._answer(question)
            if answers is None:
                return {"result": {"resultType": "input_required", "inputRequests": question}}
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": answers["question"]}
            await self._channel.send(reply)
        raise EOFError("The server ended the stream without a response.")


@receiver(connection_created, dispatch_uid=__name__)
def _add_lock_retry(connection: Any, **kwargs: Any) -> None:
    """Make threads wait for each other's locks in an in-memory SQLite database, as with a file.

    Django's SQLite test database is in memory and shared by its connections. There a second writer
    fails immediately, whatever the timeout (https://sqlite.org/sharedcache.html). Threads keep
    their connections from test to test, so this applies from the import of this module on.
    """
    if connection.vendor != "sqlite" or not connection.is_in_memory_db():
        return
    if _execute_with_lock_retry not in connection.execute_wrappers:
        connection.execute_wrappers.append(_execute_with_lock_retry)


def _execute_with_lock_retry(execute: Callable[..., Any], *statement: Any) -> Any:
    until = time.monotonic() + LOCKED_SECONDS
    while True:
        try:
            return execute(*statement)
        except OperationalError as exc:
            code = getattr(exc.__cause__, "sqlite_errorname", "")
            if not code.startswith("SQLITE_LOCKED") or time.monotonic() > until:
                raise
        # SQLite can notify when a lock is released, but Python's module has no API for that.
        time.sleep(POLL_SECONDS)


async def _next(coming: AsyncGenerator[Message, None]) -> Message | None:
    return await anext(coming, None)


T = TypeVar("T")

# How long the test waits, at most, for the thread to end.
STOP_TIMEOUT_SECONDS = 5


class _ServingLoop:
    """Runs coroutines in its own thread, from the first one until it is stopped."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, block this thread and return the result.

        The coroutine runs for the tenant of this thread.
        """
        with as_tenant(current_tenant()):
            return self._submit(coroutine).result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine, await it on the running loop and return the result."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def stop(self, *, is_awaited: bool = True) -> None:
        """Cancel running tasks and end the thread."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if is_awaited:
                thread.join(STOP_TIMEOUT_SECONDS)

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=_serve, args=(self._loop,), name="mcp-test-client", daemon=True
            )
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
