"""Verification of assertions: short-lived JWTs for one use (RFC 7521, RFC 7523, RFC 8725).

PyJWT is an optional dependency, so this module is imported only when an assertion is received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from django.views.decorators.debug import sensitive_variables
from jwt import PyJWK
from jwt.exceptions import MissingRequiredClaimError, PyJWTError

from mcp_django.auth.backends.jwt import IssuerKeys, key_store
from mcp_django.conf import JWTIssuer
from mcp_django.models import token_digest
from mcp_django.oauth.models import UsedAssertion

MAX_LENGTH = 8192
LEEWAY_SECONDS = 30

FindKey = Callable[[str | None, str], PyJWK | None]


class InvalidAssertion(Exception):
    """The assertion is not valid. The message is for the log only."""


def require(condition: object, message: str) -> None:
    """Check a condition of an assertion.

    Raises:
        InvalidAssertion: if ``condition`` is false, with ``message`` as its message.
    """
    if not condition:
        raise InvalidAssertion(message)


@sensitive_variables("assertion")
def read_unverified_claims(assertion: str) -> dict[str, Any]:
    """Return the unverified claims of an assertion, to find the keys to verify it with.

    Raises:
        InvalidAssertion: if it is not a JWT, or is longer than ``MAX_LENGTH``.
    """
    require(0 < len(assertion) <= MAX_LENGTH, "The assertion is empty or too long.")
    try:
        claims: dict[str, Any] = jwt.decode(assertion, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError) as exc:
        raise InvalidAssertion("The assertion is not a valid JWT.") from exc
    return claims


@sensitive_variables("assertion")
def verify_assertion(
    assertion: str,
    *,
    find_key: FindKey,
    algorithms: Sequence[str],
    issuer: str,
    required: Sequence[str],
    max_seconds: float,
    typ: str = "",
    leeway: float = LEEWAY_SECONDS,
) -> dict[str, Any]:
    """Return the claims of an assertion after verifying its signature, issuer and lifetime.

    ``required`` lists claims that must be present; a required ``jti`` has to be a text that is not
    empty. ``max_seconds`` is the longest allowed lifetime, counted from ``iat`` or from now. The
    caller verifies the audience.

    Raises:
        InvalidAssertion: if the assertion is not valid.
    """
    try:
        header = jwt.get_unverified_header(assertion)
        algorithm, kid = header.get("alg"), header.get("kid")
        token_type = str(header.get("typ", "")).lower().removeprefix("application/")
        require(not typ or token_type == typ, f"The typ header is not {typ}.")
        require(algorithm in algorithms, "The algorithm is not allowed.")
        require("crit" not in header, "It has critical header parameters (crit), unsupported here.")
        require(kid is None or isinstance(kid, str), "The key id (kid) is not a string.")
        name = str(algorithm)
        key = find_key(kid, name)
        if key is None:
            raise InvalidAssertion("The issuer has no such key.")
        claims: dict[str, Any] = jwt.decode(
            assertion,
            key=key,
            algorithms=[name],
            issuer=issuer,
            leeway=leeway,
            options={"require": ["iss", "sub", "aud", "exp", *required], "verify_aud": False},
        )
    except MissingRequiredClaimError as exc:
        raise InvalidAssertion(f"The claim {exc.claim} is missing.") from exc
    except (PyJWTError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidAssertion(
            f"The signature or a claim is not valid ({type(exc).__name__})."
        ) from exc
    has_jti = isinstance(claims.get("jti"), str) and claims["jti"]
    require(has_jti or "jti" not in required, "The claim jti is empty, or not a text.")
    now = datetime.now(UTC).timestamp()
    if int(claims["exp"]) - int(claims.get("iat", now)) > max_seconds + leeway:
        raise InvalidAssertion("Its lifetime is too long.")
    return claims


def make_key_finder(issuer: str, *, jwks: Mapping[str, Any] | None, jwks_url: str) -> FindKey:
    """Return a function that finds an issuer's key by id and algorithm, in a set or at a URL."""
    if jwks is not None:
        listed = [key for key in jwks.get("keys", ()) if isinstance(key, dict)]
        return IssuerKeys(fetched_at=0, keys=tuple(listed)).find
    return key_store(JWTIssuer(issuer=issuer, jwks_url=jwks_url)).find


def mark_used(claims: dict[str, Any]) -> bool:
    """Mark an assertion as used, by its ``jti``; return whether this is its first use anywhere."""
    used = UsedAssertion(
        digest=token_digest(f"{claims['iss']}\0{claims['jti']}"),
        # Kept for as long as any allowed leeway could still accept the assertion.
        expires_at=datetime.fromtimestamp(int(claims["exp"]), UTC) + timedelta(minutes=10),
    )
    return used.mark_used()
