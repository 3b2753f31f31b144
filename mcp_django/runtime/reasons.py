"""Why a caller may not enter a server, and why a component is hidden from him.

``policy`` decides by the first reason there is; whoever explains a decision to the owner of the
site asks for all of them. So the two cannot disagree.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from mcp_django.auth.permissions import BasePermission, approves, permissions
from mcp_django.auth.principal import Principal, missing
from mcp_django.conf import get_settings
from mcp_django.core.catalog import Server
from mcp_django.core.component import Component
from mcp_django.exceptions import AccessRefused, MCPError

logger = logging.getLogger("mcp_django")


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
