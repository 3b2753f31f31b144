"""Errors that are sent as JSON-RPC error objects, with their codes and HTTP statuses.

    MCPDjangoError
    └── MCPError                        code, message, data
        ├── ParseError                  the bytes are not JSON
        ├── InvalidRequest              JSON, but not a valid JSON-RPC message
        ├── MethodNotFound              unknown method, or not available on this server
        ├── InvalidParams               the method exists, but its parameters are wrong
        │   ├── InvalidEnvelope         the request lacks required members of its envelope
        │   └── ResourceNotFound        no resource at this URI, or the caller may not see it
        ├── HeaderMismatch              a routing header and the body disagree
        ├── MissingCapability           the client lacks a capability that the request needs
        ├── URLElicitationRequired      the user must visit a page before the call is repeated
        ├── UnsupportedProtocolVersion  the server does not support the requested revision
        ├── RequestCancelled            the client cancelled the request, but still gets a response
        ├── Unauthorized                the caller of an admitted call is no longer valid
        ├── Forbidden                   the caller of an admitted call may no longer make it
        ├── RateLimited                 too many calls
        ├── Busy                        no capacity left
        └── InternalError               a server error; the client gets no details

Failures that a model should read and correct are tool results, not errors; they are not defined
here. Codes: JSON-RPC 2.0 section 5.1; MCP 2026-07-28, "Error codes". This module also checks the
capabilities that clients declare and builds the error data for a missing one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

RESOURCE_NOT_FOUND = -32002
URL_ELICITATION_REQUIRED = -32042
HEADER_MISMATCH = -32020
MISSING_CAPABILITY = -32021
UNSUPPORTED_VERSION = -32022

# The codes of this package are outside -32768..-32000, which JSON-RPC and MCP reserve.
# Codes for what HTTP expresses by its status alone, for transports without a status.
UNAUTHORIZED = -31401
FORBIDDEN = -31403
RATE_LIMITED = -31429
BUSY = -31503
# The code of the Language Server Protocol, which the official Python SDK also uses.
REQUEST_CANCELLED = -32800


class MCPDjangoError(Exception):
    """Base of every exception that this package defines."""


class MCPError(MCPDjangoError):
    """An error that the client receives as a JSON-RPC error object."""

    code: ClassVar[int] = INTERNAL_ERROR
    http_status: ClassVar[int] = 200
    """The HTTP status at 2026-07-28; `revisions.http_status()` returns that of any revision."""

    def __init__(self, message: str, *, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ParseError(MCPError):
    """The message is not JSON encoded in UTF-8."""

    code = PARSE_ERROR
    http_status = 400


class InvalidRequest(MCPError):
    """The message is JSON, but not a JSON-RPC message that is valid here."""

    code = INVALID_REQUEST
    http_status = 400


class MethodNotFound(MCPError):
    """The method does not exist in this revision, or the server lacks its capability."""

    code = METHOD_NOT_FOUND
    http_status = 404


class InvalidParams(MCPError):
    """Parameters are missing, malformed, or refer to something unknown."""

    code = INVALID_PARAMS


class InvalidEnvelope(InvalidParams):
    """`params._meta` lacks members that every stateless request must have."""

    http_status = 400


class ResourceNotFound(InvalidParams):
    """The resource does not exist or the caller may not see it; `data` is `{"uri": ...}`.

    The code is that of the handshake revisions; the stateless revisions use -32602 instead.
    """

    code = RESOURCE_NOT_FOUND


class HeaderMismatch(MCPError):
    """A routing header is missing, malformed, or differs from the body."""

    code = HEADER_MISMATCH
    http_status = 400


class MissingCapability(MCPError):
    """The request needs a capability that the client did not declare.

    `data` is `{"requiredCapabilities": {...}}`, in the format in which clients declare them.
    """

    code = MISSING_CAPABILITY
    http_status = 400


class URLElicitationRequired(MCPError):
    """The user must visit a page, but the request has no stream to send an elicitation on.

    2025-11-25 only. `data` is `{"elicitations": [...]}`, each in URL mode; the client repeats the
    call afterwards.
    """

    code = URL_ELICITATION_REQUIRED


class UnsupportedProtocolVersion(MCPError):
    """The server does not support the requested revision.

    `data` is `{"supported": [...], "requested": "..."}`; clients rely on both members.
    """

    code = UNSUPPORTED_VERSION
    http_status = 400


class RequestCancelled(MCPError):
    """The client cancelled the request; an HTTP response with one JSON document needs a body."""

    code = REQUEST_CANCELLED

    def __init__(
        self, message: str = "The request was cancelled.", *, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, data=data)


class Unauthorized(MCPError):
    """The credential of an admitted call became invalid before the call began.

    An HTTP request with an invalid credential gets a status and a challenge instead.
    """

    code = UNAUTHORIZED
    # A 401 needs a challenge.
    http_status = 403


class Forbidden(MCPError):
    """The caller of an admitted call may no longer make it; the call had not begun."""

    code = FORBIDDEN
    http_status = 403


class RateLimited(MCPError):
    """Too many calls; `data.retryAfter` may give the number of seconds to wait."""

    code = RATE_LIMITED
    http_status = 429


class Busy(MCPError):
    """The server has no capacity for the request at the moment."""

    code = BUSY
    http_status = 503


class InternalError(MCPError):
    """A server error; the reason is logged and never part of the message."""

    code = INTERNAL_ERROR


# MCP 2026-07-28, "Elicitation" and "Sampling", capabilities.

KNOWN_CAPABILITIES = ("elicitation", "elicitation.url", "roots", "sampling", "sampling.tools")
"""The client capabilities that a component may require.

A dot stands for one level of nesting: `elicitation.url` is `{"elicitation": {"url": {}}}`.
"""


def check_capability_name(name: str) -> None:
    """Reject a name that is not a known client capability.

    Raises:
        ValueError: the name is unknown; the message lists the known names.
    """
    if name not in KNOWN_CAPABILITIES:
        names = ", ".join(map(repr, KNOWN_CAPABILITIES))
        raise ValueError(f"{name!r} is not a client capability; use one of {names}")


def declares_capability(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client that declares `capabilities` supports `name`.

    `elicitation` is form mode, which an empty declaration also includes; a client that declares
    only URL mode does not support forms.
    """
    kind, _, mode = name.partition(".")
    declared = capabilities.get(kind)
    if not isinstance(declared, Mapping):
        return False
    if mode:
        return isinstance(declared.get(mode), Mapping)
    if kind == "elicitation":
        return not declared or isinstance(declared.get("form"), Mapping)
    return True


def capabilities_declaration(names: Iterable[str]) -> dict[str, Any]:
    """Return the capabilities `names` in the format in which a client declares them."""
    required: dict[str, Any] = {}
    needed = frozenset(names)
    for name in sorted(needed):
        kind, _, mode = name.partition(".")
        within = required.setdefault(kind, {})
        if mode:
            within[mode] = {}
    if {"elicitation", "elicitation.url"} <= needed:
        # If another mode is declared, form mode must be declared explicitly.
        required["elicitation"]["form"] = {}
    return required


# MCP 2026-07-28, "Extensions": ``capabilities.extensions`` maps names to settings on both sides.

TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"
UI = "io.modelcontextprotocol/ui"


def declares_extension(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client that declares `capabilities` supports the extension."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and isinstance(extensions.get(name), Mapping)


def extension_declaration(name: str) -> dict[str, Any]:
    """Return the extension in the format in which a client declares it."""
    return {"extensions": {name: {}}}
