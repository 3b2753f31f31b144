"""Forms for the overrides of servers and components, and the comparison of code and overrides.

Groups, permissions and scopes are stored by name, not by primary key. A name that no longer exists
stays in the row, stays visible in the form, and grants no access.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from django import forms
from django.apps import apps
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import router, transaction
from django.http import HttpRequest
from django.utils.formats import number_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import ModelForm, OptimisticLockForm, find_server
from mcp_django.auth.challenges import OFFLINE_ACCESS
from mcp_django.auth.permissions import parse_permissions
from mcp_django.components.component import SCOPE_PATTERN, Component as CodeComponent
from mcp_django.components.resource import UIResource
from mcp_django.components.tool import UI, Tool
from mcp_django.conf import parse_rates
from mcp_django.execution.handlers.entries import component_type, estimate_tokens
from mcp_django.models import Component, Server
from mcp_django.overrides.override_values import (
    Override,
    apply_override,
    build_permissions,
    is_name_list,
)
from mcp_django.overrides.state import (
    COMPONENT_OVERRIDE_COLUMNS,
    LIST_BY_KIND,
    OVERRIDE_COLUMNS,
    parse_component_row,
    parse_server_row,
    publish_change,
)
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.text import nearest
from mcp_django.server import MCPServer, known_scopes

Choice = tuple[str, str]

INVALID_VALUE = _(
    "The stored value was not written by the admin and is invalid, so access is denied. "
    "Choose new values and save."
)


CODE = forms.TextInput(attrs={"class": "vTextField", "dir": "ltr"})
"""A widget for text that is read from left to right in every language."""


def names_in(value: Any) -> list[str]:
    """Return the names in a column; none if its value is not a list of names."""
    return list(value) if is_name_list(value) else []


class NamesWidget(FilteredSelectMultiple):
    """Two lists side by side, wrapped in the element that the admin's script expects.

    Without the wrapper the script puts the lists before their label.
    """

    def render(self, *args: Any, **options: Any) -> SafeString:
        """Render the list, which also works without scripts, inside the wrapper."""
        inner = super().render(*args, **options)
        return format_html('<div class="related-widget-wrapper">{}</div>', inner)


class NamesField(forms.MultipleChoiceField):
    """A choice of existing names, and of names that were chosen and no longer exist."""

    def __init__(self, *, label: Any) -> None:
        widget = NamesWidget(label, is_stacked=False)
        super().__init__(required=False, label=label, widget=widget)

    def set_choices(self, chosen: Any) -> None:
        """Set the choices to the existing and the already chosen names; queries the database."""
        choices = self.existing_choices()
        names = {name for name, _label in choices}
        gone = [name for name in names_in(chosen) if name not in names]
        self.choices = [*choices, *((name, self.missing_label(name)) for name in gone)]
        if _is_invalid_names(chosen):
            self.help_text = INVALID_VALUE

    def prepare_value(self, value: Any) -> Any:
        """Return the names in the value."""
        return names_in(value)

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the names differ, or the initial value is invalid."""
        return _is_invalid_names(initial) or super().has_changed(names_in(initial), data)

    @abstractmethod
    def existing_choices(self) -> list[Choice]:
        """Return every existing name with its label."""

    def missing_label(self, name: str) -> str:
        """Return the label of a name that no longer exists."""
        return gettext("%(name)s (no longer exists)") % {"name": name}


def _is_invalid_names(value: Any) -> bool:
    """Return whether the value of a column is neither empty nor a list of names."""
    return value is not None and value != [] and not is_name_list(value)


class GroupsField(NamesField):
    """A choice of groups by name."""

    def existing_choices(self) -> list[Choice]:
        """Return every group."""
        names = Group.objects.order_by("name").values_list("name", flat=True)
        return [(name, name) for name in names]


class PermissionsField(NamesField):
    """A choice of permissions by codename, such as ``shop.refund_order``."""

    def existing_choices(self) -> list[Choice]:
        """Return every permission of the installed apps, sorted by app."""
        rows = Permission.objects.order_by("content_type__app_label", "codename").values_list(
            "content_type__app_label", "codename", "name"
        )
        names_by_codename = {
            f"{app}.{codename}": name for app, codename, name in rows if app in apps.app_configs
        }
        return [(codename, f"{codename}: {name}") for codename, name in names_by_codename.items()]


class ScopesField(forms.CharField):
    """Scopes, separated by spaces; stored as a list."""

    def __init__(self, *, help_text: Any) -> None:
        super().__init__(required=False, label=_("Scopes"), help_text=help_text, widget=CODE)

    def prepare_value(self, value: Any) -> Any:
        """Return the scopes as text, separated by spaces."""
        return value if isinstance(value, str) else " ".join(names_in(value))

    def to_python(self, value: Any) -> Any:
        """Return the scopes as a list without duplicates."""
        text = super().to_python(self.prepare_value(value)) or ""
        return list(dict.fromkeys(text.split()))

    def validate(self, value: Any) -> None:
        """Reject a scope that no token can have.

        Raises:
            ValidationError: a scope is invalid; the message names it.
        """
        for scope in value:
            if "," in scope:
                raise ValidationError(gettext("Separate scopes with spaces, not with commas."))
            if not SCOPE_PATTERN.fullmatch(scope) or scope == OFFLINE_ACCESS:
                message = gettext(
                    "%(scope)r is not a valid scope for a component: use printable ASCII without "
                    "quotes and \\; only clients request %(other)s."
                )
                raise ValidationError(message % {"scope": scope, "other": OFFLINE_ACCESS})

    def run_validators(self, value: Any) -> None:
        """Run none: the validators of a text do not apply to a list."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether the scopes differ, or the initial value is invalid."""
        return _is_invalid_names(initial) or bool(self.to_python(initial) != self.to_python(data))


class RateField(forms.CharField):
    """Rates, separated by commas."""

    def __init__(self) -> None:
        super().__init__(
            required=False,
            max_length=200,
            label=_("Rate"),
            help_text=_(
                "For example 100/h for each user, client: 10/30s for each client of a user, "
                "or all: 10000/d for all users together; separate several rates with commas."
            ),
            widget=CODE,
        )

    def clean(self, value: Any) -> str:
        """Return the rates in their shortest form.

        Raises:
            ValidationError: a rate is invalid or allows no calls; the message says what to write.
        """
        text = super().clean(value)
        try:
            rates = parse_rates(text)
        except ValueError as exc:
            raise ValidationError(str(exc)) from None
        for rate in rates:
            if not rate.count:
                message = gettext(
                    "%(rate)s allows no calls: write a count of 1 or more, or clear “Enabled”."
                )
                raise ValidationError(message % {"rate": rate})
        return ", ".join(map(str, rates))


# Clients receive the text with each list, and it becomes part of a model's context.
MAX_TEXT = 10_000
# The fields of texts that every client receives, and the length above which a save warns.
LONG_TEXTS = {"description": 1000, "instructions": 1000}


class RestrictedForm(OptimisticLockForm):
    """Base form of rows that require groups and permissions."""

    groups = GroupsField(label=_("Groups"))
    permissions = PermissionsField(label=_("Permissions"))

    help_of_names: ClassVar[Mapping[str, Any]]
    """The help texts of both fields."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, help_text in self.help_of_names.items():
            field: Any = self.fields[name]
            field.help_text = help_text
            field.set_choices(getattr(self.instance, name))

    def clean_scopes(self) -> list[str]:
        """Return the scopes, which must be known or already stored in the row.

        Raises:
            ValidationError: no token can have one of them, so no client could use the component.
        """
        scopes: list[str] = self.cleaned_data["scopes"]
        all_scopes = known_scopes()
        for scope in scopes:
            if scope not in all_scopes and scope not in names_in(self.instance.scopes):
                raise ValidationError(
                    gettext("The scope %(scope)r does not exist, so no token can have it. %(hint)s")
                    % {
                        "scope": scope,
                        "hint": gettext("Did you mean %(scope)r?") % {"scope": close}
                        if (close := nearest(scope, all_scopes))
                        else gettext("Known: %(scopes)s.")
                        % {"scopes": ", ".join(sorted(all_scopes))},
                    }
                )
        return scopes

    def long_text_warnings(self) -> Iterator[str]:
        """Yield a warning for each changed text that is long, with its estimated tokens."""
        for name in {*LONG_TEXTS}.intersection(self.changed_data):
            text = str(self.cleaned_data.get(name) or "")
            if len(text) > LONG_TEXTS[name]:
                message = gettext(
                    "The text in “%(label)s” has %(length)s characters. It takes about %(tokens)s "
                    "tokens of the context of every model that is connected."
                )
                yield message % {
                    "label": self.fields[name].label,
                    "length": number_format(len(text)),
                    "tokens": number_format(estimate_tokens(text)),
                }


class OverrideForm(RestrictedForm):
    """Base form of overrides: groups, permissions and a rate, in addition to plain columns."""

    help_of_names: ClassVar[Mapping[str, Any]] = {
        "groups": _(
            "Restrict to members of these groups, in addition to the requirements in code."
        ),
        "permissions": _(
            "Restrict to users with all of these permissions, in addition to the requirements in "
            "code."
        ),
    }
    rate = RateField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"description", "instructions"} & self.fields.keys():
            field: Any = self.fields[name]
            field.validators = [*field.validators, MaxLengthValidator(MAX_TEXT)]
            field.widget.attrs["maxlength"] = MAX_TEXT


class ServerForm(OverrideForm):
    """The form for the overrides of a server."""

    class Meta:
        model = Server
        fields = ["is_enabled", "title", "instructions", "groups", "permissions", "rate"]
        help_texts = {
            "is_enabled": _("A disabled server rejects every request."),
            "title": _("Empty: as in code."),
            "instructions": _("Empty: as in code."),
        }


class ComponentRowForm(ModelForm):
    """One row of the change list; its checkbox is labeled with the component."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # Saving an unchanged checkbox must not undo what another user changed in the meantime.
        self.fields["is_enabled"].show_hidden_initial = True
        switch = self.fields["is_enabled"].widget
        switch.attrs["aria-label"] = gettext("%(component)s is enabled") % {
            "component": self.instance
        }


class ComponentForm(OverrideForm):
    """The form for the overrides of a component, with the texts in code as placeholders."""

    scopes = ScopesField(
        help_text=_("Scopes that a token needs in addition to those in code, separated by spaces.")
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = find_component(find_server(self.instance.server), self.instance)
        for name in {"title", "description"} & self.fields.keys() if declared else ():
            self.fields[name].widget.attrs["placeholder"] = str(getattr(declared, name))

    class Meta:
        model = Component
        fields = [
            *("is_enabled", "title", "description"),
            *("groups", "permissions", "scopes", "rate", "approval"),
        ]
        help_texts = {
            "is_enabled": _("For clients, a disabled component does not exist."),
            "title": _("Empty: as in code."),
            "description": _("The text that models read; empty: as in code."),
            "approval": _(
                "The stricter of this and the approval in code applies; staff is stricter than "
                "the caller."
            ),
        }


# Fields that change the lists of clients; rates and approvals apply to calls only.
LIST_FIELDS = frozenset(
    {"is_enabled", "title", "description", "groups", "permissions", "scopes"},
)
PENDING_ATTRIBUTE = "_mcp_decided"


def publish_change_once(request: HttpRequest, lists: Iterable[tuple[str, str]]) -> None:
    """Publish a change of these lists when the request's transaction commits, once per request."""
    alias = router.db_for_write(Component)
    if not transaction.get_connection(alias).in_atomic_block:
        publish_change(lists)
        return
    pending: dict[tuple[str, str], None] | None = getattr(request, PENDING_ATTRIBUTE, None)
    if pending is None:
        pending = {}
        setattr(request, PENDING_ATTRIBUTE, pending)
        publish_change(pending)
    pending.update(dict.fromkeys(lists))


def lists_of(rows: Iterable[Component]) -> list[tuple[str, str]]:
    """Return the lists that contain these components; an unknown kind is in none."""
    return [(row.server, LIST_BY_KIND[row.kind]) for row in rows if row.kind in LIST_BY_KIND]


class ComparisonRow(NamedTuple):
    """One line of the comparison; an empty text means that nothing is set."""

    label: str
    code: str
    admin: str
    effect: str


def find_component(server: MCPServer | None, row: Component) -> CodeComponent | None:
    """Return the component of a row before overrides, or ``None`` if there is none."""
    if server is None:
        return None
    return server.declared_catalog.by_kind.get(row.kind, {}).get(row.key)


def is_valid_row(row: Component) -> bool:
    """Return whether a row has valid data; an invalid row switches its component off."""
    return _parse_override(row).is_enabled


def _parse_override(row: Component) -> Override:
    """Return the override of a row as if the row were enabled."""
    values = {name: getattr(row, name) for name in (*OVERRIDE_COLUMNS, *COMPONENT_OVERRIDE_COLUMNS)}
    return parse_component_row({**values, "is_enabled": True}, name=row.key)


def compare_component(declared: CodeComponent, row: Component) -> list[ComparisonRow]:
    """Return the comparison for a component, as if it were enabled."""
    override = _parse_override(row)
    effect = apply_override(declared, override)
    if effect is None:
        return [_invalid_row()]
    guards = build_permissions(override.groups, override.permissions)
    rows = [
        _compare(gettext("title"), str, declared.title, row.title, effect.title),
        _compare(
            gettext("description"), str, declared.description, row.description, effect.description
        ),
        _compare(gettext("permissions"), _guards, declared.permission, guards, effect.permission),
        _compare(gettext("scopes"), _list, declared.scopes, override.scopes, effect.scopes),
        _compare(gettext("rate"), _list, declared.rates, override.rates, effect.rates),
    ]
    if isinstance(declared, Tool) and isinstance(effect, Tool):
        approvals = (declared.approval, row.approval, effect.approval)
        labels = [str(Component.Approval(value).label) if value else "" for value in approvals]
        rows.append(ComparisonRow(gettext("approval"), *labels))
        if declared.task:
            rows.append(ComparisonRow(gettext("runs"), _task(declared), "", _task(effect)))
    rows += [ComparisonRow(label, text, "", text) for label, text in _app_rows(declared)]
    rows.append(ComparisonRow(gettext("size in a list"), _size(declared), "", _size(effect)))
    return rows


def compare_server(server: MCPServer, row: Server) -> list[ComparisonRow]:
    """Return the comparison for a server, as if it were enabled."""
    title, instructions = server.title_in_code, server.instructions_in_code
    values = {name: getattr(row, name) for name in ("name", "instructions", *OVERRIDE_COLUMNS)}
    overrides = parse_server_row({**values, "is_enabled": True}, {})
    if not overrides.is_enabled:
        return [_invalid_row()]
    guards = build_permissions(overrides.groups, overrides.permissions)
    all_guards = (server.permission, *guards)
    rates = (*server.rates_in_code, *overrides.rates)
    text = row.instructions or instructions
    return [
        _compare(gettext("title"), str, title, row.title, row.title or title),
        _compare(gettext("instructions"), str, instructions, row.instructions, text),
        _compare(gettext("permissions"), _guards, server.permission, guards, all_guards),
        _compare(gettext("rate"), _list, server.rates_in_code, overrides.rates, rates),
    ]


def _invalid_row() -> ComparisonRow:
    return ComparisonRow(gettext("everything"), "", gettext("invalid data"), gettext("disabled"))


def _compare(
    label: str, text_of: Callable[[Any], str], code: Any, admin: Any, effect: Any
) -> ComparisonRow:
    return ComparisonRow(label, text_of(code), text_of(admin), text_of(effect))


def _list(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))


def _guards(declared: Any) -> str:
    return gettext(" and ").join(dict.fromkeys(map(str, parse_permissions(declared))))


def _task(tool: Tool) -> str:
    asks = gettext("asks during the task")
    if tool.ask == "before":
        asks = gettext("asks before the task")
    if tool.task == "optional":
        ways = gettext("as a task if the client supports it")
    elif tool.polling_fallback:
        ways = gettext("only as a task, with polling for other clients")
    else:
        ways = gettext("only as a task")
    return f"{ways}, {asks}"


def _size(component: CodeComponent) -> str:
    wire = component_type(component).wire(component, LATEST)
    return gettext("about %(count)s tokens") % {"count": number_format(estimate_tokens(wire))}


def _app_rows(component: CodeComponent) -> Iterator[tuple[str, str]]:
    """Yield labels and texts on the MCP App of a component; none if it has no app.

    The page describes where the app is served and what hosts allow it to do. The app itself is
    neither run nor shown in the admin.
    """
    if isinstance(component, UIResource):
        yield gettext("MCP App of the tool"), component.tool
        yield from _page_rows(component.ui)
    if not isinstance(component, Tool) or component.ui is None:
        return
    if component.ui.uri:
        yield gettext("MCP App"), component.ui.uri
    if component.ui.visibility:
        yield gettext("may be called by"), ", ".join(component.ui.visibility)
    if component.ui.template:
        yield from _page_rows(component.ui)


def _page_rows(ui: UI) -> Iterator[tuple[str, str]]:
    yield gettext("template"), ui.template
    values_by_label = {
        gettext("may connect to"): ui.connect,
        gettext("may load from"): ui.resources,
        gettext("may embed frames from"): ui.frames,
        gettext("base addresses"): ui.base_uris,
        gettext("may use"): ui.allow,
    }
    for label, values in values_by_label.items():
        if values:
            yield label, ", ".join(values)
    if ui.domain:
        yield gettext("own origin"), ui.domain
