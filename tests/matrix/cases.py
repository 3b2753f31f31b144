"""A case: one request, and the mounts, revisions and callers that it applies to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mcp_django.protocol import envelope
from mcp_django.protocol.errors import TASKS, extension_declaration
from mcp_django.protocol.revisions import HANDSHAKE, REVISIONS, STATELESS, Revision

HTTP = ("raw", "lane", "view", "wsgi")
STREAMING = HTTP[:3]
SSE, SSE_VERSION = "sse", "2024-11-05"
LOCAL = ("memory", "stdio", SSE)
MOUNTS = (*HTTP, *LOCAL)
# The mounts that get the sent bytes unchanged.
WIRES = (*HTTP, "stdio", SSE)
ALL = tuple(REVISIONS)
NEW = tuple(revision.version for revision in STATELESS)
OLD = tuple(revision.version for revision in HANDSHAKE)
WITH_TASKS = tuple(revision.version for revision in HANDSHAKE if revision.tasks)

USUAL = ("anonymous", "member")
# For requests whose answer depends on a permission.
WITH_STAFF = (*USUAL, "staff")
EVERYBODY = (
    *WITH_STAFF,
    "stranger",
    "revoked",
    "invalid",
    "oauth-other",
    "oauth-read",
    "oauth-write",
)
OAUTH = EVERYBODY[-3:]
BAD_TOKENS = ("revoked", "invalid")

ASKABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
CLIENT = {"name": "tester", "version": "1"}

Params = Mapping[str, Any] | Callable[[dict[str, Any]], Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One request; `first` is sent before it, and `params` may depend on the answer to that."""

    method: str = ""
    params: Params = field(default_factory=dict)
    first: Case | None = None
    server: str = ""
    """The server, if it is not the caller's."""
    callers: tuple[str, ...] = USUAL
    mounts: tuple[str, ...] = MOUNTS
    revisions: tuple[str, ...] = ALL
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    as_task: bool = False
    is_loud: bool = False
    """The client wants progress and every log message."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    raw: bytes | None = None
    """The body, instead of a message that is built from method and parameters."""
    is_notification: bool = False
    verb: str = "POST"
    suffix: str = ""
    """The text after the path of the endpoint."""
    has_session: bool = True
    session_server: str = ""
    """The server whose session is used, if it is not the server of the request."""
    answers: tuple[Any, ...] = ()
    """The user's answers to the questions of the server."""
    leaves: bool = False
    """The answer is a stream without an end, so that only its beginning is read."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_batch(self) -> bool:
        """Whether the body is a list of messages."""
        return self.raw is not None and self.raw.startswith(b"[")

    def applies(self, mount: str, version: str) -> bool:
        """Return whether the request can be sent there."""
        if mount == SSE and version != SSE_VERSION:
            return False
        is_wire = self.raw is not None or self.is_notification or self.verb != "POST"
        if mount == "memory" and (is_wire or self.headers or self.leaves):
            return False
        if mount in LOCAL and (self.headers or self.verb != "POST" or not self.has_session):
            return False
        return mount in self.mounts and version in self.revisions

    def callers_at(self, mount: str) -> tuple[str, ...]:
        """Return the callers that exist there.

        OAuth tokens are for HTTP. A client in memory has a user and no token, so it has no bad
        token; with a bad token, the command that serves stdio does not start.
        """
        missing = {"stdio": (*OAUTH, *BAD_TOKENS), "memory": BAD_TOKENS}.get(mount, ())
        return tuple(caller for caller in self.callers if caller not in missing)


def call(
    name: str, /, *, id: Any = None, case: Mapping[str, Any] | None = None, **args: Any
) -> Case:
    """Return a call of a tool; `case` has the other options of the case."""
    return Case(method="tools/call", params={"name": name, "arguments": args}, **(case or {}))


def read(uri: str, **options: Any) -> Case:
    """Return a request that reads a resource."""
    return Case(method="resources/read", params={"uri": uri}, **options)


def get(name: str, /, *, case: Mapping[str, Any] | None = None, **args: Any) -> Case:
    """Return a request that gets a prompt."""
    return Case(method="prompts/get", params={"name": name, "arguments": args}, **(case or {}))


def build_message(
    case: Case, revision: Revision, params: Mapping[str, Any], *, id: Any = 1
) -> dict[str, Any]:
    """Return the message of a case as a client of the revision sends it."""
    meta = dict(case.meta)
    if case.is_loud:
        meta[envelope.PROGRESS_TOKEN] = "progress"
    full_params = dict(params)
    if case.as_task and revision.tasks:
        full_params["task"] = {}
    if revision.stateless:
        if case.is_loud:
            meta[envelope.LOG_LEVEL] = "debug"
        envelope_meta = {
            envelope.PROTOCOL_VERSION: revision.version,
            envelope.CLIENT_CAPABILITIES: capabilities_of(case),
            envelope.CLIENT_INFO: CLIENT,
        }
        meta = {**envelope_meta, **meta}
    if meta:
        full_params["_meta"] = meta
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": case.method}
    if not case.is_notification:
        message["id"] = id
    if full_params:
        message["params"] = full_params
    return message


def with_first(case: Case) -> list[Case]:
    """Return the requests of a case: the one that is sent before it, if any, and its own."""
    return [case] if case.first is None else [case.first, case]


def capabilities_of(case: Case) -> dict[str, Any]:
    """Return the capabilities that the client declares for a case."""
    extensions = extension_declaration(TASKS) if case.as_task else {}
    return {**case.capabilities, **extensions}


def initialization(case: Case, revision: Revision) -> dict[str, Any]:
    """Return the parameters that open a session for a case."""
    return {
        "protocolVersion": revision.version,
        "capabilities": dict(case.capabilities),
        "clientInfo": CLIENT,
    }
