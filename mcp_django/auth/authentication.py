"""Authenticate a request with the configured backends.

An invalid token is an error, never an anonymous request: its owner has to learn that it does not
work. An authenticated caller may be cached for ``TOKEN_CACHE_SECONDS``, in the process only; this
is disabled by default. ``LocalCaller`` is the caller of a process that serves one client (stdio),
and ``authorization_extensions`` returns the authorization extensions of a server.
"""

from __future__ import annotations

import copy
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.http import HttpRequest
from django.utils import timezone
from django.utils.asyncio import async_unsafe
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import limits, security_log
from mcp_django.auth.backends import (
    BEARER_BACKENDS,
    SESSION_BACKENDS,
    BaseBackend,
    get_backend,
)
from mcp_django.auth.credentials import Credentials, client_ip
from mcp_django.auth.principal import (
    Principal,
    anonymous_principal,
    find_user_by_name,
    principal_for,
)
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.protocol.headers import Headers


@sensitive_variables("credentials")
def authenticate(names: Sequence[str], credentials: Credentials) -> Principal:
    """Return the caller of a request; the anonymous principal if it has no credentials.

    Raises:
        AuthenticationRequired: no backend accepts the credentials.
        TooManyAttempts: too many invalid credentials came from the same address.
    """
    if credentials.has_token_in_query:
        # Every proxy on the way may have logged the token, so it is recorded for the site owner.
        _record_rejected(credentials, reason="token in query string")
    presented = credentials.bearer is not None
    if not presented and not credentials.has_authorization:
        known = _identify(names, credentials)
        if known is None:
            # Only browsers have a login cookie; MCP clients cannot get one.
            return anonymous_principal(may_sign_in=not SESSION_BACKENDS.issuperset(names))
        limits.remember_login(credentials.headers, known.user_key)
        return known
    fingerprint = limits.check_attempts(credentials)
    try:
        identify = partial(_identify_or_reject, names, credentials)
        principal = _identify_cached(identify, names, credentials)
    except AuthenticationRequired as exc:
        _record_rejected(credentials, fingerprint, reason=exc.error)
        raise
    limits.remember_accepted(fingerprint, principal.user_key)
    return principal


# The counters are in a cache and the log is in a database, which must not block an event loop.
@async_unsafe("Credentials are counted in a thread.")
def _record_rejected(
    credentials: Credentials, fingerprint: bytes | None = None, *, reason: str
) -> None:
    """Record a rejection in the security log, without the token; count the credential, if any."""
    request = credentials.request()
    is_over = fingerprint is not None and limits.count_rejected(request, fingerprint)
    security_log.record_limited("refused", request=request, path=request.path, reason=reason)
    if is_over:
        security_log.record_limited("rate_limit", request=request, limit=limits.LIMIT_NAME)


def _identify_or_reject(names: Sequence[str], credentials: Credentials) -> Principal:
    principal = _identify(names, credentials)
    if principal is None:
        raise AuthenticationRequired(
            "The token is unknown, expired or revoked.", error="invalid_token"
        )
    return principal


def _identify(names: Sequence[str], credentials: Credentials) -> Principal | None:
    if not credentials.has_authorization and BEARER_BACKENDS.issuperset(names):
        # They do nothing without an Authorization header.
        return None
    for name in names:
        principal = get_backend(name).authenticate(credentials)
        if principal is not None:
            return principal
    return None


def refresh_principal(principal: Principal) -> Principal | None:
    """Return the principal of an open stream as it is now, ``None`` if no longer authorized.

    The user is loaded again, so that removed permissions do not apply. Uses the database.
    """
    if not principal.backend:
        return principal
    if not get_backend(principal.backend).is_current(principal):
        return None
    return reload_user(principal)


def reload_user(principal: Principal) -> Principal | None:
    """Return the principal with its user loaded again; ``None`` if the user does not exist.

    The user object caches its permissions. Uses the database.
    """
    if not principal.backend or not principal.is_authenticated:
        return principal
    user = get_user_model()._default_manager.filter(pk=principal.user.pk).first()
    return replace(principal, user=user) if user is not None else None


# The token cache ----------------------------------------------------------------------------------

# Saves the lookup of the token. The cost: this process accepts a token that was revoked, or whose
# user was deactivated, for ``TOKEN_CACHE_SECONDS`` more, but not after it expires. Permissions are
# loaded for each request, and open streams never use the cache. The cache is in the process and
# not in Django's cache, because a program that can write there could impersonate any user.

MAX_CACHED_TOKENS = 10_000
# The attributes in which Django's ModelBackend caches a user's permissions.
_PERMISSION_CACHES = ("_perm_cache", "_user_perm_cache", "_group_perm_cache")


class TokenCache:
    """Principals by a digest of token, endpoint and address; the oldest entries are evicted."""

    def __init__(self) -> None:
        self._entries: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: bytes) -> Principal | None:
        """Return the caller, ``None`` if it is not cached or has expired.

        Each request gets a copy of the user, so it does not see what another request sets on it.
        """
        with self._lock:
            until, principal = self._entries.get(key, (0.0, None))
        if principal is None or until <= time.monotonic() or _has_expired(principal):
            return None
        return replace(principal, user=copy.copy(principal.user))

    def put(self, key: bytes, principal: Principal, *, seconds: float) -> None:
        """Cache a caller, without the permissions cached on its user."""
        kept = replace(principal, user=copy.copy(principal.user))
        for name in _PERMISSION_CACHES:
            vars(kept.user).pop(name, None)
        with self._lock:
            self._entries[key] = (time.monotonic() + seconds, kept)
            self._entries.move_to_end(key)
            while len(self._entries) > MAX_CACHED_TOKENS:
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._entries.clear()


token_cache = TokenCache()


def _identify_cached(
    identify: Callable[[], Principal], names: Sequence[str], credentials: Credentials
) -> Principal:
    """Return the cached caller for this bearer and endpoint, or call ``identify`` and cache it.

    A rejection is never cached: the token may be issued a moment later.
    """
    seconds = get_settings().token_cache_seconds
    if not seconds or credentials.bearer is None:
        return identify()
    key = _cache_key(names, credentials)
    principal = token_cache.get(key)
    if principal is None:
        principal = identify()
        token_cache.put(key, principal, seconds=seconds)
    return principal


def _cache_key(names: Sequence[str], credentials: Credentials) -> bytes:
    # A token may be restricted to servers and networks.
    address = str(client_ip(credentials.request()))
    parts = (credentials.bearer, credentials.resource, credentials.server, address, *names)
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "replace")).digest()


def _has_expired(principal: Principal) -> bool:
    return principal.expires_at is not None and principal.expires_at <= timezone.now()


# The caller of a local process --------------------------------------------------------------------

LOCAL_BACKEND = "mcp_django.auth.authentication.LocalBackend"


class LocalBackend(BaseBackend):
    """Checks whether the user of a local process is still active, for its open streams.

    It does not authenticate any request, so listing it in ``AUTH`` gives no access.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCaller:
    """The caller of a process that serves one client, from credentials in its environment.

    That is a named user, the owner of an access token, or the anonymous principal.
    """

    username: str = ""
    token: str = field(default="", repr=False)
    server: str = ""
    """The name of the server that the process serves; a token may be restricted to others."""

    def principal(self) -> Principal:
        """Return the caller as of now; the user or token is looked up on each call.

        Raises:
            AuthenticationRequired: the user does not exist or is inactive, or the token is invalid.
        """
        if self.token:
            return authenticate(("tokens",), self._credentials())
        return self._user() if self.username else anonymous_principal()

    def _credentials(self) -> Credentials:
        authorization = f"Bearer {self.token}".encode("latin-1", "replace")
        return Credentials(
            headers=Headers([(b"authorization", authorization)]),
            query="",
            request=HttpRequest,
            server=self.server,
        )

    def _user(self) -> Principal:
        user = find_user_by_name(self.username)
        if user is None or not user.is_active:
            raise AuthenticationRequired(
                f"The user {self.username!r} does not exist or is inactive.", error="invalid_token"
            )
        return principal_for(user, backend=LOCAL_BACKEND)


# Authorization extensions -------------------------------------------------------------------------

CLIENT_CREDENTIALS = "io.modelcontextprotocol/oauth-client-credentials"
ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"


def authorization_extensions(backends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the enabled authorization extensions of a server with these backends; often none."""
    if "oauth" not in backends or not apps.is_installed("mcp_django.oauth"):
        return {}
    oauth = get_settings().oauth
    on = {CLIENT_CREDENTIALS: oauth.client_credentials, ENTERPRISE: bool(oauth.trusted_issuers)}
    return {name: {} for name, is_on in on.items() if is_on}
