"""The first step: on which server, and what of the site."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from django import forms
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from mcp_django.integrations.models.row_access import codename
from mcp_django.overrides.exposure_rules import models_to_expose
from mcp_django.overrides.exposures import routes_to_expose
from mcp_django.server import all_servers


class ChoosingForm(forms.Form):
    """A server, and what is to be exposed on it."""

    server = forms.ChoiceField(label=_("Server"))
    target = forms.ChoiceField()

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [server.name for server in all_servers()]
        self._field("server").choices = [(name, name) for name in names]
        self._field("target").choices = self.targets(user)
        for field in self.fields.values():
            field.label = capfirst(field.label)

    @abstractmethod
    def targets(self, user: Any) -> list[Any]:
        """The choices for this user."""

    def _field(self, name: str) -> Any:
        return self.fields[name]


class ModelChoosingForm(ChoosingForm):
    """Models that the user may view."""

    target = forms.ChoiceField(
        label=_("Model"),
        help_text=_(
            "Those that you may view; sessions, tokens and records of the admin are never offered."
        ),
    )

    def targets(self, user: Any) -> list[Any]:
        """The models by their app."""
        apps: dict[str, list[tuple[str, str]]] = {}
        for model in models_to_expose():
            if user.has_perm(codename(model, "view")):
                options = model._meta
                name = str(options.app_config.verbose_name)
                apps.setdefault(name, []).append((options.label, str(options.verbose_name)))
        return [*apps.items()]


class ViewChoosingForm(ChoosingForm):
    """Named URLs of the site."""

    target = forms.ChoiceField(
        label=_("Name of the URL"),
        help_text=_(
            "Pages of the admin, and those that sign somebody in or grant access, are never "
            "offered."
        ),
    )

    def targets(self, user: Any) -> list[Any]:
        """The names with their views."""
        return [
            (route.full_name, f"{route.full_name} ({_name_of(route.view)})")
            for route in routes_to_expose()
        ]


def _name_of(view: Any) -> str:
    return str(getattr(view, "__qualname__", type(view).__qualname__))
