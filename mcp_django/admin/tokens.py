"""Access tokens, the security log and external identities in the admin.

A token is created here and shown once. Afterwards it can be viewed without its secret and revoked,
but not deleted. The security log is read-only.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _, ngettext
from django.views.decorators.debug import sensitive_variables

from mcp_django.admin.base import ConditionFilter, server_choices, short_time, time_column
from mcp_django.admin_base import (
    DelegationAdmin,
    ReadOnlyAdmin,
    RevocableAdmin,
    described_choices,
    may_delegate_access,
)
from mcp_django.auth import security_log
from mcp_django.auth.principal import find_user_by_name
from mcp_django.conf import get_settings
from mcp_django.models import TOKEN_PREFIX, AccessToken, AuthEvent, ExternalIdentity
from mcp_django.models.calls import new_code
from mcp_django.models.tokens import validate_networks
from mcp_django.server import all_servers
from mcp_django.storage import databases


def _scope_choices() -> list[tuple[str, str]]:
    """Return the scopes that settings describe, and those that a server or component requires."""
    described = get_settings().scopes
    scopes = set(described)
    for server in all_servers():
        server.refresh()
        scopes.update(server.scopes)
        for component in server.catalog:
            scopes.update(component.scopes)
    return described_choices(sorted(scopes), described)


class LabeledDateTime(AdminSplitDateTime):
    """A date and time widget that labels both inputs; Django only shows text beside them."""

    def __init__(self, attrs: Any = None) -> None:
        super().__init__(attrs)
        for widget, label in zip(self.widgets, (_("Date"), _("Time")), strict=True):
            widget.attrs["aria-label"] = label


DEFAULT_LIFETIME = timedelta(days=90)
"""The lifetime that the form of a new token suggests."""


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]  # generic in the stubs only
    """The data of a new token; ``AccessTokenAdmin.save_model`` creates the token itself."""

    username = forms.CharField(
        label=_("User"), help_text=_("Clients with this token act as this user.")
    )
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=_scope_choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Without a scope, the token gives access to what requires no scope."),
    )
    servers = forms.MultipleChoiceField(
        label=_("Servers"),
        choices=server_choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Leave empty for access to every server."),
    )
    networks = forms.CharField(
        label=_("Networks"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 40}),
        help_text=_(
            "The networks that requests may come from, such as 192.0.2.0/24, one per line. Leave "
            "empty to allow any."
        ),
    )
    expires_at = forms.SplitDateTimeField(
        label=_("Expires"),
        required=False,
        initial=lambda: (timezone.now() + DEFAULT_LIFETIME).replace(
            minute=0, second=0, microsecond=0
        ),
        widget=LabeledDateTime,
        help_text=_("Leave empty for a token that never expires."),
    )

    # Identifies the form, which creates one token only: reloading the saved page submits it again.
    once = forms.CharField(
        required=False, max_length=64, initial=new_code, widget=forms.HiddenInput
    )

    # The requesting user, set on a subclass for each request.
    by: Any = None

    class Meta:
        model = AccessToken
        fields = ["username", "name", "scopes", "servers", "networks", "expires_at"]

    def clean_username(self) -> str:
        """Return the name of a user for whom the requesting user may create a token.

        Raises:
            ValidationError: no user with this name may be chosen; whether the name exists is not
                revealed.
        """
        name = str(self.cleaned_data["username"])
        self.user = find_user_by_name(name)
        if (
            self.user is None
            or not self.user.is_active
            or not may_delegate_access(self.by, self.user)
        ):
            raise forms.ValidationError(
                _("No user with this name exists whom you may create a token for.")
            )
        return name

    def clean_networks(self) -> list[str]:
        """Return the networks as a list.

        Raises:
            ValidationError: one of them is not a valid network.
        """
        networks = str(self.cleaned_data["networks"]).split()
        validate_networks(networks)
        return networks

    def clean_expires_at(self) -> Any:
        """Return the time of expiry, if any.

        Raises:
            ValidationError: it is in the past.
        """
        moment = self.cleaned_data["expires_at"]
        if moment is not None and moment <= timezone.now():
            raise forms.ValidationError(_("This time is in the past."))
        return moment


# How long a submitted form is remembered, so that submitting it again creates no other token.
FORM_SECONDS = 24 * 3600


class TokenStateFilter(ConditionFilter):
    """A filter by active tokens, or by the reason why a token is not active."""

    title = _("state")
    parameter_name = "state"

    def conditions(self) -> dict[str, tuple[Any, Q]]:
        """Return the states."""
        revoked, inactive = Q(revoked_at__isnull=False), Q(user__is_active=False)
        # For a token that never expires, the comparison alone is NULL: neither true nor false.
        expired = Q(expires_at__isnull=False, expires_at__lte=timezone.now())
        return {
            "active": (_("active"), ~revoked & ~expired & ~inactive),
            "expired": (_("expired"), ~revoked & expired),
            "revoked": (_("revoked"), revoked),
            "inactive": (_("user inactive"), ~revoked & inactive),
        }


class _DuplicateSubmission(Exception):
    """The form was submitted before."""


@admin.register(AccessToken)
class AccessTokenAdmin(RevocableAdmin):
    """The access tokens of all users: view, create, revoke."""

    action_name, action_label = "revoke", _("Revoke")
    confirmation_text = _(
        "Requests with this token will be rejected, and its open streams end in every "
        "process within seconds. A revoked token cannot be restored."
    )
    done_message = _("Revoked.")

    form = TokenForm
    list_display = [
        *("name", "state", "masked", "user", "scope_list", "server_list"),
        *(time_column("last_used_at", _("last used")), "expires"),
    ]
    list_filter = [TokenStateFilter, "created_at"]
    list_select_related = ["user"]
    show_full_result_count = False
    actions = ["revoke"]
    add_fields = ("username", "name", "scopes", "servers", "networks", "expires_at", "once")
    shown_fields = (
        "name",
        "masked",
        "user",
        "state",
        "scope_list",
        "server_list",
        "network_list",
        "created_at",
        "last_used_at",
        "expires_at",
        "revoked_at",
    )

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return the fields of the add form, or those shown of an existing token."""
        return self.add_fields if obj is None else self.shown_fields

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Return the name of the token and the username field; never the secret."""
        return ["name", f"user__{get_user_model().USERNAME_FIELD}"]

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the form class with the requesting user."""
        form_class = super().get_form(request, obj, *args, **kwargs)
        return type(form_class.__name__, (form_class,), {"by": request.user})

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show the form with one save button; a form that is submitted again creates nothing."""
        context = {"show_save_and_add_another": False, "show_save_and_continue": False}
        try:
            return super().add_view(request, form_url, {**context, **(extra_context or {})})
        except _DuplicateSubmission:
            message = _(
                "This form was submitted before: its token was created and shown once. If you did "
                "not copy it, revoke it and create another."
            )
            self.message_user(request, message, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())

    @sensitive_variables("plaintext")
    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Create the token; its plaintext is only in memory, until the response is sent.

        Raises:
            _DuplicateSubmission: the form was submitted before.
        """
        data = form.cleaned_data
        if data["once"] and not databases.take_lease(f"token:{data['once']}", seconds=FORM_SECONDS):
            raise _DuplicateSubmission
        token, plaintext = AccessToken.objects.issue(
            form.user,
            name=data["name"],
            scopes=data["scopes"],
            servers=data["servers"],
            networks=data["networks"],
            expires=data["expires_at"],
        )
        obj.pk = token.pk
        obj.refresh_from_db()
        obj.plaintext = plaintext
        security_log.record_token_event(
            AuthEvent.Kind.ISSUE, token, by=request.user.get_username(), request=request
        )

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """Return the only page that shows the token."""
        response = self.render_page(
            request,
            "token_issued",
            _("Access token"),
            token=obj,
            plaintext=obj.plaintext,
            may_view=self.has_view_permission(request),
        )
        response["Cache-Control"] = "no-store, private"
        response["Referrer-Policy"] = "no-referrer"
        return response

    def end(self, request: HttpRequest, rows: Sequence[AccessToken]) -> None:
        """Revoke the tokens; saving notifies every process after the transaction commits."""
        for token in rows:
            token.revoke()
            security_log.record_token_event(
                AuthEvent.Kind.REVOKE, token, by=request.user.get_username(), request=request
            )

    def is_ended(self, row: AccessToken) -> bool:
        """Return whether the token was revoked; an expired one can be revoked too."""
        return row.revoked_at is not None

    @admin.action(description=_("Revoke selected tokens"), permissions=["end"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AccessToken]) -> HttpResponse | None:
        """Ask for confirmation, then revoke the selected tokens."""
        return self.end_selected(
            request,
            queryset,
            lambda n: ngettext("%(n)d token was revoked.", "%(n)d tokens were revoked.", n),
        )

    @admin.display(description=_("token"))
    def masked(self, token: AccessToken) -> str:
        """Return the token with its middle masked."""
        return f"{TOKEN_PREFIX}…{token.hint}"

    @admin.display(description=_("scopes"))
    def scope_list(self, token: AccessToken) -> str:
        """Return the scopes, separated by spaces."""
        return " ".join(token.scopes) or gettext("no scopes")

    @admin.display(description=_("servers"))
    def server_list(self, token: AccessToken) -> str:
        """Return the servers that the token gives access to."""
        return ", ".join(token.servers) or gettext("all servers")

    @admin.display(description=_("networks"))
    def network_list(self, token: AccessToken) -> str:
        """Return the networks that requests may come from."""
        return ", ".join(token.networks) or gettext("any network")

    @admin.display(description=_("expires"), ordering="expires_at")
    def expires(self, token: AccessToken) -> str:
        """Return when the token expires."""
        return gettext("never") if token.expires_at is None else short_time(token.expires_at)

    @admin.display(description=_("state"))
    def state(self, token: AccessToken) -> str:
        """Return whether the token is active, or why it is not."""
        if token.revoked_at is not None:
            return gettext("revoked")
        if not token.user.is_active:
            return gettext("user inactive")
        return gettext("active") if token.is_usable else gettext("expired")


# Security log and external identities -------------------------------------------------------------


@admin.register(AuthEvent)
class AuthEventAdmin(ReadOnlyAdmin):
    """The security log, read-only; rows are pruned by age alone."""

    list_display = [
        time_column("at", _("time")),
        *("kind", "username", "client_id", "server", "address"),
    ]
    list_filter = ["kind", "at"]
    fields = ["kind", "at", "user", "username", "client_id", "server", "address", "details"]
    readonly_fields = ["at"]
    search_fields = ["username", "client_id", "address"]
    date_hierarchy = "at"
    # Counting millions of rows for each page is too expensive.
    show_full_result_count = False


@admin.register(ExternalIdentity)
class ExternalIdentityAdmin(DelegationAdmin):
    """The subjects of external issuers, each with the user of this site as whom it acts."""

    acts_as = "user"
    list_display = ["subject", "issuer", "user", "created_at", "last_used_at"]
    list_filter = ["issuer"]
    list_select_related = ["user"]
    search_fields = ["subject", "issuer"]
    raw_id_fields = ["user"]
    readonly_fields = ["last_used_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Make issuer and subject read-only in a row: another subject needs its own row."""
        return [*(["issuer", "subject"] if obj else []), *self.readonly_fields]
