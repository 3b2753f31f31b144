"""What an exception means for the call log: an outcome, and why, without any argument."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from django.core.exceptions import (
    ObjectDoesNotExist,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.http import Http404

from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    Busy,
    ElicitationDeclined,
    MCPError,
    NotApproved,
    ToolError,
)
from mcp_django.protocol.errors import (
    BUSY,
    FORBIDDEN,
    HEADER_MISMATCH,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_CAPABILITY,
    RATE_LIMITED,
    UNAUTHORIZED,
    URL_ELICITATION_REQUIRED,
)

ANSWERS = (
    ToolError,
    ElicitationDeclined,
    Http404,
    ObjectDoesNotExist,
    PermissionDenied,
    ValidationError,
    SuspiciousOperation,
)
BY_CODE = {
    RATE_LIMITED: "limited",
    BUSY: "refused",
    METHOD_NOT_FOUND: "unknown",
    MISSING_CAPABILITY: "refused",
    URL_ELICITATION_REQUIRED: "asked",
    INVALID_PARAMS: "invalid",
    HEADER_MISMATCH: "invalid",
}
# What these say was written by this package or by a permission, and has no argument in it.
SAYS_ENOUGH = (AccessRefused, Busy)


class Meaning(NamedTuple):
    """The outcome of a call, the code of its error and the reason."""

    outcome: str
    code: int | None = None
    reason: str = ""


def before(exc: BaseException) -> Meaning:
    """What it means when nothing has run yet."""
    if isinstance(exc, AccessRefused):
        is_unknown = isinstance(exc, AuthenticationRequired)
        return Meaning("refused", UNAUTHORIZED if is_unknown else FORBIDDEN, exc.message)
    if isinstance(exc, MCPError):
        return Meaning(BY_CODE.get(exc.code, "refused"), exc.code, told(exc))
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    return Meaning("failed", None, told(exc))


def failure(exc: Exception) -> Meaning:
    """What an exception of the component's function means."""
    # The runtime's own exceptions know this module.
    from mcp_django.runtime.failures import CallTimedOut

    if isinstance(exc, CallTimedOut):
        return Meaning("timeout", None, str(exc))
    if isinstance(exc, AccessRefused):
        return Meaning("refused", None, exc.message)
    if isinstance(exc, NotApproved):
        return Meaning("denied", None, told(exc))
    if isinstance(exc, (MCPError, *ANSWERS)):
        return Meaning("error", None, told(exc))
    return Meaning("failed", None, told(exc))


def after(exc: BaseException, cause: Meaning | None) -> Meaning:
    """What it means when the function has run, and ``cause`` is what it raised."""
    if isinstance(exc, asyncio.CancelledError):
        return Meaning("cancelled")
    if not isinstance(exc, MCPError):
        return cause or Meaning("failed", None, told(exc))
    if cause is not None:
        return cause._replace(code=exc.code)
    meaning = before(exc)
    return meaning._replace(outcome="error") if meaning.outcome == "invalid" else meaning


def told(exc: Any) -> str:
    """What may be said of an exception: its name, unless its text is our own."""
    return exc.message if isinstance(exc, SAYS_ENOUGH) and hasattr(exc, "message") else _name(exc)


def _name(exc: Any) -> str:
    return f"{type(exc).__name__}"
