"""An issuer of JWTs that is nowhere: its keys are published to the site's own cache.

The key follows from a constant, so that the process which makes a token and the servers that check
it need not meet.
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
# Longer than any run; the site never asks anew for keys that are this fresh.
SECONDS = 24 * 3600
_KEY = ec.derive_private_key(20_260_728, ec.SECP256R1())


def publish() -> None:
    """Let the site know the issuer's key."""
    key = {**ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True), "kid": "bench", "use": "sig"}
    now = time.time() + SECONDS
    outbound.put("jwks", ISSUER, {"fetched_at": now, "keys": [key]}, seconds=SECONDS)


def issue(*audiences: str) -> str:
    """A token of the one subject, for these endpoints."""
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
