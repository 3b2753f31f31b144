"""Who is let in, in words for the owner of the site."""

from __future__ import annotations

from dataclasses import dataclass

from mcp_django.auth.permissions import permissions
from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.conf import get_settings
from mcp_django.exceptions import AccessRefused
from mcp_django.management.offering import guards_of_server, is_offered
from mcp_django.runtime.policy import admit_connection, visible
from mcp_django.server import MCPServer


def guard_names(declared: object) -> list[str]:
    """What was declared as a permission, by the names of its parts."""
    return [str(one) for one in permissions(declared)]


def may_enter(server: MCPServer, principal: Principal) -> bool:
    """Whether a caller gets past the door of a server."""
    try:
        admit_connection(server, principal)
    except AccessRefused:
        return False
    return True


def audience(server: MCPServer, component: Component) -> str:
    """Who may see a component, as one sentence."""
    of_server = guard_names(guards_of_server(server))
    needed = list(dict.fromkeys(of_server + guard_names(component.permission)))
    needed = [name for name in needed if name != "AllowAny"]
    who = f"callers that pass {' and '.join(needed)}" if needed else "everybody"
    if not component.scopes:
        return f"Seen and used by {who}."
    scopes = " ".join(component.scopes)
    if get_settings().list_filter == "scopes":
        return f"Seen and used by {who}, with a credential that holds: {scopes}."
    return f"Seen by {who}; used with a credential that holds: {scopes}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one caller may see a component, and what says no."""

    is_visible: bool
    refused_by: tuple[str, ...] = ()


def verdict(server: MCPServer, component: Component, principal: Principal) -> Verdict:
    """What the policy says of one caller and one component."""
    if not server.offered.is_enabled or not is_offered(server, component):
        return Verdict(is_visible=False, refused_by=("the admin, where it is switched off",))
    if may_enter(server, principal) and visible(principal, component):
        return Verdict(is_visible=True)
    guards = (*permissions(guards_of_server(server)), *permissions(component.permission))
    refusing = [str(one) for one in guards if not one.has_permission(principal)]
    return Verdict(is_visible=False, refused_by=tuple(dict.fromkeys(refusing or ["LIST_FILTER"])))
