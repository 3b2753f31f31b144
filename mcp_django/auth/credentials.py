"""What a request presents to prove who is calling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from mcp_django.auth.resources import canonical, resource_of
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers

# Longer than any token of ours or of a known issuer; hashing more would be work for anybody.
MAX_BEARER = 4096

if TYPE_CHECKING:
    from django.http import HttpRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The headers and query of a request, and its Django form for backends that need one."""

    headers: Headers
    query: str
    request: Callable[[], HttpRequest]
    server: str = ""
    """The name of the server that is called; empty where that is not known yet."""
    declared_resource: str = ""
    """The URL by which the server wants to be known, where it says one."""
    upstream: str = ""
    """The provider that users also have to let the site in at, where the server needs one."""

    @property
    def resource(self) -> str:
        """The canonical URL that a token has to be issued for to be good here (RFC 8707).

        Worked out when it is asked for; empty where the request names no resource.
        """
        return canonical(self.declared_resource) or resource_of(self.request())

    @property
    def bearer(self) -> str | None:
        """The bearer token (RFC 6750, section 2.1), ``None`` when no such header came.

        Raises:
            AuthenticationRequired: the header is malformed or repeated, its token is over 4096
                characters, or a token came in the query, which is refused because addresses end
                up in logs (AUT-2).
        """
        if self.has_token_in_query:
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
        if len(token) > MAX_BEARER:
            raise AuthenticationRequired(
                f"No token here is longer than {MAX_BEARER} characters.", error="invalid_token"
            )
        return token

    @property
    def has_token_in_query(self) -> bool:
        """Whether a token came in the query, whatever it is."""
        return bool(self.query) and "access_token" in parse_qs(self.query, keep_blank_values=True)

    @property
    def has_authorization(self) -> bool:
        """Whether any Authorization header came."""
        return "authorization" in self.headers
