"""The form of a view exposure."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.exposures.form import ExposureForm
from mcp_django.admin.exposures.model_form import CODE
from mcp_django.models import ViewExposure
from mcp_django.overrides.exposure_rules import TYPES, ViewOptions
from mcp_django.overrides.exposures import METHODS, is_rest, route_of

BECOMES = [
    ("tool", _("A tool that reads the page")),
    ("resource", _("A resource, or a template of them")),
    ("prompt", _("A prompt that the page writes")),
    ("form", _("A tool that posts the page's form (writes)")),
]
LINES = forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField", "dir": "ltr"})


class ViewExposureForm(ExposureForm):
    """What a view becomes."""

    kind = "view"
    places: ClassVar[dict[str, str]] = {
        **{name: name for name in ("becomes", "uri", "query", "methods", "name", "title")},
        "A": "becomes",
    }

    becomes = forms.ChoiceField(
        label=_("Becomes"), choices=BECOMES, widget=forms.RadioSelect, initial="tool"
    )
    uri = forms.CharField(
        label=_("URI"),
        required=False,
        max_length=200,
        widget=CODE,
        help_text=_("Of a resource alone, as shop://prices/{season}, with the URL's variables."),
    )
    query = forms.CharField(
        label=_("Parameters of the address"),
        required=False,
        max_length=2000,
        widget=LINES,
        help_text=format_lazy(
            "{} {}",
            _("One on a line with its type, as season: text. Types:"),
            ", ".join(TYPES),
        ),
    )
    methods = forms.MultipleChoiceField(
        label=_("Methods"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Each becomes a tool; all but get may write, as the view allows."),
    )
    is_readable = forms.BooleanField(label=_("Make text of HTML"), required=False, initial=True)
    title = forms.CharField(label=_("Title"), required=False, max_length=200)
    description = forms.CharField(
        label=_("Description"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "class": "vLargeTextField"}),
        help_text=_("What a model is told; empty: what the view says of itself in code."),
    )

    class Meta:
        model = ViewExposure
        fields = ["is_enabled", "name", "groups", "permissions", "scopes"]
        help_texts = {
            "is_enabled": _("To clients, what is switched off does not exist."),
            "name": _("Empty: after the URL."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        said = _options_of(self.instance)
        for name in ("becomes", "uri", "methods", "is_readable", "title", "description"):
            self.initial.setdefault(name, getattr(said, name))
        self.initial.setdefault("query", "\n".join(said.query))
        known = methods_of(self.instance.target)
        # A view of REST framework says all but its methods itself.
        for name in ("becomes", "uri", "query", "is_readable") if known else ("methods",):
            self.fields.pop(name, None)
        if "methods" in self.fields:
            field: Any = self.fields["methods"]
            field.choices = [(one, one.upper()) for one in known]

    def check_rights(self) -> None:
        """Say what only a form has to say: code would be told of its arguments."""
        said = self.cleaned_data
        if said.get("becomes") == "resource" and not said.get("uri"):
            self.add_error("uri", _("A resource has a URI, as shop://prices/{season}."))

    def options(self) -> dict[str, Any]:
        """What the form says, as the row keeps it."""
        said = self.cleaned_data
        lines = [line.strip() for line in said.get("query", "").splitlines()]
        usual = ViewOptions()
        return ViewOptions(
            becomes=said.get("becomes") or usual.becomes,
            uri=said.get("uri", ""),
            query=tuple(line for line in lines if line),
            methods=tuple(said.get("methods") or usual.methods),
            is_readable=said.get("is_readable", True) or said.get("becomes") == "form",
            title=said["title"],
            description=said["description"].replace("\r\n", "\n"),
        ).stored()


def methods_of(target: str) -> list[str]:
    """The methods of a REST view of this URL; none for any other."""
    try:
        route = route_of(target)
    except ImproperlyConfigured:
        return []
    if not is_rest(route):
        return []
    actions = getattr(route.callback, "actions", None)
    return [
        one
        for one in METHODS
        if (one in actions if actions is not None else hasattr(route.view, one))
    ]


def _options_of(row: ViewExposure) -> ViewOptions:
    """What a row says; as for a new one where that cannot be read."""
    given = row.options if isinstance(row.options, dict) else {}
    try:
        return ViewOptions.read(given)
    except ImproperlyConfigured:
        return ViewOptions()
