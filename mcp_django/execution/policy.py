"""Authorization: who may connect to a server, see a component and use it, and why not.

All access checks are in this module. ``is_visible`` is the check for lists and subscriptions,
``authorize`` for use and completion. A component that the caller's permissions hide is answered
exactly like one that does not exist, and causes the same database queries: in both cases the
permissions of all components of the kind are checked.

The first ``Reason`` denies access. ``explain`` and ``explain_connection`` return all reasons of
the same checks to the site owner, so the explanation always agrees with the decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from mcp_django.auth.permissions import (
    AllowAny,
    BasePermission,
    HasCodename,
    InGroups,
    IsAuthenticated,
    parse_permissions,
)
from mcp_django.auth.principal import Principal, missing_scopes, principal_for
from mcp_django.components.catalog import Catalog, Server
from mcp_django.components.component import Component
from mcp_django.conf import get_settings
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    ConnectionRefused,
    InsufficientScope,
    MCPError,
)
from mcp_django.execution.call_record import CallRecord

logger = logging.getLogger("mcp_django")

Use = Literal["list", "call"]

# A permission raises these to deny access with its own message; any other exception is a failure.
REFUSALS = (AccessRefused, MCPError)


def admit_caller(
    server: Server,
    find: Callable[[], Principal],
    *,
    is_list: bool = False,
    admitted: Catalog | None = None,
) -> Principal:
    """Return the caller that ``find`` returns, if it may connect under the current overrides.

    Callers are admitted only here, where the database may be queried, and by ``plan.Access`` on an
    event loop, which never queries it. ``mcp stdio`` also checks, when it starts, whether each
    request will be rejected. A caller that was admitted with the catalog ``admitted`` is not
    checked again while that catalog is current. With ``is_list`` the overrides are up to date,
    otherwise at most a second old.

    Raises:
        AccessRefused: see ``authorize_connection``; ``find`` may raise it too.
        Busy: the overrides of the server are not loaded, and cannot be read.
    """
    server.refresh(is_list=is_list)
    principal = find()
    if admitted is None or admitted is not server.catalog:
        authorize_connection(server, principal)
    return principal


def authorize_connection(server: Server, principal: Principal) -> None:
    """Check that the caller may connect to a server.

    An OAuth token also needs the server's own scopes; other credentials have no scopes.

    Raises:
        AuthenticationRequired: the server requires authentication.
        ConnectionRefused: this caller may not connect, or the server is disabled in the admin.
        InsufficientScope: the user may connect, but the token lacks a scope; names all scopes of
            the server.
    """
    if (
        (server.permission is None or server.permission is AllowAny)
        and not principal.audience
        and (catalog := server.catalog).is_enabled
        and not catalog.extra_permissions
    ):
        # A shortcut for a server that is open to all: nothing has to be checked.
        return
    reason = next(_connection_reasons(server, principal), None)
    if reason is None:
        return
    if reason.error is not None:
        raise reason.error
    if reason.kind == "disabled":
        raise ConnectionRefused("This server is disabled.")
    if reason.kind == "rule":
        raise ConnectionRefused("You may not use this server with this client.")
    if reason.kind == "scopes":
        raise _insufficient_scope(reason, server.scopes)
    if principal.is_authenticated:
        raise ConnectionRefused("You may not use this server.")
    raise AuthenticationRequired(
        "This server needs credentials: send 'Authorization: Bearer TOKEN'."
    )


def _insufficient_scope(reason: Reason, needed: Iterable[str]) -> InsufficientScope:
    return InsufficientScope(
        f"This needs the scope {' and '.join(reason.scopes)}.",
        scopes=needed,
        granted=reason.principal.scopes or (),
    )


def can_connect(user: Any, server: Any, client_id: str) -> bool:
    """Return whether the server's permission and the site's rule let a user connect a client.

    Checked before the user is asked for consent and before a token is issued;
    ``authorize_connection`` checks the same on every request with a token. So a rejection takes
    effect immediately, for clients that were connected before as well. Overrides made in the admin
    apply immediately, in whichever process they were made. A permission or rule that raises an
    exception rejects; the exception is in the log ``mcp_django``.

    Raises:
        Busy: the overrides are not known, and cannot be loaded.
    """
    server.refresh()
    principal = principal_for(user, client_id=client_id)
    reason = next(_connection_reasons(server, principal, is_oauth=True), None)
    if reason is not None and reason.error is not None:
        text = "A permission of the server %r raised an exception."
        logger.error(text, server.name, exc_info=reason.error)
    return reason is None


def is_visible(
    principal: Principal, component: Component, *, permission_cache: PermissionCache | None = None
) -> bool:
    """Return whether the caller may know that the component exists."""
    if component.permission is None and not _needed_scopes(component, "list"):
        return True
    check = (permission_cache or PermissionCache(principal)).check
    return next(_component_reasons(principal, component, "list", check), None) is None


def authorize(
    principal: Principal,
    component: Component | None,
    *,
    siblings: Iterable[Component] = (),
    call_record: CallRecord | None = None,
    permission_cache: PermissionCache | None = None,
) -> bool:
    """Return whether the caller may use the component; if not, answer as if it did not exist.

    ``component`` is ``None`` if it does not exist. Response times do not tell the two apart, since
    in both cases the permissions of all components in ``siblings`` are checked. The ``call_record``
    of the call log records the reason.

    Raises:
        AuthenticationRequired: the caller has no credentials, and credentials might give access.
        InsufficientScope: the user may use it, but the credential lacks a scope; names all scopes
            that the component needs.
    """
    if component is not None and component.permission is None and not component.scopes:
        return True
    permission_cache = permission_cache or PermissionCache(principal)
    if component is None:
        permission_cache.check_all(siblings)
        logger.info("%s requested a component that does not exist or is disabled.", principal.key)
        return False
    reason = next(_component_reasons(principal, component, "call", permission_cache.check), None)
    if reason is None:
        return True
    if isinstance(reason.error, REFUSALS):
        raise reason.error
    if reason.kind == "scopes" and principal.is_authenticated:
        raise _insufficient_scope(reason, component.scopes)
    may_sign_in = not principal.is_authenticated and principal.may_sign_in
    if reason.kind == "permission" or not may_sign_in:
        permission_cache.check_all(siblings)
    if reason.kind == "permission":
        # For the site owner only: the caller must not learn that the component exists.
        logger.info("The %s is hidden from %s by %s.", component, principal.key, reason.permission)
        if call_record is not None:
            call_record.note_hidden_by(reason.permission)
    if may_sign_in:
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
    return False


def is_open(server: Server) -> bool:
    """Return whether the server is open to all callers, without any permission check."""
    extra = server.catalog.extra_permissions
    if server.permission is AllowAny and not extra:
        return True
    guards = (*parse_permissions(server.permission), *extra)
    return all(type(guard) is AllowAny for guard in guards)


def depends_on_caller(server: Server, component: Component) -> bool:
    """Return whether a result may differ between callers and must not be cached publicly."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)


# Reasons for a denial -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason to deny ``principal`` access to ``component``, or to the server if it is ``None``.

    ``disabled``: it is disabled in the admin. ``permission``: the permission ``permission`` denies
    access; ``error`` is the exception that it raised, if any. ``rule``: ``OAUTH["CAN_CONNECT"]``
    denies access. ``scopes``: the credential lacks ``scopes``.
    """

    kind: Literal["disabled", "permission", "rule", "scopes"]
    principal: Principal
    component: Component | None = None
    permission: BasePermission | None = None
    scopes: tuple[str, ...] = ()
    error: Exception | None = None

    @property
    def failure(self) -> Exception | None:
        """The exception of a permission that failed, unless it is one that denies access."""
        return None if isinstance(self.error, REFUSALS) else self.error

    def sentence(self) -> str:
        """Return the reason as a sentence for the site owner."""
        if self.kind == "disabled" and self.component is not None:
            return _("It is disabled in the admin.")
        if self.kind == "disabled":
            return _("The server is disabled in the admin.")
        if self.kind == "rule":
            return _("OAUTH['CAN_CONNECT'] refuses this user with this client.")
        if self.kind == "scopes":
            text = _("The token lacks the scopes: %(scopes)s.")
            return text % {"scopes": " ".join(self.scopes)}
        if self.component is None and self.error:
            failed = _("A permission of the server failed; see the log.")
            return failed if self.failure else str(self.error)
        permission = self.permission
        if not self.principal.is_authenticated and isinstance(permission, IsAuthenticated):
            return _("Credentials are needed (%(guard)s).") % {"guard": permission}
        if isinstance(permission, InGroups):
            names = ", ".join(sorted(permission.names))
            return _("The user is in none of the groups: %(names)s.") % {"names": names}
        if isinstance(permission, HasCodename):
            text = _("The user lacks the permission %(codename)s.")
            return text % {"codename": permission.codename}
        return _("The permission %(guard)s denies access.") % {"guard": permission}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether a caller has access, and all reasons if not, in the order of the checks."""

    reasons: tuple[Reason, ...]

    @property
    def allowed(self) -> bool:
        """Whether the caller has access."""
        return not self.reasons


def explain(principal: Principal, component: Component, *, use: Use) -> Verdict:
    """Return whether the caller may see the component (``list``) or use it (``call``)."""
    check = partial(_check, principal)
    return Verdict(reasons=tuple(_component_reasons(principal, component, use, check)))


def explain_connection(server: Server, principal: Principal) -> Verdict:
    """Return whether the caller may connect to a server."""
    return Verdict(reasons=tuple(_connection_reasons(server, principal)))


def _connection_reasons(
    server: Server, principal: Principal, *, is_oauth: bool = False
) -> Iterator[Reason]:
    """Yield the reasons why the caller may not connect; each check runs when it is requested.

    With ``is_oauth``, or if the caller has an OAuth token, the site's rule and the scopes are
    checked too.

    Raises:
        ImproperlyConfigured: ``OAUTH["CAN_CONNECT"]`` does not name a callable.
    """
    catalog = server.catalog
    if not catalog.is_enabled:
        yield Reason(kind="disabled", principal=principal)
    for permission in (*parse_permissions(server.permission), *catalog.extra_permissions):
        if reason := _check(principal, permission):
            yield reason
    if is_oauth or principal.audience:
        if path := get_settings().oauth.can_connect:
            rule = find_rule(path)
            try:
                may_connect = bool(rule(principal.user, server, principal.client_id))
            except Exception:
                logger.exception(
                    "OAUTH['CAN_CONNECT'] raised an exception, so the client is rejected."
                )
                may_connect = False
            if not may_connect:
                yield Reason(kind="rule", principal=principal)
        if lacking := missing_scopes(principal.scopes, server.scopes):
            yield Reason(kind="scopes", principal=principal, scopes=lacking)


def _component_reasons(
    principal: Principal,
    component: Component,
    use: Use,
    check: Callable[[BasePermission, Component], Reason | None],
) -> Iterator[Reason]:
    """Yield the reasons why the caller may not use a component; each check runs when requested."""
    for permission in parse_permissions(component.permission):
        if reason := check(permission, component):
            yield reason
    if lacking := missing_scopes(principal.scopes, _needed_scopes(component, use)):
        yield Reason(kind="scopes", principal=principal, component=component, scopes=lacking)


def _needed_scopes(component: Component, use: Use) -> tuple[str, ...]:
    if use == "call" or (component.scopes and get_settings().list_filter == "scopes"):
        return component.scopes
    return ()


def _check(
    principal: Principal, permission: BasePermission, component: Component | None = None
) -> Reason | None:
    """Return the reason if a permission denies access, with the exception if it raised one."""
    error = None
    try:
        if permission.has_permission(principal):
            return None
    except Exception as exc:  # noqa: BLE001  # the site's own code; callers log it or raise it
        error = exc
    return Reason(
        kind="permission",
        principal=principal,
        component=component,
        permission=permission,
        error=error,
    )


class PermissionCache:
    """Caches the results of permission checks for one caller in one request."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        # Keeps the permission alive, so that no other object can get its id.
        self._known: dict[int, tuple[BasePermission, Reason | None]] = {}

    def check(self, permission: BasePermission, component: Component) -> Reason | None:
        """Return the reason if a permission denies access; the reason may name another component.

        A permission that fails hides only its own component; the failure is logged.
        """
        if id(permission) not in self._known:
            reason = _check(self.principal, permission, component)
            self._known[id(permission)] = permission, reason
            if reason is not None and reason.failure is not None:
                text = "The %s is hidden because %s failed."
                logger.error(text, component, permission, exc_info=reason.failure)
        return self._known[id(permission)][1]

    def check_all(self, components: Iterable[Component]) -> None:
        """Check the permissions of all components, so that denials take equal time and queries."""
        for component in components:
            for permission in parse_permissions(component.permission):
                self.check(permission, component)


Rule = Callable[[Any, Any, str], bool]


@cache
def find_rule(path: str) -> Rule:
    """Return the function at a dotted path.

    Raises:
        ImproperlyConfigured: the function does not exist.
    """
    try:
        rule: Rule = import_string(path)
    except ImportError as exc:
        raise ImproperlyConfigured(
            f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] names {path!r}, which cannot be imported ({exc})."
        ) from exc
    if not callable(rule):
        raise ImproperlyConfigured(
            f"MCP_DJANGO['OAUTH']['CAN_CONNECT'] names {path!r}; write the dotted path of a "
            "function (user, server, client_id) -> bool."
        )
    return rule
