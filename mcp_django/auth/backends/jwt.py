"""JWT access tokens of other issuers, verified locally (RFC 7519, RFC 8725, RFC 9068).

An issuer's public keys (RFC 7517) are cached in the process and, signed, in Django's cache, so that
a call almost never waits for another server. Their URL is in the issuer's metadata (RFC 8414,
OpenID Connect Discovery 1.0).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import jwt
from django.views.decorators.debug import sensitive_variables
from jwt import PyJWK
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)

from mcp_django.auth import outbound
from mcp_django.auth.backends import CallerKey
from mcp_django.auth.backends.external import (
    ExternalBackend,
    Verified,
    entries_for,
    read_verified,
    reject_token,
)
from mcp_django.auth.credentials import Credentials, read_issuer
from mcp_django.conf import JWTIssuer, get_settings
from mcp_django.exceptions import AuthenticationRequired, AuthenticationUnavailable
from mcp_django.models import token_digest
from mcp_django.process import at_fork

ACCESS_TOKEN = "at+jwt"
REQUIRED = ("iss", "aud", "exp", "sub")


class JWTBackend(ExternalBackend):
    """Authenticates bearers that are JWTs of the issuers that ``MCP_DJANGO["JWT"]`` lists."""

    name = "jwt"

    def entries(self) -> Sequence[JWTIssuer]:
        """Return the issuers of ``MCP_DJANGO["JWT"]``."""
        return get_settings().jwt

    @sensitive_variables("bearer")
    def find_entry(self, bearer: str, server: str) -> JWTIssuer | None:
        """Return the entry of the issuer that a JWT names."""
        issuer_url = read_issuer(bearer)
        entries = entries_for(self.entries(), server)
        return next((issuer for issuer in entries if issuer.issuer == issuer_url), None)

    @sensitive_variables("bearer")
    def prepare(self, key: CallerKey, credentials: Credentials) -> None:
        """Verify the signature in the calling thread, so that ``confirm`` only queries the user.

        Raises:
            AuthenticationUnavailable: the issuer's keys cannot be fetched.
        """
        if self.find_verified(key) is not None:
            return
        # ``authenticate`` rejects an invalid token, unless another backend accepts it.
        with suppress(AuthenticationRequired):
            issuer, bearer = self._presented(credentials)
            if issuer is not None:
                self._verify(issuer, bearer, credentials)

    @sensitive_variables("bearer")
    def verify(self, issuer: JWTIssuer, bearer: str, resource: str) -> Verified:
        """Verify a JWT with the keys of its issuer."""
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(bearer)
        except (PyJWTError, RecursionError, ValueError):
            reject_token("The token's header is not valid.")
        if "crit" in header:
            # RFC 7515, section 4.1.11: a token with unsupported critical extensions is invalid.
            reject_token("The token has critical extensions (crit), and none is supported.")
        typ = str(header.get("typ", "")).lower().removeprefix("application/")
        if typ != ACCESS_TOKEN and (issuer.strict_typ or typ not in {"", "jwt"}):
            reject_token("The token's typ is not that of an access token.")
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in issuer.algorithms:
            reject_token("The token is signed with an algorithm that is not allowed.")
        if kid is not None and not isinstance(kid, str):
            reject_token("The token's kid is not a string.")
        keys = key_store(issuer).find_keys(kid, algorithm)
        claims = _decode(issuer, bearer, keys.find(kid, algorithm), algorithm)
        expires_at = int(claims["exp"])
        jti = claims.get("jti")
        # The token could be revoked by the digest of its id or, without an id, of the token.
        digest = token_digest(f"{claims['iss']} {jti}" if isinstance(jti, str) and jti else bearer)
        return read_verified(
            issuer,
            claims,
            resource,
            credential=f"jwt:{digest}",
            expires_at=expires_at,
            until=min(expires_at, key_store(issuer).renewal_of(keys)),
            is_typed=typ == ACCESS_TOKEN,
            source=keys.keys,
        )

    def is_proven(self, verified: Verified) -> bool:
        """Return whether the keys are still those that the token was verified with."""
        issuer = verified.issuer
        current = key_store(issuer).current if isinstance(issuer, JWTIssuer) else None
        return current is not None and current.keys is verified.source


@sensitive_variables("bearer")
def _decode(issuer: JWTIssuer, bearer: str, key: PyJWK | None, algorithm: str) -> dict[str, Any]:
    if key is None:
        reject_token("The token is signed with a key that its issuer does not publish.")
    try:
        claims: dict[str, Any] = jwt.decode(
            bearer,
            key=key,
            algorithms=[algorithm],
            issuer=issuer.issuer,
            leeway=issuer.leeway,
            # ``read_verified`` compares the audience as a URL, not as a string.
            options={"require": list(REQUIRED), "verify_aud": False},
        )
    except (PyJWTError, ValueError, OverflowError) as exc:
        reject_token(_error_text(exc))
    return claims


def _error_text(exc: Exception) -> str:
    if isinstance(exc, ExpiredSignatureError):
        return "The token has expired."
    if isinstance(exc, ImmatureSignatureError):
        return "The token is not valid yet."
    if isinstance(exc, MissingRequiredClaimError):
        return f"The token lacks the claim {exc.claim}."
    return "The token's signature or claims are not valid."


# The public keys of issuers -----------------------------------------------------------------------

# Cached per issuer and fresh for ten minutes; if they cannot be fetched again, the old ones are
# used for up to a day. For an unknown key they are fetched at most once in thirty seconds, however
# many tokens name one, so tokens with made-up key ids cannot make this site flood an issuer with
# requests.

logger = logging.getLogger("mcp_django.security")

FRESH_SECONDS = 600
STALE_SECONDS = 24 * 3600
REFRESH_SECONDS = 30
MAX_KEYS = 100
MIN_RSA_BITS = 2048

# The key type, and the curve, of each algorithm (RFC 7518, RFC 8037).
KEY_TYPES: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "EdDSA": ("OKP", "Ed25519"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKeys:
    """The keys of one issuer, as fetched at a time (in seconds since the epoch)."""

    fetched_at: float
    keys: tuple[Mapping[str, Any], ...]
    _parsed: dict[tuple[str | None, str], PyJWK | None] = field(default_factory=dict, repr=False)

    def has(self, kid: str | None, algorithm: str) -> bool:
        """Return whether there is a key of that id for that algorithm."""
        return self._published(kid, algorithm) is not None

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return that key; ``None`` if there is none, or if it is not valid or too short."""
        published = self._published(kid, algorithm)
        if published is None:
            return None
        place = (kid, algorithm)
        if place not in self._parsed:
            try:
                key = PyJWK(dict(published), algorithm=algorithm)
            except (PyJWTError, ValueError, TypeError, KeyError):
                logger.warning("The published key %r is not valid.", published.get("kid"))
                self._parsed[place] = None
            else:
                is_short = published["kty"] == "RSA" and key.key.key_size < MIN_RSA_BITS
                if is_short:
                    logger.warning("The published key %r is too short.", published.get("kid"))
                self._parsed[place] = None if is_short else key
        return self._parsed[place]

    def _published(self, kid: str | None, algorithm: str) -> Mapping[str, Any] | None:
        """Return the key of that id; without an id, the only one that fits."""
        kind, curve = KEY_TYPES[algorithm]
        fitting = [
            key
            for key in self.keys
            if key.get("kty") == kind
            and (curve is None or key.get("crv") == curve)
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (not isinstance(key.get("key_ops"), list) or "verify" in key["key_ops"])
        ]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.get("kid") == kid), None)


class KeyStore:
    """The keys of one issuer; thread-safe."""

    def __init__(self, issuer: JWTIssuer, *, clock: Callable[[], float] = time.time) -> None:
        self._issuer = issuer
        self._name = issuer.jwks_url or issuer.issuer
        self._clock = clock
        self._keys: IssuerKeys | None = None
        self._last_fetch = float("-inf")
        self._lock = threading.Lock()

    @property
    def current(self) -> IssuerKeys | None:
        """The keys that this process has, perhaps outdated ones."""
        return self._keys

    def renewal_of(self, keys: IssuerKeys) -> float:
        """Return when these keys have to be fetched again, in seconds since the epoch."""
        due, now = keys.fetched_at + FRESH_SECONDS, self._clock()
        # Outdated keys are used only because newer ones cannot be fetched now.
        return due if due > now else now + REFRESH_SECONDS

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key to verify a signature with, ``None`` if the issuer has no such key.

        Fetches the keys in the calling thread if they are outdated.

        Raises:
            AuthenticationUnavailable: no keys are known, and none can be fetched at the moment.
        """
        return self.find_keys(kid, algorithm).find(kid, algorithm)

    def find_keys(self, kid: str | None, algorithm: str) -> IssuerKeys:
        """Return all keys of the issuer, with that key if it has one.

        Fetches the keys in the calling thread if they are outdated.

        Raises:
            AuthenticationUnavailable: no keys are known, and none can be fetched at the moment.
        """
        keys = self._usable_keys()
        if keys is None or self._age(keys) >= FRESH_SECONDS or not keys.has(kid, algorithm):
            keys = self._renew(keys)
        if keys is None:
            raise AuthenticationUnavailable(
                "The keys of the token's issuer cannot be fetched at the moment.", retry_after=5
            )
        return keys

    def _age(self, keys: IssuerKeys) -> float:
        return self._clock() - keys.fetched_at

    def _usable_keys(self) -> IssuerKeys | None:
        """Return the keys that this process has, unless they are too old to use."""
        keys = self._keys
        return keys if keys is not None and self._age(keys) < STALE_SECONDS else None

    def _renew(self, seen: IssuerKeys | None) -> IssuerKeys | None:
        """Return newer keys than ``seen`` if there are any, else the current ones.

        One thread fetches. Threads that have keys do not wait for it; the others wait at most
        ``TIMEOUT_SECONDS``.
        """
        if not self._lock.acquire(timeout=outbound.TIMEOUT_SECONDS if seen is None else 0):
            return seen
        try:
            held = self._keys
            if held is seen or self._usable_keys() is None:
                keys = (
                    self._read_shared(FRESH_SECONDS)
                    or self._fetch()
                    or self._read_shared(STALE_SECONDS)
                )
                if keys is not None and held is not None and keys.keys == held.keys:
                    # The same tuple of keys, so that tokens verified with it stay verified.
                    keys = replace(held, fetched_at=keys.fetched_at)
                if keys is not None and (held is None or keys.fetched_at > held.fetched_at):
                    self._keys = keys
            return self._usable_keys()
        finally:
            self._lock.release()

    def _read_shared(self, seconds: float) -> IssuerKeys | None:
        """Return newer keys that another process fetched less than ``seconds`` ago."""
        stored = outbound.get_signed("jwks", self._name)
        if not isinstance(stored, dict):
            return None
        keys = IssuerKeys(fetched_at=float(stored["fetched_at"]), keys=tuple(stored["keys"]))
        held = self._keys
        is_newer = held is None or keys.fetched_at > held.fetched_at
        return keys if is_newer and self._age(keys) < seconds else None

    def _fetch(self) -> IssuerKeys | None:
        """Fetch the keys that the issuer publishes now, at most once in ``REFRESH_SECONDS``."""
        now = self._clock()
        if now - self._last_fetch < REFRESH_SECONDS:
            return None
        window = int(now // REFRESH_SECONDS)
        if not outbound.mark_first("jwks-asked", f"{self._name} {window}", seconds=REFRESH_SECONDS):
            return None
        self._last_fetch = now
        try:
            document = outbound.fetch_json(
                self._issuer.jwks_url or _find_jwks_url(self._issuer.issuer)
            )
        except outbound.FetchFailed as exc:
            logger.warning("The keys of %s cannot be fetched: %s", self._issuer.issuer, exc)
            return None
        listed = document.get("keys")
        if not isinstance(listed, list):
            logger.warning("The keys of %s are not a JWK Set (RFC 7517).", self._issuer.issuer)
            return None
        keys = tuple(key for key in listed[:MAX_KEYS] if isinstance(key, dict))
        # A private or symmetric key must not be published; do not share it between processes.
        keys = tuple(
            key for key in keys if key.get("kty") in {"RSA", "EC", "OKP"} and "d" not in key
        )
        value = {"fetched_at": now, "keys": keys}
        outbound.put_signed("jwks", self._name, value, seconds=STALE_SECONDS)
        return IssuerKeys(fetched_at=now, keys=keys)


def key_store(issuer: JWTIssuer) -> KeyStore:
    """Return the key store of an issuer, which all requests of this process share."""
    return _store(issuer.issuer, issuer.jwks_url)


@at_fork
def clear_key_stores() -> None:
    """Clear the key stores of this process; the entries in Django's cache stay.

    A forked child begins without them, since a thread of its parent may hold their locks.
    """
    _store.cache_clear()


@cache
def _store(issuer: str, jwks_url: str) -> KeyStore:
    return KeyStore(JWTIssuer(issuer=issuer, jwks_url=jwks_url))


def _find_jwks_url(issuer: str) -> str:
    """Return the URL of an issuer's keys from its metadata. Fetches up to two documents.

    Raises:
        FetchFailed: no document was fetched that is the issuer's and has a ``jwks_uri``.
    """
    reasons = []
    for url in outbound.metadata_urls(issuer):
        try:
            document = outbound.fetch_json(url)
        except outbound.FetchFailed as exc:
            reasons.append(str(exc))
            continue
        if document.get("issuer") != issuer:
            reasons.append(f"{url} belongs to another issuer than {issuer}.")
            continue
        jwks_url = document.get("jwks_uri")
        if isinstance(jwks_url, str) and jwks_url:
            return jwks_url
        reasons.append(f"{url} has no jwks_uri.")
    raise outbound.FetchFailed(" ".join(reasons))
