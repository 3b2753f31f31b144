"""What a session hears of by itself, where its connection is the session (SUB-1…SUB-4, PNG-2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from django.db import DatabaseError

from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime.handlers.discover import capabilities
from mcp_django.runtime.handshake import envelope_of
from mcp_django.runtime.incoming import Incoming, Listening
from mcp_django.runtime.session import MemorySession
from mcp_django.store.hub import hub
from mcp_django.transports.client_answers import LocalAnswers
from mcp_django.transports.desk import at_desk, insist_at_desk
from mcp_django.transports.listen import until_recheck
from mcp_django.transports.local_session import LocalSession
from mcp_django.transports.mailbox import Mailbox
from mcp_django.transports.standing import SessionSubscription

logger = logging.getLogger("mcp_django")

Write = Callable[[bytes], Awaitable[None]]

SUBSCRIBED: Final = "the client subscribed to something, or not any more"
UNANSWERED_PINGS = 2
# How soon a database that was away is asked again.
RETRY_SECONDS = 1.0


class Standing:
    """The tasks that tell a session of changes, and see that its client is there (VER-16).

    ``end`` is called when there is nobody to be told, any more or by us.
    """

    def __init__(
        self,
        server: Server,
        local: LocalSession,
        caller: Callable[[], Principal],
        *,
        write: Write,
        end: Callable[[], object],
    ) -> None:
        assert local.agreed is not None
        self._end_session = end
        self._tasks = [
            asyncio.create_task(tell_changes(server, local, caller, write)),
            asyncio.create_task(keep_pinging(local.answers, write, end)),
        ]
        for task in self._tasks:
            task.add_done_callback(self._observe)

    def end(self) -> None:
        """Tell no more."""
        for task in self._tasks:
            task.cancel()

    def _observe(self, task: asyncio.Task[None]) -> None:
        """End a session whose client would wait for changes in vain."""
        exc = None if task.cancelled() else task.exception()
        if exc is None:
            return
        if isinstance(exc, AccessRefused):
            logger.info("The client of a session may not stay: %s", exc.message)
        else:
            logger.error("A session can be told of changes no more.", exc_info=exc)
        self._end_session()


async def tell_changes(
    server: Server, local: LocalSession, principal: Callable[[], Principal], write: Write
) -> None:
    """Write a notification for each change that the session may hear of, until it is cancelled.

    Raises:
        AccessRefused: the caller would not be let in any more.
    """
    session, baseline = local.agreed, local.baseline
    assert session is not None
    mailbox = Mailbox()

    def subscribed() -> None:
        baseline.note_resources(session.uris)
        mailbox.post(SUBSCRIBED)

    session.on_change = subscribed
    loop = asyncio.get_running_loop()
    # Before anything is waited for: without a database the bell is all that there is to go by.
    leave = hub().subscribe(baseline.lists, mailbox.put_once)
    try:
        subscription = _subscription(server, session, await insist_at_desk(principal))
        recheck = loop.time() + until_recheck()
        mailbox.post(SUBSCRIBED)
        while True:
            if loop.time() >= recheck:
                recheck = loop.time() + until_recheck()
                mailbox.post(SUBSCRIBED)
            await mailbox.wait(max(recheck - loop.time(), 0))
            found = dict.fromkeys(mailbox.take())
            if SUBSCRIBED in found:
                try:
                    subscription = _subscription(server, session, await at_desk(principal))
                    await subscription.open()
                except DatabaseError:
                    # Whoever was let in a moment ago stays until somebody can say otherwise.
                    logger.warning("A session could not be looked at.", exc_info=True)
                    recheck = loop.time() + RETRY_SECONDS
                listening = hub().subscribe(subscription.topics, mailbox.put_once)
                leave()
                leave = listening
                await hub().ready(subscription.topics)
                outdated = partial(baseline.outdated, subscription.topics)
                found.update(dict.fromkeys(await at_desk(outdated)))
            for topic in subscription.topics:
                if topic in found and subscription.covers(topic):
                    await write(jsonrpc.encode(subscription.notice(topic)))
    finally:
        leave()


def _subscription(server: Server, session: MemorySession, caller: Principal) -> SessionSubscription:
    request = Request(0, "subscriptions/listen")
    incoming = Incoming(
        server=server,
        request=request,
        envelope=envelope_of(session, request),
        principal=caller,
        session=session,
    )
    offered = capabilities(server, can_stream=True)
    kinds = frozenset(kind for kind in ("tools", "resources", "prompts") if kind in offered)
    uris = tuple(session.uris)
    return SessionSubscription(Listening(incoming=incoming, kinds=kinds, uris=uris))


async def keep_pinging(answers: LocalAnswers, write: Write, end: Callable[[], Any]) -> None:
    """Ask now and then whether the client is there, and end the session when it is not."""
    seconds = get_settings().ping_seconds
    if not seconds:
        return
    missed = 0
    while missed < UNANSWERED_PINGS:
        await asyncio.sleep(seconds)
        request_id = answers.new_id()
        await write(jsonrpc.encode(jsonrpc.request(request_id, "ping", None)))
        found = await answers.wait([request_id], seconds=seconds)
        missed = 0 if found else missed + 1
    end()
