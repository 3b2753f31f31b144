"""The ``WWW-Authenticate`` header (RFC 6750, section 3)."""

from __future__ import annotations

from collections.abc import Mapping

from mcp_django.exceptions import AccessRefused, ConnectionRefused


def challenge(refusal: AccessRefused, *, parameters: Mapping[str, str] | None = None) -> str | None:
    """The challenge that belongs to a refusal, ``None`` where no credential would help.

    ``parameters`` are added as they are named (``resource_metadata`` of RFC 9728).
    """
    if isinstance(refusal, ConnectionRefused):
        return None
    values = {"realm": "mcp"}
    if refusal.error:
        values["error"] = refusal.error
        values["error_description"] = refusal.message
    if refusal.scopes:
        values["scope"] = " ".join(refusal.scopes)
    values |= parameters or {}
    return "Bearer " + ", ".join(f"{name}={_quoted(value)}" for name, value in values.items())


def _quoted(value: str) -> str:
    """A quoted-string that cannot leave its quotes nor its header line."""
    printable = "".join(c for c in value if " " <= c <= "~")
    return '"' + printable.replace("\\", "").replace('"', "'") + '"'
