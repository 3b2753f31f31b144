"""Who sent a request over HTTP, and what the security log hears of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mcp_django.auth import security_log
from mcp_django.auth.authentication import authenticate
from mcp_django.auth.backends import BEARER_ONLY
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.limits import UNPROVEN, presumed_caller
from mcp_django.auth.principal import Principal
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AuthenticationRequired, InsufficientScope
from mcp_django.runtime.policy import is_open
from mcp_django.transports.exchange import Exchange

# More of a body is read from a caller who is let in.
MAX_UNPROVEN_BYTES = 64 * 1024


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


def is_malformed(server: Server, exchange: Exchange) -> bool:
    """Whether the form of a credential is wrong: it is refused, whatever the body is."""
    if "authorization" not in exchange.headers and not exchange.query:
        return False
    try:
        _credentials_of(server, exchange).bearer  # noqa: B018 - read for what it raises
    except AuthenticationRequired:
        return True
    return False


def is_unproven(server: Server, exchange: Exchange) -> bool:
    """Whether the head alone says who is calling, and this process has not let them in lately.

    Other backends than those that look at the bearer alone may read the body, or what middleware
    puts on a request.
    """
    if not BEARER_ONLY.issuperset(server.auth):
        return False
    if "authorization" not in exchange.headers:
        return not is_open(server)
    return presumed_caller(exchange.headers) == UNPROVEN


@contextmanager
def step_up_noted(server: Server, exchange: Exchange, principal: Principal) -> Iterator[None]:
    """Put it into the security log when the caller needs more scopes."""
    try:
        yield
    except InsufficientScope as exc:
        security_log.record_some(
            "step_up",
            request=exchange.request(),
            user=principal.user,
            client_id=principal.client_id,
            server=server.name,
            scopes=exc.scopes,
        )
        raise
