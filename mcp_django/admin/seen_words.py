"""Reasons in words for the owner of the site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from django.utils.translation import gettext as _

from mcp_django.auth.permissions import BasePermission, HasCodename, InGroups, IsAuthenticated
from mcp_django.auth.principal import Principal, missing
from mcp_django.core.component import Component
from mcp_django.core.tool import Tool
from mcp_django.execution.policy import Reason


def reasons_in_words(reasons: Iterable[Reason], principal: Principal) -> Iterator[str]:
    """A sentence for each reason."""
    for reason in reasons:
        if reason.kind == "disabled":
            yield _("The server is switched off in the admin.")
        elif reason.kind == "rule":
            yield _("OAUTH['CAN_CONNECT'] refuses this user with this client.")
        elif reason.kind == "scopes":
            text = _("The token lacks the scopes: %(scopes)s.")
            yield text % {"scopes": " ".join(reason.scopes)}
        elif reason.guard is not None:
            yield _guard_in_words(reason.guard, principal)


def _guard_in_words(guard: BasePermission, principal: Principal) -> str:
    if not principal.is_authenticated and isinstance(guard, IsAuthenticated):
        return _("Credentials are needed (%(guard)s).") % {"guard": guard}
    if isinstance(guard, InGroups):
        names = ", ".join(sorted(guard.names))
        return _("The user is in none of the groups: %(names)s.") % {"names": names}
    if isinstance(guard, HasCodename):
        return _("The user lacks the permission %(codename)s.") % {"codename": guard.codename}
    return _("The permission %(guard)s says no.") % {"guard": guard}


def needs_in_words(component: Component, principal: Principal) -> Iterator[str]:
    """What a call would still need of somebody who sees the component."""
    if lacking := missing(principal.scopes, component.scopes):
        if principal.is_authenticated:
            text = _("a token with the scopes: %(scopes)s")
        else:
            text = _("credentials with the scopes: %(scopes)s")
        yield text % {"scopes": " ".join(lacking)}
    if component.needs:
        yield _("a client that can: %(needs)s") % {"needs": ", ".join(component.needs)}
    if isinstance(component, Tool) and component.task == "required" and not component.handle:
        yield _("a client that can follow tasks")
    if isinstance(component, Tool) and component.approval == "caller":
        yield _("the approval of the caller, for each call")
    elif isinstance(component, Tool) and component.approval == "staff":
        yield _("the approval of staff, for each call")
