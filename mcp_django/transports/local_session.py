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
from contextlib import AbstractContextManager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Final

from django.db import DatabaseError

from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Catalog, Server
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused, Busy, InvalidRequest, MCPError
from mcp_django.execution import call_log, telemetry
from mcp_django.execution.call import Call, Channel, ResponseStream
from mcp_django.execution.handlers.listing import capabilities
from mcp_django.execution.handlers.session import initialize_response, negotiate
from mcp_django.execution.handlers.subscribed_resources import SubscribedResources, Subscription
from mcp_django.execution.pipeline import IncomingRequest, Opened, opened_by
from mcp_django.execution.policy import admit_caller
from mcp_django.execution.quotas import UsageBatch
from mcp_django.execution.threads import retry_while_busy, run_in_short_thread, run_with_retry
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.envelope import Handshake, Route, Stateless, classify
from mcp_django.protocol.jsonrpc import Batch, Notification, Request
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, REVISIONS, Revision
from mcp_django.protocol.uritemplate import lower_scheme
from mcp_django.storage import versions
from mcp_django.storage.cache import list_delay
from mcp_django.storage.pubsub import get_hub
from mcp_django.storage.sessions import MemorySession
from mcp_django.storage.versions import LISTS, TopicKey, list_topic, resource_topic
from mcp_django.transports.client_requests import LocalAnswers
from mcp_django.transports.outgoing import Mailbox
from mcp_django.transports.stream_access import seconds_until_recheck
from mcp_django.transports.subscriptions import RETRY_SECONDS, SessionSubscription, put_in_time

logger = logging.getLogger("mcp_django")


class LocalSession:
    """The session of one connection, and the result of its ``initialize``, if it was sent.

    Requests with an envelope are served independently of the session, unless the transport
    supports only handshake revisions. ``hold`` counts the subscriptions of the session, where they
    are limited together with those of other sessions; it raises an ``MCPError`` if there are too
    many.
    With ``reports_changes`` the client is notified of changes after ``initialize``.
    """

    def __init__(
        self,
        server: Server,
        *,
        channel: Channel,
        is_stateless_spoken: bool = True,
        reports_changes: bool = False,
        hold: Callable[[Collection[str]], object] = lambda uris: None,
    ) -> None:
        self.server = server
        self.channel = channel
        self._reports_changes = reports_changes
        self._hold = hold
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
        welcome = telemetry.trace_handshake(
            request, partial(self._agree, request), transport=self.channel.transport
        )
        if self._reports_changes:
            # Lists may change after the client reads the response and before the server subscribes.
            self.initial_versions.record_lists()
        return welcome

    def _agree(self, request: Request, operation: telemetry.Operation | None) -> bytes:
        agreement = negotiate(self.server, request)
        body = initialize_response(self.server, request, agreement, can_stream=True)
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
            telemetry.record_session_end(lasted, version=version, transport=self.channel.transport)

    def trace_notification(self, message: Notification) -> AbstractContextManager[None]:
        """Return the telemetry context manager for processing a notification."""
        version = self.agreed.revision.version if self.agreed is not None else ""
        transport = self.channel.transport
        return telemetry.trace_notification(message, version=version, transport=transport)

    def check_batch(self, batch: Batch) -> None:
        """Check that a batch is allowed.

        Raises:
            InvalidRequest: the session's revision has no batches, or a member has an envelope.
        """
        if self.agreed is None or not self.agreed.revision.batches:
            raise InvalidRequest("Send one message at a time; this session has no batches.")
        classify(batch, None, enabled=self._enabled)

    def route_of(self, request: Request) -> Route:
        """Return the envelope of a request, or that it has none and belongs to this session.

        Raises:
            MCPError: the request is invalid.
        """
        return classify(request, None, enabled=self._enabled)

    def session_of(self, request: Request) -> MemorySession:
        """Return the session for a request without an envelope.

        Raises:
            InvalidRequest: the client has to initialize it first.
        """
        session = self.agreed
        if session is None:
            if request.method != "ping":
                raise InvalidRequest("Send initialize first.")
            # A ping is answered at any time, even before initialize.
            session = MemorySession(revision=LATEST_HANDSHAKE, client_info={}, capabilities={})
        return session

    def opens_session(self, request: Request) -> bool:
        """Return whether a request is a valid ``initialize`` of a handshake revision."""
        try:
            return request.method == "initialize" and self.route_of(request) == Handshake()
        except MCPError:
            return False

    @property
    def _enabled(self) -> Sequence[str]:
        spoken = self.server.protocol_versions
        if self._is_stateless_spoken:
            return spoken
        return [version for version in spoken if not REVISIONS[version].stateless]


@dataclass(eq=False, repr=False)
class IncomingOnConnection(IncomingRequest[Opened]):
    """A request on the connection of a session; it has no headers.

    ``find_caller`` returns the caller as it is now; ``authorized`` is a caller that is already
    authorized. A request of a batch is counted with the others in ``usage_batch``. ``serve``
    returns the response, or the call that remains to be run or waited for, and raises an exception
    if the request is rejected.
    """

    local: LocalSession
    request: Request
    find_caller: Callable[[], Principal]
    _: KW_ONLY
    authorized: Principal | None = None
    usage_batch: UsageBatch | None = None
    server: Server = field(init=False)
    catalog: Catalog | None = None
    principal: Principal | None = None
    """The caller, once it is found."""

    def __post_init__(self) -> None:
        self.server = self.local.server

    def authorize(self) -> Principal:
        """Return the caller, if it may still connect; it is looked up once.

        Raises:
            AccessRefused: the caller may not connect.
            MCPError: the server's own permission raised it, or the caller cannot be looked up now.
        """
        if self.authorized is not None:
            return self.authorized

        def find() -> Principal:
            self.principal = self.find_caller()
            return self.principal

        try:
            self.authorized = admit_caller(self.server, find)
        except (AccessRefused, Busy) as exc:
            call_log.log_rejected(
                self.server,
                self.request,
                exc,
                transport=self.local.channel.transport,
                principal=self.principal,
                session_revision=self.local.revision,
            )
            raise
        return self.authorized

    def open(self, principal: Principal) -> Opened:
        """Return the response to ``initialize``, or the call of another request."""
        local, request = self.local, self.request
        route = local.route_of(request)
        if isinstance(route, Stateless):
            return self.call(local.channel, request, route.envelope, principal)
        if request.method == "initialize":
            return local.initialize(request)
        session = local.session_of(request)
        call = self.call(
            local.channel,
            request,
            session.envelope_of(request),
            principal,
            session=session,
            can_ask=True,
        )
        if local.channel.transport == "sse":
            # HTTP+SSE has one stream, and nothing else.
            call.stream = ResponseStream(has_begun=True)
        call.usage_batch = self.usage_batch
        return call

    def answer(self, call: Call) -> Opened:
        """Return the response, or the call if it remains to be run or waited for."""
        return opened_by(call)

    def refuse(self, exc: Exception, call: Call | None) -> None:
        """Return ``None``, so that ``serve`` raises the exception; the connection answers it."""


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
        """End the session if a task failed: the client would get no further notifications."""
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
    session, initial_versions = local.agreed, local.initial_versions
    assert session is not None
    mailbox = Mailbox()

    def subscribed(added: Collection[str]) -> None:
        initial_versions.record_resources(added)
        initial_versions.forget_resources_except(session.uris)
        mailbox.post(SUBSCRIPTIONS_CHANGED)

    session.on_change = subscribed
    loop = asyncio.get_running_loop()
    # Subscribe before the first await: without a database, changes are known only by pub/sub.
    leave = get_hub().subscribe(initial_versions.lists, partial(put_in_time, mailbox))
    try:
        subscription = _subscription(server, local, session, await run_with_retry(principal))
        recheck = loop.time() + seconds_until_recheck()
        mailbox.post(SUBSCRIPTIONS_CHANGED)
        while True:
            await mailbox.wait(max(recheck - loop.time(), 0))
            posted = dict.fromkeys(mailbox.take())
            is_due = loop.time() >= recheck
            if is_due or SUBSCRIPTIONS_CHANGED in posted:
                if is_due:
                    recheck = loop.time() + seconds_until_recheck()
                    subscription.resources.forget_rows()
                try:
                    caller = await run_in_short_thread(principal)
                    resources = subscription.resources
                    subscription = _subscription(server, local, session, caller, resources)
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
                outdated = partial(initial_versions.take_changed, subscription.topics)
                for topic in await run_in_short_thread(outdated):
                    put_in_time(mailbox, topic)
            changed = [topic for topic in subscription.topics if topic in posted]
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
    available = capabilities(server, can_stream=True)
    kinds = frozenset(kind for kind in LISTS if kind in available)
    resources = SubscribedResources([*session.uris], older)
    selected = Subscription(kinds=kinds, resources=resources)
    return SessionSubscription(server, session, caller, local.channel, selected)


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
        responses = await answers.wait([request_id], seconds=seconds)
        missed = 0 if responses else missed + 1
    end()


class _InitialVersions:
    """Versions of a server's lists and resources before the session subscribed to changes."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._known: dict[TopicKey, int] = {}

    @property
    def lists(self) -> list[TopicKey]:
        """The topics of all lists, whether the server has them or not."""
        return [list_topic(self._server, kind) for kind in LISTS]

    def record_lists(self) -> None:
        """Record the versions of the lists, before ``initialize`` is answered; blocking.

        A list that changed a moment ago counts as changed later: the client may still get the old
        list.
        """
        self._note(self.lists)
        delay = list_delay()
        if not delay:
            return
        with suppress(DatabaseError):
            for topic in versions.recently_changed(self.lists, delay):
                self._known[topic] = -1

    def record_resources(self, added: Iterable[str]) -> None:
        """Record the versions of new subscriptions, before the request is answered; blocking."""
        self._note([resource_topic(self._server, lower_scheme(uri)) for uri in added])

    def forget_resources_except(self, subscribed: Collection[str]) -> None:
        """Forget the versions of resources that the session has unsubscribed from."""
        uris = {*map(lower_scheme, subscribed)}
        for topic in [*self._known]:
            if topic.uri and topic.uri not in uris:
                self._known.pop(topic, None)

    def _note(self, topics: list[TopicKey]) -> None:
        versions_by_topic = _versions(topics)
        if versions_by_topic is not None:
            for topic in topics:
                self._known.setdefault(topic, versions_by_topic.get(topic, 0))

    def take_changed(self, subscribed: Iterable[TopicKey]) -> list[TopicKey]:
        """Return the topics that changed between their recording and now; blocking.

        ``subscribed`` are topics that the hub now reports: their recorded versions are no longer
        needed and are removed. A topic that was added since is kept.
        """
        noted = {topic: self._known.pop(topic, None) for topic in subscribed}
        recorded_versions = {
            topic: version for topic, version in noted.items() if version is not None
        }
        versions_by_topic = _versions(recorded_versions) or {}
        return [
            topic
            for topic, version in versions_by_topic.items()
            if version != recorded_versions[topic]
        ]


def _versions(topics: Iterable[TopicKey]) -> dict[TopicKey, int] | None:
    try:
        return versions.read_versions(topics)
    except DatabaseError:  # changes are then known only by pub/sub, as the hub has logged
        return None
