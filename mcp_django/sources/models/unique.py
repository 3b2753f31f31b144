"""Whether some paths name one object: what the database itself promises."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from django.db.models import Model


def identifies(model: type[Model], paths: Collection[str]) -> bool:
    """Whether no two rows have the same values at all of these paths."""
    return any(
        all(_is_covered(model, name, paths) for name in names) for names in _unique_sets(model)
    )


def _unique_sets(model: type[Model]) -> Iterator[tuple[str, ...]]:
    for field in model._meta.concrete_fields:
        if field.unique:
            yield (field.name,)
    for relation in model._meta.related_objects:
        if relation.one_to_one:
            yield (relation.name,)
    for one in (model, *model._meta.all_parents):
        yield from (tuple(names) for names in one._meta.unique_together)
        # Those without a condition and without expressions.
        yield from (tuple(one.fields) for one in one._meta.total_unique_constraints)


def _is_covered(model: type[Model], name: str, paths: Collection[str]) -> bool:
    field: Any = model._meta.get_field(name)
    if name in paths or getattr(field, "attname", name) in paths:
        return True
    if not field.is_relation:
        return False
    inner = [path.removeprefix(f"{name}__") for path in paths if path.startswith(f"{name}__")]
    return bool(inner) and identifies(field.related_model, inner)
