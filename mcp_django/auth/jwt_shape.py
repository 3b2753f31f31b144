"""Who a bearer claims has issued it, read without believing it: only to choose whom to ask."""

from __future__ import annotations

import base64
import binascii
import json


def issuer_in(bearer: str) -> str | None:
    """The ``iss`` of a JWT, unverified; ``None`` if the bearer is no JWT or does not say."""
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
