"""The protocol revisions, each as a set of named features and error codes.

Code checks a named feature of a revision; it never compares version strings. Each revision below
is defined by its differences from the previous one. They are the revisions of
https://modelcontextprotocol.io/specification and the draft that preceded the latest one. This
module also builds error objects for a revision, and defines the log levels, which are the same in
all revisions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from mcp_django.protocol.errors import (
    BUSY,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    MISSING_CAPABILITY,
    PARSE_ERROR,
    RATE_LIMITED,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    InvalidParams,
    MCPError,
)
from mcp_django.protocol.text import clip


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One protocol revision, as a set of named features."""

    version: str
    """The version string on the wire."""
    stateless: bool = False
    """Every request has its own envelope; handshake and sessions do not exist."""
    is_alias: bool = False
    """An undated draft: accepted, but advertised only to requests that use it."""
    batches: bool = False
    """A JSON array of messages is accepted."""
    version_header: bool = False
    """Clients send `MCP-Protocol-Version` after the handshake."""
    progress_message: bool = False
    """Progress notifications have a `message`."""
    tool_annotations: bool = False
    """Tools have `annotations`: read-only, destructive, idempotent, open world."""
    titles: bool = False
    """Tools, resources, templates, prompts and prompt arguments have a `title`."""
    icons: bool = False
    """Tools, resources, templates and prompts have `icons`."""
    audio: bool = False
    """`audio` content blocks exist."""
    resource_links: bool = False
    """`resource_link` content blocks exist."""
    object_meta: bool = False
    """Listed objects and content blocks have a `_meta`."""
    last_modified: bool = False
    """`annotations.lastModified` exists."""
    schema_dialect: bool = False
    """Published schemas may name their dialect in `$schema`."""
    structured_output: Literal["none", "object", "any"] = "none"
    """The types that `outputSchema` and `structuredContent` may have."""
    implementation_title: bool = False
    """`serverInfo` has a `title`."""
    implementation_details: bool = False
    """`serverInfo` has `description`, `icons` and `websiteUrl`."""
    completions_capability: bool = False
    """The server declares `completions`."""
    completion_context: bool = False
    """Completion requests include the arguments chosen so far."""
    elicitation_form: bool = False
    """Elicitation can ask the user to fill in a form."""
    elicitation_url: bool = False
    """Elicitation can send the user to a URL."""
    sampling_tools: bool = False
    """Sampling requests may include tools."""
    priming_event: bool = False
    """A stream starts with an event that has an id and no data; older clients fail on it."""
    log_per_request: bool = False
    """Each request sets the log level for itself; there is no `logging/setLevel`."""
    result_type: bool = False
    """Results have a `resultType`."""
    cache_hints: bool = False
    """Cacheable results have `ttlMs` and `cacheScope`."""
    identity_in_meta: bool = False
    """Every result contains the server info in its `_meta`."""
    identity_in_discover: bool = False
    """The discover result contains the server info in its body."""
    string_subscription_ids: bool = False
    """Subscription ids are strings, whatever the type of the request id."""
    extensions: bool = False
    """Capabilities have an `extensions` map."""
    tasks: bool = False
    """Tasks are a capability, and clients request each task; later they are an extension."""
    elicitation_ids: bool = False
    """Elicitations in URL mode have an `elicitationId`."""
    error_codes: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """The error codes that differ: maps the code of this package to that of the revision."""

    def defines_capability(self, name: str) -> bool:
        """Return whether the revision defines the client capability `name`."""
        return {
            "elicitation": self.elicitation_form,
            "elicitation.url": self.elicitation_url,
            "sampling.tools": self.sampling_tools,
        }.get(name, True)


V2024_11_05 = Revision(
    version="2024-11-05",
    error_codes=MappingProxyType(
        {MISSING_CAPABILITY: INVALID_PARAMS, UNSUPPORTED_VERSION: INVALID_PARAMS}
    ),
)

V2025_03_26 = replace(
    V2024_11_05,
    version="2025-03-26",
    batches=True,
    progress_message=True,
    tool_annotations=True,
    audio=True,
    completions_capability=True,
)

V2025_06_18 = replace(
    V2025_03_26,
    version="2025-06-18",
    batches=False,
    version_header=True,
    titles=True,
    resource_links=True,
    object_meta=True,
    last_modified=True,
    structured_output="object",
    implementation_title=True,
    completion_context=True,
    elicitation_form=True,
)

V2025_11_25 = replace(
    V2025_06_18,
    version="2025-11-25",
    icons=True,
    schema_dialect=True,
    implementation_details=True,
    elicitation_url=True,
    elicitation_ids=True,
    sampling_tools=True,
    priming_event=True,
    tasks=True,
)

V2026_07_28 = replace(
    V2025_11_25,
    version="2026-07-28",
    stateless=True,
    tasks=False,
    elicitation_ids=False,
    priming_event=False,
    structured_output="any",
    log_per_request=True,
    result_type=True,
    cache_hints=True,
    identity_in_meta=True,
    extensions=True,
    error_codes=MappingProxyType({RESOURCE_NOT_FOUND: INVALID_PARAMS}),
)

DRAFT_2026_V1 = replace(
    V2026_07_28,
    version="DRAFT-2026-v1",
    is_alias=True,
    identity_in_discover=True,
    string_subscription_ids=True,
    error_codes=MappingProxyType(
        {
            RESOURCE_NOT_FOUND: INVALID_PARAMS,
            HEADER_MISMATCH: -32001,
            MISSING_CAPABILITY: -32003,
            UNSUPPORTED_VERSION: -32004,
        }
    ),
)

STATELESS: tuple[Revision, ...] = (V2026_07_28, DRAFT_2026_V1)
"""Stateless revisions, newest first; the draft follows the revision that it became."""

HANDSHAKE: tuple[Revision, ...] = (V2025_11_25, V2025_06_18, V2025_03_26, V2024_11_05)
"""Revisions that start with `initialize`, newest first."""

REVISIONS: Mapping[str, Revision] = MappingProxyType(
    {revision.version: revision for revision in (*STATELESS, *HANDSHAKE)}
)
"""Every revision by its version string, newest first."""

LATEST = V2026_07_28
LATEST_HANDSHAKE = V2025_11_25
DEFAULT_HANDSHAKE = V2025_03_26
"""The revision assumed for a client without a session and a version header."""


def advertised_versions(enabled: Iterable[str], *, requested: str | None = None) -> list[str]:
    """Return the versions to list in a discover result or an unsupported-version error.

    Stateless versions come first, then the handshake versions. If a request has a handshake
    version in a stateless envelope, the list has only stateless versions, so that the client
    cannot loop. The draft is listed only for a request that uses it.
    """
    versions = frozenset(enabled)
    modern = [r.version for r in STATELESS if r.version in versions and not r.is_alias]
    handshake = [r.version for r in HANDSHAKE if r.version in versions]
    revision = None if requested is None else REVISIONS.get(requested)
    if revision is None:
        return modern + handshake
    if revision.is_alias and revision.version in versions:
        return [revision.version, *modern, *handshake]
    if not revision.stateless and modern:
        return modern
    return modern + handshake


# At handshake revisions, errors raised before the method runs keep their HTTP status. Others are
# sent with 200, because those clients take a 404 for an expired session and reconnect in a loop.
_STATUS_AT_EVERY_REVISION = frozenset(
    {PARSE_ERROR, INVALID_REQUEST, UNSUPPORTED_VERSION, RATE_LIMITED, BUSY}
)


def error_object(exc: MCPError, revision: Revision | None) -> dict[str, Any]:
    """Return the `error` member for `exc`, with the code that `revision` uses for it."""
    error: dict[str, Any] = {"code": error_code_in(revision, exc.code), "message": exc.message}
    if exc.data is not None:
        error["data"] = dict(exc.data)
    return error


def error_code_in(revision: Revision | None, code: int) -> int:
    """Return the code that `revision` uses for `code`; `None` is a revision not yet known."""
    return code if revision is None else revision.error_codes.get(code, code)


def http_status(exc: MCPError, revision: Revision | None) -> int:
    """Return the HTTP status for `exc`; `None` is a revision not yet known."""
    if revision is None or revision.stateless or exc.code in _STATUS_AT_EVERY_REVISION:
        return exc.http_status
    return 200


LOG_LEVELS = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)
"""The log levels from least to most severe (RFC 5424)."""

_SEVERITY = {level: rank for rank, level in enumerate(LOG_LEVELS)}


def severity(level: str) -> int:
    """Return the rank of a log level; higher is more severe.

    Raises:
        InvalidParams: the level does not exist.
    """
    try:
        return _SEVERITY[level]
    except KeyError:
        raise InvalidParams(
            f"{clip(level)!r} is not a log level; use one of {', '.join(LOG_LEVELS)}"
        ) from None
