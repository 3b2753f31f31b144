"""A call whose progress and log messages precede its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.exceptions import InternalError, InvalidRequest
from mcp_django.protocol import jsonrpc
from mcp_django.runtime import calls
from mcp_django.runtime.dispatch import respond
from mcp_django.runtime.incoming import Invocation, Result
from mcp_django.transports import drain, watch
from mcp_django.transports.client_answers import Answers, ask_client
from mcp_django.transports.mailbox import Mailbox
from mcp_django.transports.outgoing import SILENCE, Messages, Outgoing, as_events
from mcp_django.transports.port import HangUp, StreamPort


def stream(invocation: Invocation) -> AsyncGenerator[bytes, None]:
    """The messages of a call as events: what was reported, then the response, then the end."""
    return as_events(invocation.incoming, messages(invocation))


async def messages(
    invocation: Invocation, *, answers: Answers | None = None, first: Result | None = None
) -> Messages:
    """The messages of a call, as they come.

    ``answers`` is where a client of a handshake revision answers questions, ``first`` the result
    of a call that has asked its first ones already.

    Closing the generator is how the client cancels (HTTP-26): an async function is cancelled, a
    synchronous one finds ``ctx.cancelled`` raised and its answer is dropped.

    Raises:
        MCPError: the call means a JSON-RPC error, or the end of the process cut it off.
    """
    mailbox = Mailbox()
    sent_away = asyncio.Event()
    # Proxies and hosts give up on a stream whose first byte is late.
    yield SILENCE
    running = asyncio.ensure_future(_response(invocation, mailbox, answers, first))
    running.add_done_callback(lambda _: mailbox.wake())
    try:
        with drain.in_flight(running), _watched(invocation, sent_away, running):
            while not running.done():
                if not await mailbox.wait(get_settings().keepalive_seconds):
                    yield SILENCE
                for message in mailbox.take():
                    yield _outgoing(message)
        for message in mailbox.take():
            yield _outgoing(message)
        if running.cancelled() and sent_away.is_set():
            raise InvalidRequest("Your access was taken away; the call was stopped.")
        if running.cancelled():
            raise InternalError("The server is stopping; call again.")
        yield Outgoing(running.result(), is_response=True)
    finally:
        invocation.cancellation.expire()
        running.cancel()


@contextmanager
def _watched(
    invocation: Invocation, sent_away: asyncio.Event, running: asyncio.Future[bytes]
) -> Iterator[None]:
    """Stop a call whose caller is sent away; it may outlast its credential's own time."""

    def end() -> None:
        sent_away.set()
        running.cancel()

    incoming = invocation.incoming
    with watch.watching(
        incoming.server,
        incoming.principal,
        end,
        after=watch.SHORT_SECONDS,
        ends_at_expiry=False,
    ):
        yield


async def _response(
    invocation: Invocation, mailbox: Mailbox, answers: Answers | None, first: Result | None
) -> bytes:
    port = StreamPort(invocation.incoming, mailbox)
    result = first or await calls.execute(invocation, port)
    while answers is not None and result.get("resultType") == "input_required":
        interaction = invocation.interaction
        assert interaction is not None
        asked = result["inputRequests"]
        interaction.resume(await ask_client(invocation, asked, answers, mailbox.put))
        result = await calls.execute(invocation, port)
    return respond(invocation.incoming, result)


def _outgoing(message: Any) -> Outgoing:
    if isinstance(message, HangUp):
        return Outgoing(b"", hangs_up=message.seconds)
    return Outgoing(jsonrpc.encode(message))
