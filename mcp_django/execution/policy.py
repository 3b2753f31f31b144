"""Authorization: who may connect to a server, see a component and use it.

All access checks are in this module. ``is_visible`` is the check for lists and subscriptions,
``authorize`` for use and completion. A component that the caller's permissions hide is answered
exactly like one that does not exist, and causes the same database queries: in both cases the
permissions of all components of the kind are checked.

The first ``DenialReason`` denies access. Code that explains a denial to the site owner lists all
reasons from the same functions, so the explanation always agrees with the check.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mcp_django.auth.permissions import (
    AllowAny,
    BasePermission,
    parse_permissions,
    passes_site_rule,
)
from mcp_django.auth.principal import Principal, missing_scopes
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.core.component import Component
from mcp_django.exceptions import (
    AccessRefused,
    AuthenticationRequired,
    ConnectionRefused,
    InsufficientScope,
    MCPError,
)
from mcp_django.execution.call_record import CallRecord

logger = logging.getLogger("mcp_django")


def authorize_connection(server: Server, principal: Principal) -> None:
    """Check that the caller may connect to a server.

    An OAuth token also needs the server's own scopes; other credentials have no scopes.

    Raises:
        AuthenticationRequired: the server requires authentication.
        ConnectionRefused: this caller may not connect, or the server is disabled in the admin.
        InsufficientScope: the user may connect, but the token lacks a scope; names all scopes of
            the server.
    """
    reason = next(connection_denials(server, principal), None)
    if reason is None:
        return
    if reason.kind == "disabled":
        raise ConnectionRefused("This server is disabled.")
    if reason.kind == "rule":
        raise ConnectionRefused("You may not use this server with this client.")
    if reason.kind == "scopes":
        raise _insufficient_scope(principal, reason.scopes, server.scopes)
    if principal.is_authenticated:
        raise ConnectionRefused("You may not use this server.")
    raise AuthenticationRequired(
        "This server needs credentials: send 'Authorization: Bearer TOKEN'."
    )


def _insufficient_scope(
    principal: Principal, lacking: Iterable[str], needed: Iterable[str]
) -> InsufficientScope:
    return InsufficientScope(
        f"This needs the scope {' and '.join(lacking)}.",
        scopes=needed,
        granted=principal.scopes or (),
    )


def is_visible(
    principal: Principal, component: Component, *, permission_cache: PermissionCache | None = None
) -> bool:
    """Return whether the caller may know that the component exists."""
    return (
        next(visibility_denials(principal, component, permission_cache=permission_cache), None)
        is None
    )


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
    permission_cache = permission_cache or PermissionCache(principal)
    if component is None:
        permission_cache.check_all(siblings)
        logger.info("%s requested a component that does not exist.", principal.key)
        return False
    guards = parse_permissions(component.permission)
    refusing = next(
        (one for one in guards if not permission_cache.check_permission(one, component)), None
    )
    if refusing is not None:
        permission_cache.check_all(siblings)
        # For the site owner only: the caller must not learn that the component exists.
        logger.info("The %s is hidden from %s by %s.", component, principal.key, refusing)
        if call_record is not None:
            call_record.note_hidden_by(refusing)
        if not principal.is_authenticated and principal.may_sign_in:
            raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
        return False
    lacking = missing_scopes(principal.scopes, component.scopes)
    if lacking and not principal.is_authenticated:
        if not principal.may_sign_in:
            permission_cache.check_all(siblings)
            return False
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
    if lacking:
        raise _insufficient_scope(principal, lacking, component.scopes)
    return True


def is_open(server: Server) -> bool:
    """Return whether the server is open to all callers, without any permission check."""
    guards = (*parse_permissions(server.permission), *server.catalog.extra_permissions)
    return all(type(guard) is AllowAny for guard in guards)


def depends_on_caller(server: Server, component: Component) -> bool:
    """Return whether a result may differ between callers, so must not be cached publicly."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)


# Reasons for a denial -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DenialReason:
    """One reason to deny access.

    ``disabled``: the server is disabled in the admin. ``permission``: the permission ``permission``
    denies access. ``rule``: ``OAUTH["CAN_CONNECT"]`` does. ``scopes``: the credential lacks
    ``scopes``.
    """

    kind: Literal["disabled", "permission", "rule", "scopes"]
    permission: BasePermission | None = None
    scopes: tuple[str, ...] = ()


def connection_denials(server: Server, principal: Principal) -> Iterator[DenialReason]:
    """Yield the reasons why the caller may not connect to a server, none if the caller may.

    Each check runs only when its reason is requested.

    Raises:
        AccessRefused: a permission denies access with an exception of its own.
    """
    catalog = server.catalog
    if not catalog.is_enabled:
        yield DenialReason(kind="disabled")
    for guard in (*parse_permissions(server.permission), *catalog.extra_permissions):
        if not guard.has_permission(principal):
            yield DenialReason(kind="permission", permission=guard)
    if principal.audience:
        if not passes_site_rule(principal.user, server, principal.client_id):
            yield DenialReason(kind="rule")
        if lacking := missing_scopes(principal.scopes, server.scopes):
            yield DenialReason(kind="scopes", scopes=lacking)


class PermissionCache:
    """Caches the results of permission checks for one caller in one request."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        # Keeps the permission alive, so that no other object can get its id.
        self._known: dict[int, tuple[BasePermission, bool | Exception]] = {}

    def check_permission(self, permission: BasePermission, component: Component) -> bool:
        """Return whether a permission allows access.

        A permission that fails with another exception hides only its own component.

        Raises:
            AccessRefused: it denies access with an exception of its own.
            MCPError: likewise.
        """
        if id(permission) not in self._known:
            self._known[id(permission)] = permission, self._evaluate(permission, component)
        said = self._known[id(permission)][1]
        if isinstance(said, Exception):
            raise said
        return said

    def check_all(self, components: Iterable[Component]) -> None:
        """Check the permissions of all components, to take the same time and queries."""
        for component in components:
            for guard in parse_permissions(component.permission):
                with suppress(AccessRefused, MCPError):
                    self.check_permission(guard, component)

    def _evaluate(self, permission: BasePermission, component: Component) -> bool | Exception:
        try:
            return permission.has_permission(self.principal)
        except (AccessRefused, MCPError) as exc:
            return exc
        except Exception:
            logger.exception("The %s is hidden because %s failed.", component, permission)
            return False


def visibility_denials(
    principal: Principal, component: Component, *, permission_cache: PermissionCache | None = None
) -> Iterator[DenialReason]:
    """Yield the reasons why a component is hidden from a caller, none if it is visible."""
    permission_cache = permission_cache or PermissionCache(principal)
    for guard in parse_permissions(component.permission):
        try:
            is_allowed = permission_cache.check_permission(guard, component)
        except (AccessRefused, MCPError):
            # Such an exception is meant for a use of the component; a list only hides it.
            is_allowed = False
        if not is_allowed:
            yield DenialReason(kind="permission", permission=guard)
    if get_settings().list_filter == "scopes" and (
        lacking := missing_scopes(principal.scopes, component.scopes)
    ):
        yield DenialReason(kind="scopes", scopes=lacking)
