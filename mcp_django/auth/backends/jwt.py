"""Access tokens of other issuers that are verified here: JWTs (RFC 7519, RFC 8725, RFC 9068)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import jwt
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from mcp_django.auth.backends.base import BaseBackend
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.foreign import (
    check_audience,
    check_kind,
    entries_for,
    is_known,
    principal_of,
    refuse,
)
from mcp_django.auth.jwks import key_store
from mcp_django.auth.jwt_shape import issuer_in
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.conf_auth import JWTIssuer
from mcp_django.models import TOKEN_PREFIX

ACCESS_TOKEN = "at+jwt"
REQUIRED = ("iss", "aud", "exp", "sub")


class JWTBackend(BaseBackend):
    """Takes bearers that are JWTs of the issuers that ``MCP_DJANGO["JWT"]`` lists."""

    @sensitive_variables("bearer")
    def authenticate(self, credentials: Credentials) -> Principal | None:
        """The user of the token's subject; ``None`` for what no listed issuer has issued.

        Raises:
            AuthenticationRequired: the token says that it is such an issuer's, and does not hold.
            AuthenticationUnavailable: the issuer's keys cannot be had.
        """
        bearer = credentials.bearer
        if bearer is None or bearer.startswith(TOKEN_PREFIX):
            return None
        issuer = issuer_in(bearer)
        entries = entries_for(get_settings().jwt, credentials.server)
        entry = next((one for one in entries if one.issuer == issuer), None)
        if entry is None:
            return None
        claims, is_typed = _verified(entry, bearer)
        check_kind(entry, claims)
        check_audience(entry, claims, credentials.resource, is_typed=is_typed)
        return principal_of(
            entry,
            claims,
            credentials,
            backend="jwt",
            credential=_credential(claims, bearer),
            expires_at=int(claims["exp"]),
        )

    def is_current(self, principal: Principal) -> bool:
        """Whether the issuer is still trusted and the subject still an active user.

        That an issuer has revoked a JWT is not known here before it expires.
        """
        return is_known(get_settings().jwt, principal)

    def issuers(self, request: HttpRequest, server: str = "") -> list[str]:
        """The authorization servers whose tokens the server takes (RFC 9728)."""
        return [entry.issuer for entry in entries_for(get_settings().jwt, server)]


@sensitive_variables("bearer")
def _verified(entry: JWTIssuer, bearer: str) -> tuple[dict[str, Any], bool]:
    """The claims, and whether the header says that this is an access token."""
    header = _header(entry, bearer)
    typ = str(header.get("typ", "")).lower().removeprefix("application/")
    if typ != ACCESS_TOKEN and (entry.strict_typ or typ not in {"", "jwt"}):
        refuse(entry, "The token's typ is not that of an access token.")
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in entry.algorithms:
        refuse(entry, "The token is signed by an algorithm that is not allowed.")
    if kid is not None and not isinstance(kid, str):
        refuse(entry, "The token names no key.")
    key = key_store(entry).find(kid, algorithm)
    if key is None:
        refuse(entry, "The token is signed by a key that its issuer does not publish.")
    try:
        claims: dict[str, Any] = jwt.decode(
            bearer,
            key=key,
            algorithms=[algorithm],
            issuer=entry.issuer,
            leeway=entry.leeway,
            # The audience is compared as an address, not as text.
            options={"require": list(REQUIRED), "verify_aud": False},
        )
    except (PyJWTError, ValueError, OverflowError) as exc:
        refuse(entry, _reason(exc))
    return claims, typ == ACCESS_TOKEN


@sensitive_variables("bearer")
def _header(entry: JWTIssuer, bearer: str) -> Mapping[str, Any]:
    try:
        header: Mapping[str, Any] = jwt.get_unverified_header(bearer)
    except (PyJWTError, RecursionError, ValueError):
        refuse(entry, "The token's header cannot be read.")
    if "crit" in header:
        # RFC 7515, section 4.1.11: what has to be understood is not understood here.
        refuse(entry, "The token has critical extensions, of which none is understood.")
    return header


def _reason(exc: Exception) -> str:
    if isinstance(exc, ExpiredSignatureError):
        return "The token has expired."
    if isinstance(exc, ImmatureSignatureError):
        return "The token is not valid yet."
    if isinstance(exc, MissingRequiredClaimError):
        return f"The token lacks the claim {exc.claim}."
    return "The token's signature or claims do not hold."


def _credential(claims: Mapping[str, Any], bearer: str) -> str:
    """What names the token where it could be revoked: its own id, else its digest."""
    jti = claims.get("jti")
    named = f"{claims['iss']} {jti}" if isinstance(jti, str) and jti else bearer
    return f"jwt:{hashlib.sha256(named.encode()).hexdigest()}"
