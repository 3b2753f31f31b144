"""The methods that only the handshake revisions have."""

from __future__ import annotations

from typing import Any

import msgspec

from mcp_django.exceptions import (
    AuthenticationRequired,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    ResourceNotFound,
)
from mcp_django.protocol.jsonrpc import read_params
from mcp_django.protocol.revisions import severity
from mcp_django.runtime.handlers.resources import admit_reading, is_readable
from mcp_django.runtime.incoming import Incoming
from mcp_django.runtime.session import ClientSession
from mcp_django.store.sessions import TooManySubscriptions


class LevelParams(msgspec.Struct):
    """Parameters of ``logging/setLevel``."""

    level: str


class UriParams(msgspec.Struct):
    """Parameters of ``resources/subscribe`` and ``resources/unsubscribe``."""

    uri: str


def ping(incoming: Incoming) -> dict[str, Any]:
    """Here."""
    return {}


def set_level(incoming: Incoming) -> dict[str, Any]:
    """Keep the level for the session."""
    level = read_params(incoming.request.params, LevelParams).level
    severity(level)
    _session(incoming).set_log_level(level)
    return {}


def admit_subscribing(incoming: Incoming) -> str:
    """The URI to subscribe to, if its caller may; whether there is such a row is not looked at.

    Raises:
        InsufficientScope: the caller may read it, and the credential may not.
        MethodNotFound: changes cannot be told here, as under WSGI.
        ResourceNotFound: nothing that can be subscribed to answers for it, or not to this caller.
    """
    if not incoming.can_stream:
        raise MethodNotFound(
            "This server tells no changes: it cannot stream, as it is served over WSGI."
        )
    uri = read_params(incoming.request.params, UriParams).uri
    # No URI has that character, and PostgreSQL does not store it.
    if "\0" in uri:
        raise _not_found(uri)
    try:
        reading = admit_reading(incoming, uri)
    except AuthenticationRequired:
        raise _not_found(uri) from None
    if not reading.component.subscribe:  # type: ignore[attr-defined]  # a resource's
        raise _not_found(uri)
    return uri


def subscribe(incoming: Incoming) -> dict[str, Any]:
    """Tell the session of changes of a resource that its caller may read (SUB-4)."""
    uri = admit_subscribing(incoming)
    if not is_readable(incoming, uri):
        raise _not_found(uri)
    try:
        _session(incoming).subscribe(uri)
    except TooManySubscriptions:
        raise InvalidParams("The session has too many subscriptions; end some first.") from None
    return {}


def unsubscribe(incoming: Incoming) -> dict[str, Any]:
    """Tell the session no more; what it never heard of is no mistake."""
    _session(incoming).unsubscribe(read_params(incoming.request.params, UriParams).uri)
    return {}


def _not_found(uri: str) -> ResourceNotFound:
    return ResourceNotFound("Resource not found; see resources/list.", data={"uri": uri})


def _session(incoming: Incoming) -> ClientSession:
    if incoming.session is None:
        raise InvalidRequest("Send initialize first.")
    return incoming.session
