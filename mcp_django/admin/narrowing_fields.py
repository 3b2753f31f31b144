"""Form fields for what narrows: groups and permissions by their names, scopes, and rates.

Names are kept, not keys: one that means nobody any more stays, stays visible, and lets nobody in.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from django import forms
from django.apps import apps
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from mcp_django.auth.challenges import OFFLINE_ACCESS
from mcp_django.conf import parse_all
from mcp_django.core.component import SCOPE
from mcp_django.overrides.override_values import is_names

Choice = tuple[str, str]

UNREADABLE = gettext_lazy(
    "What was written here past the admin means nothing, so nobody is served. "
    "Choose anew, and save."
)


def names_in(value: Any) -> list[str]:
    """The names in a column; none where somebody wrote something else there."""
    return list(value) if is_names(value) else []


def means_nothing(value: Any) -> bool:
    """Whether what a column has is neither empty nor names."""
    return value is not None and value != [] and not is_names(value)


class NamesWidget(FilteredSelectMultiple):
    """Two lists side by side, in the element in which the script of the admin expects them.

    Without it the script puts them before their own label.
    """

    def render(self, *args: Any, **options: Any) -> SafeString:
        """The list as it is without scripts."""
        inner = super().render(*args, **options)
        return format_html('<div class="related-widget-wrapper">{}</div>', inner)


class NamesField(forms.MultipleChoiceField):
    """Names out of those that there are, and those that were chosen when they still were."""

    def __init__(self, *, label: Any, help_text: Any = "") -> None:
        widget = NamesWidget(label, is_stacked=False)
        super().__init__(required=False, label=label, help_text=help_text, widget=widget)

    def offer(self, chosen: Any) -> None:
        """Offer what there is now, and what was chosen already; asks the database."""
        known = self.known()
        names = {name for name, _label in known}
        gone = [name for name in names_in(chosen) if name not in names]
        self.choices = [*known, *((name, self.gone(name)) for name in gone)]
        if means_nothing(chosen):
            self.help_text = UNREADABLE

    def prepare_value(self, value: Any) -> Any:
        """The names."""
        return names_in(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether they are others."""
        return means_nothing(initial) or super().has_changed(names_in(initial), data)

    @abstractmethod
    def known(self) -> list[Choice]:
        """Every name that means something now, with its label."""

    def gone(self, name: str) -> str:
        """The label of a name that means nothing any more."""
        return _("%(name)s (does not exist any more)") % {"name": name}


class GroupsField(NamesField):
    """Names of groups."""

    def known(self) -> list[Choice]:
        """Every group."""
        names = Group.objects.order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names]


class PermissionsField(NamesField):
    """Codenames of permissions, as ``shop.refund_order``."""

    def known(self) -> list[Choice]:
        """Every permission, by its app as the admin shows it."""
        rows = Permission.objects.order_by("content_type__app_label", "codename").values_list(
            "content_type__app_label", "codename", "name"
        )
        found = {f"{app}.{codename}": name for app, codename, name in rows if _is_installed(app)}
        return [(codename, f"{codename}: {name}") for codename, name in found.items()]


def _is_installed(label: str) -> bool:
    return label in apps.app_configs


class ScopesField(forms.CharField):
    """Scopes, with spaces or commas in between; kept as a list."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {
            "required": False,
            "label": gettext_lazy("Scopes"),
            "widget": forms.TextInput(attrs={"class": "vTextField", "dir": "ltr"}),
        }
        super().__init__(**{**defaults, **options})

    def prepare_value(self, value: Any) -> Any:
        """The list as it is written."""
        return value if isinstance(value, str) else " ".join(names_in(value))

    def to_python(self, value: Any) -> Any:
        """The list."""
        given = super().to_python(self.prepare_value(value)) or ""
        return list(dict.fromkeys(given.replace(",", " ").split()))

    def validate(self, value: Any) -> None:
        """Refuse what no token can hold.

        Raises:
            ValidationError: naming it.
        """
        for scope in value:
            if not SCOPE.fullmatch(scope) or scope == OFFLINE_ACCESS:
                message = _(
                    "%(scope)r is no scope for a component: write printable ASCII without quotes "
                    "and \\, and leave %(other)s to clients."
                )
                raise ValidationError(message % {"scope": scope, "other": OFFLINE_ACCESS})

    def run_validators(self, value: Any) -> None:
        """Those of a text do not fit a list."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether the list is another one."""
        return means_nothing(initial) or bool(self.to_python(initial) != self.to_python(data))


class RateField(forms.CharField):
    """Rates, with commas in between."""

    def __init__(self, **options: Any) -> None:
        defaults: dict[str, Any] = {
            "required": False,
            "max_length": 200,
            "label": gettext_lazy("Rate"),
            "help_text": gettext_lazy(
                "As 100/h for each user, client: 10/30s for each client of a user, "
                "or all: 10000/d for everybody together; several with commas in between."
            ),
            "widget": forms.TextInput(attrs={"class": "vTextField", "dir": "ltr"}),
        }
        super().__init__(**{**defaults, **options})

    def clean(self, value: Any) -> str:
        """The rates as they are written shortest.

        Raises:
            ValidationError: one of them is none, or lets nothing through; the message says what to
                write.
        """
        text = super().clean(value)
        try:
            rates = parse_all(text)
        except ValueError as exc:
            raise ValidationError(str(exc)) from None
        for rate in rates:
            if not rate.count:
                message = _(
                    "%(rate)s lets nothing through: write a count of 1 or more, or switch it off."
                )
                raise ValidationError(message % {"rate": rate})
        return ", ".join(map(str, rates))


def unknown_names(field: NamesField, names: Sequence[str]) -> list[str]:
    """Those among the names that mean nothing any more."""
    known = {name for name, _label in field.known()}
    return [name for name in names if name not in known]
