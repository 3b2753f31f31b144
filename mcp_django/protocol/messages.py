"""The JSON-RPC messages: what was received, as values, and what is sent, as dictionaries.

`jsonrpc` makes the former out of bytes and bytes out of the latter, and exports all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from mcp_django.protocol.errors import MCPError

MAX_ID = 16 * 1024
"""Characters of an id that is a string: what a client calls a request is repeated and kept."""

RequestId: TypeAlias = Annotated[str, msgspec.Meta(max_length=MAX_ID)] | int


class Request(msgspec.Struct, frozen=True):
    """A message that wants an answer; `params` is the raw JSON of an object."""

    id: RequestId
    method: str
    params: bytes = b"{}"


class Notification(msgspec.Struct, frozen=True):
    """A message that never gets an answer."""

    method: str
    params: bytes = b"{}"


class Response(msgspec.Struct, frozen=True):
    """The answer to a request of ours: either `result` or `error`, each the raw JSON of an object.

    The id is `None` only on an error whose sender could not read ours.
    """

    id: RequestId | None
    result: bytes | None = None
    error: bytes | None = None


class Failure(msgspec.Struct, frozen=True):
    """What should have been a message."""

    error: MCPError
    id: RequestId | None = None
    """The id to answer under, if there was one that could be read."""
    silent: bool = False
    """No JSON-RPC answer may follow: it was meant as a notification or as a response."""


class Batch(msgspec.Struct, frozen=True):
    """Several messages in one array, responses only or none at all; broken ones stay in place."""

    members: tuple[Request | Notification | Response | Failure, ...]


def request_id_of(message: object) -> RequestId | None:
    """Return the id that a refusal of a message repeats: that of a request, a broken one included.

    The id of a response is one of ours, under which nothing is answered.
    """
    return message.id if isinstance(message, Request | Failure) else None


Message: TypeAlias = Request | Notification | Response
Decoded: TypeAlias = Message | Batch | Failure


def request(id: RequestId, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a request of the server's own."""
    return {"id": id, **notification(method, params)}


def result_message(id: RequestId, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a successful response."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_message(id: RequestId | None, error: Mapping[str, Any]) -> dict[str, Any]:
    """Return an error response; without a known id the member is left out (RPC-11)."""
    if id is None:
        return {"jsonrpc": "2.0", "error": error}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def notification(method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message
