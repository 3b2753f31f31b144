"""Access decisions: who may connect to a server, see a component and use it.

This is the one place that decides it. ``visible`` answers for lists, completion and
subscriptions, ``admit`` for use. A component that the caller may not see answers exactly like one
that does not exist, and asks the database the same: in both cases the permissions of all
components of the kind are asked.

A decision is made by the first ``Reason`` against it; code that explains a decision to the site
owner asks for all reasons. So the two cannot disagree.
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
    """Let a caller connect to a server.

    Who comes with an OAuth token has to have the server's own scopes as well; other credentials
    know nothing of them.

    Raises:
        AuthenticationRequired: the server wants to know who is calling.
        ConnectionRefused: it knows, and this caller may not come in; or its owner switched it off.
        InsufficientScope: the caller may, the token may not; names all scopes of the server.
    """
    reason = next(barriers(server, principal), None)
    if reason is None:
        return
    if reason.kind == "disabled":
        raise ConnectionRefused("This server is switched off.")
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
    """Whether the caller may know that the component exists."""
    return next(hindrances(principal, component, verdicts=verdicts), None) is None


def admit(
    principal: Principal,
    component: Component | None,
    *,
    among: Iterable[Component] = (),
    entry: Entry | None = None,
    verdicts: Verdicts | None = None,
) -> bool:
    """Whether the caller may use the component; ``False`` means: answer as if it did not exist.

    ``None`` stands for one that does not. Neither is told from the other by its time, as the
    permissions of all ``among`` which the caller looked are asked then. The ``entry`` in the call
    log learns why.

    Raises:
        AuthenticationRequired: the caller has no credentials, and one might be let in with them.
        InsufficientScope: the caller may, the credential may not; names every scope needed.
    """
    verdicts = verdicts or Verdicts(principal)
    if component is None:
        verdicts.ask_all(among)
        logger.info("%s asked for something that is not there.", principal.key)
        return False
    guards = permissions(component.permission)
    refusing = next((one for one in guards if not verdicts.holds(one, component)), None)
    if refusing is not None:
        verdicts.ask_all(among)
        # The caller must not learn of it; the owner, who wonders why, may.
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
    """Whether the server lets in everybody, and asks no database about it."""
    guards = (*permissions(server.permission), *server.offered.guards)
    return all(type(guard) is AllowAny for guard in guards)


def depends_on_caller(server: Server, component: Component) -> bool:
    """Whether an answer may differ between callers, and so must not be cached publicly (CCH-3)."""
    return not is_open(server) or component.permission is not None or bool(component.scopes)


# Reasons for a denial -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that stands in the way.

    ``disabled``: the server is switched off. ``permission``: ``guard`` says no. ``rule``:
    ``OAUTH["CAN_CONNECT"]`` does. ``scopes``: the credential lacks ``scopes``.
    """

    kind: Literal["disabled", "permission", "rule", "scopes"]
    guard: BasePermission | None = None
    scopes: tuple[str, ...] = ()


def barriers(server: Server, principal: Principal) -> Iterator[Reason]:
    """What keeps a caller out of a server, nothing if he may enter; one after the other is asked.

    Raises:
        AccessRefused: a permission refuses in words of its own.
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
    """What permissions say of one caller in one request: each is asked once."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        # With the permission itself, whose id no other one gets meanwhile.
        self._known: dict[int, tuple[BasePermission, bool | Exception]] = {}

    def holds(self, guard: BasePermission, component: Component) -> bool:
        """Whether a permission says yes; one that fails closes its own component and no other.

        Raises:
            AccessRefused: it refuses in words of its own, as by ``MCPError``.
        """
        if id(guard) not in self._known:
            self._known[id(guard)] = guard, self._ask(guard, component)
        said = self._known[id(guard)][1]
        if isinstance(said, Exception):
            raise said
        return said

    def ask_all(self, components: Iterable[Component]) -> None:
        """Ask the permissions of all of these, for the time and the queries that it takes."""
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
            logger.exception("The %s is hidden, as %s failed.", component, guard)
            return False


def hindrances(
    principal: Principal, component: Component, *, verdicts: Verdicts | None = None
) -> Iterator[Reason]:
    """What hides a component from a caller, nothing if he may know of it."""
    verdicts = verdicts or Verdicts(principal)
    for guard in permissions(component.permission):
        try:
            is_open = verdicts.holds(guard, component)
        except (AccessRefused, MCPError):
            # A refusal of its own belongs to a use; in a list it is a no.
            is_open = False
        if not is_open:
            yield Reason(kind="permission", guard=guard)
    if get_settings().list_filter == "scopes" and (
        lacking := missing(principal.scopes, component.scopes)
    ):
        yield Reason(kind="scopes", scopes=lacking)
