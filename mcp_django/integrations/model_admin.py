"""A ``ModelAdmin`` as tools, with the fields, filters, permissions, forms and log of the admin.

Each call uses the methods of the ``ModelAdmin`` with a request of the caller: which rows there
are, what the caller may do, with which form, and how an object is saved and logged. The site's
own admin is not changed. This module is imported when it is first used, because a site may not
use the admin.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets, label_for_field, lookup_field
from django.core.exceptions import (
    FieldDoesNotExist,
    ImproperlyConfigured,
    ObjectDoesNotExist,
    PermissionDenied,
)
from django.db.models import FileField, Model, QuerySet
from django.utils.module_loading import autodiscover_modules
from django.utils.safestring import SafeData
from django.utils.translation import gettext, override

from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.integrations.admin_actions import action_tool, admin_request, superuser_context
from mcp_django.integrations.html_text import strip_markup
from mcp_django.integrations.models import write_effects
from mcp_django.integrations.models.columns import (
    Column,
    FieldPath,
    default_lookups,
    resolve_path,
)
from mcp_django.integrations.models.declaration import Action, ModelResource, ModelTools
from mcp_django.integrations.models.exposed_fields import ExposedFields, fits_in_cursor
from mcp_django.integrations.models.write_forms import FormInputs
from mcp_django.integrations.site_requests import CallerRequest
from mcp_django.protocol.text import nearest
from mcp_django.schema.arguments import (
    InvalidArguments,
    ValidationProblem,
    unknown_argument_problem,
)
from mcp_django.schema.secrets import is_secret_name
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable

# Options derived from a ModelAdmin ----------------------------------------------------------------

# Only the attributes of the ``ModelAdmin`` are used; what a method computes for each request is
# not known at registration. Only columns and relations of the model are used, and none that its
# form hides (such as a password), so that nothing is exposed that the admin shows differently.

PREFIXES = "^=@"
DATE_PARTS = ("year", "month", "day")


def _derive_options(model_admin: ModelAdmin[Any], fields: Iterable[str] | None) -> dict[str, Any]:
    """Return the options of a ``ModelAdmin``; ``fields`` replaces the fields that it shows.

    ``left_out`` lists what could not be derived.
    """
    reading = _OptionReader(model_admin)
    shown = list(fields) if fields is not None else list(reading.fields())
    return {
        "fields": shown,
        "search_fields": list(reading.search_fields(shown)),
        "filter_fields": reading.filter_fields(shown),
        "ordering_fields": list(reading.ordering_fields(shown)),
        "ordering": list(reading.ordering(shown)),
        "left_out": reading.left_out,
    }


class _OptionReader:
    def __init__(self, model_admin: ModelAdmin[Any]) -> None:
        self._admin = model_admin
        self._model = model_admin.model
        self.left_out: list[str] = []

    # Fields ---------------------------------------------------------------------------------------

    def fields(self) -> Iterator[str]:
        """Yield the columns and relations that the admin shows, and the key if none is unique."""
        found = list(dict.fromkeys(name for name in self._shown_names() if self._may_expose(name)))
        if not any(self._is_unique(name) for name in found):
            yield self._model._meta.pk.name
        yield from found

    def _shown_names(self) -> Iterator[str]:
        admin: Any = self._admin
        written = admin.fieldsets or [(None, {"fields": admin.fields or ()})]
        for name in (*admin.list_display, *flatten_fieldsets(written), *admin.readonly_fields):
            # Callables and methods of the admin or of the model are not fields.
            if isinstance(name, str) and self._path(name) is not None:
                yield name

    def _may_expose(self, name: str) -> bool:
        form: Any = self._admin.form
        meta = getattr(form, "_meta", None)
        excluded = self._admin.exclude or getattr(meta, "exclude", None) or ()
        if name in excluded:
            return False
        widgets = getattr(meta, "widgets", None) or {}
        is_hidden = isinstance(_widget_instance(widgets.get(name)), forms.PasswordInput)
        is_secret = is_secret_name(name)
        # The form may show a field that it declares differently from the stored value.
        if is_hidden or is_secret or name in form.declared_fields:
            self.left_out.append(
                f"{name!r} is left out, because it may be a secret; to include it, use fields=…"
            )
            return False
        return True

    def _is_unique(self, name: str) -> bool:
        path = self._path(name)
        if path is None or path.hops or path.is_relation:
            return False
        return bool(path.field.unique and not path.field.null and Column(path.field).is_comparable)

    # Search, filters and ordering -----------------------------------------------------------------

    def search_fields(self, shown: list[str]) -> Iterator[str]:
        """Yield the text columns that the admin searches and that are shown."""
        for written in self._admin.search_fields:
            name = self._without_lookup(written.lstrip(PREFIXES))
            path = self._path(name)
            is_text = path is not None and not path.is_relation
            if is_text and Column(path.column).kind == "text" and name in shown:  # type: ignore[union-attr]
                yield name
            else:
                self._leave_out("search_fields", written, name, shown)

    def filter_fields(self, shown: list[str]) -> dict[str, list[str]]:
        """Return the fields of ``list_filter`` and ``date_hierarchy``, with their lookups."""
        found: dict[str, list[str]] = {}
        for written in self._admin.list_filter:
            name: Any = written[0] if isinstance(written, list | tuple) else written
            path = self._path(name) if isinstance(name, str) else None
            if path is not None and name in shown and Column(path.column).is_comparable:
                found[name] = list(default_lookups(path))
            else:
                self._leave_out("list_filter", _filter_name(written), name, shown)
        date = self._admin.date_hierarchy
        path = self._path(date) if date else None
        if date and path is not None and date in shown:
            found[date] = [*default_lookups(path), *DATE_PARTS]
        elif date:
            self._leave_out("date_hierarchy", date, date, shown)
        return found

    def ordering_fields(self, shown: list[str]) -> Iterator[str]:
        """Yield the columns by which the admin's list can be sorted."""
        admin: Any = self._admin
        for name in admin.list_display if admin.sortable_by is None else admin.sortable_by:
            if isinstance(name, str) and name in shown and self._is_sortable(name):
                yield name

    def ordering(self, shown: list[str]) -> Iterator[str]:
        """Yield the default order of the list, up to the first field that cannot be used."""
        for written in self._admin.ordering or ():
            name = str(written).removeprefix("-")
            if name == "pk":
                name = self._model._meta.pk.name
            if not isinstance(written, str) or name not in shown or not self._is_sortable(name):
                self._leave_out("ordering", _filter_name(written), name, shown)
                return
            yield f"-{name}" if written.startswith("-") else name

    def _is_sortable(self, name: str) -> bool:
        path = self._path(name)
        if path is None or path.is_many or not Column(path.column).is_comparable:
            return False
        if path.is_relation and not path.field.concrete:
            return False
        return fits_in_cursor(path.column)

    # Helpers --------------------------------------------------------------------------------------

    def _path(self, name: str) -> FieldPath | None:
        return _find_path(self._model, name)

    def _without_lookup(self, name: str) -> str:
        """Return a search field without its lookup: ``email`` for ``email__icontains``."""
        before, _, last = name.rpartition("__")
        if before and self._path(name) is None and self._path(before) is not None and last:
            return before
        return name

    def _leave_out(self, option: str, written: str, name: Any, shown: list[str]) -> None:
        is_hidden = isinstance(name, str) and self._path(name) is not None and name not in shown
        why = "which is not in fields" if is_hidden else "which has no counterpart"
        self.left_out.append(f"{option} contains {written!r}, {why}")


def _filter_name(written: Any) -> str:
    if isinstance(written, list | tuple):
        return str(written[0])
    return written if isinstance(written, str) else getattr(written, "__name__", str(written))


def _widget_instance(widget: Any) -> Any:
    return widget() if isinstance(widget, type) else widget


# Computed columns of the admin's list -------------------------------------------------------------


class AdminFields(ExposedFields):
    """The exposed fields of one ``ModelAdmin``.

    A column that a method of the admin or of the model computes is shown if ``fields`` names it.
    It cannot be filtered by, ordered by or written.
    """

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: AdminTools[Any]
    ) -> None:
        self._admin = declaration.model_admin
        self._computed = [name for name in fields if self._is_computed(model, name)]
        columns = [name for name in fields if name not in self._computed]
        super().__init__(model, columns, declaration=declaration)
        self.tree.needs_all_columns = bool(self._computed)

    @cached_property
    def schema(self) -> Schema:
        """The schema of one object in results."""
        schema = super().schema
        with override(None):
            labels = {name: self._label(name) for name in self._computed}
        shown = {name: {"description": label} for name, label in labels.items()}
        return {**schema, "properties": {**schema["properties"], **shown}}

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Return objects of a prepared queryset as plain JSON."""
        found = list(objects)
        rows = super().dump_all(found, ctx)
        for obj, row in zip(found, rows, strict=True):
            row.update({name: self._value(obj, name) for name in self._computed})
        return rows

    def _is_computed(self, model: type[Model], name: Any) -> bool:
        """Return whether the site's admin or model defines a method or property of this name."""
        if not isinstance(name, str) or name.startswith("_") or _find_path(model, name):
            return False
        own = hasattr(self._admin, name) and not hasattr(ModelAdmin, name)
        # Not save(), delete() and the other attributes of every model.
        return own or (hasattr(model, name) and not hasattr(Model, name))

    def _label(self, name: str) -> str:
        return str(label_for_field(name, self.model, self._admin))

    def _value(self, obj: Model, name: str) -> Any:
        try:
            _, _, value = lookup_field(name, obj, self._admin)
        except ObjectDoesNotExist:
            # The admin shows an empty cell in this case, too.
            return None
        if isinstance(value, SafeData):
            return strip_markup(str(value))
        try:
            return jsonable(value)
        except (TypeError, ValueError):
            return str(value)


def _find_path(model: type[Model], name: str) -> FieldPath | None:
    try:
        return resolve_path(model, name, label="fields")
    except ImproperlyConfigured:
        return None


# Finding the ModelAdmin and its site --------------------------------------------------------------

# An ``mcp`` module may be imported before the ``admin`` module of its app. In that case all
# ``admin`` modules are imported first, as the admin's own autodiscovery does later.


def _find_model_admin(target: Any, site: AdminSite | None) -> ModelAdmin[Any]:
    """Return the instance that is registered for a model, or that of a ``ModelAdmin`` class.

    Raises:
        ImproperlyConfigured: there is none; the message suggests the closest one.
    """
    if not apps.is_installed("django.contrib.admin"):
        raise ImproperlyConfigured(
            'register_admin() needs the admin of the site: add "django.contrib.admin" to '
            "INSTALLED_APPS, or register the model with register()."
        )
    if not isinstance(target, type) or not issubclass(target, Model | ModelAdmin):
        raise ImproperlyConfigured(
            f"register_admin() takes a model or a ModelAdmin, not {target!r}."
        )
    chosen = admin.site if site is None else site
    found = _find_registered(target, chosen)
    if found is None:
        autodiscover_modules("admin", register_to=chosen)
        found = _find_registered(target, chosen)
    if found is None:
        raise ImproperlyConfigured(_not_registered_message(target, chosen))
    return found


def _find_registered(target: type, site: AdminSite) -> ModelAdmin[Any] | None:
    if issubclass(target, Model):
        return site._registry.get(target)
    found = [one for one in site._registry.values() if type(one) is target]
    if len(found) > 1:
        names = ", ".join(one.model.__name__ for one in found)
        raise ImproperlyConfigured(
            f"{target.__name__} is registered for several models; pass one of them: {names}."
        )
    return found[0] if found else None


def _not_registered_message(target: type, site: AdminSite) -> str:
    known = site._registry
    names = [model.__name__ for model in known]
    if not issubclass(target, Model):
        names = [type(one).__name__ for one in known.values()]
    close = nearest(target.__name__, names)
    hint = f"; did you mean {close}?" if close else "; register it there, or pass site=…."
    return f"{target.__name__} is not registered at the admin site {site.name!r}{hint}"


# Input that the admin's form validates ------------------------------------------------------------

# Django's own help text in the admin, which is about the mouse and makes no sense for a tool.
_MULTIPLE_SELECT_HELP = "Hold down “Control”, or “Command” on a Mac, to select more than one."


class AdminInputs(FormInputs):
    """Form input: the schema is that of a superuser's form, each call uses the caller's form."""

    _declaration: AdminTools[Any]

    def form_class(self, declaration: AdminTools[Any], *, is_change: bool) -> Any:
        """Return the class of the form that the admin shows to a superuser."""
        return declaration.superuser_form(is_change=is_change)

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """Return the valid form.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        own = copy.copy(self)
        own._form_class = self._declaration.make_form(ctx, instance)
        fields = own._form_class.base_fields  # type: ignore[attr-defined]  # not in the stubs
        own._fields = {name: one for name, one in fields.items() if name in self._fields}
        if problems := list(own._unavailable_fields(call)):
            raise InvalidArguments(problems)
        return super(AdminInputs, own).bind(ctx, call, instance)

    def _unavailable_fields(self, call: Any) -> Iterator[ValidationProblem]:
        for name in call.written:
            if name not in self._fields or self._fields[name].disabled:
                yield unknown_argument_problem(name, self._fields)


def _with_plain_selects(form_class: Any) -> Any:
    """Return the form without widgets that expect a list of keys as one text."""
    for field in form_class.base_fields.values():
        if isinstance(field, forms.ModelMultipleChoiceField):
            # The form class is built for this call, and Django does not share its fields.
            field.widget = forms.SelectMultiple()
            field.help_text = (
                str(field.help_text).replace(gettext(_MULTIPLE_SELECT_HELP), "").strip()
            )
    return form_class


# Model admin --------------------------------------------------------------------------------------

M = TypeVar("M", bound=Model)


class AdminTools(ModelTools[M]):
    """The tools of one ``ModelAdmin``; ``actions`` names the admin actions that become tools.

    ``form_fields`` restricts which fields of its form can be written. ``left_out`` lists what could
    not be derived from the admin, for a system check.
    """

    model_admin: ModelAdmin[M]
    actions: Sequence[str] = ()
    form_fields: Sequence[str] | None = None
    inputs_class = AdminInputs
    left_out: Sequence[str] = ()

    def components(self) -> Iterator[Component]:
        """Yield the tools of the model, and one for each action."""
        yield from super().components()
        for name in self.get_name_list("actions"):
            yield action_tool(self, name)

    # Rows and permissions -------------------------------------------------------------------------

    def request(self, ctx: Context) -> CallerRequest:
        """Return the request that is passed to the admin, one for each call."""
        found = self._requests.get(ctx)
        if found is None:
            found = self._requests[ctx] = admin_request(ctx, self.model_admin)
        return found

    @cached_property
    def _requests(self) -> WeakKeyDictionary[Context, CallerRequest]:
        return WeakKeyDictionary()

    @cached_property
    def checks_each_object(self) -> bool:
        """Whether the admin may allow or deny viewing for each object.

        Its list shows the objects that may not be viewed, too, but here a row also has the values
        that the admin shows only on the object's page.
        """
        return type(self.model_admin).has_view_permission is not ModelAdmin.has_view_permission

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """Return the rows of the admin's list for this caller."""
        return self.model_admin.get_queryset(self.request(ctx))

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Return whether the caller has the permission in the admin."""
        request = self.request(ctx)
        if not self.model_admin.admin_site.has_permission(request):
            return False
        if action == "add":
            return bool(self.model_admin.has_add_permission(request))
        ask = getattr(self.model_admin, f"has_{action}_permission")
        return bool(ask(request, obj))

    @cached_property
    def exposed(self) -> AdminFields:
        """The validated allow-list, which may also name methods of the admin and of the model."""
        return AdminFields(self.model, self.fields, declaration=self)

    def may_have_permission(self, ctx: Context, action: Action) -> bool:
        """Return whether the admin shows the list, or the button of the action, to this caller."""
        return self.has_permission(ctx, action)

    # The form -------------------------------------------------------------------------------------

    def make_form(self, ctx: Context, obj: M | None) -> Any:
        """Return the class of the form that the admin shows to this caller."""
        request = self.request(ctx)
        is_change = obj is not None
        names = flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
        fields = [name for name in names if self._is_writable(name)]
        return _with_plain_selects(
            self.model_admin.get_form(request, obj, change=is_change, fields=fields)
        )

    def superuser_form(self, *, is_change: bool) -> Any:
        """Return the class of the form for a superuser."""
        obj = self.model() if is_change else None
        try:
            return self.make_form(superuser_context(self.server), obj)
        except Exception as exc:
            raise ImproperlyConfigured(
                f"{self}: {type(self.model_admin).__name__}.get_form() failed for a superuser "
                f"({type(exc).__name__}: {exc}). Make it work for a superuser, or remove the tools "
                "that write."
            ) from exc

    def _is_writable(self, name: str) -> bool:
        if self.form_fields is not None and name not in self.form_fields:
            return False
        try:
            field: Any = self.model._meta.get_field(name)
        except FieldDoesNotExist:
            return True
        # JSON cannot contain files.
        return not isinstance(field, FileField)

    # Writing --------------------------------------------------------------------------------------

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object as the admin does, and add an entry to the admin's log."""
        return self._save(ctx, form, is_change=False)

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object as the admin does, and add an entry to the admin's log."""
        return self._save(ctx, form, is_change=True)

    def _save(self, ctx: Context, form: Any, *, is_change: bool) -> M:
        request, admin = self.request(ctx), self.model_admin
        obj: M = admin.save_form(request, form, is_change)
        admin.save_model(request, obj, form, is_change)
        admin.save_related(request, form, [], is_change)
        message: Any = admin.construct_change_message(request, form, [], not is_change)
        if is_change:
            admin.log_change(request, obj, message)
        else:
            admin.log_addition(request, obj, message)
        return obj

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object as the admin does, and add an entry to the admin's log.

        Raises:
            PermissionDenied: the caller may not delete a related object that is deleted with it.
        """
        request, admin = self.request(ctx), self.model_admin
        _, _, needed, _ = admin.get_deleted_objects([obj], request)
        if needed:
            names = ", ".join(sorted(map(str, needed)))
            raise PermissionDenied(
                f"You may not delete this {self.noun}: related objects would be deleted that you "
                f"may not delete ({names})."
            )
        rows = self.model._base_manager.using(obj._state.db).filter(pk=obj.pk)
        admin.log_deletions(request, rows)
        admin.delete_model(request, obj)

    def record_history(
        self,
        ctx: Context,
        obj: M,
        key: Any,
        action: write_effects.WriteAction,
        *,
        tool: str,
        fields: Iterable[str] = (),
    ) -> None:
        """Do nothing, because the admin has already added its own log entry."""


# From a ModelAdmin to the registered class --------------------------------------------------------


def admin_declaration(
    target: Any, site: AdminSite | None, options: Mapping[str, Any]
) -> tuple[type[Model], type[AdminTools[Any]]]:
    """Return the model, and a class with the options that are derived from its admin.

    An option that is not ``None`` replaces the derived one.

    Raises:
        ImproperlyConfigured: the admin does not exist.
    """
    model_admin = _find_model_admin(target, site)
    given = {name: value for name, value in options.items() if value is not None}
    derived = _derive_options(model_admin, given.get("fields"))
    if not given.get("tools"):
        # Without tools for the rows, nothing is missing from them.
        derived["left_out"] = []
    bases = (AdminTools, ModelResource) if "uri" in given else (AdminTools,)
    members = {**derived, **given, "model_admin": model_admin}
    # Without the docstring of the admin's class, which is written for its developers.
    cls: type[AdminTools[Any]] = type(type(model_admin).__name__, bases, members)
    return model_admin.model, cls
