"""Forms of exposed models and exposed views, and the preview of what clients would get.

The components that a form describes are built and checked before the row is saved.
"""

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.db.models import Model
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_lazy as _

from mcp_django.admin.base import find_server, text_area
from mcp_django.admin.components import describe_audience
from mcp_django.admin.exposure_fields import USES, ExcludedPaths, FieldTable, PathRow, path_rows
from mcp_django.admin.override_forms import CODE, RestrictedForm, ScopesField
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.execution.handlers.entries import component_type, estimate_tokens
from mcp_django.execution.policy import is_visible
from mcp_django.integrations.models.columns import resolve_path
from mcp_django.integrations.models.declaration import MAX_PAGE_SIZE, NAME, ModelComponents
from mcp_django.integrations.models.exposed_fields import identifies_object
from mcp_django.integrations.models.row_access import codename, filter_viewable
from mcp_django.integrations.models.write_forms import missing_columns
from mcp_django.integrations.views import has_form
from mcp_django.models import Component as ComponentRow, Exposure, ModelExposure, ViewExposure
from mcp_django.overrides import state
from mcp_django.overrides.exposure_rules import (
    OPERATIONS,
    PARAMETER_TYPES,
    PERMISSION_ACTIONS,
    READING,
    ModelOptions,
    ViewOptions,
)
from mcp_django.overrides.exposures import (
    METHODS,
    NAME as VIEW_NAME,
    StagingServer,
    build_exposures,
    file_fields_of,
    is_rest,
    model_of,
    route_of,
)
from mcp_django.overrides.override_values import (
    EMPTY_OVERRIDE,
    ExposureSpec,
    apply_override,
    read_exposures,
    spec_of,
)
from mcp_django.protocol.revisions import LATEST
from mcp_django.protocol.text import clip
from mcp_django.server import MCPServer

logger = logging.getLogger("mcp_django")

SAMPLE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEntry:
    """One entry of a list as clients get it, with its estimated tokens."""

    kind: str
    key: str
    text: str
    tokens: int
    files: list[str]
    """The form fields that the component leaves out, since JSON cannot carry files."""
    is_visible: bool
    """Whether the list of the admin's user contains the component."""
    audience: str
    """How many users can use it, and what it requires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSample:
    """The first rows that the current user sees, as texts; ``note`` is the reason without rows."""

    names: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposurePreview:
    """The preview below the form: the entries that clients get, and rows that the user sees."""

    entries: list[ListEntry]
    problems: list[str]
    sample: RowSample | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of all entries in a model's context."""
        return sum(list_entry.tokens for list_entry in self.entries)


def build_preview(spec: ExposureSpec, user: Any) -> ExposurePreview:
    """Return the preview of a row, as this user would see its components; nothing is saved."""
    server = find_server(spec.server)
    server_overrides = state.read_overrides().get(spec.server, state.NO_OVERRIDES)
    others = [exposure for exposure in server_overrides.exposures if exposure.pk != spec.pk]
    build_result = build_exposures(server, spec.server, [*others, spec])
    principal = principal_for(user)
    overridden = (
        apply_override(
            component,
            server_overrides.overrides.get((component.kind, component.key), EMPTY_OVERRIDE),
        )
        for component in build_result.components_of(spec)
    )
    components = [component for component in overridden if component is not None]
    return ExposurePreview(
        entries=[_entry(server, component, principal) for component in components],
        problems=[problem.reason for problem in build_result.problems_of(spec)],
        sample=_sample_rows(server, build_result.declarations(spec), components, principal),
    )


def _entry(server: MCPServer | None, component: Component, principal: Principal) -> ListEntry:
    wire = component_type(component).describe(component)
    return ListEntry(
        kind=component.kind,
        key=component.key,
        text=json.dumps(wire, indent=2, ensure_ascii=False, default=str),
        tokens=estimate_tokens(wire),
        files=sorted(file_fields_of(component)),
        is_visible=is_visible(principal, component),
        audience=" ".join(describe_audience(server, component)) if server is not None else "",
    )


def _sample_rows(
    server: Any,
    declarations: list[ModelComponents[Any]],
    components: list[Component],
    principal: Principal,
) -> RowSample | None:
    """Return the first rows of a model, filtered by the same row rule as those of a call."""
    if server is None or not declarations:
        return None
    read_only_components = [component for component in components if component.read_only]
    if not any(is_visible(principal, component) for component in read_only_components):
        return RowSample(note=gettext("You may not see these rows."))
    declaration = declarations[-1]
    ctx = Context(server=server, principal=principal, protocol_version=LATEST.version)
    try:
        with transaction.atomic(using=router.db_for_read(declaration.model)):
            rows = _rows(declaration, ctx)
    except Exception:
        # This runs the site's own code: managers, row rules and ``__str__`` methods.
        logger.exception("The rows of the %s cannot be shown.", declaration)
        return RowSample(note=gettext("The rows cannot be read; the error was logged."))
    if not rows:
        return RowSample(note=gettext("No rows are visible to you."))
    names = list(rows[0])
    texts = [[_cell_text(row[name]) for name in names] for row in rows]
    return RowSample(names=names, rows=texts)


def _rows(declaration: ModelComponents[Any], ctx: Context) -> list[dict[str, Any]]:
    queryset = filter_viewable(declaration, ctx, declaration.rows(ctx)).order_by("pk")
    exposed = declaration.exposed
    return exposed.dump_all(exposed.prepare(queryset, ctx)[:SAMPLE], ctx)


def _cell_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return clip(text, limit=301)


# The base form of both kinds ----------------------------------------------------------------------

PREVIEW = "_preview"
"""The name of the button that shows a preview and saves nothing."""


class ExposureForm(RestrictedForm):
    """Base form: permissions, and a check that the row can be built.

    ``choice`` has the server and target of a new row. If the user requested a preview,
    ``preview`` contains it and the form is never valid, so that the admin saves nothing and shows
    the form again.
    """

    help_of_names: ClassVar[Mapping[str, Any]] = {
        "groups": _("Restrict to members of these groups, in addition to the other requirements."),
        "permissions": _(
            "Restrict to users with all of these permissions, in addition to the other "
            "requirements."
        ),
    }
    scopes = ScopesField(help_text=_("Scopes that a token needs, separated by spaces."))

    kind: ClassVar[str] = ""
    options_class: ClassVar[type[ModelOptions | ViewOptions]]
    user: Any = None
    choice: ClassVar[Mapping[str, str]] = {}
    is_preview = False
    preview: ExposurePreview | None = None
    error_fields: ClassVar[Mapping[str, str]] = {}
    """The form field that shows an error, by the first word of its message."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, value in self.choice.items():
            setattr(self.instance, name, value)
        self.instance.kind = self.kind
        if self.instance.pk is None and self.kind == Exposure.Kind.VIEW:
            # The form cannot know what a view does, so a user has to enable it.
            self.initial["is_enabled"] = False
        self.stored: Any
        try:
            self.stored = self.options_class.from_json(
                self.instance.options if isinstance(self.instance.options, dict) else {}
            )
        except ImproperlyConfigured:
            self.stored = self.options_class()
        self.initial.update(asdict(self.stored))

    def is_valid(self) -> bool:
        """Return whether the row may be saved; always false for a preview."""
        is_valid = super().is_valid()
        if is_valid and self.is_preview:
            self.preview = build_preview(self.spec(), self.user)
        return is_valid and not self.is_preview

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """Return the options of the form, as the row stores them.

        Raises:
            ImproperlyConfigured: the options are invalid.
        """

    def spec(self) -> ExposureSpec:
        """Return the values that the row would have."""
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
        """Report why the row cannot be built, with the errors of the same registration in code."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            self.check_rights()
        if not self.errors:
            self.check_choices()
        if self.errors:
            return cleaned
        spec, target = self.spec(), self.instance.target
        exposures = read_exposures().get(spec.server, ())
        others = [exposure for exposure in exposures if exposure.pk != spec.pk]
        build_result = build_exposures(find_server(spec.server), spec.server, [*others, spec])
        for problem in build_result.problems_of(spec):
            if problem.component is not None:
                message = _(
                    "The site's code already has a %(kind)s named %(name)s; choose another name."
                )
                kind, name = ComponentRow.Kind(problem.component.kind), problem.component.key
                params = {"kind": kind.label, "name": name}
                self.add_error("name", forms.ValidationError(message, params=params))
                continue
            # Without the prefix of the reason: the form already shows which row it is about.
            reason = problem.reason.removeprefix(f"exposure of {target}: ")
            reason = reason.removeprefix(f"register_view({target!r}): ")
            word = reason.split(maxsplit=1)[0].rstrip(":=")
            field = self.error_fields.get(word.partition("=")[0])
            self.add_error(field if field in self.fields else None, reason)
        if not self.errors:
            self.instance.options = self.options()
        return cleaned

    def check_rights(self) -> None:
        """Report what the user does not have the permission to expose."""

    def check_choices(self) -> None:
        """Report common mistakes at the field to correct, before the row is built."""


OPERATION_LABELS = {
    "list": _("List, with filters and pages"),
    "get": _("Get one"),
    "count": _("Count and aggregate"),
    "create": _("Create (writes)"),
    "update": _("Update (writes)"),
    "delete": _("Delete (writes)"),
}
FLAGS = ("is_listed", "subscribe")


class ModelExposureForm(ExposureForm):
    """The form of an exposed model: fields and their uses, operations, and resources."""

    kind = "model"
    options_class = ModelOptions
    error_fields: ClassVar[dict[str, str]] = {
        **dict.fromkeys(USES, "paths"),
        **dict.fromkeys(("key", "nothing", "create"), "paths"),
        **dict.fromkeys(("tools", "operations"), "operations"),
        **{name: name for name in ("name", "plural", "page_size", "uri", "ordering")},
    }

    paths = FieldTable(
        label=_("Fields"),
        help_text=_(
            "Clients cannot access fields that are not shown. Fields that cannot be exposed are "
            "listed below the table."
        ),
    )
    ordering = forms.ChoiceField(
        label=_("Default ordering"),
        required=False,
        help_text=_("Empty: the model's ordering, as far as its fields are shown."),
    )
    operations = forms.MultipleChoiceField(
        label=_("Tools"),
        required=False,
        choices=[(name, OPERATION_LABELS[name]) for name in OPERATIONS],
        initial=list(READING),
        widget=forms.CheckboxSelectMultiple,
        help_text=_(
            "Each requires the matching Django permission. Tools that write can preview changes."
        ),
    )
    page_size = forms.IntegerField(
        label=_("Rows per page"), min_value=1, max_value=MAX_PAGE_SIZE, initial=50
    )
    plural = forms.CharField(
        label=_("Plural name"),
        required=False,
        max_length=60,
        widget=CODE,
        help_text=_("As in list_orders; empty: derived from the model."),
    )
    description = forms.CharField(
        label=_("Description"),
        required=False,
        max_length=2000,
        widget=text_area(3),
        help_text=_("One or two sentences for language models; added to each description."),
    )
    uri = forms.CharField(
        label=_("URI of one object"),
        required=False,
        max_length=200,
        widget=CODE,
        help_text=_(
            "For example shop://orders/{number}, with unique fields that are shown; empty: no "
            "resources."
        ),
    )
    is_listed = forms.BooleanField(label=_("List the objects as resources"), required=False)
    subscribe = forms.BooleanField(
        label=_("Notify subscribers of changes"),
        required=False,
        help_text=_("When objects are saved and deleted, but not when they are updated in bulk."),
    )

    class Meta:
        model = ModelExposure
        fields = ["is_enabled", "name", "groups", "permissions", "scopes"]
        help_texts = {
            "is_enabled": _("For clients, a disabled component does not exist."),
            "name": _("As in get_order; empty: derived from the model."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        chosen = {use: list(self.initial[use]) for use in USES}
        self.initial.update(paths=chosen, ordering="".join(self.stored.ordering[:1]))
        self._model: type[Model] | None = None
        # ``check_rights`` and the preview report a model that no longer exists.
        with suppress(ImproperlyConfigured):
            self._model = model_of(self.instance.target)
        chosen_paths = [name for names in chosen.values() for name in names]
        rows: list[PathRow] = []
        left_out: list[ExcludedPaths] = []
        if self._model is not None:
            server = self.instance.server
            rows, left_out = path_rows(
                self._model, StagingServer(server, find_server(server)), chosen_paths
            )
        if "paths" in self.fields:
            self.fields["paths"].set_choices(rows, left_out)  # type: ignore[attr-defined]  # a FieldTable
        if "ordering" in self.fields:
            field: Any = self.fields["ordering"]
            down = _("descending")
            orders = [row.path for row in rows if "ordering_fields" in row.uses]
            pairs = [((path, path), (f"-{path}", f"{path} ({down})")) for path in orders]
            field.choices = [("", "---------"), *(choice for pair in pairs for choice in pair)]

    def options(self) -> dict[str, Any]:
        """Return the options of the form, as the row stores them."""
        values = self.cleaned_data
        ordering = (values["ordering"],) if values["ordering"] else ()
        if self.stored.ordering[:1] == ordering:
            ordering = self.stored.ordering
        return ModelOptions(
            **values["paths"],
            ordering=ordering,
            operations=tuple(values["operations"]),
            description=values["description"].replace("\r\n", "\n"),
            **{name: values[name] for name in ("page_size", "plural", "uri", *FLAGS)},
        ).to_json()

    def check_rights(self) -> None:
        """Report permissions that the user lacks: users expose only what they may access."""
        if self._model is None:
            self.add_error(None, _("The site no longer has this model, or it may not be exposed."))
            return
        options = ModelOptions.from_json(self.options())
        needed = {
            codename(self._model, action): (
                "operations" if action in PERMISSION_ACTIONS.values() else None
            )
            for action in options.actions
        }
        for path in options.fields:
            # ``clean`` reports a field that the model no longer has.
            with suppress(ImproperlyConfigured):
                for hop in resolve_path(self._model, path, label="").hops:
                    needed.setdefault(codename(hop.related_model, "view"), "paths")
        for permission, place in needed.items():
            if not self.user.has_perm(permission):
                message = _("You lack the permission %(permission)s, so you cannot expose this.")
                self.add_error(
                    place, forms.ValidationError(message, params={"permission": permission})
                )

    def check_choices(self) -> None:
        """Report what is missing for the chosen tools."""
        assert self._model is not None
        options = ModelOptions.from_json(self.options())
        chosen, names = {*options.operations}, {"objects": self._model._meta.verbose_name_plural}
        if not chosen and not options.uri:
            self.add_error(
                "operations", _("Select at least one tool, or enter the URI of one object.")
            )
        for name in ("name", "plural"):
            if self.cleaned_data.get(name) and not NAME.fullmatch(self.cleaned_data[name]):
                message = _("Start with a lowercase letter; then lowercase letters, digits and _.")
                self.add_error(name, message)
        if chosen & {"create", "update"} and not options.write_fields:
            message = _("Select “Written” for the fields of %(objects)s that clients may set.")
            self.add_error("paths", forms.ValidationError(message, params=names))
        elif "create" in chosen:
            self._check_required_columns(options.write_fields, names)
        if (chosen - {"count"} or options.uri) and not self._has_key(options.fields):
            message = _(
                "Select “Shown” for a field that is unique, such as %(field)s; clients need it "
                "to name one of the %(objects)s."
            )
            example = self._model._meta.pk.attname
            params = {**names, "field": example}
            self.add_error("paths", forms.ValidationError(message, params=params))

    def _check_required_columns(self, written: Sequence[str], names: Mapping[str, Any]) -> None:
        assert self._model is not None
        missing = missing_columns(self._model, written)
        if not missing:
            return
        table: Any = self.fields["paths"]
        writable = {row.path for row in table.rows if "write_fields" in row.uses}
        locked = [column.name for column in missing if column.name not in writable]
        if locked:
            place, missing_names = "operations", locked
            message = _(
                "New %(objects)s need %(fields)s, which clients cannot set; clear “Create”, or ask "
                "a developer to expose the model in code."
            )
        else:
            place, missing_names = "paths", [column.name for column in missing]
            message = _("To create %(objects)s, select “Written” for %(fields)s as well.")
        params = {**names, "fields": ", ".join(missing_names)}
        self.add_error(place, forms.ValidationError(message, params=params))

    def _has_key(self, field_paths: Sequence[str]) -> bool:
        """Return whether a shown column identifies an object; true if a column no longer exists."""
        assert self._model is not None
        try:
            paths = [resolve_path(self._model, path, label="") for path in field_paths]
        except ImproperlyConfigured:
            return True
        return any(not path.hops and identifies_object(path.column) for path in paths)


BECOMES = [
    ("tool", _("A tool that reads the page")),
    ("resource", _("A resource, or a template of them")),
    ("prompt", _("A prompt whose text is the page")),
    ("form", _("A tool that posts the page's form (writes)")),
]


class ViewExposureForm(ExposureForm):
    """The form of an exposed view: the component that it becomes."""

    kind = "view"
    options_class = ViewOptions
    error_fields: ClassVar[dict[str, str]] = {
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
        help_text=_(
            "For resources only, for example shop://prices/{season}, with the URL's variables."
        ),
    )
    query = forms.CharField(
        label=_("Query parameters"),
        required=False,
        max_length=2000,
        widget=text_area(3, dir="ltr"),
        help_text=format_lazy(
            "{} {}",
            _("One per line with its type, for example season: text. Types:"),
            ", ".join(PARAMETER_TYPES),
        ),
    )
    methods = forms.MultipleChoiceField(
        label=_("Methods"),
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("Each becomes a tool; all except get may write, if the view allows it."),
    )
    is_readable = forms.BooleanField(label=_("Convert HTML to text"), required=False, initial=True)
    title = forms.CharField(label=_("Title"), required=False, max_length=200)
    description = forms.CharField(
        label=_("Description"),
        required=False,
        max_length=2000,
        widget=text_area(3),
        help_text=_("The text that models read; empty: the description of the view in code."),
    )

    class Meta:
        model = ViewExposure
        fields = ["is_enabled", "name", "groups", "permissions", "scopes"]
        help_texts = {
            "is_enabled": _("For clients, a disabled component does not exist."),
            "name": _("Empty: derived from the URL."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["query"] = "\n".join(self.stored.query)
        methods = rest_methods_of(self.instance.target)
        # For a view of REST framework only the methods can be chosen.
        for name in ("becomes", "uri", "query", "is_readable") if methods else ("methods",):
            self.fields.pop(name, None)
        field: Any
        if "becomes" in self.fields:
            route = None
            with suppress(ImproperlyConfigured):
                route = route_of(self.instance.target)
            # The row may already expose the view as a form.
            if route is not None and self.stored.becomes != "form" and not has_form(route.view):
                field = self.fields["becomes"]
                field.choices = [choice for choice in BECOMES if choice[0] != "form"]
        if "methods" in self.fields:
            field = self.fields["methods"]
            field.choices = [(method, method.upper()) for method in methods]

    def check_choices(self) -> None:
        """Check that a resource has a URI and nothing else has one, and check the name."""
        values = self.cleaned_data
        is_resource = values.get("becomes") == "resource"
        if is_resource and not values.get("uri"):
            self.add_error("uri", _("A resource needs a URI, for example shop://prices/{season}."))
        if values.get("uri") and not is_resource:
            self.add_error("uri", _("Only a resource has a URI; leave it empty."))
        if values.get("name") and not VIEW_NAME.fullmatch(values["name"]):
            message = _("Use at most 100 characters: letters without accents, digits, _, . and -.")
            self.add_error("name", message)

    def options(self) -> dict[str, Any]:
        """Return the options of the form, as the row stores them."""
        values = self.cleaned_data
        lines = [line.strip() for line in values.get("query", "").splitlines()]
        usual = ViewOptions()
        return ViewOptions(
            becomes=values.get("becomes") or usual.becomes,
            uri=values.get("uri", ""),
            query=tuple(line for line in lines if line),
            methods=tuple(values.get("methods") or usual.methods),
            is_readable=values.get("is_readable", True) or values.get("becomes") == "form",
            title=values["title"],
            description=values["description"].replace("\r\n", "\n"),
        ).to_json()


def rest_methods_of(target: str) -> list[str]:
    """Return the HTTP methods of this URL's REST framework view; none for any other view."""
    try:
        route = route_of(target)
    except ImproperlyConfigured:
        return []
    if not is_rest(route):
        return []
    actions = getattr(route.callback, "actions", None)
    names = dir(route.view) if actions is None else actions
    return [method for method in METHODS if method in names]
