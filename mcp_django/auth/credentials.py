"""The credentials of a request, and the request without them.

Also the client address of a request, and the issuer that a bearer token names.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.parse import parse_qs

from django.http import HttpRequest

from mcp_django.auth.endpoints import canonicalize_url, resource_of
from mcp_django.auth.principal import Principal, missing_scopes
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers

# Longer than any token of this package or of a known issuer. Without a limit, anonymous clients
# could make the server hash large values.
MAX_BEARER = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The headers and query of a request; ``request`` builds the Django request if it is needed."""

    headers: Headers
    query: str
    request: Callable[[], HttpRequest]
    server: str = ""
    """The name of the server that is called; empty if it is not known yet."""
    declared_resource: str = ""
    """The URL that the server declares as its own; empty if it declares none."""
    scheme: str = ""
    """The scheme of the request, where the transport knows it."""
    path: str = ""
    """The path of the request, where the transport knows it."""
    upstream: str = ""
    """The provider at which users also have to authorize the site, if the server needs one."""

    @property
    def resource(self) -> str:
        """The canonical URL that a token has to be issued for to be accepted here (RFC 8707).

        Computed on each access; empty if the request's URL is not a valid resource URL.
        """
        return canonicalize_url(self.declared_resource) or resource_of(self.request())

    @property
    def bearer(self) -> str | None:
        """The bearer token (RFC 6750, section 2.1), ``None`` without such a header.

        Raises:
            AuthenticationRequired: the header is malformed or repeated, its token is longer than
                4096 characters, or a token is in the query string, which is rejected because URLs
                end up in logs.
        """
        if self.has_token_in_query:
            raise AuthenticationRequired(
                "Send the token in the Authorization header, not in the query string.",
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
                f"The token is longer than {MAX_BEARER} characters.", error="invalid_token"
            )
        return token

    @property
    def has_token_in_query(self) -> bool:
        """Whether the query string contains a token, valid or not."""
        return bool(self.query) and "access_token" in parse_qs(self.query, keep_blank_values=True)

    @property
    def has_authorization(self) -> bool:
        """Whether the request has an Authorization header."""
        return "authorization" in self.headers


SECRET_META = frozenset({"HTTP_AUTHORIZATION", "HTTP_PROXY_AUTHORIZATION", "HTTP_COOKIE"})
SECRET_HEADERS = ("authorization", "proxy-authorization", "cookie")


def without_credentials(request: HttpRequest, principal: Principal) -> HttpRequest:
    """Return a copy of a request without its credentials and cookies, with the caller as its user.

    A component that could read the token could pass it on, which the specification forbids.
    Attributes set by middleware are on the copy as well; the session is the same object.
    """
    copied: Any = copy_request(request)
    copied.META = {name: value for name, value in request.META.items() if name not in SECRET_META}
    copied.COOKIES = {}
    # ``headers`` is computed from META again; only the fast ASGI handler may see ``mcp_in_flight``.
    for name in ("headers", "mcp_in_flight"):
        copied.__dict__.pop(name, None)
    if "environ" in copied.__dict__:
        copied.environ = copied.META
    if "scope" in copied.__dict__:
        secret = {name.encode() for name in SECRET_HEADERS}
        lines = [line for line in copied.scope["headers"] if line[0].lower() not in secret]
        # Servers and Channels derive cookies, a session and a user from the credentials.
        added = {"cookies", "session", "user"}
        scope = {name: value for name, value in copied.scope.items() if name not in added}
        copied.scope = {**scope, "headers": lines}

    async def auser() -> Any:
        return principal.user

    copied.user, copied.auser = principal.user, auser
    return copied  # type: ignore[no-any-return]


def carry_caller(request: HttpRequest, principal: Principal) -> Callable[[], HttpRequest]:
    """Set the caller as ``user``, ``auser`` and ``auth`` of the request that middleware holds.

    Nothing is stored: no session, no cookie and no login. Return a function that returns a copy of
    the request as it was before, with which the caller can be authenticated again.
    """

    async def auser() -> Any:
        return principal.user

    carried: dict[str, Any] = {
        "user": principal.user,
        "auser": auser,
        "auth": CallerToken(principal) if principal.is_authenticated else None,
    }
    before = {name: request.__dict__[name] for name in carried if name in request.__dict__}
    for name, value in carried.items():
        # Not by ``__dict__``: packages may observe the assignment.
        setattr(request, name, value)

    def received() -> HttpRequest:
        copied = copy_request(request)
        for name in carried:
            copied.__dict__.pop(name, None)
        copied.__dict__.update(before)
        return copied

    return received


def copy_request(request: HttpRequest) -> HttpRequest:
    """Return a copy of a request, whose attributes can be set without changing the original."""
    # copy.copy() uses pickling, which leaves out some attributes of a request.
    copied: HttpRequest = object.__new__(type(request))
    copied.__dict__.update(request.__dict__)
    return copied


class CallerToken:
    """``request.auth``: the caller's credential, in the form of the OAuth toolkit's tokens."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal

    @property
    def user(self) -> Any:
        """The user of the credential."""
        return self.principal.user

    @property
    def scope(self) -> str:
        """The scopes, separated by spaces; empty if the credential is not limited by scopes."""
        return " ".join(sorted(self.principal.scopes or ()))

    def allow_scopes(self, scopes: Iterable[str]) -> bool:
        """Return whether the credential includes the scopes."""
        return not missing_scopes(self.principal.scopes, tuple(scopes))

    def is_valid(self, scopes: Iterable[str] | None = None) -> bool:
        """Return whether the credential is valid and includes the scopes."""
        return self.allow_scopes(scopes or ())


# The results of the two cached functions below depend on their argument alone, so forked processes
# keep them. No address is longer than this; without a limit, a header could fill the caches.
MAX_ADDRESS = 100
# Some proxies (Azure's among them) add the port, and then IPv6 needs its brackets.
_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::\d+)?|([0-9.]+):\d+")


def client_ip(request: HttpRequest) -> str | None:
    """Return the client's address behind ``PROXIES`` trusted proxies; ``None`` if unknown.

    Each proxy appends the address it saw to ``X-Forwarded-For``, so the site's own proxies are
    counted from the right, and what a client made up on the left is never used.
    """
    peer = request.META.get("REMOTE_ADDR", "")
    return find_client_ip(peer, request.headers.get("X-Forwarded-For", ""))


def find_client_ip(peer: str, forwarded: str) -> str | None:
    """Return the ``client_ip`` for the address of the connection and for ``X-Forwarded-For``."""
    proxies = get_settings().proxies
    address = peer
    if proxies:
        hops = forwarded.rsplit(",", proxies)
        address = hops[-proxies] if len(hops) >= proxies else hops[0]
        address = address.strip()
        if written := _WITH_PORT.fullmatch(address):
            address = written[1] or written[2]
    return _normalize_address(address) if len(address) <= MAX_ADDRESS else None


@lru_cache(maxsize=1024)
def _normalize_address(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def rate_limit_source(address: str) -> str:
    """Return the source by which limits count an address: itself, or the /64 of an IPv6 address.

    One subscriber has all of a /64. An IPv4-mapped IPv6 address, as dual-stack sockets report it,
    counts as the IPv4 address.
    """
    ip = ip_address(address)
    if not isinstance(ip, IPv6Address):
        return address
    return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))


def wide_network(source: str) -> str:
    """Return the IPv4 /24 or IPv6 /48 that contains a source: one customer may have all of it."""
    network = ip_network(source)
    return str(network.supernet(new_prefix=24 if network.version == 4 else 48))


def read_issuer(bearer: str) -> str | None:
    """Return the ``iss`` of a JWT; ``None`` if the bearer is not a JWT or has no issuer.

    It is not verified; use it only to choose the issuer to verify the token with.
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
