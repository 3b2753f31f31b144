"""All exceptions that this package raises.

MCPDjangoError
├── MCPError (code, message, data)            becomes a JSON-RPC error
│   ├── ParseError                            -32700
│   ├── InvalidRequest                        -32600
│   ├── MethodNotFound                        -32601
│   ├── InvalidParams                         -32602
│   │   ├── InvalidEnvelope                   -32602, HTTP 400
│   │   └── ResourceNotFound                  -32602 (-32002 before 2026-07-28)
│   ├── InternalError                         -32603
│   ├── HeaderMismatch                        -32020
│   ├── MissingCapability                     -32021
│   │   └── ElicitationUnavailable            the client does not support this elicitation
│   ├── UnsupportedProtocolVersion            -32022 (-32602 in a session)
│   ├── RequestCancelled                      -32800
│   ├── Unauthorized                          -31401, after the request was authorized
│   ├── Forbidden                             -31403, after the request was authorized
│   ├── RateLimited                           -31429, HTTP 429
│   │   └── TooManyRequests                   with Retry-After
│   └── Busy                                  -31503, HTTP 503
│       ├── TooManySessions                   -31429, HTTP 429
│       ├── TooManyStreams                    -31429, HTTP 429
│       └── TooManyTasks                      -31429, HTTP 429
├── ToolError                                 in-band: the model reads it and can retry
│   ├── NotApproved                           the call is not approved yet, or was rejected
│   └── UpstreamNotConnected                  the user's account is not connected
├── InvalidArguments                          in-band: which argument, which value, which rule
├── ElicitationDeclined                       in-band, unless the component catches it
├── AccessRefused                             becomes an HTTP status
│   ├── AuthenticationRequired                401 with a challenge
│   ├── InsufficientScope                     403 with a challenge
│   ├── ConnectionRefused                     403 without a challenge
│   ├── TooManyAttempts                       429 with Retry-After
│   └── AuthenticationUnavailable             503 with Retry-After
├── AlreadyRegistered
└── NotRegistered

``InputRequired`` is a ``BaseException``, so that an ``except Exception`` in a component does not
catch it before the runtime does.

Invalid declarations of the site raise Django's ``ImproperlyConfigured`` when the component is
registered. ``CallTimedOut`` and ``ExplainedFault`` are for the package itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from mcp_django.protocol.errors import (
    RATE_LIMITED,
    Busy,
    Forbidden,
    HeaderMismatch,
    InternalError,
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    MCPDjangoError,
    MCPError,
    MethodNotFound,
    MissingCapability,
    ParseError,
    RateLimited,
    RequestCancelled,
    ResourceNotFound,
    Unauthorized,
    UnsupportedProtocolVersion,
)

__all__ = [
    "AccessRefused",
    "AlreadyRegistered",
    "AuthenticationRequired",
    "AuthenticationUnavailable",
    "Busy",
    "ConnectionRefused",
    "ElicitationDeclined",
    "ElicitationUnavailable",
    "Forbidden",
    "HeaderMismatch",
    "InputRequired",
    "InsufficientScope",
    "InternalError",
    "InvalidEnvelope",
    "InvalidParams",
    "InvalidRequest",
    "MCPDjangoError",
    "MCPError",
    "MethodNotFound",
    "MissingCapability",
    "NotApproved",
    "NotRegistered",
    "ParseError",
    "RateLimited",
    "RequestCancelled",
    "ResourceNotFound",
    "TooManyAttempts",
    "TooManyRequests",
    "TooManySessions",
    "TooManyStreams",
    "TooManyTasks",
    "ToolError",
    "Unauthorized",
    "UnsupportedProtocolVersion",
    "UpstreamNotConnected",
]


class ToolError(MCPDjangoError):
    """An error that the model can react to.

    The text is sent to the model as the result of the call (``isError``), so it should say what
    is wrong and what to do instead.
    """


class NotApproved(ToolError):
    """The call waits for an approval, or was rejected; the function did not run."""


class UpstreamNotConnected(ToolError):
    """The caller's account at a third party is not connected; the text says how to connect it."""


class ElicitationDeclined(MCPDjangoError):
    """The user declined a question (``action`` is ``decline``) or dismissed it (``cancel``)."""

    def __init__(self, action: Literal["decline", "cancel"] = "decline") -> None:
        answer = "declined to answer" if action == "decline" else "dismissed the question"
        super().__init__(f"The user {answer}.")
        self.action = action


class ElicitationUnavailable(MissingCapability):
    """The client, or the connection, does not support this elicitation."""


class InputRequired(BaseException):
    """Ends a run of a component at a question that has no answer yet.

    Raised by ``ctx.elicit`` and the other client requests, and caught by the runtime, which runs
    the component again when the answer arrives. Do not catch it: avoid a bare ``except``; a
    ``finally`` is fine.
    """


class TooManyRequests(RateLimited):
    """The rate limit of a component or of the server is reached; ``retry_after`` is in seconds.

    ``data`` is ``{"retryAfter": …}`` if the time is known.
    """

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message, data={"retryAfter": retry_after} if retry_after else None)
        self.retry_after = retry_after


class TooManySessions(Busy):
    """Anonymous callers together have the maximum number of sessions."""

    code = RATE_LIMITED
    http_status = 429


class TooManyStreams(Busy):
    """The caller has too many open streams, or these subscribe to too many or too long URIs."""

    code = RATE_LIMITED
    http_status = 429


class TooManyTasks(Busy):
    """The caller has the maximum number of unfinished tasks."""

    code = RATE_LIMITED
    http_status = 429


class AlreadyRegistered(MCPDjangoError):
    """The server already has a component of this kind and name."""


class NotRegistered(MCPDjangoError):
    """The server has no component of this kind and name."""


class AccessRefused(MCPDjangoError):
    """Access is denied; transports respond with an HTTP status, never with a result."""

    status = 403
    error = "access_denied"

    def __init__(self, message: str, *, scopes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.scopes = tuple(scopes)


class AuthenticationRequired(AccessRefused):
    """Credentials are missing, invalid or expired (RFC 6750, section 3).

    ``error`` is empty for a request without credentials, ``invalid_token`` for an invalid token
    and ``invalid_request`` for a malformed header.
    """

    status = 401

    def __init__(
        self, message: str, *, error: str = "", status: int = 401, scopes: Iterable[str] = ()
    ) -> None:
        super().__init__(message, scopes=scopes)
        self.error = error
        self.status = status


class InsufficientScope(AccessRefused):
    """The token is valid but lacks a scope; ``scopes`` are all scopes that the operation needs.

    ``granted`` are the scopes of the token.
    """

    error = "insufficient_scope"

    def __init__(
        self, message: str, *, scopes: Iterable[str] = (), granted: Iterable[str] = ()
    ) -> None:
        super().__init__(message, scopes=scopes)
        self.granted = frozenset(granted)


class ConnectionRefused(AccessRefused):
    """The caller may not use this server; other credentials do not change that."""


class TooManyAttempts(AccessRefused):
    """Too many attempts from one address; it may retry after ``retry_after`` seconds."""

    status = 429
    error = "too_many_attempts"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthenticationUnavailable(AccessRefused):
    """The credential cannot be verified at the moment; retry after ``retry_after`` seconds.

    The credential is neither accepted nor rejected, so the client must keep it.
    """

    status = 503
    error = "temporarily_unavailable"

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class CallTimedOut(Exception):
    """The call exceeded its time limit; its thread may still be running."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"took longer than {seconds:g} seconds")
        self.seconds = seconds


class ExplainedFault(Exception):
    """A bug of the site, with ``client_message``, the text that the client may read."""

    client_message: str
