"""The connection of the test client over a transport, and the event loop that serves it."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from django.db import OperationalError, connections
from django.db.backends.signals import connection_created

from mcp_django.test.answers import ErrorResponse
from mcp_django.test.transports import Channel, Message, check_response

# As long as SQLite waits for the lock of a file.
LOCKED_SECONDS = 5
LOOK_SECONDS = 0.005

_AnswerQuestions = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]


class RemoteConnection:
    """Sends requests over a channel, as ``MemoryConnection`` does without one.

    ``hear`` gets progress and log messages.

    ``answer`` gets each question that a handshake revision asks meanwhile, by key, and returns
    the answers by key, or nothing to leave them open: then the call is given up.
    """

    def __init__(
        self, channel: Channel, *, hear: Callable[[Message], None], answer: _AnswerQuestions
    ) -> None:
        self._channel = channel
        self._hear = hear
        self._answer = answer
        self._loop = _ServingLoop()
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


# The event loop that serves -----------------------------------------------------------------------

T = TypeVar("T")

# An end that takes longer is not waited for by the test.
PATIENCE_SECONDS = 5


class _ServingLoop:
    """Runs coroutines in a thread of its own until it is stopped; begins with the first one."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, for which this thread waits."""
        return self._submit(coroutine).result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, for which the running loop waits."""
        return await asyncio.wrap_future(self._submit(coroutine))

    def stop(self, *, is_awaited: bool = True) -> None:
        """Cancel what still runs, and end the thread."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            if is_awaited:
                thread.join(PATIENCE_SECONDS)

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
