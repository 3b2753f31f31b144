"""The form by which an administrator makes an access token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib.admin.widgets import AdminSplitDateTime
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.admin_base import may_give_access
from mcp_django.auth.principal import user_named
from mcp_django.conf import get_settings
from mcp_django.models import AccessToken
from mcp_django.models.calls import new_code
from mcp_django.models.tokens import validate_networks
from mcp_django.server import all_servers

if TYPE_CHECKING:
    Base = forms.ModelForm[AccessToken]
else:
    Base = forms.ModelForm


def server_choices() -> list[tuple[str, str]]:
    """The servers of the site."""
    return [(one.name, one.name) for one in all_servers()]


def scope_choices() -> list[tuple[str, Any]]:
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


class TokenForm(Base):
    """What a new token is good for; the token itself is made where it is saved."""

    username = forms.CharField(
        label=_("User"), help_text=_("Whoever has the token acts as this user.")
    )
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"),
        choices=scope_choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Without any, it opens what asks for none."),
    )
    servers = forms.MultipleChoiceField(
        label=_("Servers"),
        choices=server_choices,
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
