"""`_meta`: the reserved keys, what authors may add, and trace context.

Key grammar and reservations: MCP 2025-06-18 to 2026-07-28, "General fields". Trace context: W3C
Trace Context (level 1, section 3) and W3C Baggage (section 3.3). Tracing itself is not done here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mcp_django.protocol.errors import clip

PROTOCOL_VERSION = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
PROGRESS_TOKEN = "progressToken"
RELATED_TASK = "io.modelcontextprotocol/related-task"
MODEL_IMMEDIATE_RESPONSE = "io.modelcontextprotocol/model-immediate-response"
TRACE_KEYS = ("traceparent", "tracestate", "baggage")

_LABEL = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_NAME = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_RESERVED_LABELS = frozenset({"mcp", "modelcontextprotocol"})
_RESERVED_NAMES = frozenset({PROGRESS_TOKEN, *TRACE_KEYS})


def check_author_meta(meta: Mapping[str, Any]) -> None:
    """Refuse keys that the protocol keeps for itself or cannot carry.

    Raises:
        ValueError: naming the key and the rule it breaks.
    """
    for key in meta:
        problem = _problem(key)
        if problem:
            raise ValueError(f"_meta key {clip(repr(key))}: {problem}")


def _problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name):
        return "a name begins and ends with a letter or digit, with only those and - _ . between"
    if not slash:
        return "the name is reserved by the protocol" if name in _RESERVED_NAMES else None
    labels = prefix.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels):
        return (
            "a prefix is made of labels separated by dots, each beginning with a letter and "
            "ending with a letter or digit, with only those and hyphens between"
        )
    if _is_reserved([label.lower() for label in labels]):
        return "the prefix is reserved by the protocol; use a domain of your own"
    return None


def _is_reserved(labels: list[str]) -> bool:
    # The second label decides from 2025-11-25 on, any label but the last at 2025-06-18. An
    # author's key goes out at every revision, so it has to be free at each of them.
    return bool(_RESERVED_LABELS.intersection([*labels[:-1], *labels[1:2]]))


_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
_STATE_KEY = r"(?:[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
_STATE_VALUE = r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_STATE_MEMBER = re.compile(rf"{_STATE_KEY}={_STATE_VALUE}")
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_BAGGAGE_VALUE = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_BAGGAGE_MEMBER = re.compile(rf"{_TOKEN}[ \t]*=[ \t]*{_BAGGAGE_VALUE}")
_BAGGAGE_PROPERTY = re.compile(rf"{_TOKEN}(?:[ \t]*=[ \t]*{_BAGGAGE_VALUE})?")

_TRACE_KEYS = frozenset(TRACE_KEYS)

MAX_STATE_MEMBERS = 32
MAX_BAGGAGE_MEMBERS = 64
MAX_TRACE_LENGTH = 8192
# Longer ones OpenTelemetry drops as well, with a line in the log for each.
MAX_PARENT_LENGTH = 512
MAX_BAGGAGE_MEMBER_LENGTH = 4096


def read_trace(meta: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace values of `meta` that are valid; the others count as absent."""
    if _TRACE_KEYS.isdisjoint(meta):
        return {}
    texts = {
        key: value
        for key in TRACE_KEYS
        if isinstance(value := meta.get(key), str) and len(value) <= MAX_TRACE_LENGTH
    }
    trace: dict[str, str] = {}
    if "traceparent" in texts and _is_traceparent(texts["traceparent"]):
        trace["traceparent"] = texts["traceparent"]
        # Without a parent the state has nothing to belong to.
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
    # Only a version newer than ours may have more fields.
    return rest is None or version != "00"


def _is_tracestate(value: str) -> bool:
    members = [member.strip(" \t") for member in value.split(",")]
    named = [member for member in members if member]
    keys = {member.partition("=")[0] for member in named}
    return (
        0 < len(named) <= MAX_STATE_MEMBERS
        and len(keys) == len(named)
        and all(_STATE_MEMBER.fullmatch(member) for member in named)
    )


def _is_baggage(value: str) -> bool:
    members = value.split(",")
    return len(members) <= MAX_BAGGAGE_MEMBERS and all(map(_is_baggage_member, members))


def _is_baggage_member(member: str) -> bool:
    if len(member) > MAX_BAGGAGE_MEMBER_LENGTH:
        return False
    first, *properties = (part.strip(" \t") for part in member.split(";"))
    return bool(_BAGGAGE_MEMBER.fullmatch(first)) and all(
        _BAGGAGE_PROPERTY.fullmatch(part) for part in properties
    )
