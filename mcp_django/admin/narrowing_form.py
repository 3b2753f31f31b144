"""The form of what narrows, that of a server and that of a component."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.meanwhile import MeanwhileForm
from mcp_django.admin.narrowing_fields import (
    GroupsField,
    NamesField,
    PermissionsField,
    RateField,
    ScopesField,
    names_in,
)
from mcp_django.models import Component, Server
from mcp_django.server import known_scopes

if TYPE_CHECKING:
    ModelForm = forms.ModelForm[Any]
else:
    # Generic in the stubs only.
    ModelForm = forms.ModelForm


# Every client is sent it with each list, and it is a part of each model's context.
MAX_TEXT = 10_000


class NarrowingForm(MeanwhileForm):
    """Groups, permissions and a rate, beside the plain columns."""

    groups = GroupsField(
        label=_("Groups"),
        help_text=_("Only who is in one of them, beside what code asks for."),
    )
    permissions = PermissionsField(
        label=_("Permissions"),
        help_text=_("Only who holds all of them, beside what code asks for."),
    )
    rate = RateField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, field in self.fields.items():
            if isinstance(field, NamesField):
                field.offer(getattr(self.instance, name))
            elif name in ("description", "instructions"):
                field.validators = [*field.validators, MaxLengthValidator(MAX_TEXT)]
                field.widget.attrs["maxlength"] = MAX_TEXT


class ServerForm(NarrowingForm):
    """What narrows a server."""

    class Meta:
        model = Server
        fields = ["is_enabled", "title", "instructions", "groups", "permissions", "rate"]
        help_texts = {
            "is_enabled": _("A server that is switched off lets nobody in."),
            "title": _("Empty: as in code."),
            "instructions": _("Empty: as in code."),
        }


class ListedForm(ModelForm):
    """One row of the list, whose switch says what it switches."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # What somebody else switched off meanwhile is not switched on by whoever did not touch it.
        self.fields["is_enabled"].show_hidden_initial = True
        switch = self.fields["is_enabled"].widget
        switch.attrs["aria-label"] = gettext("%(component)s is enabled") % {
            "component": self.instance
        }


class ComponentForm(NarrowingForm):
    """What narrows a component."""

    def clean_scopes(self) -> list[str]:
        """Scopes that some token may have, and those that were chosen when they still were.

        Raises:
            ValidationError: no token can have one, so no client could use the component.
        """
        scopes: list[str] = self.cleaned_data["scopes"]
        known = known_scopes()
        for scope in scopes:
            if scope not in known and scope not in names_in(self.instance.scopes):
                nearest = get_close_matches(scope, known, n=1)
                raise ValidationError(
                    gettext("There is no scope %(scope)r here, so no token could have it. %(hint)s")
                    % {
                        "scope": scope,
                        "hint": gettext("Did you mean %(scope)r?") % {"scope": nearest[0]}
                        if nearest
                        else gettext("Known: %(scopes)s.") % {"scopes": ", ".join(sorted(known))},
                    }
                )
        return scopes

    scopes = ScopesField(
        help_text=_("What a token needs beside the scopes in code; with spaces in between.")
    )

    class Meta:
        model = Component
        fields = [
            *("is_enabled", "title", "description"),
            *("groups", "permissions", "scopes", "rate", "approval"),
        ]
        help_texts = {
            "is_enabled": _("To clients, what is switched off does not exist."),
            "title": _("Empty: as in code."),
            "description": _("What a model is told; empty: as in code."),
            "approval": _("What code asks for stays; staff is more than the caller."),
        }
