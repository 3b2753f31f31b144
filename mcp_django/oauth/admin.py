"""Admin of connected assistants, OAuth clients and upstream access.

Access can be revoked but not edited: a consent is the user's decision, not the administrator's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.models import DELETION
from django.contrib.admin.views.main import ChangeList
from django.contrib.auth import get_user_model
from django.db import models
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _, ngettext

from mcp_django.admin_base import (
    DelegationAdmin,
    NoEditAdmin,
    RevocableAdmin,
    described_choices,
    to_local_time,
)
from mcp_django.auth.endpoints import all_resources
from mcp_django.conf import get_settings
from mcp_django.oauth.clients import ClientDisplay, client_displays, site_scopes
from mcp_django.oauth.connections import last_uses
from mcp_django.oauth.models import ClientProfile, Consent, UpstreamGrant
from mcp_django.oauth.revoking import revoke_access, revoke_client, revoke_everything
from mcp_django.oauth.upstream import grants


@admin.register(Consent)
class ConsentAdmin(RevocableAdmin):
    """View, search and revoke the connected assistants of all users."""

    action_name, action_label = "revoke", _("Revoke access")
    confirmation_text = _(
        "Requests with the tokens of these connections will be rejected, and their open streams "
        "end in every process within seconds. The user has to connect the assistant again."
    )
    done_message = _("Access revoked.")
    log_flag = DELETION

    list_display = [
        "client_name",
        "user_link",
        "resource",
        "scope_list",
        "updated_at",
        "last_used",
    ]
    list_filter = ["resource", "updated_at"]
    linked_lookups = ("user__pk__exact",)
    list_select_related = ["user"]
    search_fields = ["client_id", "resource", "redirect_host"]
    date_hierarchy = "updated_at"
    actions = ["revoke", "revoke_users"]
    readonly_fields = [
        "client_name",
        "client_id",
        "user",
        "resource",
        "scope_list",
        "redirect_host",
        "created_at",
        "updated_at",
        "last_used",
    ]
    fields = tuple(readonly_fields)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Return false: a consent is the decision of its user."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return a changelist that loads the client and the last use of each row."""
        return _ConsentChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Consent], search_term: str
    ) -> tuple[QuerySet[Consent], bool]:
        """Search the ``USERNAME_FIELD`` of the user model as well."""
        rows, duplicates = super().get_search_results(request, queryset, search_term)
        if search_term:
            name = get_user_model().USERNAME_FIELD
            rows |= queryset.filter(**{f"user__{name}__icontains": search_term})
        return rows, duplicates

    @admin.display(description=_("client name"), ordering="client_id")
    def client_name(self, consent: Consent) -> str:
        """Return the client's name and its badge, which shows how the client was registered."""
        client = _client_display(consent)
        return f"{client.name} ({client.badge})"

    @admin.display(description=_("user"), ordering="user")
    def user_link(self, consent: Consent) -> str:
        """Return a link to all connected assistants of the user."""
        url = reverse(f"{self.admin_site.name}:mcp_oauth_consent_changelist")
        title = _("Access of this user")
        user = consent.user
        return format_html(
            '<a href="{}?user__pk__exact={}" title="{}">{}</a>', url, user.pk, title, user
        )

    @admin.display(description=_("last used"))
    def last_used(self, consent: Any) -> str:
        """Return when the client last called the server or got a token, to the minute."""
        loaded = vars(consent).get("last_uses")
        uses = last_uses([consent.user_id]) if loaded is None else loaded
        at = uses.get((consent.user_id, consent.client_id, consent.resource))
        return date_format(to_local_time(at), "SHORT_DATETIME_FORMAT") if at else ""

    @admin.display(description=_("scopes"))
    def scope_list(self, consent: Consent) -> str:
        """Return the scope names, separated by spaces."""
        return " ".join(consent.scopes)

    def describe_rows(self, rows: Iterable[Consent]) -> list[str]:
        """Return user, client and server of each row, for the confirmation page."""
        consents = list(rows)
        clients = client_displays({row.client_id for row in consents})
        return [f"{row.user}: {clients[row.client_id].name}, {row.resource}" for row in consents]

    def is_ended(self, row: Consent) -> bool:
        """Return false: revoking access deletes its row."""
        return False

    def end(self, request: HttpRequest, rows: Sequence[Consent]) -> None:
        """Revoke the access that the consents allow, which deletes them."""
        name = request.user.get_username()
        for row in rows:
            revoke_access(row.user, row.client_id, row.resource or None, request=request, by=name)

    @admin.action(description=_("Revoke access"), permissions=["end"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[Consent]) -> HttpResponse | None:
        """Revoke the access in the selected rows (a client, user and server each), if confirmed."""
        return self.end_selected(
            request,
            queryset,
            lambda n: ngettext(
                "Access revoked for %(n)d connection.", "Access revoked for %(n)d connections.", n
            ),
        )

    @admin.action(description=_("Revoke all access of these users"), permissions=["end"])
    def revoke_users(
        self, request: HttpRequest, queryset: QuerySet[Consent]
    ) -> HttpResponse | None:
        """Revoke the access of every client for the users in the selected rows, if confirmed."""
        users = {row.user for row in queryset.select_related("user")}
        rows = Consent.objects.filter(user__in=users).select_related("user")
        page = self.confirm_action(
            request,
            "revoke_users",
            [*queryset],
            shown=self.describe_rows(rows),
            question=self.confirmation_text,
        )
        if page is not None:
            return page
        self.log_deletions(request, rows)
        for user in users:
            revoke_everything(user, request=request, by=request.user.get_username())
        text = ngettext("Revoked for one user.", "Revoked for %(n)d users.", len(users))
        self.message_user(request, text % {"n": len(users)}, messages.SUCCESS)
        return None


class _KeysField(forms.JSONField):
    """A form field for a JSON Web Key Set, empty without keys."""

    def prepare_value(self, value: Any) -> Any:
        """Return the keys as JSON, an empty string without keys."""
        return "" if value is None else super().prepare_value(value)


class ClientProfileForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """The form of a client profile, with the scopes and servers of this site to select."""

    allowed_scopes = forms.MultipleChoiceField(
        label=_("Allowed scopes"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Without any, the scopes that the servers require of every caller."),
    )
    allowed_resources = forms.MultipleChoiceField(
        label=_("Allowed servers"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Leave empty for access to every server."),
    )

    # The servers of the site by their URLs, set on a subclass for each request.
    resources: ClassVar[Mapping[str, Any]] = {}

    class Meta:
        model = ClientProfile
        # The admin adds the other fields, with the form fields and widgets that it sets for each.
        fields = ["client_id"]
        field_classes: ClassVar[dict[str, Any]] = {"jwks": _KeysField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        described = {**site_scopes(), **get_settings().scopes}
        servers = {url: server.identity().get("title") for url, server in self.resources.items()}
        for name, labels in (("allowed_scopes", described), ("allowed_resources", servers)):
            if name not in self.fields:
                continue
            field: Any = self.fields[name]
            # Scopes and servers that the site no longer has stay selected until they are cleared.
            stored = [
                value for value in getattr(self.instance, name) or () if isinstance(value, str)
            ]
            field.choices = described_choices(dict.fromkeys((*labels, *stored)), labels)


@admin.register(ClientProfile)
class ClientProfileAdmin(DelegationAdmin):
    """Client profiles, which give machine clients their service account."""

    acts_as = "service_user"
    form = ClientProfileForm
    # Keys are fetched over HTTPS only.
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}
    list_display = ["client_name", "client_id", "service_user", "created_at", "last_used_at"]
    list_select_related = ["service_user"]
    search_fields = ["client_id"]
    raw_id_fields = ["service_user"]
    actions = ["revoke"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        """Return a changelist that loads the client of each row."""
        return _ClientChangeList

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the form class with the servers of the site, by their URLs in this request."""
        form = super().get_form(request, obj, *args, **kwargs)
        form.resources = all_resources(request)
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        """Return the fields; only an existing profile shows the name of its client."""
        client = ["client_id", "client_name"] if obj else ["client_id"]
        names = ("service_user", "allowed_scopes", "allowed_resources", "jwks", "jwks_url")
        return [*client, *names, "last_used_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return the read-only fields; the client of an existing profile cannot be changed."""
        return [*(["client_id", "client_name"] if obj else []), "last_used_at"]

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may delete consents, as revoking access does."""
        return bool(request.user.has_perm("mcp_oauth.delete_consent"))

    @admin.display(description=_("client name"))
    def client_name(self, profile: ClientProfile) -> str:
        """Return the name of the client."""
        return _client_display(profile).name

    @admin.action(description=_("Revoke access of all users"), permissions=["revoke"])
    def revoke(
        self, request: HttpRequest, queryset: QuerySet[ClientProfile]
    ) -> HttpResponse | None:
        """Revoke the access of the selected clients for all users, if confirmed."""
        rows = list(queryset)
        page = self.confirm_action(request, "revoke", rows, question=ConsentAdmin.confirmation_text)
        if page is not None:
            return page
        for row in rows:
            revoke_client(row.client_id, request=request, by=request.user.get_username())
            self.log_change(request, row, str(_("Revoked the access of all users.")))
        text = ngettext("Revoked for one client.", "Revoked for %(n)d clients.", len(rows))
        self.message_user(request, text % {"n": len(rows)}, messages.SUCCESS)
        return None


class _ClientChangeList(ChangeList):
    """A changelist that loads the clients of all rows on the page with one query."""

    def get_results(self, request: HttpRequest) -> None:
        """Load the rows of the page, then set ``party`` on each."""
        super().get_results(request)
        rows: list[Any] = list(self.result_list)
        clients = client_displays({row.client_id for row in rows})
        for row in rows:
            row.party = clients[row.client_id]
        self.result_list = rows


class _ConsentChangeList(_ClientChangeList):
    """A changelist that also loads the times of last use with two queries."""

    def get_results(self, request: HttpRequest) -> None:
        """Load the rows of the page, then set ``last_uses`` on each."""
        super().get_results(request)
        uses = last_uses({row.user_id for row in self.result_list})
        for row in self.result_list:
            row.last_uses = uses


def _client_display(row: Consent | ClientProfile) -> ClientDisplay:
    client: ClientDisplay | None = getattr(row, "party", None)
    return client or client_displays({row.client_id})[row.client_id]


@admin.register(UpstreamGrant)
class UpstreamGrantAdmin(NoEditAdmin):
    """Upstream access of all users; encrypted fields are not shown."""

    list_display = ["provider", "user", "subject", "status", "expires_at", "checked_at"]
    list_filter = ["provider", "status"]
    list_select_related = ["user"]
    search_fields = ["subject", "provider"]
    actions = ["disconnect"]
    fields = (
        *("provider", "user", "issuer", "subject", "scopes", "status", "last_error"),
        *("created_at", "authorized_at", "expires_at", "refresh_expires_at", "checked_at"),
    )

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Return ``False`` if no upstream provider is configured."""
        return bool(get_settings().oauth.upstream) and super().has_module_permission(request)

    def has_disconnect_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may delete upstream access, which also allows ending it."""
        return self.has_delete_permission(request)

    @admin.action(description=_("Disconnect"), permissions=["disconnect"])
    def disconnect(
        self, request: HttpRequest, queryset: QuerySet[UpstreamGrant]
    ) -> HttpResponse | None:
        """End the selected access, here and upstream, with the tokens based on it, if confirmed."""
        rows = list(queryset.select_related("user").filter(status=UpstreamGrant.Status.LIVE))
        question = _(
            "The access ends here and at the service, and the tokens of the assistants that depend "
            "on it will be rejected. The users have to connect again."
        )
        page = self.confirm_action(request, "disconnect", rows, question=question)
        if page is not None:
            return page
        for row in rows:
            self._disconnect(request, row)
            self.log_change(request, row, "Disconnected.")
        text = ngettext("Access ended.", "Access ended for %(n)d accounts.", len(rows)) % {
            "n": len(rows)
        }
        self.message_user(request, text, messages.SUCCESS)
        return None

    def delete_model(self, request: HttpRequest, obj: UpstreamGrant) -> None:
        """Delete the access, after ending it and every token that depends on it."""
        self._disconnect(request, obj)
        super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[UpstreamGrant]) -> None:
        """Delete several rows, after ending their access and every token that depends on it."""
        for row in queryset.select_related("user"):
            self._disconnect(request, row)
        super().delete_queryset(request, queryset)

    def _disconnect(self, request: HttpRequest, row: UpstreamGrant) -> None:
        if row.status == UpstreamGrant.Status.LIVE:
            reason = f"disconnected by {request.user.get_username()}"
            grants.disconnect_grant(row, reason=reason, request=request)
