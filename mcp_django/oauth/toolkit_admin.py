"""Admin classes for the toolkit's models, with the permission checks of ``DelegationAdmin``.

With the toolkit's own classes, a staff user who may change access tokens can assign a token to a
superuser, and a staff user who may change applications can set the secret of a machine client.

``provider_settings()`` configures these classes. Only the toolkit imports this module, when it
registers its models; importing it earlier would be a circular import.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext as _
from oauth2_provider import admin as toolkit

from mcp_django.admin_base import DelegationAdmin, MCPModelAdmin, may_delegate_access
from mcp_django.oauth.models import ClientProfile


class _UserAdmin(DelegationAdmin):
    """Rows that act as their user; revoking them requires the change permission."""

    acts_as = "user"

    def get_actions(self, request: HttpRequest, action_location: Any = None) -> dict[str, Any]:
        """Return the actions, without the toolkit's revocation if the user may only view rows."""
        # Django 6.1 passes a location; it deprecates overrides that do not pass it on.
        where = {} if action_location is None else {"action_location": action_location}
        actions: dict[str, Any] = super().get_actions(request, **where)
        if not self.has_change_permission(request):
            actions.pop("revoke_tokens", None)
        return actions


class AccessTokenAdmin(_UserAdmin, toolkit.AccessTokenAdmin):  # type: ignore[misc]  # has no types
    """Access tokens."""


class RefreshTokenAdmin(_UserAdmin, toolkit.RefreshTokenAdmin):  # type: ignore[misc]  # has no types
    """Refresh tokens."""


class GrantAdmin(_UserAdmin, toolkit.GrantAdmin):  # type: ignore[misc]  # has no types
    """Authorization codes."""


class IDTokenAdmin(_UserAdmin, toolkit.IDTokenAdmin):  # type: ignore[misc]  # has no types
    """OpenID Connect ID tokens."""


class ApplicationAdmin(MCPModelAdmin, toolkit.ApplicationAdmin):  # type: ignore[misc]  # likewise
    """Clients; changing a machine client requires the right to give access to its account."""

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return whether the user may change clients and give access to this client's account."""
        may: bool = super().has_change_permission(request, obj)
        return may and (obj is None or _may_manage_client(request.user, obj.client_id))

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the form class, with the requesting user as ``by``."""
        base = super().get_form(request, obj, *args, **kwargs)
        return type(base.__name__, (_ApplicationForm, base), {"by": request.user})


class _ApplicationForm:
    """Reject a client id whose service account the user may not give access to."""

    by: Any

    def clean(self) -> Any:
        cleaned = super().clean()  # type: ignore[misc]  # of the model form
        client_id = self.cleaned_data.get("client_id")  # type: ignore[attr-defined]
        if client_id and not _may_manage_client(self.by, client_id):
            text = _("This client acts as an account with permissions that you do not have.")
            self.add_error("client_id", text)  # type: ignore[attr-defined]
        return cleaned


def _may_manage_client(by: Any, client_id: str) -> bool:
    profile = ClientProfile.of_client(client_id)
    user = profile.service_user if profile else None
    return user is None or may_delegate_access(by, user)
