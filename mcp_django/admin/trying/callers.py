"""Who tries: whoever is signed in, or another user by a permission of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.utils.translation import gettext as _

from mcp_django.auth.principal import Principal, principal_for, user_named

AS_ANOTHER = "mcp_django.try_as_another"


class NoSuchUser(Exception):
    """There is none that may be tried as; the text is for the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who calls, and who really does: ``acting`` is empty for oneself."""

    principal: Principal
    name: str
    acting: str = ""


def caller_for(request: HttpRequest, username: str) -> Caller:
    """The caller of this name; oneself without one.

    Raises:
        PermissionDenied: somebody else was named without the permission for that.
        NoSuchUser: nobody, nobody that is let in, or somebody who may more than that.
    """
    me: Any = request.user
    my_name = me.get_username()
    if not username or username == my_name:
        return Caller(principal=principal_for(me), name=my_name)
    if not may_act_as_others(request):
        raise PermissionDenied
    user = user_named(username)
    # An administrator and nobody look alike: whoever has a single permission learns of no other.
    if user is None or not user.is_active or (user.is_superuser and not me.is_superuser):
        raise NoSuchUser(_("There is no user “%s” to try as.") % username)
    return Caller(principal=principal_for(user), name=user.get_username(), acting=my_name)


def may_act_as_others(request: HttpRequest) -> bool:
    """Whether whoever is signed in may try as another user."""
    user: Any = request.user
    return bool(user.has_perm(AS_ANOTHER))
