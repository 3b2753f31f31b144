"""What an exception comes to on a channel: there are no statuses and no challenges there."""

from __future__ import annotations

import logging
from typing import Any

from mcp_django.exceptions import AccessRefused, AuthenticationRequired, InternalError, MCPError
from mcp_django.protocol.envelope import revision_of
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED, error_object
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import Revision

logger = logging.getLogger("mcp_django")

HINT = (
    "This needs credentials: start the server with --user USERNAME, or with MCP_DJANGO_USER or "
    "MCP_DJANGO_TOKEN in its environment."
)
# Every request is served for the caller who opened the stream.
HINTS = {
    "sse": "This needs credentials: open the stream with the header 'Authorization: Bearer TOKEN'."
}


def error_of(
    request: Request, exc: Exception, *, session: Revision | None, transport: str
) -> dict[str, Any]:
    """The error object that an exception comes to, in a session of this revision, if in any."""
    if isinstance(exc, AccessRefused):
        return _access_error(exc, HINTS.get(transport, HINT))
    if not isinstance(exc, MCPError):
        logger.error("%s could not be answered.", request.method, exc_info=exc)
        exc = InternalError("The request failed for a reason that is no fault of its own.")
    return error_object(exc, revision_of(request, session))


def _access_error(exc: AccessRefused, hint: str) -> dict[str, Any]:
    """What HTTP says by its status; there are no challenges here, so the message helps."""
    is_unknown = isinstance(exc, AuthenticationRequired)
    error: dict[str, Any] = {"code": UNAUTHORIZED if is_unknown else FORBIDDEN}
    # Without an error nothing was presented, and the caller is nobody.
    error["message"] = hint if is_unknown and not exc.error else exc.message
    if exc.scopes:
        error["data"] = {"scopes": list(exc.scopes)}
    return error
