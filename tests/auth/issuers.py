"""An external issuer: a server on loopback that publishes keys and signs and introspects tokens."""

from __future__ import annotations

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms

RESOURCE = "http://testserver/mcp"
Answer = tuple[int, dict[str, str], bytes]


@cache
def private_key(algorithm: str, number: int = 0, *, bits: int = 2048) -> Any:
    """Return a key for an algorithm, created once per process; another number is another key."""
    if algorithm.startswith("ES"):
        return ec.generate_private_key(ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


def published(algorithm: str, key: Any, **more: Any) -> dict[str, Any]:
    """Return the public key as a JWK."""
    jwk = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, **more}


def encoded(value: Any) -> str:
    """Return JSON in the encoding of a JWT."""
    return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class Issuer:
    """The keys and responses of the issuer at one URL; ``asked`` counts requests by path."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: Counter[str] = Counter()
        self.keys: list[dict[str, Any]] = []
        self.answers: dict[str, Callable[[bytes, Any], Answer]] = {}
        self.publish("rsa")
        self.say("/keys", lambda: {"keys": self.keys})
        self.say("/.well-known/openid-configuration", self.metadata)

    def metadata(self) -> dict[str, Any]:
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    def say(self, path: str, document: Callable[[], Any], *, status: int = 200) -> None:
        """Respond at a path with the return value of a function, as JSON."""
        self.answers[path] = lambda body, headers: (
            status,
            {"Content-Type": "application/json"},
            json.dumps(document()).encode(),
        )

    def publish(self, kid: str, algorithm: str = "RS256", number: int = 0, **more: Any) -> None:
        """Publish this key in place of all others."""
        key = private_key(algorithm, number)
        self.keys = [published(algorithm, key, kid=kid, use="sig", **more)]

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Return the claims of a valid token; ``None`` removes a claim."""
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "subject-1",
            "aud": RESOURCE,
            "azp": "client-1",
            "exp": now + 300,
            "iat": now,
            "jti": "token-1",
            "scope": "mcp",
        }
        return {name: value for name, value in {**claims, **changes}.items() if value is not None}

    def token(
        self,
        *,
        algorithm: str = "RS256",
        number: int = 0,
        kid: str | None = "rsa",
        typ: str | None = "at+jwt",
        header: dict[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """Return a signed token with changed claims."""
        headers = {"kid": kid, "typ": typ, **(header or {})}
        return jwt.encode(
            self.claims(**changes),
            private_key(algorithm, number),
            algorithm=algorithm,
            headers={name: value for name, value in headers.items() if value is not None},
        )


@contextmanager
def issuer() -> Iterator[Issuer]:
    """Run an issuer on loopback until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            provider.asked[self.path] += 1
            answer = provider.answers.get(self.path)
            body = self.rfile.read(length)
            status, headers, content = answer(body, self.headers) if answer else (404, {}, b"")
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        provider = Issuer(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            thread.join()
