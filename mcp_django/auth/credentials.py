"""What a request presents to prove who is calling, and the request without it.

Also the address that a request came from, and the issuer that a bearer names.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import parse_qs

from django.http import HttpRequest

from mcp_django.auth.endpoints import canonical, resource_of
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers

# Longer than any token of ours or of a known issuer; hashing more would be work for anybody.
MAX_BEARER = 4096


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


# The request without credentials ------------------------------------------------------------------

SECRET_META = frozenset({"HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE"})
SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")


def carrier(
    request: Callable[[], HttpRequest | None], principal: Principal
) -> Callable[[], HttpRequest | None]:
    """A function that gives the request as a component sees it, the same one each time."""
    made: list[HttpRequest | None] = []

    def get() -> HttpRequest | None:
        if not made:
            whole = request()
            made.append(None if whole is None else without_credentials(whole, principal))
        return made[0]

    return get


def without_credentials(request: HttpRequest, principal: Principal) -> HttpRequest:
    """A twin of a request that has no Authorization and no cookies, and the caller as its user.

    A component that could read the token could pass it on, which no server may (AUT-10). What
    middleware put on the request is on the twin as well; the session is the same object.
    """
    # copy.copy() pickles, and leaves out what a request cannot be pickled with.
    twin: Any = object.__new__(type(request))
    twin.__dict__.update(request.__dict__)
    twin.META = {name: value for name, value in request.META.items() if name not in SECRET_META}
    twin.COOKIES = {}
    # The one is made anew of META; the other is how the lane finds the work of its request.
    for name in ("headers", "mcp_ticket"):
        twin.__dict__.pop(name, None)
    if "environ" in twin.__dict__:
        twin.environ = twin.META
    if "scope" in twin.__dict__:
        secret = {name.encode() for name in SECRET_HEADERS}
        lines = [line for line in twin.scope["headers"] if line[0].lower() not in secret]
        # What servers and Channels add (cookies, a session, a user) is read from the credentials.
        added = {"cookies", "session", "user"}
        kept = {name: value for name, value in twin.scope.items() if name not in added}
        twin.scope = {**kept, "headers": lines}
    twin.user = principal.user
    twin.auser = _auser(principal)
    return twin  # type: ignore[no-any-return]


def _auser(principal: Principal) -> Callable[[], Any]:
    async def auser() -> Any:
        return principal.user

    return auser


# The address of a request -------------------------------------------------------------------------

# Some proxies (Azure's among them) add the port, and then IPv6 needs its brackets.
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|([0-9.]+):\d+")


def client_ip(request: HttpRequest) -> str | None:
    """The address of the client, past as many proxies as ``PROXIES`` says; ``None`` if unknown.

    Each proxy appends the address it saw to ``X-Forwarded-For``, so the site's own are counted from
    the right and what a client made up on the left is never believed.
    """
    hops = [one.strip() for one in request.headers.get("X-Forwarded-For", "").split(",")]
    proxies = get_settings().proxies
    found = request.META.get("REMOTE_ADDR", "")
    if proxies:
        found = hops[-proxies] if len(hops) >= proxies else hops[0]
        if written := _WITH_PORT.fullmatch(found):
            found = written[1] or written[2]
    try:
        return str(ip_address(found))
    except ValueError:
        return None


def source_of(address: str) -> str:
    """What a limit counts for an address: itself, or of IPv6 the /64.

    That is what one subscriber has whole. An IPv4 address in the form of IPv6, as sockets for both
    report it, is the IPv4 address.
    """
    found = ip_address(address)
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or IPv6Network((int(found), 64), strict=False))


def wide_network_of(source: str) -> str:
    """The /24 of IPv4 or the /48 of IPv6 that a source is in: one customer may have it whole."""
    found = ip_network(source)
    return str(found.supernet(new_prefix=24 if found.version == 4 else 48))


# The issuer of a bearer token ---------------------------------------------------------------------


def issuer_in(bearer: str) -> str | None:
    """The ``iss`` of a JWT; ``None`` if the bearer is no JWT or does not say.

    It is not verified, and only good to choose which issuer to ask.
    """
    parts = bearer.split(".")
    if len(parts) != 3:
        return None
    payload = parts[1]
    try:
        padded = payload + "=" * (-len(payload) % 4)
        claims = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else None
