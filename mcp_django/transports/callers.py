"""Who sent a request over HTTP, and what the security log hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.auth import events
from mcp_django.auth.authentication import authenticate
from mcp_django.auth.backends import BEARER_ONLY
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.permissions import (
    HasCodename,
    InGroups,
    IsAuthenticated,
    IsStaff,
    permissions,
)
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired, InsufficientScope
from mcp_django.runtime.ports import Server
from mcp_django.transports.exchange import Exchange

# What is read of the body of a request that is refused for want of a credential.
MAX_REFUSED_BYTES = 64 * 1024
# Permissions that no caller without a name has; a subclass may decide otherwise.
KNOWN = frozenset({IsAuthenticated, IsStaff, HasCodename, InGroups})


def caller_of(server: Server, exchange: Exchange) -> Principal:
    """The caller of a request, who is not let in yet; may use the database.

    Raises:
        AccessRefused: credentials came that do not hold, or too many of those.
    """
    return authenticate(server.auth, _credentials_of(server, exchange))


def _credentials_of(server: Server, exchange: Exchange) -> Credentials:
    return Credentials(
        headers=exchange.headers,
        query=exchange.query,
        request=exchange.request,
        server=server.name,
        declared_resource=server.resource_url,
        upstream=server.upstream,
    )


def body_limit(server: Server, exchange: Exchange) -> int:
    """How many bytes of a body are worth reading for what its caller presents.

    None where the form of that is wrong, and few where it is needed and missing: either is refused,
    whatever the body is.
    """
    try:
        has_bearer = _credentials_of(server, exchange).bearer is not None
    except AuthenticationRequired:
        return 0
    is_missing = not has_bearer and "authorization" not in exchange.headers
    if is_missing and needs_bearer(server):
        return MAX_REFUSED_BYTES
    return get_settings().max_body_bytes


def needs_bearer(server: Server) -> bool:
    """Whether nobody is let in without a token, as far as that is certain."""
    guards = permissions(server.permission)
    return BEARER_ONLY.issuperset(server.auth) and any(type(one) in KNOWN for one in guards)


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
