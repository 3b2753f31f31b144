"""How many credentials that do not hold one address may try, before anything is looked up.

Tokens are too long to be guessed, so this keeps the database free, not the tokens safe. Whoever is
over the limit gets 429 without a look at what it carries, unless this process has let the very same
credential in a short while ago: an office behind one address goes on working while one of its
programs tries a token that was revoked.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import ip_address

from django.http import HttpRequest
from django.utils.asyncio import async_unsafe

from mcp_django.auth import events, limits
from mcp_django.auth.addresses import client_ip, source_of
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.exceptions import TooManyAttempts
from mcp_django.protocol.headers import Headers

NAME = "bad-bearer"
MAX_ATTEMPTS = 30
WINDOW_SECONDS = 60
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
    address = limited_address(request)
    if address is None:
        return
    wait = limits.look(NAME, address, limit=MAX_ATTEMPTS, seconds=WINDOW_SECONDS)
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
    events.record_some("refused", request=request, path=request.path, reason="in the query")


@async_unsafe("Credentials are counted in a thread.")
def note_bad(credentials: Credentials, fingerprint: bytes, *, reason: str) -> None:
    """Count a credential that was refused, and put it into the security log."""
    known_good.discard(fingerprint)
    request = credentials.request()
    events.record_some("refused", request=request, path=request.path, reason=reason)
    address = limited_address(request)
    if address is None:
        return
    if limits.take(NAME, address, limit=MAX_ATTEMPTS - 1, seconds=WINDOW_SECONDS):
        events.record_some("rate_limit", request=request, limit=NAME)


def limited_address(request: HttpRequest) -> str | None:
    """The source that the limits of a request are counted for; ``None`` where it is not known.

    Behind a proxy that ``PROXIES`` does not mention all clients would share the proxy's address,
    and one of them could shut out the others. Then nothing is limited.
    """
    found = client_ip(request)
    if found is None:
        return None
    if get_settings().proxies:
        return source_of(found)
    forwarded = "HTTP_X_FORWARDED_FOR" in request.META or "HTTP_FORWARDED" in request.META
    return None if forwarded and not ip_address(found).is_global else source_of(found)


def network_of(principal: Principal, request: Callable[[], HttpRequest | None]) -> str | None:
    """What limits count a caller without credentials by: an IPv4 address or an IPv6 /64.

    ``None`` for a caller who is known, and empty where the address is not; ``"local"`` without a
    request, as over standard input.
    """
    if principal.is_authenticated:
        return None
    found = request()
    return (limited_address(found) or "") if found is not None else "local"


def _fingerprint(headers: Headers) -> bytes:
    name = "authorization" if "authorization" in headers else "cookie"
    presented = "\0".join((name, *headers.getlist(name)))
    return hashlib.sha256(presented.encode("utf-8", "replace")).digest()
