"""Callers that were found a moment ago, for ``TOKEN_CACHE_SECONDS``; off unless a site asks for it.

What is saved is the look at the token. What it costs: a token that was revoked, or whose user was
deactivated, is still good in this process for so long, no longer than until it expires. Permissions
are read anew for each request, and open streams never ask here. Kept in the process, not in
Django's cache: whoever may write there could make himself anybody.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

from django.utils import timezone

from mcp_django.auth.addresses import client_ip
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings

MAX_ENTRIES = 10_000
# Where Django's ModelBackend keeps what it has worked out about a user.
_PERMISSIONS = ("_perm_cache", "_user_perm_cache", "_group_perm_cache")


class TokenCache:
    """Principals by a digest of what was presented, and where; the oldest make room."""

    def __init__(self) -> None:
        self._found: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Principal | None:
        """The caller, with a user of its own: one request must not see what another sets on it."""
        with self._lock:
            until, principal = self._found.get(key, (0.0, None))
        if principal is None or until <= time.monotonic() or _has_expired(principal):
            return None
        return replace(principal, user=copy.copy(principal.user))

    def put(self, key: bytes, principal: Principal, *, seconds: float) -> None:
        """Keep a caller; what was worked out about its permissions is not kept with it."""
        kept = replace(principal, user=copy.copy(principal.user))
        for name in _PERMISSIONS:
            vars(kept.user).pop(name, None)
        with self._lock:
            self._found[key] = (time.monotonic() + seconds, kept)
            self._found.move_to_end(key)
            while len(self._found) > MAX_ENTRIES:
                self._found.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._found.clear()


token_cache = TokenCache()


def through(
    identify: Callable[[], Principal], names: Sequence[str], credentials: Credentials
) -> Principal:
    """What ``identify`` finds, or found not long ago for the same bearer at the same endpoint.

    What it refuses is never kept: a token may be issued the moment after.
    """
    seconds = get_settings().token_cache_seconds
    if not seconds or credentials.bearer is None:
        return identify()
    key = _key(names, credentials)
    principal = token_cache.get(key)
    if principal is None:
        principal = identify()
        token_cache.put(key, principal, seconds=seconds)
    return principal


def _key(names: Sequence[str], credentials: Credentials) -> bytes:
    # A token may be bound to servers and networks.
    address = str(client_ip(credentials.request()))
    parts = (credentials.bearer, credentials.resource, credentials.server, address, *names)
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()


def _has_expired(principal: Principal) -> bool:
    return principal.expires_at is not None and principal.expires_at <= timezone.now()
