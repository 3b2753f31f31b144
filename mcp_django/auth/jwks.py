"""The public keys of issuers (RFC 7517), kept so that a call almost never waits for another server.

Kept per issuer in the process and, signed, in Django's cache. Good for ten minutes; when they
cannot be had anew, the old ones go on for a day. A key that is not among them is looked for once in
thirty seconds however many tokens name one, so made-up keys cannot make this site hammer an issuer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from mcp_django.auth import shared
from mcp_django.auth.discovery import find_jwks_url
from mcp_django.auth.fetching import TIMEOUT_SECONDS, FetchFailed, fetch_json
from mcp_django.conf_auth import JWTIssuer
from mcp_django.exceptions import AuthenticationUnavailable

logger = logging.getLogger("mcp_django.security")

FRESH_SECONDS = 600
STALE_SECONDS = 24 * 3600
REFRESH_SECONDS = 30
MAX_KEYS = 100
MIN_RSA_BITS = 2048

# The kind of key, and the curve, that an algorithm takes (RFC 7518, RFC 8037).
KINDS: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "EdDSA": ("OKP", "Ed25519"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """The keys of one issuer as they were at a time (seconds since the epoch)."""

    fetched_at: float
    keys: tuple[Mapping[str, Any], ...]
    _parsed: dict[tuple[str | None, str], PyJWK | None] = field(default_factory=dict, repr=False)

    def has(self, kid: str | None, algorithm: str) -> bool:
        """Whether there is a key of that name for that algorithm."""
        return self._published(kid, algorithm) is not None

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """That key, ``None`` also where it cannot be read or is too short."""
        published = self._published(kid, algorithm)
        if published is None:
            return None
        place = (kid, algorithm)
        if place not in self._parsed:
            self._parsed[place] = _parsed(published, algorithm)
        return self._parsed[place]

    def _published(self, kid: str | None, algorithm: str) -> Mapping[str, Any] | None:
        """The key of that name; without a name, the only one that fits."""
        fitting = [key for key in self.keys if fits(key, algorithm)]
        if kid is None:
            return fitting[0] if len(fitting) == 1 else None
        return next((key for key in fitting if key.get("kid") == kid), None)


def fits(key: Mapping[str, Any], algorithm: str) -> bool:
    """Whether a published key is one to check signatures of this algorithm with."""
    kind, curve = KINDS[algorithm]
    operations = key.get("key_ops")
    return (
        key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (not isinstance(operations, list) or "verify" in operations)
    )


class KeyStore:
    """The keys of one issuer; safe to use from many threads."""

    def __init__(self, issuer: JWTIssuer, *, clock: Callable[[], float] = time.time) -> None:
        self._issuer = issuer
        self._name = issuer.jwks_url or issuer.issuer
        self._clock = clock
        self._keys: Keys | None = None
        self._asked_at = float("-inf")
        self._lock = threading.Lock()

    def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key to check a signature with, ``None`` when the issuer has no such key.

        Fetches the keys where that is due, in the calling thread.

        Raises:
            AuthenticationUnavailable: there are no keys, and none can be had at the moment.
        """
        keys = self._known()
        if keys is None or self._age(keys) >= FRESH_SECONDS or not keys.has(kid, algorithm):
            keys = self._renewed(keys)
        if keys is None:
            raise AuthenticationUnavailable(
                "The keys of the token's issuer cannot be read at the moment.", retry_after=5
            )
        return keys.find(kid, algorithm)

    def _age(self, keys: Keys) -> float:
        return self._clock() - keys.fetched_at

    def _known(self) -> Keys | None:
        """What this process holds, unless it is too old to go on with."""
        keys = self._keys
        return keys if keys is not None and self._age(keys) < STALE_SECONDS else None

    def _renewed(self, seen: Keys | None) -> Keys | None:
        """Newer keys than the ones seen, if there are; else the ones that are there.

        One thread looks; those that have keys do not wait for it, and the others not for long.
        """
        if not self._lock.acquire(timeout=TIMEOUT_SECONDS if seen is None else 0):
            return seen
        try:
            if self._keys is seen or self._known() is None:
                self._take(
                    self._from_others(FRESH_SECONDS)
                    or self._fetch()
                    or self._from_others(STALE_SECONDS)
                )
            return self._known()
        finally:
            self._lock.release()

    def _take(self, keys: Keys | None) -> None:
        if keys is not None and (self._keys is None or keys.fetched_at > self._keys.fetched_at):
            self._keys = keys

    def _from_others(self, seconds: float) -> Keys | None:
        """What another process has fetched since, and within so many seconds."""
        found = shared.get("jwks", self._name)
        if not isinstance(found, dict):
            return None
        keys = Keys(fetched_at=float(found["fetched_at"]), keys=tuple(found["keys"]))
        held = self._keys
        is_newer = held is None or keys.fetched_at > held.fetched_at
        return keys if is_newer and self._age(keys) < seconds else None

    def _fetch(self) -> Keys | None:
        """The keys as the issuer publishes them now, at most once in ``REFRESH_SECONDS``."""
        now = self._clock()
        if now - self._asked_at < REFRESH_SECONDS:
            return None
        window = int(now // REFRESH_SECONDS)
        if not shared.is_first("jwks-asked", f"{self._name} {window}", seconds=REFRESH_SECONDS):
            return None
        self._asked_at = now
        try:
            document = fetch_json(self._issuer.jwks_url or find_jwks_url(self._issuer.issuer))
        except FetchFailed as exc:
            logger.warning("The keys of %s cannot be had: %s", self._issuer.issuer, exc)
            return None
        listed = document.get("keys")
        if not isinstance(listed, list):
            logger.warning("The keys of %s are no key set (RFC 7517).", self._issuer.issuer)
            return None
        keys = tuple(key for key in listed[:MAX_KEYS] if isinstance(key, dict))
        # A secret key has no business there, and would be shared between processes.
        keys = tuple(
            key for key in keys if key.get("kty") in {"RSA", "EC", "OKP"} and "d" not in key
        )
        value = {"fetched_at": now, "keys": keys}
        shared.put("jwks", self._name, value, seconds=STALE_SECONDS)
        return Keys(fetched_at=now, keys=keys)


def _parsed(key: Mapping[str, Any], algorithm: str) -> PyJWK | None:
    try:
        parsed = PyJWK(dict(key), algorithm=algorithm)
    except (PyJWTError, ValueError, TypeError, KeyError):
        logger.warning("The published key %r cannot be read.", key.get("kid"))
        return None
    if key["kty"] == "RSA" and parsed.key.key_size < MIN_RSA_BITS:
        logger.warning("The published key %r is too short.", key.get("kid"))
        return None
    return parsed


@cache
def _store(issuer: str, jwks_url: str) -> KeyStore:
    return KeyStore(JWTIssuer(issuer=issuer, jwks_url=jwks_url))


def key_store(issuer: JWTIssuer) -> KeyStore:
    """The keys of an issuer, as every request of this process sees them."""
    return _store(issuer.issuer, issuer.jwks_url)


def forget() -> None:
    """Drop what this process knows; the entries in Django's cache stay."""
    _store.cache_clear()
