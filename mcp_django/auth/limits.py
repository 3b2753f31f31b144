"""Rate limits: how often something may happen, counted in fixed windows in Django's default cache.

Accuracy: the windows of one key begin at multiples of their length, so around a boundary twice
the limit may pass within one length. With the local-memory cache each process counts on its own,
and a limit holds per process; with a shared cache it holds for the site. Some caches add in two
steps (the file and database caches), and may count a little less under load. A cache that fails,
or that keeps nothing, limits nothing: a site whose cache is down goes on serving.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address

from django.core.cache import cache
from django.http import HttpRequest
from django.utils.asyncio import async_unsafe

from mcp_django.auth import security_log
from mcp_django.auth.credentials import Credentials, client_ip, source_of
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManyAttempts
from mcp_django.protocol.headers import Headers

logger = logging.getLogger("mcp_django.security")

# What is wrong with the site is wrong for every request.
COMPLAINT_SECONDS = 60
_complained: dict[str, float] = {}
_lock = threading.Lock()


def take(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """Count an event; 0 when it is within the limit, else the seconds until the next window.

    ``count`` counts so many at once, all of which have to be within the limit.
    """
    entry, left = _window(name, key, seconds)
    try:
        cache.add(entry, 0, timeout=seconds + 1)
        counted = cache.incr(entry, count)
    except ValueError:  # it fell out of the cache in between, or nothing stays in
        return 0
    except Exception as exc:  # noqa: BLE001 - the site's cache, which may be a service that is down
        _complain(name, exc)
        return 0
    return left if counted > limit else 0


def look(name: str, key: str, *, limit: int, seconds: int, count: int = 1) -> int:
    """What ``take`` would say now, without counting anything."""
    entry, left = _window(name, key, seconds)
    try:
        counted = cache.get(entry, 0)
    except Exception as exc:  # noqa: BLE001 - as above
        _complain(name, exc)
        return 0
    return left if counted + count > limit else 0


def give_back(name: str, key: str, *, seconds: int, count: int = 1) -> None:
    """Take back what ``take`` has counted for something that then was not to be."""
    entry, _ = _window(name, key, seconds)
    try:
        cache.decr(entry, count)
    except ValueError:  # its window is over
        return
    except Exception as exc:  # noqa: BLE001 - as above
        _complain(name, exc)


def _may_complain(about: str) -> bool:
    """Whether it is time to log something that every request would say: once a minute at most."""
    now = time.monotonic()
    with _lock:
        if about in _complained and now - _complained[about] < COMPLAINT_SECONDS:
            return False
        _complained[about] = now
        return True


def _window(name: str, key: str, seconds: int) -> tuple[str, int]:
    """The entry of the window that is open now, and the seconds that are left of it."""
    now = time.time()
    # Keys of memcached are short and hold no blanks, and an address is nobody's business there.
    digest = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
    entry = f"mcp_django:limit:{name}:{digest}:{int(now // seconds)}"
    return entry, seconds - int(now % seconds)


def _complain(name: str, exc: Exception) -> None:
    if _may_complain("cache"):
        logger.error(
            "The limit %r cannot be counted; nothing is limited meanwhile.", name, exc_info=exc
        )


# Limits on bad credentials ------------------------------------------------------------------------

# How many invalid credentials one address may try, before anything is looked up. Tokens are too
# long to be guessed, so this protects the database from load; it does not make the tokens safer.
#
# A caller over the limit gets 429 without a look at its credential, unless this process accepted
# the very same credential a short while ago: an office behind one address goes on working while
# one of its programs tries a token that was revoked.

NAME = "bad-bearer"
MAX_ATTEMPTS = 30
WINDOW_SECONDS = 60
# All whose address is not known share one count, which may be so many times as high.
UNKNOWN, UNKNOWN_FACTOR = "unknown", 10
# By one of these a request says that a proxy handed it on.
FORWARDING = (
    *("HTTP_FORWARDED", "HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_HOST"),
    *("HTTP_X_FORWARDED_PROTO", "HTTP_X_REAL_IP"),
)
# How long, and of how many credentials, a process remembers that they were good.
GOOD_SECONDS = 600
MAX_GOOD = 10_000
# Who they are in counts, beside the keys of users.
ANONYMOUS, UNPROVEN = "anonymous", "unproven"


class KnownGood:
    """Digests of credentials that were let in lately, and whose they are; the oldest make room."""

    def __init__(self) -> None:
        self._until: OrderedDict[bytes, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, fingerprint: bytes) -> bool:
        return self.owner_of(fingerprint) is not None

    def owner_of(self, fingerprint: bytes) -> str | None:
        """The key of the user whose it is, ``None`` if it is not known to be good."""
        until, owner = self._until.get(fingerprint, (0.0, ""))
        return owner if until > time.monotonic() else None

    def add(self, fingerprint: bytes, owner: str = "") -> None:
        """Remember one for ``GOOD_SECONDS``."""
        with self._lock:
            self._until[fingerprint] = (time.monotonic() + GOOD_SECONDS, owner)
            self._until.move_to_end(fingerprint)
            while len(self._until) > MAX_GOOD:
                self._until.popitem(last=False)

    def discard(self, fingerprint: bytes) -> None:
        """Forget one that holds no longer."""
        with self._lock:
            self._until.pop(fingerprint, None)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._until.clear()


known_good = KnownGood()


def check(credentials: Credentials) -> bytes:
    """The fingerprint of what was presented, if its address may still present anything.

    Raises:
        TooManyAttempts: too much that does not hold came from there within the last minute.
    """
    fingerprint = _fingerprint(credentials.headers)
    if fingerprint not in known_good:
        _check_address(credentials.request())
    return fingerprint


# A cache may be a service, which nobody waits for on an event loop.
@async_unsafe("Credentials are counted in a thread.")
def _check_address(request: HttpRequest) -> None:
    key, limit = counted_for(request, limit=MAX_ATTEMPTS)
    wait = look(NAME, key, limit=limit, seconds=WINDOW_SECONDS)
    if wait:
        raise TooManyAttempts(
            f"Too many credentials that do not hold came from your address; wait {wait} seconds.",
            retry_after=wait,
        )


def note_good(fingerprint: bytes, owner: str) -> None:
    """Note that a credential was let in, and the key of its user."""
    known_good.add(fingerprint, owner)


def note_login(headers: Headers, owner: str) -> None:
    """Note that the cookies of a request are a user's."""
    known_good.add(_fingerprint(headers), owner)


def presumed_caller(headers: Headers) -> str:
    """Who seems to call, before anybody has looked: the key of a user, or one of two for others.

    Whoever presents something that was not let in lately is ``UNPROVEN``, and not counted with
    those who present nothing: they cannot take what a user needs to prove himself.
    """
    if "authorization" not in headers and "cookie" not in headers:
        return ANONYMOUS
    return known_good.owner_of(_fingerprint(headers)) or UNPROVEN


@async_unsafe("Credentials are counted in a thread.")
def note_leaked(credentials: Credentials) -> None:
    """Put a token that came in the query into the security log, without the token."""
    request = credentials.request()
    security_log.record_some("refused", request=request, path=request.path, reason="in the query")


@async_unsafe("Credentials are counted in a thread.")
def note_bad(credentials: Credentials, fingerprint: bytes, *, reason: str) -> None:
    """Count a credential that was refused, and put it into the security log."""
    known_good.discard(fingerprint)
    request = credentials.request()
    security_log.record_some("refused", request=request, path=request.path, reason=reason)
    key, limit = counted_for(request, limit=MAX_ATTEMPTS)
    if take(NAME, key, limit=limit - 1, seconds=WINDOW_SECONDS):
        security_log.record_some("rate_limit", request=request, limit=NAME)


def counted_for(request: HttpRequest, *, limit: int) -> tuple[str, int]:
    """What a limit counts a request for, and how high it is there.

    That is its source, or for all together whose source is not known a limit that is higher, since
    one of them can use it up for the others. No header switches a limit off.
    """
    address = limited_address(request)
    return (UNKNOWN, limit * UNKNOWN_FACTOR) if address is None else (address, limit)


def limited_address(request: HttpRequest) -> str | None:
    """The source that the limits of a request are counted for; ``None`` where it is not known.

    Behind a proxy that ``PROXIES`` does not mention all clients would share the proxy's address.
    """
    found = client_ip(request)
    is_forwarded = any(name in request.META for name in FORWARDING)
    if is_forwarded and not get_settings().proxies and not _is_outside(found):
        _tell_of_proxy(found)
        return None
    return None if found is None else source_of(found)


def network_of(principal: Principal, request: Callable[[], HttpRequest | None]) -> str | None:
    """What limits count a caller without credentials by: an IPv4 address or an IPv6 /64.

    ``None`` for a caller who is known, and empty where the address is not; ``"local"`` without a
    request, as over standard input.
    """
    if principal.is_authenticated:
        return None
    found = request()
    return (limited_address(found) or "") if found is not None else "local"


def _is_outside(address: str | None) -> bool:
    """Whether no proxy of the site's own has this address."""
    if address is None:
        return False
    found = ip_address(address)
    return (getattr(found, "ipv4_mapped", None) or found).is_global


def _tell_of_proxy(address: str | None) -> None:
    if _may_complain("proxy"):
        logger.warning(
            "A request with a forwarding header came from %s, and MCP_DJANGO['PROXIES'] is 0: its "
            "client's address is not known, and all such requests share one limit, which one "
            "client can use up for the others. Set PROXIES to the number of your proxies that "
            "append to X-Forwarded-For; where there is no proxy, a client made the header up.",
            address or "no address",
        )


def _fingerprint(headers: Headers) -> bytes:
    name = "authorization" if "authorization" in headers else "cookie"
    presented = "\0".join((name, *headers.getlist(name)))
    return hashlib.sha256(presented.encode("utf-8", "replace")).digest()
