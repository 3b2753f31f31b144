"""Authenticate a request with the configured backends.

An invalid token is an error, never an anonymous request: its owner has to learn that it does not
work. A caller that the database confirmed a moment ago is not looked up (``caller_cache``).
``LocalCaller`` is the caller of a process that serves one client (stdio), and
``authorization_extensions`` returns the authorization extensions of a server.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

from django.apps import apps
from django.conf import settings as django_settings
from django.contrib.auth import get_user_model
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, router
from django.http import HttpRequest
from django.utils import timezone
from django.utils.asyncio import async_unsafe
from django.utils.functional import SimpleLazyObject
from django.views.decorators.debug import sensitive_variables

from mcp_django.auth import limits, security_log
from mcp_django.auth.backends import (
    BEARER_BACKENDS,
    SESSION_BACKENDS,
    BaseBackend,
    CallerKey,
    get_backend,
)
from mcp_django.auth.credentials import Credentials
from mcp_django.auth.principal import (
    Account,
    Claims,
    Principal,
    anonymous_principal,
    find_user_by_name,
    key_of,
    principal_for,
)
from mcp_django.conf import get_settings
from mcp_django.exceptions import AuthenticationRequired
from mcp_django.process import on_settings_change
from mcp_django.protocol.headers import Headers
from mcp_django.storage.cache import Confirmed, RefreshAheadCache, confirm_seconds
from mcp_django.storage.databases import is_on_loop, tables
from mcp_django.storage.revocations import caller_tags
from mcp_django.storage.statements import CompiledQuery, numbered, padded, placeholders
from mcp_django.tenants import by_tenant, has_tenant_users, is_tenant_app, thread_context


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
        principal = _identify(names, credentials)
        if principal is None:
            # Only browsers have a login cookie; MCP clients cannot get one.
            return anonymous_principal(may_sign_in=not SESSION_BACKENDS.issuperset(names))
        limits.remember_login(credentials.headers, by_tenant(principal.user_key))
        return principal
    key = caller_key(names, credentials)
    principal = _known_in_thread(key) if key is not None else None
    if principal is not None:
        limits.keep_accepted(credentials.headers, by_tenant(principal.user_key))
        return principal
    fingerprint = limits.check_attempts(credentials)
    principal = _ask_for_caller(key, credentials) if key is not None else None
    if principal is None:
        try:
            principal = _identify(names, credentials)
        except AuthenticationRequired as exc:
            _record_rejected(credentials, fingerprint, reason=exc.error)
            raise
        if principal is None:
            _record_rejected(credentials, fingerprint, reason="invalid_token")
            raise AuthenticationRequired(
                "The token is unknown, expired or revoked.", error="invalid_token"
            )
    limits.remember_accepted(fingerprint, by_tenant(principal.user_key))
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


def _identify(names: Sequence[str], credentials: Credentials) -> Principal | None:
    if not credentials.has_authorization and BEARER_BACKENDS.issuperset(names):
        # They do nothing without an Authorization header.
        return None
    for name in names:
        principal = get_backend(name).authenticate(credentials)
        if principal is not None:
            if name == "oauth" and has_shared_oauth():
                # The credential may name a user of another tenant; E018 reports the tables.
                raise AuthenticationRequired(
                    "The token is unknown, expired or revoked.", error="invalid_token"
                )
            return principal
    return None


# The apps whose tables have a column for the user and none for the tenant.
OAUTH_APPS = ("oauth2_provider", "mcp_django.oauth")


def has_shared_oauth() -> bool:
    """Return whether tenants with users of their own share the tables of the OAuth toolkit.

    A token refers to a user by primary key, which belongs to another user at another tenant.
    """
    return has_tenant_users() and not all(map(is_tenant_app, OAUTH_APPS))


@sensitive_variables("credentials")
def confirm_principal(
    principal: Principal, names: Sequence[str], credentials: Credentials
) -> Principal | None:
    """Return the caller of a request that was admitted earlier, as it is now.

    ``None`` if the credential has expired or the caller is no longer authorized. As for a new
    request, a caller that was confirmed a moment ago costs no query; any other caller is looked up
    by its backend. A login with the session cookie stays stored on its request, so for such a
    caller only the user is looked up again.

    Raises:
        AuthenticationUnavailable: the issuer of the credential does not respond.
        SynchronousOnlyOperation: the caller has to be looked up, which an event loop cannot do.
    """
    if not principal.backend:
        return principal
    if principal.expires_at is not None and principal.expires_at <= timezone.now():
        return None
    key = caller_key(names, credentials)
    if is_on_loop():
        current = known_caller(key) if key is not None else None
        if current is None or current.key != principal.key:
            raise SynchronousOnlyOperation("The caller has to be asked for in a thread.")
        return current
    if key is not None:
        current = _known_in_thread(key) or _ask_for_caller(key, credentials)
        if current is not None and current.key == principal.key:
            return current
        # A refresh replaces an OAuth access token, but its sign-in stays valid.
        return refresh_principal(principal) if principal.backend == "oauth" else None
    try:
        current = get_backend(principal.backend).authenticate(credentials)
    except AuthenticationRequired:
        return None
    is_same = current is not None and current.key == principal.key
    return refresh_principal(current) if current is not None and is_same else None


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

    A user object caches its permissions, so a new one is loaded. Uses the database.
    """
    if not principal.backend or not principal.is_authenticated:
        return principal
    pk = principal.user.pk if principal.account is None else principal.account.pk
    user = get_user_model()._default_manager.filter(pk=pk).first()
    return replace(principal, user=user, account=None) if user is not None else None


# Callers that the database confirmed a moment ago ----------------------------------------------

# The cache holds the data for decisions, not users: the scopes of the credential, and what
# permissions depend on (``Account``). A user is loaded if the site's code uses it, and no two
# requests share a user object. A credential that is not valid is never cached. Callers are cached
# only if everything that their authorization depends on is known here; otherwise each request is
# authenticated (``why_not_cached``).

_MODEL_BACKEND = ["django.contrib.auth.backends.ModelBackend"]


@on_settings_change()
def _forget_places() -> None:
    why_not_cached.cache_clear()
    _places.clear()


@cache
def why_not_cached(backends: tuple[str, ...], upstream: str = "") -> str:
    """Return why callers of these backends are looked up on each request; empty if they are not."""
    settings = get_settings()
    if thread_context() is not None:
        return "the site has tenants"
    if not confirm_seconds():
        return "CONFIRM_SECONDS is 0"
    if others := [name for name in backends if name not in BEARER_BACKENDS]:
        return f"AUTH contains {others[0]!r}"
    is_both = {"jwt", "introspection"}.issubset(backends)
    if is_both and backends.index("introspection") < backends.index("jwt"):
        # The JWTs of an issuer in both are introspected, not verified by their signature.
        introspected = {issuer.issuer for issuer in settings.introspection}
        if shared := [issuer.issuer for issuer in settings.jwt if issuer.issuer in introspected]:
            return f"INTROSPECTION comes before JWT in AUTH, and both contain {shared[0]}"
    if upstream or settings.oauth.upstream:
        return "OAUTH['UPSTREAM'] is used"
    if settings.oauth.can_connect:
        return "OAUTH['CAN_CONNECT'] is set"
    if list(django_settings.AUTHENTICATION_BACKENDS) != _MODEL_BACKEND:
        return "AUTHENTICATION_BACKENDS has other backends than ModelBackend"
    return _why_model_is_unknown(get_user_model(), backends)


def _why_model_is_unknown(user: Any, backends: tuple[str, ...]) -> str:
    """Return what the site's models decide by code of their own; empty if they do not."""
    from django.contrib.auth.models import Group, Permission, PermissionsMixin

    for name in ("has_perm", "has_perms", "get_all_permissions"):
        if getattr(user, name, None) is not getattr(PermissionsMixin, name):
            return f"{user.__name__} has a {name}() of its own"
    fields = {field.attname for field in user._meta.concrete_fields}
    for name in ("is_active", "is_staff", "is_superuser"):
        if name not in fields:
            return f"{user.__name__}.{name} is not a field"
    related = {field.name: field.related_model for field in user._meta.many_to_many}
    for name, model in (("groups", Group), ("user_permissions", Permission)):
        if related.get(name) is not model:
            return f"{user.__name__}.{name} does not lead to {model.__name__}"
    for name in backends:
        if reason := get_backend(name).why_not_confirmable():
            return reason
    return ""


def _read_callers(keys: Collection[CallerKey]) -> dict[CallerKey, Confirmed[Principal]]:
    """Return the callers of those credentials that are valid now."""
    confirmed: dict[CallerKey, Confirmed[Principal]] = {}
    for alias in dict.fromkeys(key.alias for key in keys):
        callers: dict[CallerKey, Confirmed[Principal]] = {}
        # Each key's backends in their order: the first that knows a bearer decides about it.
        for backends in dict.fromkeys(key.backends for key in keys if key.alias == alias):
            remaining = {key for key in keys if (key.alias, key.backends) == (alias, backends)}
            for name in backends:
                callers.update(get_backend(name).confirm(remaining, alias) if remaining else {})
                remaining -= callers.keys()
        users = (caller.value.user for caller in callers.values())
        accounts = _read_accounts(alias, {user.pk: user for user in users})
        for key, caller in callers.items():
            principal = caller.value
            pk = principal.user.pk
            confirmed[key] = caller._replace(
                value=replace(principal, account=accounts[pk]),
                tags=caller.tags.union(caller_tags(principal.credential, pk)),
            )
    return confirmed


def _read_accounts(alias: str, users: Mapping[Any, Any]) -> dict[Any, Account]:
    """Return the accounts of users, with permissions as in ``ModelBackend``; three queries."""
    limited = padded([pk for pk, user in users.items() if not user.is_superuser])
    codenames: defaultdict[Any, set[str]] = defaultdict(set)
    groups: defaultdict[Any, set[str]] = defaultdict(set)
    if limited:
        own, through_groups, memberships = _account_queries(get_user_model(), len(limited))
        prepare = get_user_model()._meta.pk.get_db_prep_value
        values = numbered([prepare(pk, connections[alias]) for pk in limited])
        for query in (own, through_groups):
            for pk, app, codename in query.rows(alias, values):
                codenames[pk].add(f"{app}.{codename}")
        for pk, name in memberships.rows(alias, values):
            groups[pk].add(name)
    return {
        pk: Account(
            pk=pk,
            key=key_of(user),
            username=user.get_username(),
            is_active=user.is_active,
            is_staff=user.is_staff,
            is_superuser=user.is_superuser,
            codenames=frozenset(codenames[pk]),
            groups=frozenset(groups[pk]),
        )
        for pk, user in users.items()
    }


@cache
def _account_queries(users: Any, count: int) -> tuple[CompiledQuery[Any], ...]:
    """Return the queries for the permissions and groups of ``count`` users."""
    from django.contrib.auth.models import Group, Permission

    def query(model: Any, owner: str, *columns: str) -> CompiledQuery[Any]:
        conditions = {f"{owner}__pk__in": placeholders(count)}
        return CompiledQuery(
            lambda alias: (
                model._default_manager.using(alias)
                .filter(**conditions)
                .order_by()
                .values_list(owner, *columns)
            )
        )

    own = users._meta.get_field("user_permissions").related_query_name()
    member = users._meta.get_field("groups").related_query_name()
    codename = ("content_type__app_label", "codename")
    return (
        query(Permission, own, *codename),
        query(Permission, f"group__{member}", *codename),
        query(Group, member, "name"),
    )


caller_cache: RefreshAheadCache[CallerKey, Principal] = RefreshAheadCache("callers", _read_callers)


@sensitive_variables("credentials", "bearer")
def caller_key(names: Sequence[str], credentials: Credentials) -> CallerKey | None:
    """Return the key of a caller in ``caller_cache``, ``None`` if it may not be cached.

    Raises:
        AuthenticationRequired: the credential is malformed.
    """
    backends = tuple(names)
    bearer = credentials.bearer
    if bearer is None or why_not_cached(backends, credentials.upstream):
        return None
    # Access tokens of the site are not issued for a resource.
    resource, issuer = _place_of(backends, credentials) if backends != ("tokens",) else ("", "")
    return CallerKey(
        digest=tables.token_digest(bearer),
        is_site_token=bearer.startswith(tables.TOKEN_PREFIX),
        server=credentials.server,
        resource=resource,
        issuer=issuer,
        backends=backends,
        # The router decides here, for this request: the thread that queries has no request.
        alias=router.db_for_write(tables.AccessToken),
    )


# A cache of this process; a changed setting clears it. It is small: a client may send any host.
_places: dict[tuple[Any, ...], tuple[str, str]] = {}
MAX_PLACES = 1000
# The maximum length of a key of that cache (its ``repr``); headers may be much longer.
MAX_PLACE = 1000


def _place_of(backends: tuple[str, ...], credentials: Credentials) -> tuple[str, str]:
    """Return the resource that a request is for, and the issuer of the tokens of this site, if any.

    Both depend on URL, headers and settings only, and are cached: computing them needs a Django
    request.
    """
    lines = credentials.headers.lines
    hosts = lines.get(b"host"), lines.get(b"x-forwarded-host"), lines.get(b"x-forwarded-port")
    url = (credentials.scheme, credentials.path, credentials.declared_resource)
    raw = (backends, credentials.server, *url, *hosts)
    place = _places.get(raw)
    if place is None:
        is_own = "oauth" in backends
        issuers = get_backend("oauth").issuers(credentials.request()) if is_own else ()
        place = credentials.resource, "".join(issuers)
        is_short = len(repr(raw)) <= MAX_PLACE
        if credentials.scheme and credentials.path and hosts[0] and is_short:
            if len(_places) >= MAX_PLACES:
                _places.clear()
            _places[raw] = place
    return place


def known_caller(key: CallerKey) -> Principal | None:
    """Return a caller that was confirmed a moment ago, on an event loop; never queries."""
    return _with_own_user(caller_cache.get(key))


def _known_in_thread(key: CallerKey) -> Principal | None:
    return _with_own_user(caller_cache.get_in_thread(key))


# How many invalid credentials that were not accepted recently a process looks up from event loops
# in a minute. Further credentials are looked up in threads, where the attempts of each address are
# counted.
unknown_callers = limits.PerMinute(100)


async def ask_for_caller(key: CallerKey, headers: Headers) -> Principal | None:
    """Look up a caller from an event loop; ``None`` if that has to be done in a thread.

    Raises:
        Error: the database could not be queried.
        Busy: too many requests wait for a query.
    """
    is_proven = limits.presumed_caller(headers) != limits.UNPROVEN
    if not is_proven and not unknown_callers.has_room():
        return None
    principal = _with_own_user(await caller_cache.afetch(key))
    if principal is not None:
        limits.keep_accepted(headers, by_tenant(principal.user_key))
    elif not is_proven:
        unknown_callers.allows()
    return principal


def _ask_for_caller(key: CallerKey, credentials: Credentials) -> Principal | None:
    """Look up a caller from a thread."""
    for name in key.backends:
        get_backend(name).prepare(key, credentials)
    return _with_own_user(caller_cache.fetch(key))


def _with_own_user(caller: Principal | None) -> Principal | None:
    """Return a cached caller for one request, ``None`` if its credential has expired."""
    if caller is None or (caller.expires_at is not None and caller.expires_at <= timezone.now()):
        return None
    user, claims = SimpleLazyObject(partial(_load_user, caller.user)), caller.claims
    if isinstance(claims, Claims):
        return replace(caller, user=user, claims=Claims(claims.text))
    return replace(caller, user=user)


def _load_user(confirmed: Any) -> Any:
    """Return the user as it is now; on an event loop a copy of data that is up to a second old.

    Raises:
        AuthenticationRequired: the user was deleted or deactivated in the meantime.
    """
    if is_on_loop():
        # A deep copy, since a field may have a mutable value, such as a dictionary.
        return copy.deepcopy(confirmed)
    users = type(confirmed)._default_manager.using(confirmed._state.db)
    user = users.filter(pk=confirmed.pk, is_active=True).first()
    if user is None:
        raise AuthenticationRequired("The user is not active any more.", error="invalid_token")
    return user


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


CLIENT_CREDENTIALS = "io.modelcontextprotocol/oauth-client-credentials"
ENTERPRISE = "io.modelcontextprotocol/enterprise-managed-authorization"


def authorization_extensions(backends: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the enabled authorization extensions of a server with these backends; often none."""
    if "oauth" not in backends or not apps.is_installed("mcp_django.oauth"):
        return {}
    oauth = get_settings().oauth
    on = {CLIENT_CREDENTIALS: oauth.client_credentials, ENTERPRISE: bool(oauth.trusted_issuers)}
    return {name: {} for name, is_on in on.items() if is_on}
