"""Assertions: short-lived JWTs that are good once (RFC 7521, RFC 7523, RFC 8725).

PyJWT is an extra of its own, so this module is imported where an assertion comes, and not before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
from django.views.decorators.debug import sensitive_variables
from jwt import PyJWK
from jwt.exceptions import MissingRequiredClaimError, PyJWTError

from mcp_django.auth.backends.jwt import Keys, key_store
from mcp_django.conf import JWTIssuer
from mcp_django.oauth.models import UsedAssertion

MAX_LENGTH = 8192
LEEWAY_SECONDS = 30

FindKey = Callable[[str | None, str], PyJWK | None]


class NotAccepted(Exception):
    """The assertion does not hold; the text says why, for the log alone."""


def see(holds: object, otherwise: str) -> None:
    """See that something holds of an assertion.

    Raises:
        NotAccepted: it does not; ``otherwise`` says what.
    """
    if not holds:
        raise NotAccepted(otherwise)


@sensitive_variables("assertion")
def unverified(assertion: str) -> dict[str, Any]:
    """The claims of an assertion, not believed: only to find out whose keys to check it with.

    Raises:
        NotAccepted: it is no JWT, or an outlandish one.
    """
    see(0 < len(assertion) <= MAX_LENGTH, "The assertion is empty or too long.")
    try:
        claims: dict[str, Any] = jwt.decode(assertion, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError) as exc:
        raise NotAccepted("The assertion cannot be read.") from exc
    return claims


@sensitive_variables("assertion")
def verified(
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
    """The claims of an assertion that is signed by a key of its issuer and is good now.

    ``required`` are claims that have to be there. ``max_seconds`` is how long it may be good at
    most, from ``iat`` or from now. The audience is left to the caller.

    Raises:
        NotAccepted: it is not.
    """
    try:
        header = jwt.get_unverified_header(assertion)
        algorithm, kid = header.get("alg"), header.get("kid")
        said = str(header.get("typ", "")).lower().removeprefix("application/")
        see(not typ or said == typ, f"The typ is not {typ}.")
        see(algorithm in algorithms, "The algorithm is not allowed.")
        see("crit" not in header, "It has critical extensions, of which none is understood.")
        see(kid is None or isinstance(kid, str), "The name of the key is no text.")
        name = str(algorithm)
        key = find_key(kid, name)
        if key is None:
            raise NotAccepted("The key is not one of the issuer's.")
        claims: dict[str, Any] = jwt.decode(
            assertion,
            key=key,
            algorithms=[name],
            issuer=issuer,
            leeway=leeway,
            options={"require": ["iss", "sub", "aud", "exp", *required], "verify_aud": False},
        )
    except MissingRequiredClaimError as exc:
        raise NotAccepted(f"There is no {exc.claim}.") from exc
    except (PyJWTError, ValueError, OverflowError, RecursionError) as exc:
        raise NotAccepted(
            f"The signature or a claim does not hold ({type(exc).__name__})."
        ) from exc
    now = datetime.now(UTC).timestamp()
    if int(claims["exp"]) - int(claims.get("iat", now)) > max_seconds + leeway:
        raise NotAccepted("It is good for too long.")
    return claims


def find_key_of(issuer: str, *, jwks: Mapping[str, Any] | None, jwks_url: str) -> FindKey:
    """How to find a key of an issuer by its name and algorithm, in a list or at an address."""
    if jwks is not None:
        listed = [key for key in jwks.get("keys", ()) if isinstance(key, dict)]
        return Keys(fetched_at=0, keys=tuple(listed)).find
    return key_store(JWTIssuer(issuer=issuer, jwks_url=jwks_url)).find


def use(claims: dict[str, Any]) -> bool:
    """Use an assertion up by its ``jti``; whether this was the first time, of all processes."""
    jti = claims.get("jti")
    if not isinstance(jti, str) or not jti:
        raise NotAccepted("There is no jti.")
    name = f"{claims['iss']}\0{jti}"
    used = UsedAssertion(
        digest=hashlib.sha256(name.encode("utf-8", "replace")).hexdigest(),
        # Kept for as long as any clock that is allowed for could still take it.
        expires_at=datetime.fromtimestamp(int(claims["exp"]), UTC) + timedelta(minutes=10),
    )
    return used.claim()
