"""Forms of model and view exposures, and the preview of what clients would get.

What a form describes is built and tried before it is saved.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.db.models import Model
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import MeanwhileForm
from mcp_django.admin.exposure_fields import USES, FieldTable, LeftOut, PathRow, rows_of
from mcp_django.admin.override_forms import GroupsField, NamesField, PermissionsField, ScopesField
from mcp_django.admin.servers import server_of
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.execution.handlers import prompts, resources, tools
from mcp_django.execution.policy import visible
from mcp_django.integrations.models.columns import resolve
from mcp_django.integrations.models.declaration import MAX_PAGE_SIZE, ModelComponents
from mcp_django.integrations.models.row_access import codename, permitted
from mcp_django.management.lookups import estimated_tokens
from mcp_django.models import Exposure, ModelExposure, ViewExposure
from mcp_django.overrides import state
from mcp_django.overrides.exposure_rules import (
    ACTIONS,
    OPERATIONS,
    READING,
    TYPES,
    ModelOptions,
    ViewOptions,
)
from mcp_django.overrides.exposures import (
    METHODS,
    Scratch,
    build,
    files_of,
    is_rest,
    model_of,
    route_of,
)
from mcp_django.overrides.override_values import (
    AS_IN_CODE,
    ExposureSpec,
    narrowed,
    read_exposures,
    spec_of,
)
from mcp_django.protocol.revisions import LATEST

# The preview --------------------------------------------------------------------------------------

logger = logging.getLogger("mcp_django")

SAMPLE = 5
LISTS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "tool": tools.describe,
    "resource": resources.describe_resource,
    "resource template": resources.describe_template,
    "prompt": prompts.describe,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One entry of a list as clients get it, about so many tokens long."""

    kind: str
    key: str
    text: str
    tokens: int
    files: list[str]
    """The fields of a form that it leaves out, since JSON carries no files."""
    is_visible: bool
    """Whether the author would find it in his own list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The first rows as the author sees them, as texts; ``note`` where there are none."""

    names: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What is shown below the form: entries that clients would get, and rows as the author sees."""

    entries: list[ListEntry]
    problems: list[str]
    sample: Sample | None = None

    @property
    def tokens(self) -> int:
        """About how much of a model's context all entries take."""
        return sum(one.tokens for one in self.entries)


def preview_of(spec: ExposureSpec, user: Any) -> Preview:
    """What a row would become, as this user would see it; nothing is kept."""
    server = server_of(spec.server)
    decisions = state.read().get(spec.server, state.UNMANAGED)
    others = [one for one in decisions.exposures if one.pk != spec.pk]
    made = build(server, spec.server, [*others, spec])
    principal = principal_for(user)
    offered = (
        narrowed(one, decisions.overrides.get((one.kind, one.key), AS_IN_CODE))
        for one in made.of(spec)
    )
    components = [one for one in offered if one is not None]
    return Preview(
        entries=[_entry(one, principal) for one in components],
        problems=[one.reason for one in made.wrong_with(spec)],
        sample=_sample(server, made.declarations(spec), components, principal),
    )


def _entry(component: Component, principal: Principal) -> ListEntry:
    wire = LISTS[component.kind](component)
    return ListEntry(
        kind=component.kind,
        key=component.key,
        text=json.dumps(wire, indent=2, ensure_ascii=False, default=str),
        tokens=estimated_tokens(wire),
        files=sorted(files_of(component)),
        is_visible=visible(principal, component),
    )


def _sample(
    server: Any,
    declarations: list[ModelComponents[Any]],
    components: list[Component],
    principal: Principal,
) -> Sample | None:
    """The first rows of a model, through the same gate as those of a call."""
    if server is None or not declarations:
        return None
    reading_ones = [one for one in components if one.read_only]
    if not any(visible(principal, one) for one in reading_ones):
        return Sample(names=[], rows=[], note=gettext("You would not see any row yourself."))
    declaration = declarations[-1]
    ctx = Context(server=server, principal=principal, protocol_version=LATEST.version)
    load = partial(_rows, declaration, ctx)
    try:
        with transaction.atomic(using=router.db_for_read(declaration.model)):
            rows = load()
    except Exception:
        # The site's own code is asked: its managers, row gates and names of objects.
        logger.exception("The rows of the %s cannot be shown.", declaration)
        return Sample(
            names=[], rows=[], note=gettext("The rows cannot be read; the reason was logged.")
        )
    names = list(rows[0]) if rows else []
    texts = [[_text(row[name]) for name in names] for row in rows]
    return Sample(names=names, rows=texts, note="" if rows else gettext("You see no row."))


def _rows(declaration: ModelComponents[Any], ctx: Context) -> list[dict[str, Any]]:
    found = permitted(declaration, ctx, declaration.rows(ctx)).order_by("pk")
    exposed = declaration.exposed
    return exposed.dump_all(exposed.prepare(found, ctx)[:SAMPLE], ctx)


def _text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 300 else f"{text[:300]}…"


# Exposure forms -----------------------------------------------------------------------------------

PREVIEW = "_preview"
"""The name of the button that shows what would be, and keeps nothing."""


class ExposureForm(MeanwhileForm):
    """Who may use it, and whether it is offered; ``choice`` is the server and target of a new one.

    ``show`` takes the preview where one is asked for. The form is then never valid, so whoever made
    it shows it again and keeps nothing.
    """

    groups = GroupsField(
        label=_("Groups"), help_text=_("Only who is in one of them, beside all else that is asked.")
    )
    permissions = PermissionsField(
        label=_("Permissions"),
        help_text=_("Only who holds all of them, beside all else that is asked."),
    )
    scopes = ScopesField(help_text=_("What a token needs; with spaces in between."))

    kind: ClassVar[str] = ""
    user: Any = None
    choice: ClassVar[Mapping[str, str]] = {}
    show: ClassVar[Callable[[Preview], None] | None] = None
    places: ClassVar[Mapping[str, str]] = {}
    """The field of the form where a mistake in an option is shown."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in self.choice.items():
            setattr(self.instance, name, value)
        for name, field in self.fields.items():
            field.label = capfirst(field.label)
            if isinstance(field, NamesField):
                field.offer(getattr(self.instance, name))
        self.instance.kind = self.kind

    def is_valid(self) -> bool:
        """Whether it may be kept, which a preview never is."""
        is_valid = super().is_valid()
        if type(self).show is None:
            return is_valid
        if is_valid:
            type(self).show(self.preview())  # type: ignore[misc]  # it was just seen
        return False

    def preview(self) -> Preview:
        """What clients would be shown, and the user of the form."""
        return preview_of(self.spec(), self.user)

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What the form says, as the row keeps it.

        Raises:
            ImproperlyConfigured: it cannot be meant.
        """

    def spec(self) -> ExposureSpec:
        """What the row would say."""
        values = {name: self.cleaned_data.get(name) or [] for name in ("groups", "permissions")}
        return spec_of(
            Exposure(
                pk=self.instance.pk,
                kind=self.kind,
                server=self.instance.server,
                target=self.instance.target,
                name=self.cleaned_data.get("name") or "",
                options=self.options(),
                scopes=self.cleaned_data.get("scopes") or [],
                **values,
            )
        )

    def clean(self) -> dict[str, Any]:
        """Refuse what could not be offered, in the words of the class that code would use."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        self.check_rights()
        if self.errors:
            return cleaned
        spec = self.spec()
        for problem in _problems_of(spec):
            self.add_error(self._place(problem), problem)
        if not self.errors:
            self.instance.options = self.options()
        return cleaned

    def check_rights(self) -> None:
        """Refuse what the user himself has no right to."""

    def _place(self, problem: str) -> str | None:
        word = problem.split(maxsplit=1)[0].rstrip(":=")
        found = self.places.get(word.partition("=")[0])
        return found if found in self.fields else None


def _problems_of(spec: ExposureSpec) -> list[str]:
    """Why a row could not be offered beside those that are there, without the words around it."""
    others = [one for one in read_exposures().get(spec.server, ()) if one.pk != spec.pk]
    found = build(server_of(spec.server), spec.server, [*others, spec]).wrong_with(spec)
    before = f"exposure of {spec.target}: "
    # The form knows what it is about, and nobody wrote a call there.
    call = f"register_view({spec.target!r}): "
    return [one.reason.removeprefix(before).removeprefix(call) for one in found]


_Options = TypeVar("_Options", ModelOptions, ViewOptions)


def _options_of(row: Exposure, kind: type[_Options]) -> _Options:
    """What a row says; as for a new one where that cannot be read."""
    given = row.options if isinstance(row.options, dict) else {}
    try:
        return kind.read(given)
    except ImproperlyConfigured:
        return kind()


# The form of a model exposure ---------------------------------------------------------------------

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
        said = _options_of(self.instance, ModelOptions)
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
        kept = _options_of(self.instance, ModelOptions)
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
            # ``_problems_of`` reports a field that the model no longer has.
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


# The form of a view exposure ----------------------------------------------------------------------

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
        said = _options_of(self.instance, ViewOptions)
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
