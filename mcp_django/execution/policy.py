"""Authorization: who may connect to a server, see a component and use it.

All access checks are in this module. ``visible`` is the check for lists and subscriptions,
``admit`` for use and completion. A component that the caller may not see is answered exactly like
one that does not exist, and causes the same database queries: in both cases the permissions of
all components of the kind are checked.

The first ``Reason`` denies access. Code that explains a denial to the site owner lists all
reasons from the same functions, so the explanation always agrees with the check.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mcp_django.auth.permissions import AllowAny, BasePermission, approves, permissions
from mcp_django.auth.principal import Principal, missing
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
from mcp_django.execution.call_record import Entry

logger = logging.getLogger("mcp_django")


def admit_connection(server: Server, principal: Principal) -> None:
    """Check that the caller may connect to a server.

    An OAuth token also needs the server's own scopes; other credentials have no scopes.

    Raises:
        AuthenticationRequired: the server requires authentication.
        ConnectionRefused: this caller may not connect, or the server is disabled in the admin.
        InsufficientScope: the user may connect, but the token lacks a scope; names all scopes of
            the server.
    """
    reason = next(barriers(server, principal), None)
    if reason is None:
        return
    if reason.kind == "disabled":
        raise ConnectionRefused("This server is disabled.")
    if reason.kind == "rule":
        raise ConnectionRefused("You may not use this server with this client.")
    if reason.kind == "scopes":
        raise _too_few(principal, reason.scopes, server.scopes)
    if principal.is_authenticated:
        raise ConnectionRefused("You may not use this server.")
    raise AuthenticationRequired(
        "This server needs credentials: send 'Authorization: Bearer TOKEN'."
    )


def _too_few(
    principal: Principal, lacking: Iterable[str], needed: Iterable[str]
) -> InsufficientScope:
    return InsufficientScope(
        f"This needs the scope {' and '.join(lacking)}.",
        scopes=needed,
        granted=principal.scopes or (),
    )


def visible(
    principal: Principal, component: Component, *, verdicts: Verdicts | None = None
) -> bool:
    """Return whether the caller may know that the component exists."""
    return next(hindrances(principal, component, verdicts=verdicts), None) is None


def admit(
    principal: Principal,
    component: Component | None,
    *,
    among: Iterable[Component] = (),
    entry: Entry | None = None,
    verdicts: Verdicts | None = None,
) -> bool:
    """Return whether the caller may use the component; if not, answer as if it did not exist.

    ``component`` is ``None`` if it does not exist. Response times do not tell the two apart, since
    in both cases the permissions of all components in ``among`` are checked. The ``entry`` of the
    call log records the reason.

    Raises:
        AuthenticationRequired: the caller has no credentials, and credentials might give access.
        InsufficientScope: the user may use it, but the credential lacks a scope; names all scopes
            that the component needs.
    """
    verdicts = verdicts or Verdicts(principal)
    if component is None:
        verdicts.ask_all(among)
        logger.info("%s requested a component that does not exist.", principal.key)
        return False
    guards = permissions(component.permission)
    refusing = next((one for one in guards if not verdicts.holds(one, component)), None)
    if refusing is not None:
        verdicts.ask_all(among)
        # For the site owner only: the caller must not learn that the component exists.
        logger.info("The %s is hidden from %s by %s.", component, principal.key, refusing)
        if entry is not None:
            entry.hidden_by(refusing)
        if not principal.is_authenticated and principal.may_sign_in:
            raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
        return False
    lacking = missing(principal.scopes, component.scopes)
    if lacking and not principal.is_authenticated:
        if not principal.may_sign_in:
            verdicts.ask_all(among)
            return False
        raise AuthenticationRequired("This needs credentials.", scopes=component.scopes)
    if lacking:
        raise _too_few(principal, lacking, component.scopes)
    return True


def is_open(server: Server) -> bool:
    """Return whether the server is open to all callers, without any permission check."""
    guards = (*permissions(server.permission), *server.offered.guards)
    return all(type(guard) is AllowAny for guard in guards)


def depends_on_caller(server: Server, component: Component) -> bool:
    """Return whether a result may differ between callers, so must not be cached publicly."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)


# Reasons for a denial -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason to deny access.

    ``disabled``: the server is disabled in the admin. ``permission``: the permission ``guard``
    denies access. ``rule``: ``OAUTH["CAN_CONNECT"]`` does. ``scopes``: the credential lacks
    ``scopes``.
    """

    kind: Literal["disabled", "permission", "rule", "scopes"]
    guard: BasePermission | None = None
    scopes: tuple[str, ...] = ()


def barriers(server: Server, principal: Principal) -> Iterator[Reason]:
    """Yield the reasons why the caller may not connect to a server, none if the caller may.

    Each check runs only when its reason is requested.

    Raises:
        AccessRefused: a permission denies access with an exception of its own.
    """
    offered = server.offered
    if not offered.is_enabled:
        yield Reason(kind="disabled")
    for guard in (*permissions(server.permission), *offered.guards):
        if not guard.has_permission(principal):
            yield Reason(kind="permission", guard=guard)
    if principal.audience:
        if not approves(principal.user, server, principal.client_id):
            yield Reason(kind="rule")
        if lacking := missing(principal.scopes, server.scopes):
            yield Reason(kind="scopes", scopes=lacking)


class Verdicts:
    """Caches the results of permission checks for one caller in one request."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        # Keeps the permission alive, so that no other object can get its id.
        self._known: dict[int, tuple[BasePermission, bool | Exception]] = {}

    def holds(self, guard: BasePermission, component: Component) -> bool:
        """Return whether a permission allows access.

        A permission that fails with another exception hides only its own component.

        Raises:
            AccessRefused: it denies access with an exception of its own.
            MCPError: likewise.
        """
        if id(guard) not in self._known:
            self._known[id(guard)] = guard, self._ask(guard, component)
        said = self._known[id(guard)][1]
        if isinstance(said, Exception):
            raise said
        return said

    def ask_all(self, components: Iterable[Component]) -> None:
        """Check the permissions of all components, to take the same time and queries."""
        for component in components:
            for guard in permissions(component.permission):
                with suppress(AccessRefused, MCPError):
                    self.holds(guard, component)

    def _ask(self, guard: BasePermission, component: Component) -> bool | Exception:
        try:
            return guard.has_permission(self.principal)
        except (AccessRefused, MCPError) as exc:
            return exc
        except Exception:
            logger.exception("The %s is hidden because %s failed.", component, guard)
            return False


def hindrances(
    principal: Principal, component: Component, *, verdicts: Verdicts | None = None
) -> Iterator[Reason]:
    """Yield the reasons why a component is hidden from a caller, none if it is visible."""
    verdicts = verdicts or Verdicts(principal)
    for guard in permissions(component.permission):
        try:
            is_open = verdicts.holds(guard, component)
        except (AccessRefused, MCPError):
            # Such an exception is meant for a use of the component; a list only hides it.
            is_open = False
        if not is_open:
            yield Reason(kind="permission", guard=guard)
    if get_settings().list_filter == "scopes" and (
        lacking := missing(principal.scopes, component.scopes)
    ):
        yield Reason(kind="scopes", scopes=lacking)
