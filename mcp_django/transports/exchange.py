"""What a mount hands to the HTTP core and what it receives; finished replies; who is calling.

A mount hands over an ``Exchange``. ``Reply`` is finished; ``Work`` is a call whose answer is one
JSON document and that the mount runs in the right thread; ``Stream`` is a series of events that
an event loop sends.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from mcp_django.auth import security_log
from mcp_django.auth.authentication import authenticate
from mcp_django.auth.backends import BEARER_ONLY
from mcp_django.auth.challenges import challenge, metadata_url
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.limits import UNPROVEN, presumed_caller
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.core.context import Cancellation
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    AuthenticationUnavailable,
    Busy,
    InsufficientScope,
    MCPError,
    TooManyAttempts,
)
from mcp_django.execution.call import Invocation, Result
from mcp_django.execution.policy import is_open
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import INVALID_REQUEST, RateLimited, error_object, http_status
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.jsonrpc import Batch, Failure, Notification, Request, RequestId, Response
from mcp_django.protocol.revisions import Revision

if TYPE_CHECKING:
    from django.http import HttpRequest


JSON = "application/json"
EVENT_STREAM = "text/event-stream"

Endpoint = Literal["mcp", "sse", "messages", "health"]
"""The endpoint of Streamable HTTP, one of the two of HTTP+SSE, or whether the site is well."""

HeaderList = tuple[tuple[str, str], ...]
Message = Request | Notification | Response | Batch | Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One HTTP request. ``request`` builds its Django form when somebody wants it.

    ``scheme`` is that of its client: what ``SECURE_PROXY_SSL_HEADER`` says counts.
    """

    verb: str
    scheme: str
    headers: Headers
    body: bytes
    query: str
    path: str
    request: Callable[[], HttpRequest]
    can_stream: bool
    endpoint: Endpoint = "mcp"
    cancellation: Cancellation = field(default_factory=Cancellation)
    message: Message | None = None
    """What the body says, where the mount has decoded it already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A finished answer."""

    status: int
    headers: HeaderList = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A call that was admitted and is answered with one JSON document."""

    invocation: Invocation
    headers: HeaderList
    ask: Callable[[Result], Stream] | None = None
    """What becomes of a call that asks on a stream of its own, where it can."""

    @property
    def is_async(self) -> bool:
        """Whether the component's function belongs on the event loop."""
        return self.invocation.component.function.is_async


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """An answer of many events; ``open`` starts it on the running loop."""

    headers: HeaderList
    open: Callable[[], AsyncGenerator[bytes, None]]


Outcome = Reply | Work | Stream


# Finished replies ---------------------------------------------------------------------------------

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


# Refusals with a challenge ------------------------------------------------------------------------


def refused(exc: AccessRefused, server: Server, exchange: Exchange) -> Reply:
    """The answer to a caller who may not go on, with the way to a better token (RFC 9728).

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


# The caller of a request --------------------------------------------------------------------------

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
