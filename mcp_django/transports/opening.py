"""From a request on a channel to its response, or to what is left to run for it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from django.core.exceptions import SynchronousOnlyOperation

from mcp_django.auth.limits import UNPROVEN
from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import TooManyRequests
from mcp_django.protocol.jsonrpc import Request
from mcp_django.runtime import throttling
from mcp_django.runtime.dispatch import WORK_METHODS, dispatch, respond
from mcp_django.runtime.incoming import Awaiting, Invocation, Listening
from mcp_django.runtime.journal import door
from mcp_django.runtime.policy import admit_connection
from mcp_django.runtime.pools import LOCAL, count_for, pool
from mcp_django.runtime.telemetry import around
from mcp_django.runtime.throttling import Tally
from mcp_django.transports.local_batches import Muster
from mcp_django.transports.local_session import LocalSession

Opened: TypeAlias = bytes | Invocation | Listening | Awaiting


class Caller(Protocol):
    """Who is calling; ``mcp_django.auth.authentication.LocalCaller`` is one."""

    def principal(self) -> Principal:
        """The caller as of now; may use the database."""


class Opening:
    """Lets the caller of one channel in, anew for each request (IO-8).

    ``admitted`` is the caller as the server let it in at the beginning, ``None`` if it did not.
    """

    def __init__(
        self,
        server: Server,
        caller: Caller,
        session: LocalSession,
        *,
        admitted: Principal | None,
        transport: str,
    ) -> None:
        self._server = server
        self._caller = caller
        self._session = session
        self._admitted = admitted
        self._transport = transport

    def caller(self) -> Principal:
        """The caller as of now; may use the database.

        Raises:
            AccessRefused: the server does not let it in, or not any more.
        """
        self._server.refresh()
        principal = self._caller.principal()
        count_for(principal.user_key)
        admit_connection(self._server, principal)
        return principal

    async def open(self, request: Request, muster: Muster | None) -> Opened:
        """The response, or what is left to run for it.

        Raises:
            MCPError: it cannot be served.
            AccessRefused: the caller is not let in.
        """
        if request.method == "server/discover" and self._admitted is not None:
            # A client that probes is answered at once, without the database (IO-11), unless what
            # the site says of itself is kept there.
            with suppress(SynchronousOnlyOperation):
                return self._open_for(self._admitted, request)
        is_work = request.method in WORK_METHODS
        if muster is not None and not is_work:
            await muster.all_counted(request)
        work = partial(self._open_for_caller, request, muster.tally if muster else None)
        where = pool("work" if is_work else "desk")
        caller = self._admitted.user_key if self._admitted is not None else UNPROVEN
        opened = await door.admitted(
            *(where, work, self._server, request),
            transport=self._transport,
            key=None if self._transport in LOCAL else caller,
            session=self._session.revision,
        )
        if muster is not None and is_work:
            try:
                await muster.all_counted(request)
            except TooManyRequests as exc:
                if isinstance(opened, Invocation):
                    around.refused(opened.entry, exc)
                told = throttling.in_band(request, exc)
                if told is None or not isinstance(opened, Invocation):
                    raise
                return respond(opened.incoming, told)
        return opened

    def _open_for_caller(self, request: Request, tally: Tally | None = None) -> Opened:
        agreed = self._session.revision
        with door.watched(self._server, request, transport=self._transport, session=agreed):
            principal = self.caller()
        if self._session.is_initialize(request):
            answer = self._session.initialize(request)
            # Whoever reads the answer may change something before anybody listens for it.
            self._session.baseline.note_lists()
            return answer
        return self._open_for(principal, request, tally)

    def _open_for(
        self, principal: Principal, request: Request, tally: Tally | None = None
    ) -> Opened:
        incoming = replace(self._session.incoming(principal, request), tally=tally)
        outcome = dispatch(incoming)
        if isinstance(outcome, (Invocation, Listening, Awaiting)):
            return outcome
        return respond(incoming, outcome)
