"""What a request presents to prove who is calling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers

if TYPE_CHECKING:
    from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The headers and query of a request, and its Django form for backends that need one."""

    headers: Headers
    query: str
    request: Callable[[], HttpRequest]

    @property
    def bearer(self) -> str | None:
        """The bearer token (RFC 6750, section 2.1), ``None`` when no such header came.

        Raises:
            AuthenticationRequired: the header is malformed or repeated, or a token came in the
                query, which is refused because addresses end up in logs (AUT-2).
        """
        if "access_token" in parse_qs(self.query, keep_blank_values=True):
            raise AuthenticationRequired(
                "Send the token in the Authorization header, not in the query.",
                error="invalid_request",
                status=400,
            )
        values = self.headers.getlist("authorization")
        if not values:
            return None
        if len(values) > 1:
            raise AuthenticationRequired(
                "Send one Authorization header.", error="invalid_request", status=400
            )
        scheme, _, token = values[0].partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip(" \t")
        if not token or " " in token:
            raise AuthenticationRequired(
                "Write 'Authorization: Bearer TOKEN'.", error="invalid_request", status=400
            )
        return token

    @property
    def has_authorization(self) -> bool:
        """Whether any Authorization header came."""
        return "authorization" in self.headers
