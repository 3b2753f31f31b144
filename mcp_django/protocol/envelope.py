"""Classification of a message as stateless or handshake, from the message alone.

A request of a stateless revision has an envelope: members of ``params._meta`` that name the
revision and the client. A message without an envelope belongs to a handshake revision, which its
session stores. The body is authoritative, since a proxy may have removed the headers, and the
headers must agree with it. The classification never depends on an earlier message. MCP 2026-07-28,
"Versioning" and "Transports".

This module also defines the rules for ``_meta``: reserved keys, the keys that authors may add, and
trace context.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from mcp_django.protocol.errors import (
    InvalidEnvelope,
    InvalidParams,
    InvalidRequest,
    UnsupportedProtocolVersion,
)
from mcp_django.protocol.headers import TOKEN, Headers, check_routing_headers, protocol_version
from mcp_django.protocol.jsonrpc import (
    MAX_ID_LENGTH,
    Batch,
    Notification,
    Request,
    Response,
    encode,
    read_params,
)
from mcp_django.protocol.methods import REQUESTS
from mcp_django.protocol.revisions import REVISIONS, Revision, advertised_versions, severity
from mcp_django.protocol.text import clip

# Keys of ``_meta``. For their grammar and the reserved keys, see MCP 2025-06-18 to 2026-07-28,
# "General fields".

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN = "progressToken"
RELATED_TASK = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"
TRACE_KEYS = frozenset({"traceparent", "tracestate", "baggage"})

_LABEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_RESERVED_LABELS = frozenset({"mcp", "modelcontextprotocol"})
_RESERVED_NAMES = frozenset({PROGRESS_TOKEN, *TRACE_KEYS})


def check_author_meta(meta: Mapping[str, Any]) -> None:
    """Reject keys that the protocol reserves or whose syntax is not valid.

    Raises:
        ValueError: a key breaks a rule; the message names both.
    """
    for key in meta:
        prefix, slash, name = key.rpartition("/")
        labels = prefix.split(".") if slash else []
        # From 2025-11-25 on the second label makes a prefix reserved, at 2025-06-18 any label but
        # the last. An author's key is sent at every revision, so every revision must allow it.
        decisive = {label.lower() for label in (*labels[:-1], *labels[1:2])}
        problem = ""
        if not _NAME.fullmatch(name):
            problem = (
                "the name must start and end with a letter or digit, with only those and -_. "
                "between"
            )
        elif not slash and name in _RESERVED_NAMES:
            problem = "the name is reserved by the protocol"
        elif not all(map(_LABEL.fullmatch, labels)):
            problem = (
                "the prefix must be labels separated by dots, each starting with a letter and "
                "ending with a letter or digit, with only those and hyphens between"
            )
        elif not _RESERVED_LABELS.isdisjoint(decisive):
            problem = "the prefix is reserved by the protocol; use a domain that you own"
        if problem:
            raise ValueError(f"_meta key {clip(repr(key))}: {problem}")


# Trace context ------------------------------------------------------------------------------------

# W3C Trace Context (level 1, section 3) and W3C Baggage (section 3.3). The values are only
# validated here; tracing is not part of this layer.

MAX_STATE_MEMBERS = 32
MAX_BAGGAGE_MEMBERS = 64
MAX_TRACE_LENGTH = 8192
# OpenTelemetry also drops longer values, but logs each of them.
MAX_PARENT_LENGTH = 512
MAX_BAGGAGE_MEMBER_LENGTH = 4096

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_STATE_KEY = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_STATE_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_STATE_MEMBER = re.compile(rf"{_STATE_KEY}={_STATE_VALUE}")
_BAGGAGE_VALUE = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_BAGGAGE_MEMBER = re.compile(rf"{TOKEN.pattern}[ \t]*=[ \t]*{_BAGGAGE_VALUE}")
_BAGGAGE_PROPERTY = re.compile(rf"{TOKEN.pattern}(?:[ \t]*=[ \t]*{_BAGGAGE_VALUE})?")


def read_trace(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the valid trace context values of `meta`; invalid values are treated as absent."""
    if TRACE_KEYS.isdisjoint(meta):
        return {}
    texts = {
        key: value
        for key in TRACE_KEYS
        if isinstance(value := meta.get(key), str) and len(value) <= MAX_TRACE_LENGTH
    }
    trace: dict[str, str] = {}
    if "traceparent" in texts and _is_traceparent(texts["traceparent"]):
        trace["traceparent"] = texts["traceparent"]
        # `tracestate` is meaningless without a valid `traceparent`.
        if "tracestate" in texts and _is_tracestate(texts["tracestate"]):
            trace["tracestate"] = texts["tracestate"]
    if "baggage" in texts and _is_baggage(texts["baggage"]):
        trace["baggage"] = texts["baggage"]
    return trace


def _is_traceparent(value: str) -> bool:
    match = _TRACEPARENT.fullmatch(value)
    if match is None or len(value) > MAX_PARENT_LENGTH:
        return False
    version, trace_id, parent_id, rest = match.groups()
    if version == "ff" or not trace_id.strip("0") or not parent_id.strip("0"):
        return False
    # Only versions later than 00 may have additional fields.
    return rest is None or version != "00"


def _is_tracestate(value: str) -> bool:
    members = [member.strip(" \t") for member in value.split(",")]
    non_empty = [member for member in members if member]
    keys = {member.partition("=")[0] for member in non_empty}
    return (
        0 < len(non_empty) <= MAX_STATE_MEMBERS
        and len(keys) == len(non_empty)
        and all(_STATE_MEMBER.fullmatch(member) for member in non_empty)
    )


def _is_baggage(value: str) -> bool:
    members = value.split(",")
    if len(members) > MAX_BAGGAGE_MEMBERS:
        return False
    for member in members:
        if len(member) > MAX_BAGGAGE_MEMBER_LENGTH:
            return False
        first, *properties = (part.strip(" \t") for part in member.split(";"))
        if not _BAGGAGE_MEMBER.fullmatch(first):
            return False
        if not all(map(_BAGGAGE_PROPERTY.fullmatch, properties)):
            return False
    return True


# Envelope -----------------------------------------------------------------------------------------

# Limits of what is stored with a session, because any client can send client info and capabilities.
MAX_CLIENT_BYTES = 2048
MAX_CAPABILITIES_BYTES = 4096

_ENVELOPE_KEYS = frozenset({PROTOCOL_VERSION, CLIENT_CAPABILITIES, CLIENT_INFO})


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of a stateless request: its revision, its client and its options."""

    revision: Revision
    client_capabilities: Mapping[str, Any]
    client_info: Mapping[str, Any] | None = None
    """Self-reported by the client: for display only, never for authorization or behavior."""
    log_level: str | None = None
    """Send log messages of this level and above; `None` sends none."""
    progress_token: str | int | None = None
    trace: Mapping[str, str] = {}


class Stateless(msgspec.Struct, frozen=True):
    """Serve the request according to its envelope."""

    envelope: Envelope
    name: str | None = None
    """The name or URI that the request is for, if it has one."""


class Handshake(msgspec.Struct, frozen=True):
    """Serve the message in its session, or without a session."""


class Drop(msgspec.Struct, frozen=True):
    """Accept the message and ignore it.

    The stdio transport handles cancellations before classification, because over stdio they are
    valid at every revision.
    """


Route: TypeAlias = Stateless | Handshake | Drop


class _Params(msgspec.Struct):
    """The parameters that classification reads, before the type of `params` is known."""

    meta: Any = msgspec.field(default=None, name="_meta")
    name: Any = None
    uri: Any = None
    task_id: Any = msgspec.field(default=None, name="taskId")
    protocol_version: Any = msgspec.field(default=None, name="protocolVersion")


_NAME_FIELDS = {"name": "name", "uri": "uri", "taskId": "task_id"}


def classify(
    message: Request | Notification | Response | Batch,
    headers: Headers | None,
    *,
    enabled: Sequence[str],
) -> Route:
    """Return how to serve a message: by its envelope, in its session, or not at all.

    `headers` is `None` on transports without headers; the header checks are then skipped.
    `enabled` are the versions that the server supports.

    Raises:
        MCPError: the message cannot be served; `error_revision_of` returns the revision for
            the error.
    """
    if isinstance(message, Request):
        return classify_request(message, headers, enabled=enabled)
    header = _version_header(headers)
    is_stateless = _is_stateless_version(header)
    if isinstance(message, Notification):
        if is_stateless or _has_envelope(_peek_meta(message)) or not _supports_handshake(enabled):
            return Drop()
    elif isinstance(message, Response):
        revision = REVISIONS.get(header or "")
        if revision is not None and revision.is_alias:
            # The draft allowed clients to post responses, but no request waits for one.
            return Drop()
        if is_stateless or not _supports_handshake(enabled):
            raise InvalidRequest("Clients do not send responses at this revision")
    else:
        enveloped = any(
            isinstance(member, Request | Notification) and _has_envelope(_peek_meta(member))
            for member in message.members
        )
        some_batches = any(REVISIONS[version].batches for version in enabled)
        if enveloped or is_stateless or not some_batches:
            raise InvalidRequest(
                "This revision does not support batches; send one message at a time"
            )
    _check_version_header(header, enabled)
    return Handshake()


def classify_request(
    message: Request, headers: Headers | None, *, enabled: Sequence[str]
) -> Stateless | Handshake:
    """Return how to serve a request, as `classify` does.

    Raises:
        MCPError: the request cannot be served.
    """
    method, params = message.method, read_params(message.params, _Params)
    fields = params.meta if isinstance(params.meta, dict) else {}
    if _ENVELOPE_KEYS.isdisjoint(fields):
        return _classify_without_envelope(method, params, _version_header(headers), enabled)
    version = fields.get(PROTOCOL_VERSION)
    if not isinstance(version, str):
        raise InvalidEnvelope(f"params._meta: {PROTOCOL_VERSION!r} must be a string")
    capabilities = fields.get(CLIENT_CAPABILITIES)
    if not isinstance(capabilities, dict):
        raise InvalidEnvelope(f"params._meta: {CLIENT_CAPABILITIES!r} must be an object")
    client_info = fields.get(CLIENT_INFO)
    if client_info is not None and not isinstance(client_info, dict):
        raise InvalidEnvelope(f"params._meta: {CLIENT_INFO!r} must be an object")
    # The handler rejects a body without the name that its method requires.
    definition = REQUESTS.get(method)
    field = definition and definition.name_member
    name = getattr(params, _NAME_FIELDS[field]) if field else None
    if not isinstance(name, str):
        name = None
    if headers is not None:
        check_routing_headers(headers, version=version, method=method, name=name)
    revision = REVISIONS.get(version)
    if revision is None or not revision.stateless or version not in enabled:
        raise _unsupported_version(version, enabled)
    envelope = Envelope(
        revision=revision,
        client_capabilities=capabilities,
        client_info=client_info,
        log_level=_log_level(fields) if LOG_LEVEL in fields else None,
        progress_token=_progress_token(fields) if PROGRESS_TOKEN in fields else None,
        trace={} if TRACE_KEYS.isdisjoint(fields) else read_trace(fields),
    )
    return Stateless(envelope, name)


def check_version(headers: Headers, *, enabled: Sequence[str]) -> None:
    """Check the version header of a request without a message (GET or DELETE).

    Raises:
        UnsupportedProtocolVersion: the header names a version that the server does not support.
    """
    _check_version_header(_version_header(headers), enabled)


def error_revision_of(
    message: Request | Notification | Response | Batch,
    session_revision: Revision | None = None,
) -> Revision | None:
    """Return the revision for an error about a message: its envelope's, else its session's.

    `None` means that the revision is not known.
    """
    fields = _peek_meta(message) if isinstance(message, Request | Notification) else {}
    if not _has_envelope(fields):
        return session_revision
    version = fields.get(PROTOCOL_VERSION)
    revision = REVISIONS.get(version) if isinstance(version, str) else None
    return revision if revision is not None and revision.stateless else None


def read_handshake_meta(params: bytes) -> tuple[str | int | None, dict[str, str]]:
    """Return the progress token and the trace context of a request without an envelope.

    Raises:
        InvalidParams: the token is neither a string nor an integer.
    """
    fields = read_params(params, _Params).meta
    if not isinstance(fields, dict):
        return None, {}
    token = _progress_token(fields) if PROGRESS_TOKEN in fields else None
    return token, {} if TRACE_KEYS.isdisjoint(fields) else read_trace(fields)


def trim_client_info(client_info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client info to store: all of it, or only its names and version if it is large."""
    if len(encode(client_info)) <= MAX_CLIENT_BYTES:
        return dict(client_info)
    names = {
        name: client_info[name] for name in ("name", "title", "version") if name in client_info
    }
    return {name: clip(value) for name, value in names.items() if isinstance(value, str)}


def trim_capabilities(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client capabilities to store, without `experimental` if they are large.

    Raises:
        InvalidParams: the remaining capabilities exceed the limit.
    """
    if len(encode(capabilities)) <= MAX_CAPABILITIES_BYTES:
        return dict(capabilities)
    standard = {name: value for name, value in capabilities.items() if name != "experimental"}
    size = len(encode(standard))
    if size > MAX_CAPABILITIES_BYTES:
        raise InvalidParams(
            f"the capabilities have {size} bytes as JSON, but the limit is "
            f"{MAX_CAPABILITIES_BYTES}; omit those that this server does not need"
        )
    return standard


def _classify_without_envelope(
    method: str, params: _Params, header: str | None, enabled: Sequence[str]
) -> Handshake:
    revision = REVISIONS.get(header or "")
    if method != "initialize" and revision and not revision.stateless and header in enabled:
        return Handshake()
    if method == "initialize" and _supports_handshake(enabled):
        return Handshake()
    if method == "initialize":
        # Older clients show only the error, so the error lists the supported versions.
        requested = params.protocol_version
        raise _unsupported_version(requested if isinstance(requested, str) else "", enabled)
    _check_version_header(header, enabled)
    if _is_stateless_version(header) or not _supports_handshake(enabled):
        raise InvalidEnvelope(
            f"params._meta lacks {PROTOCOL_VERSION!r} and {CLIENT_CAPABILITIES!r}"
        )
    return Handshake()


def _version_header(headers: Headers | None) -> str | None:
    return None if headers is None else protocol_version(headers)


def _check_version_header(header: str | None, enabled: Sequence[str]) -> None:
    if header is not None and header not in enabled:
        raise _unsupported_version(header, enabled)


def _unsupported_version(requested: str, enabled: Sequence[str]) -> UnsupportedProtocolVersion:
    supported = advertised_versions(enabled, requested=requested)
    # A comma separates the values of a repeated header.
    use = "send MCP-Protocol-Version once, with one of" if "," in requested else "use"
    return UnsupportedProtocolVersion(
        f"Protocol version {clip(requested)!r} is not supported; {use} {', '.join(supported)}",
        data={"supported": supported, "requested": requested},
    )


def _is_stateless_version(header: str | None) -> bool:
    revision = REVISIONS.get(header or "")
    return revision is not None and revision.stateless


def _supports_handshake(enabled: Sequence[str]) -> bool:
    return any(not REVISIONS[version].stateless for version in enabled)


def _peek_meta(message: Request | Notification) -> Mapping[str, Any]:
    """Return the `_meta` of a message, empty if the message is malformed."""
    try:
        meta = read_params(message.params, _Params).meta
    except InvalidParams:
        return {}
    return meta if isinstance(meta, dict) else {}


def _has_envelope(fields: Mapping[str, Any]) -> bool:
    return not _ENVELOPE_KEYS.isdisjoint(fields)


def _log_level(fields: Mapping[str, Any]) -> str | None:
    level = fields.get(LOG_LEVEL)
    if level is None:
        return None
    if not isinstance(level, str):
        raise InvalidParams(f"params._meta: {LOG_LEVEL!r} must be a string")
    severity(level)
    return level


def _progress_token(fields: Mapping[str, Any]) -> str | int | None:
    token = fields.get(PROGRESS_TOKEN)
    if token is None or (isinstance(token, str) and len(token) <= MAX_ID_LENGTH):
        return token
    if isinstance(token, int) and not isinstance(token, bool):
        return token
    raise InvalidParams(
        f"params._meta: {PROGRESS_TOKEN!r} must be an integer or a string of at most "
        f"{MAX_ID_LENGTH} "
        "characters"
    )
