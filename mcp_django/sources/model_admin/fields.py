"""``AdminFields``: an allow-list that may also name what is code in the admin or on the model.

A column of the admin's list that a method computes is shown when its author names it. It can be
neither filtered nor ordered by nor written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.admin.utils import label_for_field, lookup_field
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured, ObjectDoesNotExist
from django.db.models import Model
from django.utils.safestring import SafeData
from django.utils.translation import override

from mcp_django.core.context import Context
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable
from mcp_django.sources.models.exposed import ExposedFields
from mcp_django.sources.models.paths import resolve
from mcp_django.sources.site.markup import plain

if TYPE_CHECKING:
    from mcp_django.sources.model_admin.declaration import AdminTools


class AdminFields(ExposedFields):
    """The allow-list of one ``ModelAdmin``."""

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: AdminTools[Any]
    ) -> None:
        self._admin = declaration.model_admin
        self._computed = [name for name in fields if self._is_code(model, name)]
        columns = [name for name in fields if name not in self._computed]
        super().__init__(model, columns, declaration=declaration)
        self.tree.is_whole = bool(self._computed)

    @cached_property
    def schema(self) -> Schema:
        """The schema of one object in answers."""
        schema = super().schema
        with override(None):
            labels = {name: self._label(name) for name in self._computed}
        shown = {name: {"description": label} for name, label in labels.items()}
        return {**schema, "properties": {**schema["properties"], **shown}}

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Objects of a prepared query as plain JSON."""
        found = list(objects)
        rows = super().dump_all(found, ctx)
        for obj, row in zip(found, rows, strict=True):
            row.update({name: self._value(obj, name) for name in self._computed})
        return rows

    def _is_code(self, model: type[Model], name: Any) -> bool:
        """Whether a name is a method or property of the admin or the model, of their own."""
        if not isinstance(name, str) or name.startswith("_") or _is_path(model, name):
            return False
        own = hasattr(self._admin, name) and not hasattr(_base(), name)
        # Of any model: save, delete and the like.
        return own or (hasattr(model, name) and not hasattr(Model, name))

    def _label(self, name: str) -> str:
        return str(label_for_field(name, self.model, self._admin))

    def _value(self, obj: Model, name: str) -> Any:
        try:
            _, _, value = lookup_field(name, obj, self._admin)
        except ObjectDoesNotExist:
            # The admin shows an empty cell, too.
            return None
        if isinstance(value, SafeData):
            return plain(str(value))
        try:
            return jsonable(value)
        except (TypeError, ValueError):
            return str(value)


def _is_path(model: type[Model], name: str) -> bool:
    try:
        resolve(model, name, what="fields")
    except (ImproperlyConfigured, FieldDoesNotExist):
        return False
    return True


def _base() -> type[Any]:
    from django.contrib.admin import ModelAdmin

    return ModelAdmin
