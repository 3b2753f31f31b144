"""Errors that travel as JSON-RPC error objects, with their codes and HTTP statuses.

    MCPDjangoError
    └── MCPError                        code, message, data
        ├── ParseError                  the bytes are not JSON
        ├── InvalidRequest              JSON, but not a valid JSON-RPC message
        ├── MethodNotFound              unknown, or not offered here
        ├── InvalidParams               the method exists, its parameters are wrong
        │   ├── InvalidEnvelope         the request lacks what every request has to say
        │   └── ResourceNotFound        nothing under this URI, or nothing the caller may see
        ├── HeaderMismatch              a routing header and the body disagree
        ├── MissingCapability           the client lacks a capability that the work needs
        ├── URLElicitationRequired      the user has to visit a page before the call is repeated
        ├── UnsupportedProtocolVersion  a revision that is not served here
        ├── RequestCancelled            the client cancelled it, and is answered all the same
        ├── RateLimited                 too many calls
        ├── Busy                        no capacity left
        └── InternalError               a server error; the client gets no details

Failures that a model should read and repair are tool results, not errors, and live elsewhere.
Codes: JSON-RPC 2.0 section 5.1; MCP 2026-07-28, "Error codes". What a client has to declare, and
the error data that names a missing capability, are here as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from mcp_django.protocol.revisions import Revision


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

# Our own codes stay out of -32768..-32000, which JSON-RPC and MCP keep for themselves.
# What HTTP says by its status alone, for transports that have none.
UNAUTHORIZED = -31401
FORBIDDEN = -31403
RATE_LIMITED = -31429
BUSY = -31503
# That of the Language Server Protocol, which the official Python SDK sends, too.
REQUEST_CANCELLED = -32800

# What is decided before a method of a handshake revision runs keeps its status. The rest rides
# on 200: those clients take a 404 for a dead session and begin again, in a loop.
_STATUS_AT_EVERY_REVISION = frozenset(
    {PARSE_ERROR, INVALID_REQUEST, UNSUPPORTED_VERSION, RATE_LIMITED, BUSY}
)


def clip(text: object, *, limit: int = 80) -> str:
    """Return `text` short enough for an error message: what a client sent may be megabytes."""
    shown = str(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


class MCPDjangoError(Exception):
    """Base of every exception that this package defines."""


class MCPError(MCPDjangoError):
    """An answer in the form of a JSON-RPC error object."""

    code: ClassVar[int] = INTERNAL_ERROR
    http_status: ClassVar[int] = 200
    """The status at 2026-07-28; `http_status()` knows the earlier revisions."""

    def __init__(self, message: str, *, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ParseError(MCPError):
    """The bytes are not JSON in UTF-8."""

    code = PARSE_ERROR
    http_status = 400


class InvalidRequest(MCPError):
    """JSON, but not a message that may be sent here."""

    code = INVALID_REQUEST
    http_status = 400


class MethodNotFound(MCPError):
    """The method does not exist in this revision, or its capability is not offered."""

    code = METHOD_NOT_FOUND
    http_status = 404


class InvalidParams(MCPError):
    """Parameters are missing, malformed, or name something unknown."""

    code = INVALID_PARAMS


class InvalidEnvelope(InvalidParams):
    """`params._meta` lacks what every stateless request has to carry."""

    http_status = 400


class ResourceNotFound(InvalidParams):
    """No such resource, or none that the caller may see; `data` is `{"uri": ...}`.

    The code is the one of the handshake revisions; the stateless ones substitute -32602.
    """

    code = RESOURCE_NOT_FOUND


class HeaderMismatch(MCPError):
    """A routing header is missing, malformed, or differs from the body."""

    code = HEADER_MISMATCH
    http_status = 400


class MissingCapability(MCPError):
    """The request cannot be served without something the client did not declare.

    `data` is `{"requiredCapabilities": {...}}`, in the shape in which clients declare them.
    """

    code = MISSING_CAPABILITY
    http_status = 400


class URLElicitationRequired(MCPError):
    """The user has to visit a page, and this request has no channel to say so on (2025-11-25).

    `data` is `{"elicitations": [...]}`, each in URL mode; the client calls again afterwards.
    """

    code = URL_ELICITATION_REQUIRED


class UnsupportedProtocolVersion(MCPError):
    """The revision asked for is not spoken here.

    `data` is `{"supported": [...], "requested": "..."}`; clients rely on both members.
    """

    code = UNSUPPORTED_VERSION
    http_status = 400


class RequestCancelled(MCPError):
    """The client has cancelled the request; one document over HTTP has to say something."""

    code = REQUEST_CANCELLED

    def __init__(
        self, message: str = "The request was cancelled.", *, data: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message, data=data)


class RateLimited(MCPError):
    """Too many calls; `data.retryAfter` may say for how many seconds to wait."""

    code = RATE_LIMITED
    http_status = 429


class Busy(MCPError):
    """There is no capacity for the request at the moment."""

    code = BUSY
    http_status = 503


class InternalError(MCPError):
    """Something failed on our side; the reason is in the log, never in the message."""

    code = INTERNAL_ERROR


def error_object(exc: MCPError, revision: Revision | None) -> dict[str, Any]:
    """Return the `error` member for `exc`, with the code that `revision` uses for it."""
    error: dict[str, Any] = {"code": code_in(revision, exc.code), "message": exc.message}
    if exc.data is not None:
        error["data"] = dict(exc.data)
    return error


def code_in(revision: Revision | None, code: int) -> int:
    """Return what `revision` writes for a code of ours; `None` stands for one not yet known."""
    return code if revision is None else revision.error_codes.get(code, code)


def http_status(exc: MCPError, revision: Revision | None) -> int:
    """Return the HTTP status that carries `exc`; `None` stands for a revision not yet known."""
    if revision is None or revision.stateless or exc.code in _STATUS_AT_EVERY_REVISION:
        return exc.http_status
    return 200


# Capabilities that a client declares --------------------------------------------------------------

# MCP 2026-07-28, "Elicitation" and "Sampling", capabilities.

ASKABLE = ("elicitation", "elicitation.url", "roots", "sampling", "sampling.tools")
"""Everything that a component may need of a client.

Names are dotted as the declaration is nested: `elicitation.url` is `{"elicitation": {"url": {}}}`.
"""


def check_askable(name: str) -> None:
    """Refuse a name that no client declares.

    Raises:
        ValueError: naming those that exist.
    """
    if name not in ASKABLE:
        known = ", ".join(map(repr, ASKABLE))
        raise ValueError(f"{name!r} is nothing a client can be asked for; use {known}")


def declares(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client that declares `capabilities` can be asked for `name`.

    `elicitation` is the form mode, which an empty declaration means too; a client that declares
    the URL mode alone has no forms.
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


def requirement(names: Iterable[str]) -> dict[str, Any]:
    """Return `names` in the shape in which a client would declare them."""
    required: dict[str, Any] = {}
    wanted = frozenset(names)
    for name in sorted(wanted):
        kind, _, mode = name.partition(".")
        within = required.setdefault(kind, {})
        if mode:
            within[mode] = {}
    if {"elicitation", "elicitation.url"} <= wanted:
        # Beside another mode forms have to be named.
        required["elicitation"]["form"] = {}
    return required


# Extensions that a client declares ----------------------------------------------------------------

# MCP 2026-07-28, "Extensions": ``capabilities.extensions`` maps names to settings on both sides.

TASKS = "io.modelcontextprotocol/tasks"
SKILLS = "io.modelcontextprotocol/skills"
UI = "io.modelcontextprotocol/ui"


def declares_extension(capabilities: Mapping[str, Any], name: str) -> bool:
    """Return whether a client with these capabilities has the extension."""
    extensions = capabilities.get("extensions")
    return isinstance(extensions, Mapping) and isinstance(extensions.get(name), Mapping)


def required_extension(name: str) -> dict[str, Any]:
    """Return the extension in the shape in which a client would declare it."""
    return {"extensions": {name: {}}}
