"""An issuer of JWTs without a server: its keys are stored in the site's cache.

The key is derived from a constant, so the process that issues a token and the servers that verify
it need not communicate.
"""

from __future__ import annotations

import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from mcp_django.auth import outbound

ISSUER = "https://issuer.example"
ALGORITHM = "ES256"
SUBJECT = "bench"
# Longer than any run, so that the site does not fetch the keys again.
SECONDS = 24 * 3600
_KEY = ec.derive_private_key(20_260_728, ec.SECP256R1())


def cache_keys() -> None:
    """Store the issuer's key in the site's cache."""
    key = {**ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True), "kid": "bench", "use": "sig"}
    now = time.time() + SECONDS
    outbound.put_signed("jwks", ISSUER, {"fetched_at": now, "keys": [key]}, seconds=SECONDS)


def issue_token(*audiences: str) -> str:
    """Return a token of the subject for these endpoints."""
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": ISSUER,
        "sub": SUBJECT,
        "aud": list(audiences),
        "scope": "mcp",
        "iat": now,
        "exp": now + SECONDS,
    }
    return jwt.encode(claims, _KEY, ALGORITHM, headers={"kid": "bench", "typ": "at+jwt"})
