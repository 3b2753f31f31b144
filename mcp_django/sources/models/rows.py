"""The row gate as a query that can be filtered, ordered, counted and cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db.models import ForeignObjectRel, Model, QuerySet
from django.db.models.query import ModelIterable

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents

M = TypeVar("M", bound=Model)


def clean(queryset: Any, declaration: ModelComponents[Any]) -> QuerySet[M]:
    """The same rows, each once, without an order and without what is loaded beside them.

    Raises:
        TypeError: ``get_queryset`` returned something else than a query for the model.
    """
    model = declaration.model
    if not isinstance(queryset, QuerySet) or not issubclass(queryset.model, model):
        raise TypeError(
            f"get_queryset() of {declaration} returned {type(queryset).__name__}; return a "
            f"QuerySet of {model.__name__}."
        )
    if not issubclass(queryset._iterable_class, ModelIterable):
        raise TypeError(
            f"get_queryset() of {declaration} returned values; leave .values() and .values_list() "
            "away, since fields says what is shown."
        )
    if _is_plain(queryset):
        rows = queryset.order_by()
    else:
        # A join can give a row twice, and a slice or a union cannot be filtered any more.
        rows = model._base_manager.using(queryset.db).filter(pk__in=queryset.values("pk"))
    plain: QuerySet[M] = rows.select_related(None).prefetch_related(None).defer(None)
    return plain


def _is_plain(queryset: QuerySet[Any]) -> bool:
    query = queryset.query
    return not (
        query.is_sliced
        or query.combinator
        or query.distinct
        or query.group_by
        or query.annotations
        or query.extra
        or any(_multiplies(join) for join in query.alias_map.values())
    )


def _multiplies(join: Any) -> bool:
    field = getattr(join, "join_field", None)
    return isinstance(field, ForeignObjectRel) and field.multiple
