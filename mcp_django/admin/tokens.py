"""Access tokens, the security log and external identities in the admin.

A token is made here and shown once. Afterwards it is looked at without its secret, and revoked,
never deleted. The security log is read-only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.widgets import AdminSplitDateTime
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.translation import gettext as _now, gettext_lazy as _, ngettext
from django.views.decorators.debug import sensitive_variables

from mcp_django.admin_base import ActingAdmin, EndingAdmin, ReadOnlyAdmin, may_give_access
from mcp_django.auth import security_log
from mcp_django.auth.principal import user_named
from mcp_django.conf import get_settings
from mcp_django.models import TOKEN_PREFIX, AccessToken, AuthEvent, ExternalIdentity
from mcp_django.models.calls import new_code
from mcp_django.models.tokens import validate_networks
from mcp_django.server import all_servers
from mcp_django.storage import databases

# The form that makes a token ----------------------------------------------------------------------

if TYPE_CHECKING:
    _ModelForm = forms.ModelForm[AccessToken]
else:
    _ModelForm = forms.ModelForm


def _server_choices() -> list[tuple[str, str]]:
    """The servers of the site."""
    return [(one.name, one.name) for one in all_servers()]


def _scope_choices() -> list[tuple[str, Any]]:
    """The scopes that settings describe, and those that anything of this site asks for."""
    described = get_settings().scopes
    return [(scope, _described(scope, described)) for scope in sorted({*described, *_asked_for()})]


def _described(scope: str, described: dict[str, str]) -> str:
    return f"{scope}: {described[scope]}" if described.get(scope) else scope


def _asked_for() -> Iterator[str]:
    for server in all_servers():
        server.refresh()
        yield from server.scopes
        for component in server.offered:
            yield from component.scopes


class LabeledDateTime(AdminSplitDateTime):
    """A date and a time, each with a name of its own; Django writes theirs only beside them."""

    def __init__(self, attrs: Any = None) -> None:
        super().__init__(attrs)
        for widget, label in zip(self.widgets, (_("Date"), _("Time")), strict=True):
            widget.attrs["aria-label"] = label


class TokenForm(_ModelForm):
    """What a new token is good for; the token itself is made where it is saved."""

    username = forms.CharField(
        label=_("User"), help_text=_("Whoever has the token acts as this user.")
    )
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=_scope_choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Without any, it opens what asks for none."),
    )
    servers = forms.MultipleChoiceField(
        label=_("Servers"),
        choices=_server_choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Without any, it opens every server."),
    )
    networks = forms.CharField(
        label=_("Networks"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 40}),
        help_text=_(
            "The addresses it may come from, such as 192.0.2.0/24, one in each line; none: any."
        ),
    )
    expires_at = forms.SplitDateTimeField(
        label=_("Expires"),
        required=False,
        widget=LabeledDateTime,
        help_text=_("Empty: never."),
    )

    # The form is good for one token: a page that is loaded again sends it again.
    once = forms.CharField(
        required=False, max_length=64, initial=new_code, widget=forms.HiddenInput
    )

    # Who fills it in; a class of its own for each request has it.
    by: Any = None

    class Meta:
        model = AccessToken
        fields = ["username", "name", "scopes", "servers", "networks", "expires_at"]

    def clean_username(self) -> str:
        """The name of a user whom one may make a token for.

        Raises:
            ValidationError: there is none; it is not said whether such a user exists.
        """
        name = str(self.cleaned_data["username"])
        self.user = user_named(name)
        if self.user is None or not self.user.is_active or not may_give_access(self.by, self.user):
            raise forms.ValidationError(
                _("There is no user of this name whom you may make a token for.")
            )
        return name

    def clean_networks(self) -> list[str]:
        """The networks as a list.

        Raises:
            ValidationError: one is none.
        """
        networks = str(self.cleaned_data["networks"]).split()
        validate_networks(networks)
        return networks

    def clean_expires_at(self) -> Any:
        """A moment that is yet to come, if any.

        Raises:
            ValidationError: it is past.
        """
        moment = self.cleaned_data["expires_at"]
        if moment is not None and moment <= timezone.now():
            raise forms.ValidationError(_("This moment is past."))
        return moment


# Tokens -------------------------------------------------------------------------------------------

# How long a page that was sent may be loaded again without making another token.
FORM_SECONDS = 24 * 3600


class StateFilter(admin.SimpleListFilter):
    """Tokens that open something, and the others by the reason why they do not."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """The states."""
        return [
            ("usable", _("usable")),
            ("expired", _("expired")),
            ("revoked", _("revoked")),
            ("inactive", _("user inactive")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The tokens of one state."""
        revoked, expired = Q(revoked_at__isnull=False), Q(expires_at__lte=timezone.now())
        inactive = Q(user__is_active=False)
        conditions = {
            "usable": ~revoked & ~_expired() & ~inactive,
            "expired": ~revoked & expired,
            "revoked": revoked,
            "inactive": ~revoked & inactive,
        }
        state = self.value()
        return queryset.filter(conditions[state]) if state in conditions else queryset


def _expired() -> Q:
    # Spelled out for the tokens that never expire, whose comparison is neither true nor false.
    return Q(expires_at__isnull=False, expires_at__lte=timezone.now())


class _MadeAlready(Exception):
    """A form was sent again."""


@admin.register(AccessToken)
class AccessTokenAdmin(EndingAdmin):
    """Everybody's access tokens: look, make, revoke."""

    word, word_label = "revoke", _("Revoke")
    question = _(
        "Requests that carry it are refused from now on, and its open streams end in every "
        "process within seconds. A revoked token never comes back."
    )
    done = _("Revoked.")

    form = TokenForm
    list_display = [
        "name",
        "masked",
        "user",
        "scope_list",
        "server_list",
        "network_list",
        "created_at",
        "last_used_at",
        "expires_at",
        "state",
    ]
    list_filter = [StateFilter, "created_at"]
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
        """What a new one is asked, or what there is to see of one."""
        return self.add_fields if obj is None else self.shown_fields

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """All there is of one that was made."""
        return () if obj is None else self.shown_fields

    def get_search_fields(self, request: HttpRequest) -> list[str]:
        """Its name and its user's, whatever the user model calls that; never the secret."""
        return ["name", f"user__{get_user_model().USERNAME_FIELD}"]

    def get_form(self, request: HttpRequest, obj: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The form, which knows who fills it in."""
        made = super().get_form(request, obj, *args, **kwargs)
        return type(made.__name__, (made,), {"by": request.user})

    # Making -----------------------------------------------------------------------------------

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """The form with one button, since one page follows it; sent again, it makes nothing."""
        plain = {"show_save_and_add_another": False, "show_save_and_continue": False}
        try:
            return super().add_view(request, form_url, {**plain, **(extra_context or {})})
        except _MadeAlready:
            said = _(
                "This form was sent before: its token was made then and shown once. If you did "
                "not copy it, revoke it and make another."
            )
            self.message_user(request, said, messages.WARNING)
            return HttpResponseRedirect(request.get_full_path())

    @sensitive_variables("plaintext")
    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: Any) -> None:
        """Make the token; its plaintext is in memory until the page is sent, and nowhere else.

        Raises:
            _MadeAlready: the form was sent before.
        """
        data = form.cleaned_data
        if data["once"] and not databases.take(f"token:{data['once']}", seconds=FORM_SECONDS):
            raise _MadeAlready
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
        self._record(AuthEvent.Kind.ISSUE, request, token)

    def response_add(
        self, request: HttpRequest, obj: Any, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The one page that shows the token."""
        context = {
            **self.admin_site.each_context(request),
            "title": _("Access token"),
            "opts": self.opts,
            "token": obj,
            "plaintext": obj.plaintext,
            "may_view": self.has_view_permission(request),
        }
        return TemplateResponse(
            request,
            "admin/mcp_django/token_issued.html",
            context,
            headers={"Cache-Control": "no-store, private", "Referrer-Policy": "no-referrer"},
        )

    # Revoking ---------------------------------------------------------------------------------

    def end(self, request: HttpRequest, rows: Sequence[AccessToken]) -> None:
        """Revoke them; saving tells every process once the transaction is through."""
        for token in rows:
            token.revoke()
            self._record(AuthEvent.Kind.REVOKE, request, token)

    def is_over(self, row: AccessToken) -> bool:
        """Whether it was revoked; an expired one may be revoked too."""
        return row.revoked_at is not None

    @admin.action(description=_("Revoke the chosen tokens"), permissions=["end"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[AccessToken]) -> None:
        """End what the chosen tokens open."""
        n = self.end_and_log(request, list(queryset.select_related("user")))
        text = ngettext("%(n)d token was revoked.", "%(n)d tokens were revoked.", n)
        self.message_user(request, text % {"n": n}, messages.SUCCESS)

    def _record(self, kind: AuthEvent.Kind, request: HttpRequest, token: AccessToken) -> None:
        security_log.record(
            kind,
            request=request,
            user=token.user,
            client_id=f"token:{token.pk}",
            by=request.user.get_username(),
        )

    # Columns ----------------------------------------------------------------------------------

    @admin.display(description=_("token"))
    def masked(self, token: AccessToken) -> str:
        """How it begins and how it ends."""
        return f"{TOKEN_PREFIX}…{token.hint}"

    @admin.display(description=_("scopes"))
    def scope_list(self, token: AccessToken) -> str:
        """The scopes, as they are written in settings."""
        return " ".join(token.scopes) or _now("none")

    @admin.display(description=_("servers"))
    def server_list(self, token: AccessToken) -> str:
        """The servers that it opens."""
        return ", ".join(token.servers) or _now("every server")

    @admin.display(description=_("networks"))
    def network_list(self, token: AccessToken) -> str:
        """Where it may come from."""
        return ", ".join(token.networks) or _now("any")

    @admin.display(description=_("state"))
    def state(self, token: AccessToken) -> str:
        """Whether it opens anything, and why not."""
        if token.revoked_at is not None:
            return _now("revoked")
        if not token.user.is_active:
            return _now("user inactive")
        return _now("usable") if token.is_usable else _now("expired")


# Security log and external identities -------------------------------------------------------------


@admin.register(AuthEvent)
class AuthEventAdmin(ReadOnlyAdmin):
    """The security log, to be read; it is pruned by its age alone."""

    list_display = ["at", "kind", "username", "client_id", "server", "address"]
    list_filter = ["kind", "at"]
    search_fields = ["username", "client_id", "address"]
    date_hierarchy = "at"
    # Counting a log of millions for each page is not worth it.
    show_full_result_count = False


@admin.register(ExternalIdentity)
class ExternalIdentityAdmin(ActingAdmin):
    """Who a subject is: a row lets that subject in as the user, and without one he is nobody."""

    acts_as = "user"
    list_display = ["subject", "issuer", "user", "created_at", "last_used_at"]
    list_filter = ["issuer"]
    list_select_related = ["user"]
    search_fields = ["subject", "issuer"]
    raw_id_fields = ["user"]
    readonly_fields = ["last_used_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Another subject is another row, with a history of its own."""
        return [*(["issuer", "subject"] if obj else []), *self.readonly_fields]
