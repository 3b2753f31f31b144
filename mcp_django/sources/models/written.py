"""Which of the written fields have another value than before, for the history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import ManyToManyField, Model


class Written:
    """The values that some fields of an object have before it is written."""

    def __init__(self, obj: Model, names: Iterable[str]) -> None:
        self._before = {
            name: _value(obj, field) for name in names if (field := _field(obj, name)) is not None
        }

    def changed(self, obj: Model) -> list[str]:
        """The names of the fields that are different now."""
        return [
            name
            for name, before in self._before.items()
            if _value(obj, obj._meta.get_field(name)) != before
        ]


def _field(obj: Model, name: str) -> Any:
    """A form or serializer may have fields that the model has not."""
    try:
        field = obj._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    # Whether links to many count as concrete depends on Django's version.
    return field if field.concrete or isinstance(field, ManyToManyField) else None


def _value(obj: Model, field: Any) -> Any:
    if field.many_to_many:
        return set(getattr(obj, field.name).values_list("pk", flat=True))
    return (
        field.to_python(getattr(obj, field.attname))
        if not field.is_relation
        else (getattr(obj, field.attname))
    )
