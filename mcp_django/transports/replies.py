"""The finished answers of the HTTP transport."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mcp_django.auth.challenges import challenge
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationUnavailable,
    Busy,
    MCPError,
    TooManyAttempts,
)
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import INVALID_REQUEST, RateLimited, error_object, http_status
from mcp_django.protocol.jsonrpc import RequestId
from mcp_django.protocol.revisions import Revision
from mcp_django.transports.exchange import EVENT_STREAM, JSON, HeaderList, Reply

BASE_HEADERS: HeaderList = (
    ("Content-Type", JSON),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
)

# A proxy that buffers, compresses or caches a stream holds its events back (HTTP-7).
SSE_HEADERS: HeaderList = (
    ("Content-Type", EVENT_STREAM),
    ("Cache-Control", "no-cache, no-transform"),
    ("X-Accel-Buffering", "no"),
    ("X-Content-Type-Options", "nosniff"),
)


def json_reply(status: int, body: bytes, headers: HeaderList = ()) -> Reply:
    """A JSON document."""
    return Reply(status=status, headers=(*BASE_HEADERS, *headers), body=body)


def accepted() -> Reply:
    """A notification was taken; there is nothing to say (HTTP-4)."""
    return Reply(status=202, headers=(("Cache-Control", "no-store"),))


def error_reply(
    exc: MCPError, request_id: RequestId | None, revision: Revision | None = None
) -> Reply:
    """A JSON-RPC error under the status that its revision gives it."""
    message = jsonrpc.error_message(request_id, error_object(exc, revision))
    headers: HeaderList = ()
    if isinstance(exc, (Busy, RateLimited)):
        headers = (("Retry-After", str(dict(exc.data or {}).get("retryAfter", 1))),)
    return json_reply(http_status(exc, revision), jsonrpc.encode(message), headers)


def access_reply(
    exc: AccessRefused,
    *,
    scopes: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Reply:
    """401 or 403 with its challenge (RFC 6750)."""
    body = {"error": exc.error or "unauthorized", "error_description": exc.message}
    header = challenge(exc, scopes=scopes, parameters=parameters)
    headers: HeaderList = (("WWW-Authenticate", header),) if header else ()
    # Nothing may give one caller's refusal to another, whatever it makes of no-store.
    headers = (*headers, ("Vary", "Authorization, Origin"))
    if isinstance(exc, (TooManyAttempts, AuthenticationUnavailable)):
        headers = (("Retry-After", str(exc.retry_after)),)
    return json_reply(exc.status, jsonrpc.encode(body), headers)


def refusal(
    status: int,
    message: str,
    *,
    headers: HeaderList = (),
    request_id: RequestId | None = None,
) -> Reply:
    """A request that HTTP refuses; mostly before it is parsed, so without an id (RPC-11)."""
    error: dict[str, Any] = {"code": INVALID_REQUEST, "message": message}
    return json_reply(status, jsonrpc.encode(jsonrpc.error_message(request_id, error)), headers)
