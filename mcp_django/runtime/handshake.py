"""``initialize``: what a client and a server agree on (2024-11-05 to 2025-11-25)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from mcp_django.core.catalog import Server
from mcp_django.exceptions import InvalidParams
from mcp_django.protocol import jsonrpc, shapes
from mcp_django.protocol.envelope import (
    Envelope,
    kept_capabilities,
    kept_client,
    read_handshake_meta,
)
from mcp_django.protocol.jsonrpc import Request, read_params
from mcp_django.protocol.revisions import HANDSHAKE, Revision
from mcp_django.runtime.handlers.discover import capabilities
from mcp_django.runtime.handlers.tasks import task_capability
from mcp_django.runtime.session import ClientSession
from mcp_django.schema.values import MAX_DEPTH, is_too_deep

# LOG-2 leaves the level before the first logging/setLevel to the server.
DEFAULT_LOG_LEVEL = "info"


class InitializeParams(msgspec.Struct, rename="camel"):
    """Parameters of ``initialize``."""

    protocol_version: Any = None
    capabilities: dict[str, Any] = {}
    client_info: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Agreement:
    """What was agreed on."""

    revision: Revision
    capabilities: Mapping[str, Any]
    client_info: Mapping[str, Any]


def agree(server: Server, request: Request) -> Agreement:
    """The revision to speak: the one asked for, or our newest one (VER-13).

    Raises:
        InvalidParams: no revision was asked for at all, or more is said than can be kept.
    """
    params = read_params(request.params, InitializeParams)
    if is_too_deep(request.params, [params.capabilities, params.client_info]):
        raise InvalidParams(f"params are nested deeper than {MAX_DEPTH} levels")
    enabled = [one for one in HANDSHAKE if one.version in server.protocol_versions]
    requested = params.protocol_version
    if not isinstance(requested, str):
        raise InvalidParams(
            "params.protocolVersion must be a string",
            data={"supported": [one.version for one in enabled], "requested": requested},
        )
    revision = next((one for one in enabled if one.version == requested), enabled[0])
    return Agreement(
        revision, kept_capabilities(params.capabilities), kept_client(params.client_info)
    )


def welcome(server: Server, request: Request, agreement: Agreement, *, can_stream: bool) -> bytes:
    """The response to ``initialize``."""
    result: dict[str, Any] = {
        "protocolVersion": agreement.revision.version,
        "capabilities": {
            **capabilities(server, can_stream=can_stream),
            **task_capability(server),
        },
        "serverInfo": server.identity(),
    }
    if server.instructions:
        result["instructions"] = server.instructions
    projected = shapes.project_result("initialize", result, agreement.revision, identity=None)
    return jsonrpc.encode(jsonrpc.result_message(request.id, projected))


def envelope_of(session: ClientSession, request: Request) -> Envelope:
    """What a request of 2026-07-28 would say about itself, from the session instead.

    Raises:
        InvalidParams: the progress token is neither a string nor an integer.
    """
    progress_token, trace = read_handshake_meta(request.params)
    return Envelope(
        revision=session.revision,
        client_capabilities=session.capabilities,
        client_info=session.client_info,
        log_level=session.log_level or DEFAULT_LOG_LEVEL,
        progress_token=progress_token,
        trace=trace,
    )


def supported(server: Server) -> Iterable[Revision]:
    """The handshake revisions that a server speaks, newest first."""
    return [one for one in HANDSHAKE if one.version in server.protocol_versions]
