"""A single model form as a tool that creates an object or changes an existing one.

The form becomes a declaration like ``ModelTools`` with the fields of the form, so its writes are
handled like all others: permission, row rule, transaction, preview, history.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db.models import FileField, Manager, Model, QuerySet

from mcp_django.components.context import Context
from mcp_django.components.declare import set_declaration
from mcp_django.components.tool import Tool
from mcp_django.integrations.models.declaration import ModelTools, snake_case
from mcp_django.integrations.models.row_access import Action, has_default_permission
from mcp_django.integrations.models.write_forms import FormInputs
from mcp_django.integrations.models.writing import create_tool, update_tool
from mcp_django.schema.secrets import is_secret_name

# The rows that a form may write, or a function that returns them for a caller.
Rows = QuerySet[Any] | Manager[Any] | Callable[[Context], QuerySet[Any]]


class PageFormInputs(FormInputs):
    """Validates the values of a form that was written for a page and may have file fields."""

    def excluded_fields(self, form_class: Any, *, is_change: bool) -> Collection[str]:
        """Return the file fields that may be missing; an object keeps the file that it has."""
        return [
            name
            for name, field in form_class.base_fields.items()
            if isinstance(field, forms.FileField) and (is_change or not field.required)
        ]


class FormTools(ModelTools[Any]):
    """The declaration of a model form; ``key`` is empty for a form that creates objects."""

    inputs_class = PageFormInputs
    # A permission that is passed in applies to every object.
    checks_each_object = False

    def __init__(
        self, form: type[Any], server: Any, *, key: str, permission: Any, scopes: Any, rows: Any
    ) -> None:
        model: type[Model] = form._meta.model
        self.form = form
        self.name = snake_case(form.__name__.removesuffix("Form"))
        self.permission = permission
        self.scopes = scopes
        self.key = model._meta.pk.attname if key == "pk" else key
        self.fields = tuple(dict.fromkeys(_shown(form, model, self.key)))
        self._rows = rows
        super().__init__(model, server)

    def __str__(self) -> str:
        assert self.form is not None
        return f"{self.form.__name__} of {self.model._meta.label}"

    @property
    def doc(self) -> str:
        """The docstring of the form class itself, without Django's inherited one."""
        return inspect.cleandoc(vars(self.form).get("__doc__") or "")

    def get_queryset(self, ctx: Context) -> QuerySet[Any]:
        """Return the rows that were passed in, or all rows."""
        if self._rows is None:
            return super().get_queryset(ctx)
        rows: QuerySet[Any] = self._rows(ctx) if callable(self._rows) else self._rows.all()
        return rows

    def has_permission(self, ctx: Context, action: Action, obj: Any = None) -> bool:
        """Return whether the caller has the passed permission, or Django's for the form's action.

        A caller who may change an object sees the fields that the form shows, as in the admin.
        """
        if self.permission is not None:
            return has_default_permission(self, ctx, "view", obj)
        return has_default_permission(self, ctx, "change" if self.key else "add", obj)

    def permissions_for(self, action: Action) -> tuple[Any, ...]:
        """Return the permission that was passed in; it replaces Django's."""
        return super().permissions_for(action) if self.permission is None else (self.permission,)


def form_tool(
    form: type[Any], *, server: Any, instance: Any = None, queryset: Any = None, **options: Any
) -> Tool:
    """Return the tool of a model form; ``options`` are those that views and forms share.

    Raises:
        ImproperlyConfigured: the form or an option is not valid.
    """
    _check(form, instance, queryset)
    used_options = {name: value for name, value in options.items() if value not in (None, "")}
    declaration = FormTools(
        form,
        server,
        key=instance or "",
        permission=used_options.pop("permission", None),
        scopes=used_options.pop("scopes", ()),
        rows=queryset,
    )
    make = update_tool if instance else create_tool
    tool = make(declaration, name=used_options.pop("name", ""))
    set_declaration(tool.callable, declaration)
    return replace(tool, **{**used_options, "icons": tuple(used_options.get("icons", ()))})


def _check(form: type[Any], instance: Any, queryset: Any) -> None:
    model = getattr(getattr(form, "_meta", None), "model", None)
    if not issubclass(form, forms.ModelForm) or model is None:
        raise ImproperlyConfigured(
            f"{form.__name__} is not a ModelForm with a model, so its values cannot be saved: "
            "register the view that uses the form, or write a tool with "
            f"form={form.__name__}."
        )
    if instance is not None and not isinstance(instance, str):
        raise ImproperlyConfigured(
            f"register_form({form.__name__}): instance={instance!r} is not a field name; write the "
            f"name of a unique field of {model.__name__} that identifies the object to change, "
            "such as instance='pk', or leave it out for a form that creates. To set the rows that "
            "can be changed, use queryset=…"
        )
    if not (queryset is None or isinstance(queryset, QuerySet | Manager) or callable(queryset)):
        raise ImproperlyConfigured(
            f"register_form({form.__name__}): queryset={queryset!r} is not valid; pass a QuerySet "
            f"of {model.__name__}, or a function that takes the context and returns one."
        )
    try:
        inspect.signature(form).bind(data={}, **({"instance": None} if instance else {}))
    except TypeError as exc:
        raise ImproperlyConfigured(
            f"{form.__name__} cannot be created from data and an instance alone ({exc}): register "
            f"the view that creates it, or use it in a ModelTools of {model.__name__} (form = …), "
            "whose hooks receive the context of the caller."
        ) from exc


def _shown(form: type[Any], model: type[Model], key: str) -> Iterator[str]:
    """Yield the fields that the tool returns: the key, and the columns that the form shows."""
    yield model._meta.pk.attname
    if key:
        yield key
    columns = [*model._meta.concrete_fields, *model._meta.many_to_many]
    for name, field in form.base_fields.items():
        is_column = any(
            column.name == name and not isinstance(column, FileField) for column in columns
        )
        is_hidden = isinstance(field.widget, forms.PasswordInput) or is_secret_name(name)
        if is_column and not is_hidden:
            yield name
