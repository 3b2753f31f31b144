"""Who sent a request over HTTP, and what the security log hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.auth import events
from mcp_django.auth.authentication import authenticate
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.exceptions import InsufficientScope
from mcp_django.runtime.ports import Server
from mcp_django.transports.exchange import Exchange


def caller_of(server: Server, exchange: Exchange) -> Principal:
    """The caller of a request, who is not let in yet; may use the database.

    Raises:
        AccessRefused: credentials came that do not hold, or too many of those.
    """
    credentials = Credentials(
        headers=exchange.headers,
        query=exchange.query,
        request=exchange.request,
        server=server.name,
        declared_resource=server.resource_url,
        upstream=server.upstream,
    )
    return authenticate(server.auth, credentials)


@contextmanager
def step_up_noted(server: Server, exchange: Exchange, principal: Principal) -> Iterator[None]:
    """Put it into the security log when the caller needs more scopes."""
    try:
        yield
    except InsufficientScope as exc:
        events.record_some(
            "step_up",
            request=exchange.request(),
            user=principal.user,
            client_id=principal.client_id,
            server=server.name,
            scopes=exc.scopes,
        )
        raise
