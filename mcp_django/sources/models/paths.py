"""Paths through a model, as they are written in ``fields``: ``lines__product__name``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db.models import Field, ManyToManyField, Model

MAX_HOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPath:
    """A path that leads to a column, or to a relation as a whole.

    ``hops`` are the relations on the way, ``field`` is where it ends. ``is_key`` is true for the
    column of a foreign key written as such: ``customer_id``.
    """

    text: str
    hops: tuple[Any, ...]
    field: Any
    is_key: bool

    def __str__(self) -> str:
        return self.text

    @property
    def names(self) -> list[str]:
        """The parts of the path."""
        return self.text.split("__")

    @property
    def is_relation(self) -> bool:
        """Whether it stands for a related object, and not for a column."""
        return bool(self.field.is_relation) and not self.is_key

    @property
    def is_many(self) -> bool:
        """Whether one row can have several values."""
        return any(leads_to_many(one) for one in (*self.hops, self.field))

    @property
    def is_nullable(self) -> bool:
        """Whether a row can have no value."""
        return any(may_be_missing(one) for one in (*self.hops, self.field))

    @property
    def column(self) -> Field[Any, Any]:
        """The column with the value: of a relation the key of the related object."""
        return key_column(self.field) if self.field.is_relation else self.field

    @property
    def expression(self) -> str:
        """The name of the value in an expression: of a foreign key its own column.

        By the name of the relation Django would order as the related model's ``Meta`` says, which
        may be by something hidden.
        """
        if self.field.is_relation and getattr(self.field, "attname", None):
            return "__".join([*self.names[:-1], self.field.attname])
        return self.text


def resolve(model: type[Model], text: str, *, what: str) -> FieldPath:
    """Follow a path from a model.

    Raises:
        ImproperlyConfigured: it leads nowhere; the message names what is nearest.
    """
    hops: list[Any] = []
    current = model
    *before, last = text.split("__")
    if len(before) > MAX_HOPS:
        raise ImproperlyConfigured(f"{what} has {text!r}, which follows more than {MAX_HOPS} hops.")
    for name in before:
        field = _field(current, name, text, what)
        if not field.is_relation or name == getattr(field, "attname", None) != field.name:
            raise ImproperlyConfigured(
                f"{what} has {text!r}, and {name!r} of {current.__name__} is no relation."
            )
        hops.append(field)
        current = field.related_model
    field = _field(current, last, text, what)
    return FieldPath(
        text=text,
        hops=tuple(hops),
        field=field,
        is_key=field.is_relation and last != field.name and last == getattr(field, "attname", None),
    )


def leads_to_many(field: Any) -> bool:
    """Whether an object can have several of what a relation leads to."""
    return bool(field.is_relation and (field.one_to_many or field.many_to_many))


def may_be_missing(field: Any) -> bool:
    """Whether an object can be without it."""
    own = field.concrete or isinstance(field, ManyToManyField)
    return bool(field.null) if own else True


def accessor(field: Any) -> str:
    """The attribute of an object that leads to what is related."""
    name = field.get_accessor_name() if hasattr(field, "get_accessor_name") else field.name
    return str(name)


def key_column(relation: Any) -> Field[Any, Any]:
    """The column that identifies what a relation leads to."""
    if relation.concrete and not relation.many_to_many:
        target: Field[Any, Any] = relation.target_field
        return key_column(target) if target.is_relation else target
    key = relation.related_model._meta.pk
    return key_column(key) if key.is_relation else key


def own_names(model: type[Model]) -> list[str]:
    """What a path from this model can begin with."""
    usable = [field for field in model._meta.get_fields() if _is_usable(field)]
    # What points here comes first in Django's own list, and is the last that one looks for.
    return [field.name for field in sorted(usable, key=lambda one: not one.concrete)]


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that nobody knows."""
    names = list(known)
    found = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {found[0]!r}?" if found else f"there is {', '.join(names) or 'none'}."


def _field(model: type[Model], name: str, text: str, what: str) -> Any:
    if name == "pk":
        raise ImproperlyConfigured(
            f"{what} has {text!r}; write the key of {model.__name__} by its name: "
            f"{model._meta.pk.name!r}."
        )
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        raise ImproperlyConfigured(
            f"{what} has {text!r}, and {model.__name__} has no field {name!r}; "
            f"{nearest(name, own_names(model))}"
        ) from None
    if not _is_usable(field):
        raise ImproperlyConfigured(
            f"{what} has {text!r}, and {name!r} of {model.__name__} is neither a column nor a "
            "relation to one model."
        )
    return field


def _is_usable(field: Any) -> bool:
    if getattr(field, "hidden", False) and not field.concrete:
        return False
    if field.is_relation:
        return isinstance(field.related_model, type)
    return bool(field.concrete) and field.column is not None
