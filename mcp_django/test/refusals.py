"""What a transport says of a caller who may not go on, as the exception that it was."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from mcp_django.exceptions import (
    AuthenticationRequired,
    AuthenticationUnavailable,
    ConnectionRefused,
    InsufficientScope,
    TooManyAttempts,
)
from mcp_django.protocol.errors import FORBIDDEN, UNAUTHORIZED
from mcp_django.test.answers import ErrorResponse
from mcp_django.test.asgi import Response

_WAITS: dict[int, type[TooManyAttempts | AuthenticationUnavailable]] = {
    TooManyAttempts.status: TooManyAttempts,
    AuthenticationUnavailable.status: AuthenticationUnavailable,
}
_SCOPE = re.compile(r'scope="([^"]*)"')


def check_status(response: Response, body: bytes) -> dict[str, Any] | None:
    """The message in a body, ``None`` for an empty one.

    Raises:
        AccessRefused: the caller has to authenticate or may not go on.
        ErrorResponse: HTTP refused the request, and no request of JSON-RPC is named.
    """
    message: dict[str, Any] | None = msgspec.json.decode(body) if body else None
    if message is not None and "error_description" in message:
        _check_wait(response, message["error_description"])
        scopes = _SCOPE.search(response.headers.get("www-authenticate", ""))
        _refuse(
            message["error_description"],
            error=message["error"],
            is_unknown=message["error"] != "insufficient_scope" and response.status != 403,
            scopes=scopes[1].split() if scopes else (),
        )
    if message is not None and "error" in message and message.get("id") is None:
        raise ErrorResponse(message["error"])
    return message


def _check_wait(response: Response, description: str) -> None:
    """Raise what says when to come back: the credential may be good all the same."""
    refusal = _WAITS.get(response.status)
    if refusal is not None:
        raise refusal(description, retry_after=int(response.headers.get("retry-after", "1")))


def check_response(response: Mapping[str, Any]) -> None:
    """Raise what a transport without statuses says in an error.

    Raises:
        AccessRefused: the caller has to authenticate or may not go on.
    """
    error = response.get("error") or {}
    if error.get("code") in (UNAUTHORIZED, FORBIDDEN):
        _refuse(
            error["message"],
            error="",
            is_unknown=error["code"] == UNAUTHORIZED,
            scopes=(error.get("data") or {}).get("scopes", ()),
        )


def _refuse(message: str, *, error: str, is_unknown: bool, scopes: Iterable[str]) -> None:
    if is_unknown:
        named = "" if error == "unauthorized" else error
        raise AuthenticationRequired(message, error=named, scopes=scopes)
    if scopes:
        raise InsufficientScope(message, scopes=scopes)
    raise ConnectionRefused(message)
