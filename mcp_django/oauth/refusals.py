"""Errors of the token and revocation endpoints (RFC 6749, section 5.2; RFC 8707, section 2)."""

from __future__ import annotations

from typing import Self

DESCRIPTIONS = {
    "invalid_request": "The request lacks a parameter, or one is malformed.",
    "invalid_client": "The client is unknown, or did not prove who it is.",
    "invalid_grant": (
        "The code, refresh token or assertion is unknown, expired, used up or another client's; "
        "or its user may not connect."
    ),
    "unauthorized_client": "The client may not use this grant type.",
    "unsupported_grant_type": "This server does not offer this grant type.",
    "invalid_scope": "A scope is unknown, or goes beyond what was granted.",
    "invalid_target": (
        "The resource is no MCP server of this site, or goes beyond what was granted. "
        "Send the resource of the protected resource metadata."
    ),
    "unsupported_token_type": "Tokens of this kind cannot be revoked here.",
    "temporarily_unavailable": "A provider behind this server does not answer; try again soon.",
    "server_error": "The server made a mistake; its log says which.",
    "slow_down": "Too many requests failed; wait before the next one.",
}


class Refused(Exception):
    """An OAuth error; what it says is ours alone, so nothing of a request gets into an answer."""

    def __init__(
        self, error: str | None, description: str = "", *, status: int = 400, retry_after: int = 0
    ) -> None:
        self.error = error if error in DESCRIPTIONS else "invalid_request"
        self.description = description or DESCRIPTIONS[self.error]
        self.status = status
        self.retry_after = retry_after
        super().__init__(self.error)

    @classmethod
    def too_many(cls, wait: int) -> Self:
        """The refusal of a client that failed too often; ``wait`` in seconds."""
        return cls("slow_down", status=429, retry_after=wait)

    @classmethod
    def client(cls) -> Self:
        """The refusal of a client that is unknown or did not prove who it is."""
        return cls("invalid_client", status=401)

    def as_dict(self) -> dict[str, str]:
        """The body of the answer."""
        return {"error": self.error, "error_description": self.description}
