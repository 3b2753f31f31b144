"""The session of a client whose connection is the session: stdio, HTTP+SSE, a test."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial

from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import InvalidRequest, MCPError
from mcp_django.protocol.envelope import Stateless, classify
from mcp_django.protocol.jsonrpc import Batch, Notification, Request
from mcp_django.protocol.revisions import LATEST_HANDSHAKE, REVISIONS, Revision
from mcp_django.runtime import handshake, telemetry
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.session import MemorySession
from mcp_django.transports.baseline import Baseline
from mcp_django.transports.client_answers import LocalAnswers


class LocalSession:
    """What one connection agreed on, if it did.

    Requests with an envelope are served by that and know nothing of the session (VER-1), unless
    the transport carries handshake revisions alone.
    """

    def __init__(
        self,
        server: Server,
        *,
        is_stateless_spoken: bool = True,
        origin: str = "client",
        acting: str = "",
        transport: str = "",
    ) -> None:
        self._server = server
        self._origin = origin
        self._acting = acting
        self._transport = transport
        self._is_stateless_spoken = is_stateless_spoken
        self.agreed: MemorySession | None = None
        self._began: float | None = None
        self.answers = LocalAnswers()
        self.baseline = Baseline(server.name)

    @property
    def revision(self) -> Revision | None:
        """The negotiated revision, ``None`` before there is one."""
        return self.agreed.revision if self.agreed is not None else None

    def initialize(self, request: Request) -> bytes:
        """The response to ``initialize``.

        Raises:
            InvalidRequest: the connection is initialized already (VER-19).
            InvalidParams: no revision was asked for.
        """
        if self.agreed is not None:
            raise InvalidRequest("This connection is initialized already.")
        return telemetry.initialize(
            request, partial(self._agree, request), transport=self._transport
        )

    def _agree(self, request: Request, operation: telemetry.Operation | None) -> bytes:
        agreement = handshake.agree(self._server, request)
        body = handshake.welcome(self._server, request, agreement, can_stream=True)
        self.agreed = MemorySession(
            revision=agreement.revision,
            client_info=agreement.client_info,
            capabilities=agreement.capabilities,
        )
        self._began = time.perf_counter()
        if operation is not None:
            operation.agreed(agreement.revision.version)
        return body

    def end(self) -> None:
        """Note that the connection is over, more than once if need be."""
        if self.agreed is not None and self._began is not None:
            lasted, self._began = time.perf_counter() - self._began, None
            version = self.agreed.revision.version
            telemetry.session_ended(lasted, version=version, transport=self._transport)

    def notified(self, message: Notification) -> AbstractContextManager[None]:
        """What surrounds the doing of what a notification says."""
        version = self.agreed.revision.version if self.agreed is not None else ""
        return telemetry.notified(message, version=version, transport=self._transport)

    def check_batch(self, batch: Batch) -> None:
        """Refuse several messages in one, where they may not be (BAT-5, BAT-9).

        Raises:
            InvalidRequest: the session has no batches, or a member needs no session.
        """
        if self.agreed is None or not self.agreed.revision.batches:
            raise InvalidRequest("Send one message at a time.")
        classify(batch, None, enabled=self._enabled)

    def incoming(self, principal: Principal, request: Request) -> Incoming:
        """A request that came without headers, in the form that the runtime serves.

        Raises:
            MCPError: it cannot be served; write it for ``revision_of(request, self.revision)``.
        """
        route = classify(request, None, enabled=self._enabled)
        if isinstance(route, Stateless):
            return Incoming(
                server=self._server,
                request=request,
                envelope=route.envelope,
                principal=principal,
                origin=self._origin,
                acting=self._acting,
                transport=self._transport,
            )
        session = self.agreed
        if session is None:
            if request.method != "ping":
                raise InvalidRequest("Send initialize first.")
            # Whether anybody is there may be asked at any time (PNG-1).
            session = MemorySession(revision=LATEST_HANDSHAKE, client_info={}, capabilities={})
        return Incoming(
            server=self._server,
            request=request,
            envelope=handshake.envelope_of(session, request),
            principal=principal,
            session=session,
            can_ask=True,
            origin=self._origin,
            acting=self._acting,
            transport=self._transport,
        )

    def is_initialize(self, request: Request) -> bool:
        """Whether a request opens the session rather than being one of 2026-07-28."""
        if request.method != "initialize":
            return False
        route = classify(request, None, enabled=self._enabled)
        return not isinstance(route, Stateless)

    def opens_session(self, request: Request) -> bool:
        """``is_initialize``, where a request that cannot be read is none."""
        try:
            return self.is_initialize(request)
        except MCPError:
            return False

    @property
    def _enabled(self) -> Sequence[str]:
        versions = self._server.protocol_versions
        if self._is_stateless_spoken:
            return versions
        return [one for one in versions if not REVISIONS[one].stateless]
