"""A model form by itself as a tool: one that creates, or one that changes an object it is told.

The form is a declaration like ``ModelTools``, with what it asks for as the fields, so its writes go
the way of all others: permission, row gate, transaction, preview, history.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.db.models import FileField, Manager, Model, QuerySet

from mcp_django.core.context import Context
from mcp_django.core.declare import declared_by
from mcp_django.core.tool import Tool
from mcp_django.integrations.models.declaration import Action, ModelTools, snake_case
from mcp_django.integrations.models.row_access import may
from mcp_django.integrations.models.write_forms import FormInputs
from mcp_django.integrations.models.writing import create_tool, update_tool
from mcp_django.schema.secrets import names_secret

# The rows that a form may write, or how they are found for a caller.
Rows = QuerySet[Any] | Manager[Any] | Callable[[Context], QuerySet[Any]]


class PageFormInputs(FormInputs):
    """Reads the values of a form that was written for a page, which may have an upload."""

    def left_out(self, form_class: Any, *, is_change: bool) -> Collection[str]:
        """Files that need not be sent; an object keeps the one that it has."""
        return [
            name
            for name, field in form_class.base_fields.items()
            if isinstance(field, forms.FileField) and (is_change or not field.required)
        ]


class FormTools(ModelTools[Any]):
    """What a model form says of its model; ``key`` is empty for a form that creates."""

    form_reader = PageFormInputs
    # Where a permission is given it holds for every object.
    asks_of_each = False

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
        """The docstring of the form; Django's own says nothing."""
        return inspect.cleandoc(vars(self.form).get("__doc__") or "")

    def get_queryset(self, ctx: Context) -> QuerySet[Any]:
        """The rows that were given, or all."""
        if self._rows is None:
            return super().get_queryset(ctx)
        found: QuerySet[Any] = self._rows(ctx) if callable(self._rows) else self._rows.all()
        return found

    def has_permission(self, ctx: Context, action: Action, obj: Any = None) -> bool:
        """By the permission that was given, or Django's for what the form does.

        Who may change an object sees what the form shows of it, as in the admin.
        """
        if self.permission is not None:
            return may(self, ctx, "view", obj)
        return may(self, ctx, "change" if self.key else "add", obj)

    def guards(self, action: Action) -> tuple[Any, ...]:
        """The permission that was given stands in the place of Django's."""
        return super().guards(action) if self.permission is None else (self.permission,)


def form_tool(
    form: type[Any], *, server: Any, instance: Any, queryset: Any, options: Mapping[str, Any]
) -> Tool:
    """The tool of a model form.

    Raises:
        ImproperlyConfigured: the form or an option cannot work.
    """
    _check(form, instance, queryset)
    given = {name: value for name, value in options.items() if value not in (None, "")}
    declaration = FormTools(
        form,
        server,
        key=instance or "",
        permission=given.pop("permission", None),
        scopes=given.pop("scopes"),
        rows=queryset,
    )
    make = update_tool if instance else create_tool
    tool = make(declaration, name=given.pop("name", ""))
    declared_by(tool.callable, declaration)
    return replace(tool, **{**given, "icons": tuple(given["icons"])})


def _check(form: type[Any], instance: Any, queryset: Any) -> None:
    model = getattr(getattr(form, "_meta", None), "model", None)
    if not issubclass(form, forms.ModelForm) or model is None:
        raise ImproperlyConfigured(
            f"{form.__name__} is not the form of a model, so nothing is known to happen with what "
            "it takes: register the view that has the form, or write a tool and give it "
            f"form={form.__name__}."
        )
    if instance is not None and not isinstance(instance, str):
        raise ImproperlyConfigured(
            f"register_form({form.__name__}): instance is the name of a unique field of "
            f"{model.__name__}, by which a caller says which one to change, as in instance='pk'; "
            f"not {instance!r}. Leave it out, and the form creates. The rows themselves are "
            "queryset=…"
        )
    if not (queryset is None or isinstance(queryset, QuerySet | Manager) or callable(queryset)):
        raise ImproperlyConfigured(
            f"register_form({form.__name__}): queryset is a QuerySet of {model.__name__}, or a "
            f"function of the context that returns one; not {queryset!r}."
        )
    try:
        inspect.signature(form).bind(data={}, **({"instance": None} if instance else {}))
    except TypeError as exc:
        raise ImproperlyConfigured(
            f"{form.__name__} cannot be made from data and an instance alone ({exc}): register "
            f"the view that makes it, or give it to a ModelTools of {model.__name__} (form = …), "
            "whose hooks know the caller."
        ) from exc


def _shown(form: type[Any], model: type[Model], key: str) -> Iterator[str]:
    """What of the object the tool answers: its key, and what the form shows of it."""
    yield model._meta.pk.attname
    if key:
        yield key
    columns = [*model._meta.concrete_fields, *model._meta.many_to_many]
    for name, field in form.base_fields.items():
        is_column = any(one.name == name and not isinstance(one, FileField) for one in columns)
        is_hidden = isinstance(field.widget, forms.PasswordInput) or names_secret(name)
        if is_column and not is_hidden:
            yield name
