"""Refusals of callers, with the way to a better token where there is one (RFC 6750, RFC 9728)."""

from __future__ import annotations

from mcp_django.auth.challenges import metadata_url
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.exceptions import AccessRefused, AuthenticationRequired, InsufficientScope
from mcp_django.transports.exchange import Exchange, Reply
from mcp_django.transports.replies import access_reply


def refused(exc: AccessRefused, server: Server, exchange: Exchange) -> Reply:
    """The answer to a caller who may not go on.

    Where this site serves the endpoint's metadata, the challenge names it, and every scope that a
    token needs for this request: those of the server and those of the operation (AUT-4, 5, 6).
    """
    if not isinstance(exc, (AuthenticationRequired, InsufficientScope)):
        return access_reply(exc)
    url = metadata_url(server, exchange.request(), _address(exchange))
    if url is None:
        return access_reply(exc)
    scopes = tuple(dict.fromkeys((*server.scopes, *exc.scopes, *_granted(exc))))
    return access_reply(exc, scopes=scopes, parameters={"resource_metadata": url})


def _granted(exc: AccessRefused) -> list[str]:
    """What the token has, for clients that ask for nothing but what they are told (AUT-8)."""
    if isinstance(exc, InsufficientScope) and get_settings().challenge_scopes == "granted":
        return sorted(exc.granted)
    return []


def _address(exchange: Exchange) -> str:
    """The address that the client was configured with."""
    if exchange.endpoint != "messages":
        return exchange.path
    # It was told this one by the stream.
    mount = exchange.path.removesuffix("/").rpartition("/")[0]
    return f"{mount}/sse"
