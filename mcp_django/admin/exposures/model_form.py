"""The form of a model exposure."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.exposures.columns import USES, LeftOut, PathRow, rows_of
from mcp_django.admin.exposures.field_table import FieldTable
from mcp_django.admin.exposures.form import ExposureForm
from mcp_django.admin.servers import server_of
from mcp_django.integrations.models.columns import resolve
from mcp_django.integrations.models.declaration import MAX_PAGE_SIZE
from mcp_django.integrations.models.row_access import codename
from mcp_django.models import ModelExposure
from mcp_django.overrides.exposure_rules import ACTIONS, OPERATIONS, READING, ModelOptions
from mcp_django.overrides.exposures import Scratch, model_of

WORDS = {
    "list": _("List, narrowed and page by page"),
    "get": _("Get one"),
    "count": _("Count and add up"),
    "create": _("Create (writes)"),
    "update": _("Update (writes)"),
    "delete": _("Delete (writes)"),
}
CODE = forms.TextInput(attrs={"class": "vTextField", "dir": "ltr"})


class ModelExposureForm(ExposureForm):
    """Fields and what they are used for, operations, and resources."""

    kind = "model"
    places: ClassVar[dict[str, str]] = {
        **dict.fromkeys(USES, "paths"),
        **dict.fromkeys(("key", "nothing", "create"), "paths"),
        **dict.fromkeys(("tools", "operations"), "operations"),
        **{name: name for name in ("name", "plural", "page_size", "uri", "ordering")},
    }

    paths = FieldTable(
        label=_("Fields"),
        help_text=_(
            "What is not shown is reached by nothing. Below the table stands what is left out."
        ),
    )
    ordering = forms.ChoiceField(
        label=_("Usual order"),
        required=False,
        help_text=_("Empty: that of the model, as far as it is shown."),
    )
    operations = forms.MultipleChoiceField(
        label=_("Tools"),
        required=False,
        choices=[(name, WORDS[name]) for name in OPERATIONS],
        initial=list(READING),
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Each asks for Django's permission of its own; those that write can preview."),
    )
    page_size = forms.IntegerField(
        label=_("Rows on a page"), min_value=1, max_value=MAX_PAGE_SIZE, initial=50
    )
    plural = forms.CharField(
        label=_("Name of several"),
        required=False,
        max_length=60,
        widget=CODE,
        help_text=_("As in list_orders; empty: after the model."),
    )
    description = forms.CharField(
        label=_("Description"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=_("What a model should know, in a sentence or two; added to each description."),
    )
    uri = forms.CharField(
        label=_("URI of one object"),
        required=False,
        max_length=200,
        widget=CODE,
        help_text=_("As shop://orders/{number}, with unique shown fields; empty: no resources."),
    )
    is_listed = forms.BooleanField(label=_("List the objects as resources"), required=False)
    subscribe = forms.BooleanField(
        label=_("Tell subscribers of changes"),
        required=False,
        help_text=_("Of what is saved and deleted; not of what is updated in bulk."),
    )

    class Meta:
        model = ModelExposure
        fields = ["is_enabled", "name", "groups", "permissions", "scopes"]
        help_texts = {
            "is_enabled": _("To clients, what is switched off does not exist."),
            "name": _("As in get_order; empty: after the model."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        said = _options_of(self.instance)
        chosen = {use: list(getattr(said, use)) for use in USES}
        for name in ("operations", "page_size", "plural", "description", "uri", "is_listed"):
            self.initial.setdefault(name, getattr(said, name))
        self.initial.setdefault("subscribe", said.subscribe)
        self.initial.setdefault("paths", chosen)
        self.initial.setdefault("ordering", said.ordering[0] if said.ordering else "")
        self._model: type[Model] | None = None
        # That it is gone is said where it is saved, and by the preview.
        with suppress(ImproperlyConfigured):
            self._model = model_of(self.instance.target)
        known = [name for names in chosen.values() for name in names]
        rows: list[PathRow] = []
        left_out: list[LeftOut] = []
        if self._model is not None:
            server = self.instance.server
            rows, left_out = rows_of(self._model, Scratch(server, server_of(server)), known)
        if "paths" in self.fields:
            self.fields["paths"].offer(rows, left_out)  # type: ignore[attr-defined]  # a FieldTable
        if "ordering" in self.fields:
            self._offer_orders([row.path for row in rows if "ordering_fields" in row.uses])

    def _offer_orders(self, paths: list[str]) -> None:
        field: Any = self.fields["ordering"]
        down = _("descending")
        both = [((one, one), (f"-{one}", f"{one} ({down})")) for one in paths]
        field.choices = [("", "---------"), *(choice for pair in both for choice in pair)]

    def options(self) -> dict[str, Any]:
        """What the form says, as the row keeps it."""
        said = self.cleaned_data
        kept = _options_of(self.instance)
        ordering = (said["ordering"], *kept.ordering[1:]) if said["ordering"] else ()
        if kept.ordering[:1] != (said["ordering"],):
            ordering = ordering[:1]
        return ModelOptions(
            **said["paths"],
            ordering=ordering,
            operations=tuple(said["operations"]),
            page_size=said["page_size"],
            plural=said["plural"],
            description=said["description"].replace("\r\n", "\n"),
            uri=said["uri"],
            is_listed=said["is_listed"],
            subscribe=said["subscribe"],
        ).stored()

    def check_rights(self) -> None:
        """Nobody reaches through a client what he may not see or do himself."""
        if self._model is None:
            self.add_error(None, _("The site has no such model to expose any more."))
            return
        options = ModelOptions.read(self.options())
        needed = {codename(self._model, action): _place_of(action) for action in options.actions}
        for path in options.fields:
            # ``problems_of`` reports a field that the model no longer has.
            with suppress(ImproperlyConfigured):
                for hop in resolve(self._model, path, what="").hops:
                    needed.setdefault(codename(hop.related_model, "view"), "paths")
        for permission, place in needed.items():
            if not self.user.has_perm(permission):
                message = _("You lack the permission %(permission)s, so you cannot offer this.")
                self.add_error(
                    place, forms.ValidationError(message, params={"permission": permission})
                )


def _place_of(action: str) -> str | None:
    return "operations" if action in ACTIONS.values() else None


def _options_of(row: ModelExposure) -> ModelOptions:
    """What a row says; as for a new one where that cannot be read."""
    given = row.options if isinstance(row.options, dict) else {}
    try:
        return ModelOptions.read(given)
    except ImproperlyConfigured:
        return ModelOptions()
