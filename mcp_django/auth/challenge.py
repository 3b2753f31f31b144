"""The ``WWW-Authenticate`` header (RFC 6750, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationUnavailable,
    ConnectionRefused,
    TooManyAttempts,
)

OFFLINE_ACCESS = "offline_access"
"""The wish of a client for a refresh token; no operation needs it."""


def challenge(
    refusal: AccessRefused,
    *,
    scopes: Sequence[str] | None = None,
    parameters: Mapping[str, str] | None = None,
) -> str | None:
    """The challenge that belongs to a refusal, ``None`` where no credential would help.

    ``scopes`` stand in place of the refusal's own; ``offline_access`` is never among them (AUT-12).
    ``parameters`` are added as they are named (``resource_metadata`` of RFC 9728).
    """
    if isinstance(refusal, (ConnectionRefused, TooManyAttempts, AuthenticationUnavailable)):
        return None
    values = {"realm": "mcp"}
    if refusal.error:
        values["error"] = refusal.error
        values["error_description"] = refusal.message
    needed = [one for one in (scopes or refusal.scopes) if one != OFFLINE_ACCESS]
    if needed:
        values["scope"] = " ".join(needed)
    values |= parameters or {}
    return "Bearer " + ", ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: str) -> str:
    """A quoted-string that cannot leave its quotes nor its header line."""
    printable = "".join(c for c in value if " " <= c <= "~")
    return '"' + printable.replace("\\", "").replace('"', "'") + '"'
