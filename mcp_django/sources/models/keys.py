"""Which exposed field names one object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import AutoField, BigAutoField, Field, Model, SmallAutoField, UUIDField

from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.lookups import SHORT_TEXT

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents

# Their order tells nothing but which row came first, or nothing at all.
MEANINGLESS = (AutoField, BigAutoField, SmallAutoField, UUIDField)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The argument that names an object, and the column behind it."""

    name: str
    field: Field[Any, Any]

    @property
    def annotation(self) -> Any:
        """The type of the argument."""
        return Column(self.field).argument()

    def value(self, obj: Model) -> Any:
        """The key of an object, as it is in answers."""
        return Column(self.field).dump(getattr(obj, self.name))


def find_key(declaration: ModelComponents[Any]) -> Key:
    """The ``key`` of the declaration, or the nearest field that can be one.

    Raises:
        ImproperlyConfigured: there is none.
    """
    unique = unique_columns(declaration)
    if declaration.key:
        if declaration.key not in unique:
            raise ImproperlyConfigured(
                f"{declaration}: key = {declaration.key!r}, which is no unique column among its "
                f"fields; there is {', '.join(unique) or 'none'}."
            )
        return _key(declaration, declaration.key)
    if not unique:
        raise ImproperlyConfigured(
            f"{declaration}: nothing in fields names one {declaration.noun}: "
            f"{_add(declaration)}, or leave only tools = ['count']."
        )
    return _key(declaration, unique[0])


def unique_columns(declaration: ModelComponents[Any]) -> list[str]:
    """The exposed columns that no two rows share, those of the URI first, then the key."""
    columns = declaration.exposed.columns
    found = [
        name
        for name, field in columns.items()
        if field.unique and not field.null and Column(field).is_comparable
    ]
    uri = str(getattr(declaration, "uri", ""))
    return sorted(found, key=lambda name: (f"{{{name}}}" not in uri, not columns[name].primary_key))


def tie_breaker(declaration: ModelComponents[Any]) -> str:
    """The column that puts rows in order which are equal in everything else.

    Its values are in cursors, so it is one that the rows show anyway.

    Raises:
        ImproperlyConfigured: there is none.
    """
    unique = unique_columns(declaration)
    keys = [name for name in unique if declaration.exposed.columns[name].primary_key]
    found = [*keys, *(name for name in unique if is_short(declaration.exposed.columns[name]))]
    if not found:
        raise ImproperlyConfigured(
            f"{declaration}: nothing in fields says where a page of {declaration.nouns} ends: "
            f"{_add(declaration)}, or leave 'list' out of tools."
        )
    return found[0]


def has_meaningless_key(model: type[Model]) -> bool:
    """Whether the order of the keys tells no more than which row came first."""
    key: Any = model._meta.pk
    while key.is_relation:
        key = key.target_field
    return isinstance(key, MEANINGLESS)


def _key(declaration: ModelComponents[Any], name: str) -> Key:
    return Key(name=name, field=declaration.exposed.columns[name])


def _add(declaration: ModelComponents[Any]) -> str:
    return f"add {declaration.model._meta.pk.attname!r} or another unique field to fields"


def is_short(field: Field[Any, Any]) -> bool:
    """Whether a cursor has room for its values."""
    column = Column(field)
    length = getattr(column.held, "max_length", None) or SHORT_TEXT + 1
    return column.kind != "text" or length <= SHORT_TEXT
