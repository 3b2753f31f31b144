"""Every exception this package raises on purpose.

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
│   │   └── ElicitationUnavailable            the client has no such form, or no way to show one
│   ├── UnsupportedProtocolVersion            -32022 (-32602 in a session)
│   ├── RequestCancelled                      -32800
│   ├── RateLimited                           -31429, HTTP 429
│   │   └── TooManyRequests                   with Retry-After
│   └── Busy                                  -31503, HTTP 503
│       ├── TooManySessions                   -31429, HTTP 429
│       ├── TooManyStreams                    -31429, HTTP 429
│       └── TooManyTasks                      -31429, HTTP 429
├── ToolError                                 in-band: the model reads it and tries again
│   ├── NotApproved                           nobody said yes to this call, or somebody no
│   └── UpstreamNotConnected                  the user has given no access there, or not any more
├── InvalidArguments                          in-band: which argument, which value, which rule
├── ElicitationDeclined                       in-band, unless the component catches it
├── AccessRefused                             becomes an HTTP status
│   ├── AuthenticationRequired                401 with a challenge
│   ├── InsufficientScope                     403 with a challenge
│   ├── ConnectionRefused                     403 without one
│   ├── TooManyAttempts                       429 with Retry-After
│   └── AuthenticationUnavailable             503 with Retry-After
├── AlreadyRegistered
└── NotRegistered

``InputRequired`` is a ``BaseException``: it carries a component's question out to the runtime, past
every ``except Exception`` on the way.

A mistake in the site's own declarations is Django's ``ImproperlyConfigured``, raised while the
component is being registered.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from mcp_django.protocol.errors import (
    RATE_LIMITED,
    Busy,
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
    "UnsupportedProtocolVersion",
    "UpstreamNotConnected",
]


class ToolError(MCPDjangoError):
    """A failure that the model can do something about.

    The text reaches the model as the result of its call (``isError``), so it names what was
    wrong and what would work.
    """


class NotApproved(ToolError):
    """The call waits for a person to approve it, or one has refused it; nothing has run."""


class UpstreamNotConnected(ToolError):
    """The caller has not let the site in at a third party, or no longer; the text says how to."""


class ElicitationDeclined(MCPDjangoError):
    """The user said no to a question (``action`` is ``decline``) or went away (``cancel``)."""

    def __init__(self, action: Literal["decline", "cancel"] = "decline") -> None:
        answer = "declined to answer" if action == "decline" else "dismissed the question"
        super().__init__(f"The user {answer}.")
        self.action = action


class ElicitationUnavailable(MissingCapability):
    """The user cannot be asked: this client, or this connection, has no way to."""


class InputRequired(BaseException):
    """Ends a run of a component at a question that has no answer yet.

    Raised by ``ctx.elicit`` and its like and caught by the runtime, which runs the component again
    once the answer is there. Let it pass: a ``finally`` is fine, a bare ``except`` is not.
    """


class TooManyRequests(RateLimited):
    """A component, or the whole server, was used as often as may be; ``retry_after`` is seconds.

    ``data`` is ``{"retryAfter": …}``, where that is known.
    """

    def __init__(self, message: str, *, retry_after: int = 0) -> None:
        super().__init__(message, data={"retryAfter": retry_after} if retry_after else None)
        self.retry_after = retry_after


class TooManySessions(Busy):
    """All callers without credentials have as many sessions together as they may."""

    code = RATE_LIMITED
    http_status = 429


class TooManyStreams(Busy):
    """The caller holds as many open streams as one may."""

    code = RATE_LIMITED
    http_status = 429


class TooManyTasks(Busy):
    """The caller has as many tasks that are not over as one may."""

    code = RATE_LIMITED
    http_status = 429


class AlreadyRegistered(MCPDjangoError):
    """A component of this kind and name exists on the server already."""


class NotRegistered(MCPDjangoError):
    """The server has no component of this kind and name."""


class AccessRefused(MCPDjangoError):
    """The caller may not go on; transports answer with an HTTP status, never with a result."""

    status = 403
    error = "access_denied"

    def __init__(self, message: str, *, scopes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.scopes = tuple(scopes)


class AuthenticationRequired(AccessRefused):
    """No credentials came, or they are not (or no longer) valid (RFC 6750, section 3).

    ``error`` is empty when nothing was presented, ``invalid_token`` for a token that does not
    hold and ``invalid_request`` for a malformed header.
    """

    status = 401

    def __init__(
        self, message: str, *, error: str = "", status: int = 401, scopes: Iterable[str] = ()
    ) -> None:
        super().__init__(message, scopes=scopes)
        self.error = error
        self.status = status


class InsufficientScope(AccessRefused):
    """The token is good and lacks a scope; ``scopes`` names all that the operation needs.

    ``granted`` are the scopes that it has.
    """

    error = "insufficient_scope"

    def __init__(
        self, message: str, *, scopes: Iterable[str] = (), granted: Iterable[str] = ()
    ) -> None:
        super().__init__(message, scopes=scopes)
        self.granted = frozenset(granted)


class ConnectionRefused(AccessRefused):
    """This caller may not use this server at all, whatever the credentials."""


class TooManyAttempts(AccessRefused):
    """Too much was tried from one address; ``retry_after`` seconds later it may go on."""

    status = 429
    error = "too_many_attempts"

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class AuthenticationUnavailable(AccessRefused):
    """Whoever could say if the credential holds does not answer; try ``retry_after`` seconds later.

    The credential is neither accepted nor refused, so a client must not throw it away.
    """

    status = 503
    error = "temporarily_unavailable"

    def __init__(self, message: str, *, retry_after: int = 5) -> None:
        super().__init__(message)
        self.retry_after = retry_after
