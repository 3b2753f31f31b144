"""The session of a client whose connection is the session: stdio, HTTP+SSE and the test client.

The client is notified of changed lists and resources, and pinged, while the session lasts.
``initialize`` is answered before the server subscribes to changes; changes in between are
reported, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from django.db import DatabaseError

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, InvalidRequest, MCPError
from mcp_django.execution import telemetry
from mcp_django.execution.call import Call, ResponseStream
from mcp_django.execution.handlers.listing import capabilities
from mcp_django.execution.handlers.session import initialize_response, negotiate
from mcp_django.execution.handlers.subscribed_resources import SubscribedResources, Subscription
from mcp_django.execution.threads import retry_while_busy, run_in_short_thread, run_with_retry
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Stateless, classify
from mcp_django.protocol.jsonrpc import Batch, Notification, Request
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, REVISIONS, Revision
from mcp_django.protocol.uritemplate import lower_scheme
from mcp_django.storage import versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.sessions import MemorySession
from mcp_django.storage.versions import LISTS, TopicKey
from mcp_django.transports.client_requests import LocalAnswers
from mcp_django.transports.listen import (
    RETRY_SECONDS,
    SessionSubscription,
    put_in_time,
    seconds_until_recheck,
)
from mcp_django.transports.outgoing import Mailbox

logger = logging.getLogger("mcp_django")


class LocalSession:
    """The session of one connection, and what was agreed on in its ``initialize``, if it was sent.

    Requests with an envelope are served independently of the session, unless the transport
    supports only handshake revisions. ``hold`` counts the subscriptions of the session, where they
    are limited together with those of others; it raises an ``MCPError`` if they are too many.
    ``source`` is what limits count an anonymous caller by (``limits.limit_source``).
    """

    def __init__(
        self,
        server: Server,
        *,
        is_stateless_spoken: bool = True,
        origin: str = "client",
        acting: str = "",
        transport: str = "",
        source: str | None = "local",
        hold: Callable[[Collection[str]], object] = lambda uris: None,
    ) -> None:
        self._server = server
        self._hold = hold
        self.find_source = lambda: source
        self._origin = origin
        self._acting = acting
        self.transport = transport
        self._is_stateless_spoken = is_stateless_spoken
        self.agreed: MemorySession | None = None
        self._began: float | None = None
        self.answers = LocalAnswers()
        self.initial_versions = _InitialVersions(server.name)

    @property
    def revision(self) -> Revision | None:
        """The negotiated revision, ``None`` before there is one."""
        return self.agreed.revision if self.agreed is not None else None

    def initialize(self, request: Request) -> bytes:
        """Process ``initialize`` and return the response.

        Raises:
            InvalidRequest: the connection is already initialized.
            InvalidParams: the request names no revision.
        """
        if self.agreed is not None:
            raise InvalidRequest("This connection is already initialized.")
        return telemetry.trace_handshake(
            request, partial(self._agree, request), transport=self.transport
        )

    def _agree(self, request: Request, operation: telemetry.Operation | None) -> bytes:
        agreement = negotiate(self._server, request)
        body = initialize_response(self._server, request, agreement, can_stream=True)
        self.agreed = MemorySession(
            revision=agreement.revision,
            client_info=agreement.client_info,
            capabilities=agreement.capabilities,
            hold=self._hold,
        )
        self._began = time.perf_counter()
        if operation is not None:
            operation.note_session(agreement.revision.version)
        return body

    def end(self) -> None:
        """Record the end of the session; idempotent."""
        if self.agreed is not None and self._began is not None:
            lasted, self._began = time.perf_counter() - self._began, None
            version = self.agreed.revision.version
            telemetry.record_session_end(lasted, version=version, transport=self.transport)

    def trace_notification(self, message: Notification) -> AbstractContextManager[None]:
        """Return the telemetry context manager for processing a notification."""
        version = self.agreed.revision.version if self.agreed is not None else ""
        return telemetry.trace_notification(message, version=version, transport=self.transport)

    def check_batch(self, batch: Batch) -> None:
        """Check that a batch is allowed.

        Raises:
            InvalidRequest: the session's revision has no batches, or a member has an envelope.
        """
        if self.agreed is None or not self.agreed.revision.batches:
            raise InvalidRequest("Send one message at a time; this session has no batches.")
        classify(batch, None, enabled=self._enabled)

    def call_for(self, principal: Principal, request: Request) -> Call:
        """Return the call of a request, which has no headers.

        Raises:
            MCPError: the request is invalid; format the error for
                ``error_revision_of(request, self.revision)``.
        """
        route = classify(request, None, enabled=self._enabled)
        if isinstance(route, Stateless):
            return Call(
                server=self._server,
                request=request,
                envelope=route.envelope,
                principal=principal,
                origin=self._origin,
                acting_user=self._acting,
                transport=self.transport,
            )
        session = self.agreed
        if session is None:
            if request.method != "ping":
                raise InvalidRequest("Send initialize first.")
            # A ping is answered at any time, even before initialize.
            session = MemorySession(revision=LATEST_HANDSHAKE, client_info={}, capabilities={})
        return Call(
            server=self._server,
            request=request,
            envelope=session.envelope_of(request),
            principal=principal,
            session=session,
            can_ask=True,
            origin=self._origin,
            acting_user=self._acting,
            transport=self.transport,
            # HTTP+SSE has one stream, and nothing else.
            stream=ResponseStream(has_begun=True) if self.transport == "sse" else None,
        )

    def is_initialize(self, request: Request) -> bool:
        """Return whether a request is the ``initialize`` of a handshake revision."""
        if request.method != "initialize":
            return False
        route = classify(request, None, enabled=self._enabled)
        return not isinstance(route, Stateless)

    def opens_session(self, request: Request) -> bool:
        """Return ``is_initialize``, but ``False`` for an invalid request."""
        try:
            return self.is_initialize(request)
        except MCPError:
            return False

    @property
    def _enabled(self) -> Sequence[str]:
        spoken = self._server.protocol_versions
        if self._is_stateless_spoken:
            return spoken
        return [one for one in spoken if not REVISIONS[one].stateless]


# Changes and pings --------------------------------------------------------------------------------

Write = Callable[[bytes], Awaitable[None]]

SUBSCRIPTIONS_CHANGED: Final = "the subscriptions of the client changed"
UNANSWERED_PINGS = 2


class SessionTasks:
    """The asyncio tasks of an initialized session: change notifications and pings.

    ``end`` is called when the client does not answer pings or may not stay, and when one of the
    tasks fails.
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
            asyncio.create_task(notify_changes(server, local, caller, write)),
            asyncio.create_task(ping_client(local.answers, write, end)),
        ]
        for task in self._tasks:
            task.add_done_callback(self._observe)

    def end(self) -> None:
        """Cancel the tasks."""
        for task in self._tasks:
            task.cancel()

    def _observe(self, task: asyncio.Task[None]) -> None:
        """End the session if a task failed: the client would not get any more notifications."""
        exc = None if task.cancelled() else task.exception()
        if exc is None:
            return
        if isinstance(exc, AccessRefused):
            logger.info("A session ends: its client has lost its authorization: %s", exc.message)
        else:
            logger.error("A session ends: notifying or pinging its client failed.", exc_info=exc)
        self._end_session()


async def notify_changes(
    server: Server, local: LocalSession, principal: Callable[[], Principal], write: Write
) -> None:
    """Write a notification for each change that the session may be notified of, until cancelled.

    Raises:
        AccessRefused: the caller has lost its authorization.
    """
    session, baseline = local.agreed, local.initial_versions
    assert session is not None
    mailbox = Mailbox()

    def subscribed(added: Collection[str]) -> None:
        baseline.record_resources(added)
        baseline.forget_resources_except(session.uris)
        mailbox.post(SUBSCRIPTIONS_CHANGED)

    session.on_change = subscribed
    loop = asyncio.get_running_loop()
    # Subscribe before the first await: without a database, changes are known only by pub/sub.
    leave = get_hub().subscribe(baseline.lists, partial(put_in_time, mailbox))
    try:
        subscription = _subscription(server, local, session, await run_with_retry(principal))
        recheck = loop.time() + seconds_until_recheck()
        mailbox.post(SUBSCRIPTIONS_CHANGED)
        while True:
            await mailbox.wait(max(recheck - loop.time(), 0))
            found = dict.fromkeys(mailbox.take())
            is_due = loop.time() >= recheck
            if is_due or SUBSCRIPTIONS_CHANGED in found:
                if is_due:
                    recheck = loop.time() + seconds_until_recheck()
                    subscription.resources.forget_rows()
                try:
                    caller = await run_in_short_thread(principal)
                    known = subscription.resources
                    subscription = _subscription(server, local, session, caller, known)
                    await retry_while_busy(partial(subscription.authorize, anew=is_due))
                except DatabaseError:
                    # A caller that was authorized before stays until the check succeeds.
                    logger.warning("Could not check a session; retrying.", exc_info=True)
                    recheck = loop.time() + RETRY_SECONDS
                put = partial(put_in_time, mailbox)
                unsubscribe = get_hub().subscribe(subscription.topics, put)
                leave()
                leave = unsubscribe
                await get_hub().prepare(subscription.topics)
                outdated = partial(baseline.take_changed, subscription.topics)
                for topic in await run_in_short_thread(outdated):
                    put_in_time(mailbox, topic)
            changed = [topic for topic in subscription.topics if topic in found]
            uris = [topic.uri for topic in subscription.unchecked(changed)]
            await retry_while_busy(partial(subscription.check_rows, uris))
            for topic in filter(subscription.covers, changed):
                await write(jsonrpc.encode(subscription.notice(topic)))
    finally:
        leave()


def _subscription(
    server: Server,
    local: LocalSession,
    session: MemorySession,
    caller: Principal,
    older: SubscribedResources | None = None,
) -> SessionSubscription:
    request = Request(0, "subscriptions/listen")
    call = Call(
        server=server,
        request=request,
        envelope=session.envelope_of(request),
        principal=caller,
        session=session,
        find_source=local.find_source,
        transport=local.transport,
    )
    available = capabilities(server, can_stream=True)
    kinds = frozenset(kind for kind in LISTS if kind in available)
    resources = SubscribedResources([*session.uris], older)
    call.result = Subscription(kinds=kinds, resources=resources)
    return SessionSubscription(call)


async def ping_client(answers: LocalAnswers, write: Write, end: Callable[[], Any]) -> None:
    """Ping the client regularly; call ``end`` after ``UNANSWERED_PINGS`` unanswered pings."""
    seconds = get_settings().ping_seconds
    if not seconds:
        return
    missed = 0
    while missed < UNANSWERED_PINGS:
        await asyncio.sleep(seconds)
        request_id = answers.new_id()
        await write(jsonrpc.encode(jsonrpc.build_request(request_id, "ping", None)))
        found = await answers.wait([request_id], seconds=seconds)
        missed = 0 if found else missed + 1
    end()


# Initial versions ---------------------------------------------------------------------------------


class _InitialVersions:
    """Versions of a server's lists and resources before the session subscribed to changes."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: dict[TopicKey, int] = {}

    @property
    def lists(self) -> list[TopicKey]:
        """The topics of all lists, whether the server has them or not."""
        return [TopicKey(self._server, kind) for kind in LISTS]

    def record_lists(self) -> None:
        """Record the versions of the lists, before ``initialize`` is answered; blocking.

        A list that changed a moment ago counts as changed later: the client may still get the old
        one.
        """
        self._note(self.lists)
        delay = list_delay()
        for topic in _recently_changed(self.lists, delay) if delay else ():
            self._known[topic] = -1

    def record_resources(self, added: Iterable[str]) -> None:
        """Record the versions of new subscriptions, before the request is answered; blocking."""
        self._note([TopicKey(self._server, "resource", lower_scheme(uri)) for uri in added])

    def forget_resources_except(self, subscribed: Collection[str]) -> None:
        """Forget the versions of resources that the session has unsubscribed from."""
        left = {*map(lower_scheme, subscribed)}
        for topic in [*self._known]:
            if topic.uri and topic.uri not in left:
                self._known.pop(topic, None)

    def _note(self, wanted: list[TopicKey]) -> None:
        found = _versions(wanted)
        if found is not None:
            for topic in wanted:
                self._known.setdefault(topic, found.get(topic, 0))

    def take_changed(self, subscribed: Iterable[TopicKey]) -> list[TopicKey]:
        """Return the topics that changed between their recording and now; blocking.

        ``subscribed`` are topics that the hub now reports: their recorded versions are not needed
        anymore and are removed. A topic that was added since is kept.
        """
        noted = {topic: self._known.pop(topic, None) for topic in subscribed}
        known = {topic: version for topic, version in noted.items() if version is not None}
        found = _versions(known) or {}
        return [topic for topic, version in found.items() if version != known[topic]]


def _recently_changed(lists: Iterable[TopicKey], seconds: float) -> list[TopicKey]:
    try:
        return versions.recently_changed(lists, seconds)
    except DatabaseError:
        return []


def _versions(wanted: Iterable[TopicKey]) -> dict[TopicKey, int] | None:
    try:
        return versions.read_versions(wanted)
    except DatabaseError:  # changes are then known only by pub/sub, as the hub has logged
        return None
