"""Rate limits: count events in fixed windows, in Django's default cache or in this process.

``PerMinute`` counts in the process, without a cache; ``count_event`` counts in the cache.
Accuracy: the windows of one key begin at multiples of their length, so around a boundary up to
twice the limit may pass within the length of one window. With the local-memory cache each process
counts separately, and a limit applies per process; with a shared cache it applies to the site. Some
caches increment in two steps (the file and database caches), and may count slightly too few events
under load. If the cache fails or stores nothing, nothing is limited: the site keeps serving.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from ipaddress import ip_address
from typing import NamedTuple, TypeAlias

from django.core.cache import cache
from django.http import HttpRequest
from django.utils.asyncio import async_unsafe

from mcp_django.auth.credentials import (
    Credentials,
    client_ip,
    find_client_ip,
    rate_limit_source,
)
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManyAttempts
from mcp_django.protocol.headers import Headers
from mcp_django.tenants import by_tenant

logger = logging.getLogger("mcp_django.security")

# A problem of the site affects every request, so it is logged only once in this time.
LOG_INTERVAL_SECONDS = 60
MINUTE_SECONDS = 60
_logged_at: dict[str, float] = {}
_lock = threading.Lock()


def count_event(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """Count an event; return 0 if it is within the limit, else the seconds until the next window.

    Several events (``count``) are counted together, and all of them have to be within the limit.
    """
    window_key, remaining = _current_window(name, key, seconds)
    try:
        cache.add(window_key, 0, timeout=seconds + 1)
        counted = cache.incr(window_key, count)
    except ValueError:  # it was evicted in between, or the cache stores nothing
        return 0
    except Exception as exc:  # noqa: BLE001 - the site's cache, which may be a service that is down
        _log_cache_failure(name, exc)
        return 0
    return remaining if counted > limit else 0


def check_limit(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """Return what ``count_event`` would return now, without counting anything."""
    window_key, remaining = _current_window(name, key, seconds)
    try:
        counted = cache.get(window_key, 0)
    except Exception as exc:  # noqa: BLE001 - as above
        _log_cache_failure(name, exc)
        return 0
    return remaining if counted + count > limit else 0


def uncount_event(name: str, key: str, *, seconds: int, count: int = 1) -> None:
    """Undo what ``count_event`` has counted for an event that did not happen after all."""
    window_key, _ = _current_window(name, key, seconds)
    try:
        cache.decr(window_key, count)
    except ValueError:  # its window is over
        return
    except Exception as exc:  # noqa: BLE001 - as above
        _log_cache_failure(name, exc)


class PerMinute:
    """A limit in this process of ``total`` events a minute, and of ``per_key`` for each key.

    A minute begins with its first event. The cache is not used: the limit applies even if the cache
    fails, but to each process separately.
    """

    def __init__(self, total: int, per_key: int | None = None) -> None:
        self.total = total
        self.per_key = total if per_key is None else per_key
        self._lock = threading.Lock()
        self._ends = 0.0
        self._counts: Counter[Hashable] = Counter()

    def allows(self, key: Hashable = None) -> bool:
        """Return whether one more event may happen, and count it if so."""
        now = time.monotonic()
        with self._lock:
            if now >= self._ends:
                self._ends = now + MINUTE_SECONDS
                self._counts.clear()
            if self._counts.total() >= self.total or self._counts[key] >= self.per_key:
                return False
            self._counts[key] += 1
            return True

    def has_room(self) -> bool:
        """Return whether one more event may happen, without counting it."""
        return time.monotonic() >= self._ends or self._counts.total() < self.total

    def clear(self) -> None:
        """Reset all counts."""
        with self._lock:
            self._ends = 0.0


def _may_log(about: str) -> bool:
    """Return whether a problem that affects every request may be logged now: once a minute."""
    now = time.monotonic()
    with _lock:
        if about in _logged_at and now - _logged_at[about] < LOG_INTERVAL_SECONDS:
            return False
        _logged_at[about] = now
        return True


def _current_window(name: str, key: str, seconds: int) -> tuple[str, int]:
    """Return the cache key of the current window, and the seconds until it ends."""
    now = time.time()
    # memcached keys are short and contain no spaces, and addresses must not appear in the cache.
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    window_key = f"mcp_django:limit:{name}:{digest}:{int(now // seconds)}"
    return window_key, seconds - int(now % seconds)


def _log_cache_failure(name: str, exc: Exception) -> None:
    if _may_log("cache"):
        logger.error("The cache failed, so the limit %r is not applied.", name, exc_info=exc)


# Limits on bad credentials ------------------------------------------------------------------------

# How many invalid credentials one address may try, checked before any lookup. Tokens are too long
# to be guessed, so this protects the database from load; it does not make the tokens safer.
#
# A caller over the limit gets 429 without a check of its credential, unless this process accepted
# the very same credential recently: an office behind one address keeps working while one of its
# programs tries a revoked token.

LIMIT_NAME = "bad-bearer"
MAX_ATTEMPTS = 30
WINDOW_SECONDS = 60
# All clients whose address is unknown share one counter, whose limit is this many times higher.
UNKNOWN, UNKNOWN_FACTOR = "unknown", 10
# A request with one of these headers was forwarded by a proxy, or claims to be.
FORWARDING = (
    *("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST"),
    *("HTTP_X_FORWARDED_PROTO", "HTTP_X_REAL_IP"),
)
_FORWARDING_LINES = frozenset(
    name.removeprefix("HTTP_").replace("_", "-").lower().encode() for name in FORWARDING
)
# How long a process remembers an accepted credential, and how many of them.
ACCEPTED_SECONDS = 600
MAX_ACCEPTED = 10_000
# Counter keys of callers who are not (yet) identified as a user.
ANONYMOUS, UNPROVEN = "anonymous", "unproven"


class Member(NamedTuple):
    """A member of a group of callers, such as one address of anonymous callers.

    Each member has a share of its own, and the share of the group limits all of them together.
    Callers of the group that cannot be distinguished use the name of the group alone as their key.
    """

    group: str
    name: str


ShareKey: TypeAlias = str | Member | None
"""The caller whose share of a common resource is used; ``None`` for the process's own work."""


class AcceptedCredentials:
    """Digests of recently accepted credentials, with their users' keys; the oldest are evicted."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, fingerprint: bytes) -> bool:
        return self.owner_of(fingerprint) is not None

    def owner_of(self, fingerprint: bytes) -> str | None:
        """Return the key of the credential's user, ``None`` if it was not accepted recently."""
        until, owner = self._until.get(fingerprint, (0.0, ""))
        return owner if until > time.monotonic() else None

    def add(self, fingerprint: bytes, owner: str = "") -> None:
        """Remember an accepted credential for ``ACCEPTED_SECONDS``."""
        with self._lock:
            self._until[fingerprint] = (time.monotonic() + ACCEPTED_SECONDS, owner)
            self._until.move_to_end(fingerprint)
            while len(self._until) > MAX_ACCEPTED:
                self._until.popitem(last=False)

    def discard(self, fingerprint: bytes) -> None:
        """Forget a credential that has become invalid."""
        with self._lock:
            self._until.pop(fingerprint, None)

    def clear(self) -> None:
        """Forget all credentials."""
        with self._lock:
            self._until.clear()


accepted_credentials = AcceptedCredentials()


def check_attempts(credentials: Credentials) -> bytes:
    """Return the fingerprint of the credentials, if their address may still try any.

    Raises:
        TooManyAttempts: too many invalid credentials came from that address in this minute.
    """
    fingerprint = _fingerprint(credentials.headers)
    if fingerprint not in accepted_credentials:
        _check_address(credentials.request())
    return fingerprint


# The cache may be a network service, which must not block an event loop.
@async_unsafe("Credentials are counted in a thread.")
def _check_address(request: HttpRequest) -> None:
    key, limit = limit_key(request, limit=MAX_ATTEMPTS)
    wait = check_limit(LIMIT_NAME, key, limit=limit, seconds=WINDOW_SECONDS)
    if wait:
        raise TooManyAttempts(
            f"Too many invalid credentials came from your address; wait {wait} seconds.",
            retry_after=wait,
        )


def remember_accepted(fingerprint: bytes, owner: str) -> None:
    """Remember that a credential was accepted, with the key of its user."""
    accepted_credentials.add(fingerprint, owner)


def keep_accepted(headers: Headers, owner: str) -> None:
    """Remember a credential that is accepted without a look-up, unless it is remembered already."""
    fingerprint = _fingerprint(headers)
    if fingerprint not in accepted_credentials:
        accepted_credentials.add(fingerprint, owner)


def remember_login(headers: Headers, owner: str) -> None:
    """Remember that the cookies of a request belong to a user."""
    accepted_credentials.add(_fingerprint(headers), owner)


def presumed_caller(headers: Headers) -> str:
    """Return the presumed caller before authentication: a user's key or one of two constants.

    A caller whose credentials were not accepted recently is ``UNPROVEN``. Callers without
    credentials are counted separately (``ANONYMOUS``), so they cannot use up what a user needs to
    authenticate.
    """
    if "authorization" not in headers and "cookie" not in headers:
        return ANONYMOUS
    return accepted_credentials.owner_of(_fingerprint(headers)) or UNPROVEN


def presumed_share(headers: Headers, source: Callable[[], str | None]) -> str | Member:
    """Return whose share a request uses before authentication.

    It is the share of the presumed user. Without one, it is that of the request's source
    (``limit_source``), which is determined only in this case.
    """
    caller = presumed_caller(headers)
    return _share_of_source(caller, source()) if caller in (ANONYMOUS, UNPROVEN) else caller


def share_of(principal: Principal, network: Callable[[], str | None]) -> str | Member:
    """Return whose share a caller uses: the user's, or that of an anonymous caller's network."""
    if principal.is_authenticated:
        return by_tenant(principal.user_key)
    return _share_of_source(ANONYMOUS, network())


def _share_of_source(group: str, source: str | None) -> str | Member:
    # Callers of unknown source cannot be distinguished, so they are limited only as a group.
    return Member(group, source) if source else group


def count_rejected(request: HttpRequest, fingerprint: bytes) -> bool:
    """Count a rejected credential; return whether its address has now reached the limit."""
    accepted_credentials.discard(fingerprint)
    key, limit = limit_key(request, limit=MAX_ATTEMPTS)
    return bool(count_event(LIMIT_NAME, key, limit=limit - 1, seconds=WINDOW_SECONDS))


def limit_key(request: HttpRequest, *, limit: int) -> tuple[str, int]:
    """Return the counter key of a request, and the limit that applies to it.

    The key is the request's source. All requests of unknown source share one key with a higher
    limit, since one client can use it up for the others. No header disables a limit.
    """
    address = limit_source(request)
    return (UNKNOWN, limit * UNKNOWN_FACTOR) if address is None else (address, limit)


def limit_source(request: HttpRequest) -> str | None:
    """Return the source that the limits of a request are counted for; ``None`` if it is unknown.

    Behind a proxy that ``PROXIES`` does not count, it is unknown: all clients would share the
    proxy's address.
    """
    is_forwarded = any(name in request.META for name in FORWARDING)
    return _source_at(client_ip(request), is_forwarded=is_forwarded)


def source_of_headers(headers: Headers, peer: str) -> str | None:
    """Return the ``limit_source`` of a request from ``peer``, without building a Django request."""
    is_forwarded = not _FORWARDING_LINES.isdisjoint(headers.lines)
    forwarded = ",".join(headers.getlist("x-forwarded-for")) if is_forwarded else ""
    return _source_at(find_client_ip(peer, forwarded), is_forwarded=is_forwarded)


def _source_at(address: str | None, *, is_forwarded: bool) -> str | None:
    if is_forwarded and not get_settings().proxies:
        ip = None if address is None else ip_address(address)
        # A public address is not that of the site's own proxy.
        if ip is None or not (getattr(ip, "ipv4_mapped", None) or ip).is_global:
            if _may_log("proxy"):
                logger.warning(
                    "A request with a forwarding header came from %s, but MCP_DJANGO['PROXIES'] is "
                    "0: the client's address is not known, and all such requests share one limit, "
                    "which one client can use up for the others. Set PROXIES to the number of your "
                    "proxies that append to X-Forwarded-For; if you have no proxy, a client made "
                    "up the header.",
                    address or "no address",
                )
            return None
    return None if address is None else rate_limit_source(address)


def anonymous_network(
    principal: Principal, request: Callable[[], HttpRequest | None]
) -> str | None:
    """Return the source by which limits count an anonymous caller: an IPv4 address or an IPv6 /64.

    ``None`` for an authenticated caller, empty if the address is unknown; ``"local"`` without a
    request, as over stdio.
    """
    if principal.is_authenticated:
        return None
    http_request = request()
    return (limit_source(http_request) or "") if http_request is not None else "local"


def _fingerprint(headers: Headers) -> bytes:
    name = "authorization" if "authorization" in headers else "cookie"
    presented = "\0".join((name, *headers.getlist(name)))
    return hashlib.sha256(presented.encode("utf-8", "replace")).digest()
