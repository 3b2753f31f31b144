"""The protocol revisions as values: what each one has, lacks, and calls differently.

Code asks a revision for a named feature; it never compares version strings. Each revision below
is written as its difference from the one before it, so the chain reads as the history of MCP.
Revisions of https://modelcontextprotocol.io/specification, and the draft that preceded the last.
The log levels are the same in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from mcp_django.protocol.errors import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_VERSION,
    InvalidParams,
    clip,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """One protocol revision, as a set of named features."""

    version: str
    """The string on the wire."""
    stateless: bool = False
    """Every request carries its own envelope; there is no handshake and no session."""
    is_alias: bool = False
    """An undated draft: accepted, never advertised unless asked for by name."""
    batches: bool = False
    """A JSON array of messages is a message."""
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
    """`audio` is a content type."""
    resource_links: bool = False
    """`resource_link` is a content type."""
    object_meta: bool = False
    """Listed objects and content blocks have a `_meta`."""
    last_modified: bool = False
    """`annotations.lastModified` exists."""
    schema_dialect: bool = False
    """Published schemas may name their dialect in `$schema`."""
    structured_output: Literal["none", "object", "any"] = "none"
    """What `outputSchema` and `structuredContent` may be."""
    implementation_title: bool = False
    """`serverInfo` has a `title`."""
    implementation_details: bool = False
    """`serverInfo` has `description`, `icons` and `websiteUrl`."""
    completions_capability: bool = False
    """The server declares `completions`."""
    completion_context: bool = False
    """Completion requests carry the arguments chosen so far."""
    elicitation_form: bool = False
    """The user can be asked to fill in a form."""
    elicitation_url: bool = False
    """The user can be sent to a URL."""
    sampling_tools: bool = False
    """Sampling requests may offer tools."""
    priming_event: bool = False
    """A stream opens with an event that has an id and no data; older clients choke on it."""
    log_per_request: bool = False
    """Log messages are asked for in each request instead of by `logging/setLevel`."""
    result_type: bool = False
    """Results have a `resultType`."""
    cache_hints: bool = False
    """Cacheable results have `ttlMs` and `cacheScope`."""
    identity_in_meta: bool = False
    """Every result names the server in its `_meta`."""
    identity_in_discover: bool = False
    """The discover result names the server in its body."""
    string_subscription_ids: bool = False
    """Subscription ids are strings, whatever the type of the request id."""
    extensions: bool = False
    """Capabilities have an `extensions` map."""
    tasks: bool = False
    """Tasks are a capability and the client asks for each; later they are an extension."""
    elicitation_ids: bool = False
    """Questions in URL mode have an `elicitationId`."""
    error_codes: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    """Codes that this revision writes differently: ours → its."""

    def asks(self, name: str) -> bool:
        """Return whether a client of this revision can be asked for `name` of `ASKABLE` at all."""
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

MODERN: tuple[Revision, ...] = (V2026_07_28, DRAFT_2026_V1)
"""Stateless revisions, newest first; the alias after the revision it became."""

HANDSHAKE: tuple[Revision, ...] = (V2025_11_25, V2025_06_18, V2025_03_26, V2024_11_05)
"""Revisions that begin with `initialize`, newest first."""

REVISIONS: Mapping[str, Revision] = MappingProxyType(
    {revision.version: revision for revision in (*MODERN, *HANDSHAKE)}
)
"""Every revision by its version string, newest first."""

LATEST = V2026_07_28
LATEST_HANDSHAKE = V2025_11_25
DEFAULT_HANDSHAKE = V2025_03_26
"""What a client without session and version header is taken to speak."""


def advertised(enabled: Iterable[str], *, requested: str | None = None) -> list[str]:
    """Return the versions to list in a discover result or an unsupported-version error.

    Modern ones come first, then the handshake ones. A request that put a handshake version into
    a modern envelope is told only of modern ones, so that it cannot loop; the alias is named
    only to a request that uses it.
    """
    versions = frozenset(enabled)
    modern = [r.version for r in MODERN if r.version in versions and not r.is_alias]
    handshake = [r.version for r in HANDSHAKE if r.version in versions]
    asked = None if requested is None else REVISIONS.get(requested)
    if asked is None:
        return modern + handshake
    if asked.is_alias and asked.version in versions:
        return [asked.version, *modern, *handshake]
    if not asked.stateless and modern:
        return modern
    return modern + handshake


# Log levels ---------------------------------------------------------------------------------------

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
"""Least to most severe (RFC 5424)."""

_SEVERITY = {level: rank for rank, level in enumerate(LOG_LEVELS)}


def severity(level: str) -> int:
    """Return the rank of a log level; higher is more severe.

    Raises:
        InvalidParams: there is no such level.
    """
    try:
        return _SEVERITY[level]
    except KeyError:
        raise InvalidParams(
            f"No log level {clip(level)!r}; use one of {', '.join(LOG_LEVELS)}"
        ) from None
