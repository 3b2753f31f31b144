"""``Exchange``, one HTTP request as a mount passes it to the core; replies and authentication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import TYPE_CHECKING, Any, Literal

from django.core.exceptions import SuspiciousOperation
from django.db import InterfaceError, OperationalError
from django.http import Http404

from mcp_django.auth import security_log
from mcp_django.auth.authentication import authenticate, confirm_principal
from mcp_django.auth.backends import BEARER_BACKENDS
from mcp_django.auth.challenges import build_challenge, metadata_url
from mcp_django.auth.credentials import SECRET_HEADERS, Credentials, without_credentials
from mcp_django.auth.limits import UNPROVEN, Member, presumed_caller, presumed_share
from mcp_django.auth.principal import Principal
from mcp_django.components.catalog import Server
from mcp_django.components.context import Cancellation
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    AuthenticationUnavailable,
    Busy,
    InsufficientScope,
    InternalError,
    MCPError,
    TooManyAttempts,
)
from mcp_django.execution.call import Channel
from mcp_django.execution.policy import is_open
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import INVALID_REQUEST, RateLimited
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import (
    Batch,
    DecodingFailure,
    Notification,
    Request,
    RequestId,
    Response,
)
from mcp_django.protocol.revisions import Revision, http_status
from mcp_django.tenants import user_middleware
from mcp_django.transports.outcome import BASE_HEADERS, HeaderList, Reply

if TYPE_CHECKING:
    from django.http import HttpRequest


logger = logging.getLogger("mcp_django")

Endpoint = Literal["mcp", "sse", "messages", "health"]
"""The Streamable HTTP endpoint, one of the two of HTTP+SSE, or the health check."""

Message = Request | Notification | Response | Batch | DecodingFailure


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Exchange(Channel):
    """One HTTP request; ``build_request`` builds its Django request, given the body.

    It is the channel of its own message or batch. Its headers contain credentials, so it has no
    ``repr`` that shows them.

    ``scheme`` is the client's scheme, which takes ``SECURE_PROXY_SSL_HEADER`` into account; it may
    be empty if the request has neither Origin nor Authorization, which need it.
    """

    verb: str
    scheme: str
    headers: Headers
    query: str
    path: str
    # Each mount states these two: no default would be safe.
    can_stream: bool
    find_source: Callable[[], str | None]
    build_request: Callable[[bytes], HttpRequest]
    cancellation: Cancellation
    transport: str = "http"
    endpoint: Endpoint = "mcp"
    body: bytes = b""
    message: Message | None = None
    """The decoded body, if the mount has already decoded it."""
    is_usual: bool = False
    """Whether the head of a POST is like one that was accepted before; see ``has_usual_head``."""
    django_request: HttpRequest | None = None
    """The Django request, once it is built; it has the body that the exchange had then."""
    carry_caller: Callable[[Principal], Callable[[], HttpRequest]] | None = None
    """Sets the caller on the request that middleware holds (``auth.credentials.carry_caller``)."""
    received_request: Callable[[], HttpRequest] | None = None
    """Returns a copy of the request as it was before ``carry_caller`` set the caller."""

    def request(self) -> HttpRequest:
        """Return the Django request, which is built when it is first needed."""
        if self.django_request is None:
            self.django_request = self.build_request(self.body)
        return self.django_request

    def presumed_share(self) -> str | Member:
        """Return whose share of the threads the request uses before it is authenticated."""
        return presumed_share(self.headers, self.find_source)

    def release_body(self) -> None:
        """Free the body, which may be megabytes, before a long answer; it is empty afterwards."""
        self.body, self.message = b"", None
        request: Any = self.request()
        request._body, request._stream = b"", BytesIO()

    def component_headers(self) -> Headers:
        """Return the headers without those that contain credentials."""
        return self.headers.without(*SECRET_HEADERS)

    def build_component_request(self, principal: Principal) -> HttpRequest:
        """Build the request that components see: without credentials, with the caller as user."""
        return without_credentials(self.request(), principal)

    def confirm_caller(self, server: Server, principal: Principal) -> Principal | None:
        """Return the caller as it is now; ``None`` if the request would be rejected now."""
        return confirm_principal(principal, server.auth, credentials_of(server, self))


# Replies ------------------------------------------------------------------------------------------


def json_reply(status: int, body: bytes, headers: HeaderList = ()) -> Reply:
    """Return a JSON reply."""
    return Reply(status=status, headers=(*BASE_HEADERS, *headers), body=body)


def accepted() -> Reply:
    """Return the empty 202 reply to an accepted notification or response."""
    return Reply(status=202, headers=(("Cache-Control", "no-store"),))


def error_reply(
    exc: MCPError, request_id: RequestId | None, revision: Revision | None = None
) -> Reply:
    """Return a JSON-RPC error with the HTTP status that the revision defines for it."""
    headers: HeaderList = ()
    if isinstance(exc, (Busy, RateLimited)):
        headers = (("Retry-After", str(dict(exc.data or {}).get("retryAfter", 1))),)
    body = jsonrpc.encode_failure(request_id, exc, revision)
    return json_reply(http_status(exc, revision), body, headers)


def internal_error_reply(request_id: RequestId | None) -> Reply:
    """Return the reply to a request that failed because of a bug or of the database."""
    # JSON, since a client would take an HTML page for a server of another revision.
    error = InternalError("The request failed because of a server error.")
    return replace(error_reply(error, request_id), status=500)


def access_reply(
    exc: AccessRefused,
    *,
    scopes: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Reply:
    """Return the reply to a rejected caller: with a challenge (RFC 6750), or a time to retry."""
    body = {"error": exc.error or "unauthorized", "error_description": exc.message}
    # A cache that ignores `no-store` must not serve one caller's rejection to another.
    headers: HeaderList = (("Vary", "Authorization, Origin"),)
    if isinstance(exc, (TooManyAttempts, AuthenticationUnavailable)):
        headers = (*headers, ("Retry-After", str(exc.retry_after)))
    elif header := build_challenge(exc, scopes=scopes, parameters=parameters):
        headers = (("WWW-Authenticate", header), *headers)
    return json_reply(exc.status, jsonrpc.encode(body), headers)


def tenant_refusal(exc: Exception) -> Reply:
    """Return the reply to a request whose tenant the site's ``THREAD_CONTEXT`` cannot determine."""
    if isinstance(exc, Http404):
        return jsonrpc_error_reply(404, "There is no MCP server at this address.")
    if isinstance(exc, (SuspiciousOperation, UnicodeDecodeError)):
        return jsonrpc_error_reply(400, "The Host header or the path is not valid here.")
    if isinstance(exc, (TimeoutError, InterfaceError, OperationalError)):
        logger.warning("The tenant of a request cannot be looked up (%s).", type(exc).__name__)
        return error_reply(Busy("The server is busy; try again in a moment."), None)
    logger.error("The tenant of a request cannot be told.", exc_info=exc)
    return internal_error_reply(None)


def jsonrpc_error_reply(
    status: int,
    message: str,
    *,
    headers: HeaderList = (),
    request_id: RequestId | None = None,
) -> Reply:
    """Return a JSON-RPC error with this status; without an id if the body was not parsed yet."""
    error: dict[str, Any] = {"code": INVALID_REQUEST, "message": message}
    return json_reply(status, jsonrpc.encode(jsonrpc.build_error(request_id, error)), headers)


def challenge_reply(exc: AccessRefused, server: Server, exchange: Exchange) -> Reply:
    """Return the reply to a rejected caller, with a challenge (RFC 9728).

    If this site serves the endpoint's resource metadata, the challenge names its URL and all
    scopes that a token needs for this request: those of the server and those of the operation.
    """
    if not isinstance(exc, (AuthenticationRequired, InsufficientScope)):
        return access_reply(exc)
    url = metadata_url(server, exchange.request(), _address(exchange))
    if url is None:
        return access_reply(exc)
    scopes = [*server.scopes, *exc.scopes]
    if isinstance(exc, InsufficientScope) and get_settings().challenge_scopes == "granted":
        # For clients that request only the scopes in the challenge.
        scopes += sorted(exc.granted)
    return access_reply(
        exc, scopes=tuple(dict.fromkeys(scopes)), parameters={"resource_metadata": url}
    )


def _address(exchange: Exchange) -> str:
    """Return the URL path that the client was configured with."""
    if exchange.endpoint != "messages":
        return exchange.path
    # The client learned the path of `messages` from the HTTP+SSE stream.
    mount = exchange.path.removesuffix("/").rpartition("/")[0]
    return f"{mount}/sse"


# Authentication -----------------------------------------------------------------------------------

# Larger bodies are read only from authorized callers.
MAX_UNVERIFIED_BYTES = 64 * 1024


def authenticate_exchange(server: Server, exchange: Exchange) -> Principal:
    """Authenticate the caller of a request, without authorization; may query the database.

    Raises:
        AccessRefused: the credentials are invalid, or there were too many failed attempts.
    """
    principal = authenticate(server.auth, credentials_of(server, exchange))
    if (middleware := user_middleware()) and principal.backend != "session":
        raise AuthenticationRequired(
            f"{middleware} takes the tenant from a user who has signed in to the site, so only its "
            "sessions are accepted here."
        )
    return principal


def credentials_of(server: Server, exchange: Exchange) -> Credentials:
    """Return the credentials of a request."""
    return Credentials(
        headers=exchange.headers,
        query=exchange.query,
        request=exchange.received_request or exchange.request,
        server=server.name,
        declared_resource=server.resource_url,
        scheme=exchange.scheme,
        path=exchange.path,
        upstream=server.upstream,
    )


def has_malformed_credential(server: Server, exchange: Exchange) -> bool:
    """Return whether a credential is malformed, so the request is rejected whatever its body."""
    if "authorization" not in exchange.headers and not exchange.query:
        return False
    try:
        credentials_of(server, exchange).bearer  # noqa: B018 - read for what it raises
    except AuthenticationRequired:
        return True
    return False


def is_caller_unverified(server: Server, exchange: Exchange) -> bool:
    """Return whether the headers alone identify the caller, and it was not recently authenticated.

    False for backends that use more than the bearer token: they may need the body, or what
    middleware adds to the request.
    """
    if not BEARER_BACKENDS.issuperset(server.auth):
        return False
    if "authorization" not in exchange.headers:
        return not is_open(server)
    return presumed_caller(exchange.headers) == UNPROVEN


def record_step_up(
    server: Server, exchange: Exchange, principal: Principal, exc: InsufficientScope
) -> None:
    """Record in the security log that the caller needs more scopes."""
    security_log.record_limited(
        "step_up",
        request=exchange.request(),
        user=principal.user,
        client_id=principal.client_id,
        server=server.name,
        scopes=exc.scopes,
    )
