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
│   ├── UnsupportedProtocolVersion            -32022
│   └── Busy                                  -31503, HTTP 503
│       └── TooManyStreams                    -31429, HTTP 429
├── ToolError                                 in-band: the model reads it and tries again
├── InvalidArguments                          in-band: which argument, which value, which rule
├── AccessRefused                             becomes an HTTP status
│   ├── AuthenticationRequired                401 with a challenge
│   ├── InsufficientScope                     403 with a challenge
│   └── ConnectionRefused                     403 without one
├── AlreadyRegistered
└── NotRegistered

A mistake in the site's own declarations is Django's ``ImproperlyConfigured``, raised while the
component is being registered.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    ResourceNotFound,
    UnsupportedProtocolVersion,
)

__all__ = [
    "AccessRefused",
    "AlreadyRegistered",
    "AuthenticationRequired",
    "Busy",
    "ConnectionRefused",
    "HeaderMismatch",
    "InsufficientScope",
    "InternalError",
    "InvalidEnvelope",
    "InvalidParams",
    "InvalidRequest",
    "MCPDjangoError",
    "MCPError",
    "MethodNotFound",
    "MissingCapability",
    "NotRegistered",
    "ParseError",
    "ResourceNotFound",
    "TooManyStreams",
    "ToolError",
    "UnsupportedProtocolVersion",
]


class ToolError(MCPDjangoError):
    """A failure that the model can do something about.

    The text reaches the model as the result of its call (``isError``), so it names what was
    wrong and what would work.
    """


class TooManyStreams(Busy):
    """The caller holds as many open streams as one may."""

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
    """The token is good and lacks a scope; ``scopes`` names all that the operation needs."""

    error = "insufficient_scope"


class ConnectionRefused(AccessRefused):
    """This caller may not use this server at all, whatever the credentials."""
