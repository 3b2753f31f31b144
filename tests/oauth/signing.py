"""Private keys, key sets and signed assertions."""

from __future__ import annotations

import json
import time
import uuid
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm


@cache
def key(name: str, kind: str = "EC") -> Any:
    """Return a private key, always the same for the same name."""
    if kind == "RSA":
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ec.generate_private_key(ec.SECP256R1())


def jwks(*names: str, kind: str = "EC") -> dict[str, Any]:
    """Return the public keys of these names as a key set."""
    algorithm = RSAAlgorithm if kind == "RSA" else ECAlgorithm
    made = (
        json.loads(algorithm.to_jwk(key(name, kind).public_key())) | {"kid": name, "use": "sig"}
        for name in names
    )
    return {"keys": list(made)}


def signed(
    claims: dict[str, Any],
    *,
    by: str,
    kind: str = "EC",
    algorithm: str = "ES256",
    secret: Any = None,
    **header: Any,
) -> str:
    """Return an assertion signed by the key of that name; claims that are ``None`` are removed."""
    now = int(time.time())
    whole = {"iat": now, "exp": now + 300, "jti": uuid.uuid4().hex} | claims
    return jwt.encode(
        {name: value for name, value in whole.items() if value is not None},
        secret if secret is not None else key(by, kind),
        algorithm=algorithm,
        headers={"kid": by} | header,
    )
