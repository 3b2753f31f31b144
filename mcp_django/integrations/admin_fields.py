"""Options that are derived from a ``ModelAdmin``, and the fields that it shows to each caller.

The fields are those of the admin's list and of its form. A row of a list has the columns and the
references to one object; an object that is read alone also has its many-to-many relations and the
rows of the admin's inlines. Methods of the admin that decide for each request are called for each
caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.admin import ModelAdmin
from django.contrib.admin.options import BaseModelAdmin, InlineModelAdmin
from django.contrib.admin.utils import flatten_fieldsets, label_for_field, lookup_field
from django.contrib.auth.forms import ReadOnlyPasswordHashField
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured, ObjectDoesNotExist
from django.db.models import Model
from django.forms.models import _get_foreign_key
from django.utils.safestring import SafeData
from django.utils.text import slugify
from django.utils.translation import override

from mcp_django.components.context import Context
from mcp_django.integrations.admin_actions import AdminDeclaration, admin_request
from mcp_django.integrations.html_text import strip_markup
from mcp_django.integrations.models.columns import (
    Column,
    FieldPath,
    default_lookups,
    resolve_path,
)
from mcp_django.integrations.models.exposed_fields import (
    MAX_RELATED,
    ExposedFields,
    fits_in_cursor,
)
from mcp_django.integrations.site_requests import superuser_context
from mcp_django.schema.deferred import runs_own_code
from mcp_django.schema.secrets import is_secret_name
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable

LABEL = "label"
# Methods of the admin that may show some fields to some callers only.
_FIELD_HOOKS = ("get_form", "get_formset", "get_fields", "get_fieldsets", "get_exclude")
FORM_HOOKS = (
    *("get_form", "get_fields", "get_fieldsets", "get_exclude", "get_readonly_fields"),
    *("formfield_for_dbfield", "formfield_for_choice_field"),
    *("formfield_for_foreignkey", "formfield_for_manytomany"),
)
"""Methods of the admin that may build the form differently for some callers."""
_LIST_HOOK = "get_list_display"
_TEXT = "__str__"


class ShownFields:
    """The fields of a model that its admin, or one of its inlines, shows to a superuser.

    Only columns and relations of the model are shown, and none that looks like a secret.
    ``left_out`` lists the other fields, with reasons.
    """

    def __init__(self, admin: BaseModelAdmin[Any], server: Any, model_admin: Any) -> None:
        self.admin: Any = admin
        self.model = self.admin.model
        self._request = admin_request(superuser_context(server), model_admin)
        self.left_out: list[str] = []
        self._declared: set[str] = set()
        self.list_names = [
            name for name in getattr(admin, "list_display", ()) if isinstance(name, str)
        ]
        self.varies = any(self._overrides(name) for name in (*_FIELD_HOOKS, _LIST_HOOK))
        """Whether the admin may show fewer fields to some callers."""
        if not (self.admin.fields or self.admin.fieldsets):
            self.varies |= self._overrides("get_readonly_fields")

    def names(self) -> list[str]:
        """Return the columns and relations, in the order of the list and then of the form."""
        with override(None):
            fields = self._form_fields()
        names: list[str] = []
        for name in dict.fromkeys([*self.list_names, *fields]):
            field = fields.get(name)
            if self.path(name) is None:
                if name != _TEXT and field is None:
                    self.left_out.append(f"{name!r} is code; to include it, use fields=…")
                continue
            meta = getattr(self.admin.form, "_meta", None)
            if name in (self.admin.exclude or getattr(meta, "exclude", None) or ()):
                continue
            if is_secret_name(name) or _hides_value(field, is_declared=name in self._declared):
                self.left_out.append(
                    f"{name!r} is left out, because it may be a secret; to include it, use fields=…"
                )
                continue
            names.append(name)
        return names

    @property
    def always(self) -> set[str]:
        """The names that every caller who may view the rows sees."""
        key = self.model._meta.pk.name
        return {key} if self._overrides(_LIST_HOOK) else {key, *self.list_names}

    def path(self, name: str) -> FieldPath | None:
        """Return the column or relation of this name."""
        return find_path(self.model, name)

    def _overrides(self, name: str) -> bool:
        base = InlineModelAdmin if isinstance(self.admin, InlineModelAdmin) else ModelAdmin
        return hasattr(base, name) and getattr(type(self.admin), name) is not getattr(base, name)

    def _form_fields(self) -> dict[str, Any]:
        """Return the names that the form shows, each with its form field or ``None``."""
        admin, request = self.admin, self._request
        problem = ""
        for obj in (self.model(), None):
            # Some admins cannot show a form without an object, others not with an unsaved object.
            try:
                names = flatten_fieldsets(admin.get_fieldsets(request, obj))
                if isinstance(admin, InlineModelAdmin):
                    form = admin.get_formset(request, obj).form
                else:
                    form = admin.get_form(request, obj, change=obj is not None)
            except Exception as exc:  # noqa: BLE001 - the site's own code, possibly before its tables exist
                problem = f"{type(exc).__name__}: {exc}"
            else:
                self._declared = {*getattr(form, "declared_fields", ())}
                return {name: form.base_fields.get(name) for name in names}
        self.left_out.append(
            f"the form of {type(admin).__name__} cannot be built when tools are declared "
            f"({problem}), so only what its attributes name is shown"
        )
        written = admin.fieldsets or [(None, {"fields": admin.fields or ()})]
        declared = getattr(admin.form, "declared_fields", {})
        self._declared = {*declared}
        names = [*flatten_fieldsets(written), *admin.readonly_fields]
        return {name: declared.get(name) for name in names}


def _hides_value(field: forms.Field | None, *, is_declared: bool) -> bool:
    """Return whether a form field may show something other than the stored value."""
    if isinstance(field, ReadOnlyPasswordHashField) or isinstance(
        getattr(field, "widget", None), forms.PasswordInput
    ):
        return True
    if field is None or not is_declared:
        return False
    # A field of the site's form may mask the value.
    parts = (type(field), type(getattr(field.widget, "widget", field.widget)))
    return not all(part.__module__.startswith("django.") for part in parts)


def find_path(model: type[Model], name: Any) -> FieldPath | None:
    """Return the column or relation of this name, ``None`` if there is none."""
    try:
        return resolve_path(model, name, label="fields")
    except ImproperlyConfigured:
        return None


# Options derived from a ModelAdmin ----------------------------------------------------------------

# Search, filters and orders come from the attributes of the admin, which apply to every user who
# may open its list. If a method of the admin decides about them for each request, they are limited
# to the fields that every caller sees.

PREFIXES = "^=@"
DATE_PARTS = ("year", "month", "day")


def derive_options(
    model_admin: ModelAdmin[Any], fields: Iterable[str] | None, server: Any
) -> dict[str, Any]:
    """Return the options of a ``ModelAdmin``; ``fields`` replaces the fields that it shows.

    ``left_out`` lists what could not be derived.
    """
    reader = _OptionReader(model_admin, server)
    row_fields = list(fields) if fields is not None else reader.row_fields()
    derived = {} if fields is not None else reader.form_options()
    filtered = [*row_fields, *derived.get("object_fields", ())]
    return {
        "fields": row_fields,
        **derived,
        "search_fields": list(reader.search_fields(row_fields)),
        "filter_fields": reader.filter_fields(filtered),
        "ordering_fields": list(reader.ordering_fields(row_fields)),
        "ordering": list(reader.ordering(row_fields)),
        "left_out": reader.left_out,
    }


class _OptionReader:
    def __init__(self, model_admin: ModelAdmin[Any], server: Any) -> None:
        self._admin: Any = model_admin
        self._model = model_admin.model
        self._server = server
        self._shown = ShownFields(model_admin, server, model_admin)
        # Orders and pages reveal values, so they use only fields that every caller sees.
        self._always: set[str] | None = None
        self.left_out = self._shown.left_out

    def row_fields(self) -> list[str]:
        """Return the fields of a row of the list, with a key that identifies it."""
        names = self._names
        self._always = self._shown.always if self._shown.varies else None
        fields = [name for name in names if not self._is_many(name)]
        key = self._model._meta.pk.name
        # The fields that identify a row for every caller.
        identifying_fields = (
            name
            for name in fields
            if (path := self._shown.path(name)) is not None
            if not path.hops and not path.is_relation
            if self._always is None or name in self._always
            if path.field.unique and not path.field.null and Column(path.field).is_comparable
        )
        if key not in fields and not is_secret_name(key) and not any(identifying_fields):
            fields.insert(0, key)
        if _TEXT in self._shown.list_names and not self._has(LABEL):
            fields.append(LABEL)
        if set(fields) <= {key, LABEL}:
            self.left_out.append(
                f"{type(self._admin).__name__} shows no field, so only the key is; name the fields "
                "that callers may see in fields=…"
            )
        return fields

    def form_options(self) -> dict[str, Any]:
        """Return the options for an object that is read alone, and what all callers see."""
        return {
            "object_fields": [name for name in self._names if self._is_many(name)],
            "inlines": list(self._inlines()),
            "always_shown": self._always,
        }

    @cached_property
    def _names(self) -> list[str]:
        return self._shown.names()

    def _inlines(self) -> Iterator[tuple[str, str, ShownFields]]:
        """Yield the inlines: the name in results, the name of the foreign key, and the fields."""
        for inline_class in self._admin.inlines:
            inline = inline_class(self._model, self._admin.admin_site)
            what = f"inlines contains {inline_class.__name__}"
            try:
                reference = _get_foreign_key(self._model, inline.model, fk_name=inline.fk_name)
            except (AttributeError, ValueError):
                self.left_out.append(f"{what}, which refers to its object by no foreign key")
                continue
            if runs_own_code(inline.formset, "get_queryset", "__init__"):
                self.left_out.append(f"{what}, whose formset chooses its rows")
                continue
            if is_secret_name(inline.model._meta.pk.name):
                self.left_out.append(f"{what}, whose key may be a secret")
                continue
            shown_fields = ShownFields(inline, self._server, self._admin)
            name = reference.remote_field.get_accessor_name()
            if reference.remote_field.hidden:
                with override(None):
                    name = slugify(str(inline.model._meta.verbose_name_plural)).replace("-", "_")
            if self._has(name):
                self.left_out.append(f"{what}, and {name!r} is a field already")
                continue
            self.left_out += [f"{what}: {problem}" for problem in shown_fields.left_out]
            yield name, reference.name, shown_fields

    def _has(self, name: str) -> bool:
        return self._shown.path(name) is not None and name in self._names

    def _is_many(self, name: str) -> bool:
        path = self._shown.path(name)
        return path is not None and path.is_many

    def search_fields(self, fields: list[str]) -> Iterator[str]:
        """Yield the text columns that the admin searches and that are shown."""
        for written in self._admin.search_fields:
            name = written.lstrip(PREFIXES)
            # Without the lookup: ``email`` for ``email__icontains``.
            field, _, lookup = name.rpartition("__")
            path_of = self._shown.path
            if field and path_of(name) is None and path_of(field) is not None and lookup:
                name = field
            path = path_of(name)
            is_text = path is not None and not path.is_relation
            if not self._is_offered("get_search_fields", name):
                self._leave_out("search_fields", written, name, fields)
            elif is_text and Column(path.column).kind == "text" and name in fields:  # type: ignore[union-attr]
                yield name
            else:
                self._leave_out("search_fields", written, name, fields)

    def filter_fields(self, fields: list[str]) -> dict[str, list[str]]:
        """Return the fields of ``list_filter`` and ``date_hierarchy``, with their lookups."""
        lookups_by_field: dict[str, list[str]] = {}
        for written in self._admin.list_filter:
            name: Any = written[0] if isinstance(written, list | tuple) else written
            path = self._shown.path(name) if isinstance(name, str) else None
            is_offered = self._is_offered("get_list_filter", name)
            if (
                is_offered
                and path is not None
                and name in fields
                and Column(path.column).is_comparable
            ):
                lookups_by_field[name] = list(default_lookups(path))
            else:
                self._leave_out("list_filter", _filter_name(written), name, fields)
        date = self._admin.date_hierarchy
        path = self._shown.path(date) if date else None
        if date and path is not None and date in fields:
            lookups_by_field[date] = [*default_lookups(path), *DATE_PARTS]
        elif date:
            self._leave_out("date_hierarchy", date, date, fields)
        return lookups_by_field

    def ordering_fields(self, fields: list[str]) -> Iterator[str]:
        """Yield the columns by which the admin's list can be sorted."""
        admin = self._admin
        for name in admin.list_display if admin.sortable_by is None else admin.sortable_by:
            if isinstance(name, str) and name in fields and self._is_sortable(name):
                yield name

    def ordering(self, fields: list[str]) -> Iterator[str]:
        """Yield the default order of the list, up to the first field that cannot be used."""
        for written in self._admin.ordering or ():
            name = str(written).removeprefix("-")
            if name == "pk":
                name = self._model._meta.pk.name
            if not isinstance(written, str) or name not in fields or not self._is_sortable(name):
                self._leave_out("ordering", _filter_name(written), name, fields)
                return
            yield f"-{name}" if written.startswith("-") else name

    def _is_sortable(self, name: str) -> bool:
        path = self._shown.path(name)
        if path is None or path.is_many or not Column(path.column).is_comparable:
            return False
        if path.is_relation and not path.field.concrete:
            return False
        if self._always is not None and name not in self._always:
            return False
        return fits_in_cursor(path.column)

    def _is_offered(self, hook: str, name: Any) -> bool:
        """Return whether the admin lets every caller search or filter by a name."""
        is_fixed = getattr(type(self._admin), hook) is getattr(ModelAdmin, hook)
        return is_fixed or name in self._shown.always

    def _leave_out(self, option: str, written: str, name: Any, fields: list[str]) -> None:
        is_column = isinstance(name, str) and self._shown.path(name) is not None
        if is_column and name in fields and name not in self._shown.always:
            why = "which the admin may hide from some callers"
        elif is_column and name not in fields:
            why = "which is not in fields"
        else:
            why = "which has no counterpart"
        self.left_out.append(f"{option} contains {written!r}, {why}")


def _filter_name(written: Any) -> str:
    if isinstance(written, list | tuple):
        return str(written[0])
    return written if isinstance(written, str) else getattr(written, "__name__", str(written))


# Fields of the results ----------------------------------------------------------------------------


class AdminFields(ExposedFields):
    """The exposed fields of one ``ModelAdmin``.

    A column that a method of the admin or of the model computes is shown if ``fields`` names it.
    Rows cannot be filtered or ordered by it, and it cannot be written.
    """

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: AdminDeclaration
    ) -> None:
        self._tools = declaration
        self._admin = declaration.model_admin
        self._computed: list[str] = []
        name: Any  # Not validated yet.
        for name in fields:
            if not isinstance(name, str) or name.startswith("_") or find_path(model, name):
                continue
            # Not save(), delete() and the other attributes of every admin or model.
            if (
                name == LABEL
                or (hasattr(self._admin, name) and not hasattr(ModelAdmin, name))
                or (hasattr(model, name) and not hasattr(Model, name))
            ):
                self._computed.append(name)
        columns = [name for name in fields if name not in self._computed]
        super().__init__(model, columns, declaration=declaration)
        self.tree.needs_all_columns = bool(self._computed) or declaration.always_shown is not None
        self._relations = (
            ExposedFields(model, declaration.object_fields, declaration=declaration)
            if declaration.object_fields
            else None
        )
        self._inlines = {
            name: _InlineRows(declaration, reference, shown_fields)
            for name, reference, shown_fields in declaration.inlines
        }

    @cached_property
    def schema(self) -> Schema:
        """The schema of one row in results."""
        schema = super().schema
        with override(None):
            labels = {name: self._label(name) for name in self._computed}
        properties = {name: {"description": label} for name, label in labels.items()}
        required = schema.get("required", [])
        always = self._tools.always_shown
        if always is not None:
            required = [name for name in required if name in always]
        return {
            **schema,
            "properties": {**schema["properties"], **properties},
            "required": required,
        }

    @cached_property
    def object_schema(self) -> Schema:
        """The schema of an object that is read alone."""
        relations = {} if self._relations is None else self._relations.schema["properties"]
        rows = {name: inline_rows.schema for name, inline_rows in self._inlines.items()}
        cut = {
            f"{name}_cut": {
                "type": "boolean",
                "description": f"There are more than the {MAX_RELATED} shown.",
            }
            for name in rows
        }
        properties = {**self.schema["properties"], **relations, **rows, **cut}
        return {**self.schema, "properties": properties}

    @property
    def comparable_paths(self) -> Mapping[str, FieldPath]:
        """The paths that every caller sees, by which rows may be grouped and summed up."""
        always = self._tools.always_shown
        if always is None:
            return self.paths
        return {name: path for name, path in self.paths.items() if name in always}

    def require_path(self, text: str, *, option: str) -> FieldPath:
        """Return the path that an option names.

        Raises:
            ImproperlyConfigured: the path does not exist, or is not shown.
        """
        relations = self._relations
        if relations is not None and text in relations.paths:
            return relations.require_path(text, option=option)
        return super().require_path(text, option=option)

    def restricted_relations(self, path: FieldPath) -> dict[str, type[Model]]:
        """Return the relations on a path that show only rows that the caller may see."""
        relations = self._relations
        if relations is not None and path.text in relations.paths:
            return relations.restricted_relations(path)
        return super().restricted_relations(path)

    def dump(self, obj: Model, ctx: Context) -> dict[str, Any]:
        """Return an object of a prepared queryset as plain JSON, with relations and inlines."""
        row = super().dump(obj, ctx)
        hidden = self._hidden_names(obj, ctx)
        if self._relations is not None:
            rows = self.model._base_manager.using(obj._state.db).filter(pk=obj.pk)
            prepared = self._relations.prepare(rows, ctx).first()
            if prepared is not None:
                row |= _without(self._relations.dump(prepared, ctx), hidden)
        request = self._tools.request(ctx)
        instances = self._admin.get_inline_instances(request, obj) if self._inlines else ()
        for inline in instances:
            for name, inline_rows in self._inlines.items():
                if inline_rows.is_of(inline):
                    row |= inline_rows.dump(name, inline, obj, ctx)
        return row

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Return objects of a prepared queryset as plain JSON."""
        objects = list(objects)
        rows = super().dump_all(objects, ctx)
        for obj, row in zip(objects, rows, strict=True):
            row.update({name: self._value(obj, name) for name in self._computed})
        return [
            _without(row, self._hidden_names(obj, ctx))
            for obj, row in zip(objects, rows, strict=True)
        ]

    def _hidden_names(self, obj: Model, ctx: Context) -> set[str]:
        """Return the fields that the admin does not show to this caller."""
        if self._tools.always_shown is None:
            return set()
        request = self._tools.request(ctx)
        shown_names = {*map(str, self._admin.get_list_display(request)), self.model._meta.pk.name}
        shown_names |= {*flatten_fieldsets(self._admin.get_fieldsets(request, obj))}
        if _TEXT in shown_names:
            shown_names.add(LABEL)
        return {*self._tools.fields, *self._tools.object_fields} - shown_names

    def _source(self, name: str) -> str:
        is_text = name == LABEL and not hasattr(self._admin, name) and not hasattr(self.model, name)
        return _TEXT if is_text else name

    def _label(self, name: str) -> str:
        if self._source(name) == _TEXT:
            return "The object as the admin names it."
        return str(label_for_field(name, self.model, self._admin))

    def _value(self, obj: Model, name: str) -> Any:
        try:
            _, _, value = lookup_field(self._source(name), obj, self._admin)
        except ObjectDoesNotExist:
            # The admin shows an empty cell in this case, too.
            return None
        if isinstance(value, SafeData):
            return strip_markup(str(value))
        try:
            return jsonable(value)
        except (TypeError, ValueError):
            return str(value)


def _without(row: dict[str, Any], hidden: set[str]) -> dict[str, Any]:
    """Return a row without the hidden paths, which may lead to related objects."""
    visible: dict[str, Any] = {}
    for name, value in row.items():
        if name.removesuffix("_cut") in hidden:
            continue
        inner = {path.removeprefix(f"{name}__") for path in hidden if path.startswith(f"{name}__")}
        if not inner:
            visible[name] = value
        elif isinstance(value, dict) and (rest := _without(value, inner)):
            visible[name] = rest
        elif isinstance(value, list):
            visible[name] = [_without(related_row, inner) for related_row in value]
    return visible


class _InlineRows:
    """The rows of an inline, as the page of its object shows them."""

    def __init__(
        self, declaration: AdminDeclaration, reference: str, shown_fields: ShownFields
    ) -> None:
        self._shown = shown_fields
        self._reference = reference
        names = [name for name in shown_fields.names() if name != reference]
        key = shown_fields.model._meta.pk.name
        fields = names if key in names else [key, *names]
        self._fields = ExposedFields(shown_fields.model, fields, declaration=declaration)
        self._tools = declaration

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        schema = self._fields.schema
        if self._shown.varies:
            schema = {**schema, "required": [self._shown.model._meta.pk.name]}
        return {"type": "array", "items": schema}

    def is_of(self, inline: InlineModelAdmin[Any, Any]) -> bool:
        """Return whether these are the rows of the inline."""
        return type(inline) is type(self._shown.admin)

    def dump(
        self, name: str, inline: InlineModelAdmin[Any, Any], obj: Model, ctx: Context
    ) -> dict[str, Any]:
        """Return the rows that this caller sees; nothing if the inline is not shown."""
        request = self._tools.request(ctx)
        if not inline.has_view_or_change_permission(request, obj):
            return {}
        column: Any = self._shown.model._meta.get_field(self._reference)
        value = getattr(obj, column.target_field.attname)
        queryset = inline.get_queryset(request).filter(**{self._reference: value}).order_by("pk")
        instances = list(self._fields.prepare(queryset, ctx)[: MAX_RELATED + 1])
        rows = self._fields.dump_all(instances[:MAX_RELATED], ctx)
        if self._shown.varies:
            names = {*flatten_fieldsets(inline.get_fieldsets(request, obj))}
            names.add(self._shown.model._meta.pk.name)
            rows = [{key: value for key, value in row.items() if key in names} for row in rows]
        return {name: rows, **({f"{name}_cut": True} if len(instances) > MAX_RELATED else {})}


def is_protected(model: type[Model], name: str, *, is_change: bool) -> bool:
    """Return whether assistants cannot write a field unless the site names it.

    Such fields are secrets, such as tokens, and ``is_superuser``, which gives every permission. A
    new object may need a secret that has no default.
    """
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        # Only the form has this field, such as a new password that is typed twice.
        return False
    if not is_secret_name(name):
        return name == "is_superuser"
    return is_change or field.blank or field.has_default()  # type: ignore[union-attr]
