"""Who is let in, in words for the owner of the site."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from django.core.management.base import CommandError

from mcp_django.auth.permissions import BasePermission, permissions
from mcp_django.auth.principal import Principal
from mcp_django.conf import get_settings
from mcp_django.core.component import Component
from mcp_django.exceptions import AccessRefused, MCPError
from mcp_django.execution.policy import admit_connection, visible
from mcp_django.management.command_errors import SEE_WHERE, name_and_text, text_of
from mcp_django.management.offering import guards_of_server, is_offered
from mcp_django.server import MCPServer


def guard_names(declared: object) -> list[str]:
    """What was declared as a permission, by the names of its parts."""
    return [_guard_name(one) for one in permissions(declared)]


def _guard_name(guard: BasePermission) -> str:
    return text_of(guard) or type(guard).__name__


def may_enter(server: MCPServer, principal: Principal) -> bool:
    """Whether a caller gets past the door of a server.

    Raises:
        CommandError: a permission of the server fails.
    """
    try:
        with naming_permissions(server, None, principal):
            admit_connection(server, principal)
    except AccessRefused:
        return False
    return True


def may_see(server: MCPServer, component: Component, principal: Principal) -> bool:
    """Whether a caller whom the server lets in is told that a component exists.

    Raises:
        CommandError: a permission of the component fails, beyond closing it.
    """
    with naming_permissions(server, component, principal):
        return visible(principal, component)


@contextmanager
def naming_permissions(
    server: MCPServer, component: Component | None, principal: Principal
) -> Iterator[None]:
    """Name the permission that an exception comes from."""
    try:
        yield
    except (AccessRefused, MCPError):
        raise
    except Exception as exc:
        if failed := failed_permission(server, component, principal):
            raise failed from exc
        raise


def failed_permission(
    server: MCPServer, component: Component | None, principal: Principal
) -> CommandError | None:
    """Return the error that names the first permission which fails for this caller, if one does."""
    owners = [(f"server {server.name!r}", guards_of_server(server))]
    owners += [(str(component), (component.permission,))] if component is not None else []
    for owner, declared in owners:
        for guard, exc in _refusals(declared, principal):
            if exc is not None:
                name = _guard_name(guard)
                return CommandError(
                    f"The permission {name} of the {owner} raised {name_and_text(exc)}\n{SEE_WHERE}"
                )
    return None


def _refusals(
    declared: object, principal: Principal
) -> Iterator[tuple[BasePermission, Exception | None]]:
    """Return the permissions that do not say yes, each with what it raised if it failed."""
    for guard in permissions(declared):
        try:
            if not guard.has_permission(principal):
                yield guard, None
        except (AccessRefused, MCPError):
            yield guard, None
        except Exception as exc:  # noqa: BLE001  # the site's own code, which is named
            yield guard, exc


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
    if may_enter(server, principal) and may_see(server, component, principal):
        return Verdict(is_visible=True)
    guards = (*permissions(guards_of_server(server)), *permissions(component.permission))
    refusing = [
        _guard_name(guard) + (f", which raised {name_and_text(exc)}" if exc is not None else "")
        for guard, exc in _refusals(guards, principal)
    ]
    return Verdict(is_visible=False, refused_by=tuple(dict.fromkeys(refusing or ["LIST_FILTER"])))
