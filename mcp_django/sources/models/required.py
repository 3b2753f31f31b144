"""Columns that a model cannot do without, and that callers of ``create`` do not write.

A form leaves them out, and with them the model's rule that they are not empty; so a class that has
them is refused, and where a hook is to fill them, the saved object is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Field, FileField, Model
from django.db.models.fields import NOT_PROVIDED
from django.db.models.fields.proxy import OrderWrt

from mcp_django.sources.models.hooks import WriteHooks


def check_filled(declaration: WriteHooks[Any], written: Iterable[str]) -> None:
    """Refuse a ``create`` that leaves a column empty which the model says is never empty.

    Raises:
        ImproperlyConfigured: saying what to write.
    """
    is_made_here = not (declaration.form or declaration.serializer or declaration.form_reader)
    has_hook = type(declaration).perform_create is not WriteHooks.perform_create
    if not is_made_here or has_hook or _fills_itself(declaration.model):
        return
    missing = list(unwritten(declaration.model, written))
    if missing:
        names = ", ".join(repr(field.name) for field in missing)
        declaration.refuse(
            f"create needs {names}, which {declaration.model.__name__} requires: "
            f"{_way_out(missing)}, give it a default, set it in perform_create, or leave 'create' "
            "out of tools."
        )


def empty_ones(obj: Model, written: Iterable[str]) -> ValidationError | None:
    """What is wrong with an object: the columns that nobody filled."""
    empty = {
        field.name: ValidationError("This field is required.", code="required")
        for field in unwritten(type(obj), written)
        if getattr(obj, field.attname) in field.empty_values
    }
    return ValidationError(empty) if empty else None


def unwritten(model: type[Model], written: Iterable[str]) -> Iterator[Field[Any, Any]]:
    """The columns that have to be filled by somebody, and are not among those that are written."""
    known = {*written}
    for field in model._meta.concrete_fields:
        if field.name not in known and _has_to_be_filled(field):
            yield field


def _has_to_be_filled(field: Any) -> bool:
    if field.null or field.blank or field.auto_created or getattr(field, "generated", False):
        return False
    if isinstance(field, OrderWrt) or getattr(field.remote_field, "parent_link", False):
        # Saving fills these.
        return False
    if field.has_default() or field.db_default is not NOT_PROVIDED:
        return False
    # A field of another package may fill itself.
    return bool(type(field).pre_save.__module__.startswith("django."))


def _fills_itself(model: type[Model]) -> bool:
    """Whether the model has code of its own in which it may fill what is missing."""
    return model.save is not Model.save or model.clean is not Model.clean


def _way_out(missing: list[Field[Any, Any]]) -> str:
    if any(isinstance(field, FileField) for field in missing):
        return "a file cannot be written (name a form that makes it, form = …)"
    if not all(field.editable for field in missing):
        return "what is not editable cannot be written"
    return "add it to write_fields" if len(missing) == 1 else "add them to write_fields"
