"""How a tree of fields is loaded: in as many statements for a thousand rows as for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import BooleanField, Prefetch, QuerySet, Value

from mcp_django.core.context import Context
from mcp_django.sources.models.guarding import MAX_ASKED
from mcp_django.sources.models.keys import has_meaningless_key
from mcp_django.sources.models.paths import accessor
from mcp_django.sources.models.related import entries

if TYPE_CHECKING:
    from mcp_django.sources.models.tree import Node, Relation

MAX_RELATED = 100
LABELLED = "mcp_labelled"
_YES = Value(True, output_field=BooleanField())  # noqa: FBT003 - the value is what it is about


def list_attribute(name: str) -> str:
    """Where an object keeps the related ones that are shown."""
    return f"mcp_list_{name}"


@dataclass(slots=True)
class _Plan:
    columns: set[str] = field(default_factory=lambda: {"pk"})
    joins: set[str] = field(default_factory=set)
    prefetches: list[Prefetch[Any]] = field(default_factory=list)


class Loading:
    """Loads for one caller, whose view of related objects decides about their labels."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def prepare(
        self,
        queryset: QuerySet[Any],
        node: Node,
        *,
        whole: bool = False,
        also: frozenset[str] = frozenset(),
    ) -> QuerySet[Any]:
        """The query, told to load what the tree shows.

        With ``whole`` it loads every column of a row, else those in ``also`` besides.
        """
        plan = _Plan()
        plan.columns |= also
        self._visit(plan, node, "", "")
        if plan.joins:
            queryset = queryset.select_related(*sorted(plan.joins))
        if not (whole or node.is_whole):
            queryset = queryset.only(*sorted(plan.columns))
        return queryset.prefetch_related(*plan.prefetches)

    def _visit(self, plan: _Plan, node: Node, lookup: str, attribute: str) -> None:
        """Plan one place; its two prefixes differ where a reverse relation has another accessor."""
        plan.columns |= {f"{lookup}{column.field.name}" for column in node.columns.values()}
        for name, relation in node.relations.items():
            source = f"{attribute}{accessor(relation.field)}"
            if relation.is_many:
                plan.columns |= {f"{lookup}{one}" for one in _source_columns(relation.field)}
                related = self._many(relation)
                plan.prefetches.append(Prefetch(source, related, to_attr=list_attribute(name)))
                continue
            if relation.field.concrete:
                plan.columns.add(f"{lookup}{name}")
            if relation.is_joined:
                self._join(plan, relation, f"{lookup}{name}", source)

    def _join(self, plan: _Plan, relation: Relation, lookup: str, attribute: str) -> None:
        plan.joins.add(lookup)
        plan.columns.add(f"{lookup}__{relation.node.model._meta.pk.name}")
        if not relation.field.concrete:
            # Django refuses to follow a column back that it was told not to load.
            plan.columns.add(f"{lookup}__{relation.field.field.name}")
        self._visit(plan, relation.node, f"{lookup}__", f"{attribute}__")

    def _many(self, relation: Relation) -> QuerySet[Any]:
        node = relation.node
        # Only named alone does a relation show which rows there are: those that the caller may see.
        named = entries(node.server, node.model, self._ctx) if relation.labelled else None
        rows = node.model._default_manager.all() if named is None else named.rows
        is_labelled = named is not None and named.has_labels
        is_asked = named is not None and named.is_asked
        if is_labelled:
            rows = rows.annotate(**{LABELLED: _YES})
        # A label is made of any columns, and so may be an answer about an object.
        also = _target_columns(relation.field)
        rows = self.prepare(rows, node, whole=is_labelled or is_asked, also=also)
        rows = rows.order_by(*_order(relation))
        if hasattr(relation.field, "object_id_field_name"):
            # Django cannot cut a generic relation for each object.
            return rows
        return rows[: MAX_ASKED if is_asked else MAX_RELATED + 1]


def _source_columns(relation: Any) -> set[str]:
    """The columns on this side, by which related rows are found."""
    foreign_key = getattr(relation, "field", None)
    if relation.one_to_many and foreign_key is not None:
        return {one.name for one in getattr(foreign_key, "foreign_related_fields", ())}
    return set()


def _target_columns(relation: Any) -> frozenset[str]:
    """The columns on the other side, by which related rows are given to theirs."""
    if hasattr(relation, "object_id_field_name"):
        return frozenset({relation.object_id_field_name, relation.content_type_field_name})
    return frozenset({relation.field.name}) if relation.one_to_many else frozenset()


def _order(relation: Relation) -> list[str]:
    """By the key, unless it is hidden and its order would tell of it."""
    node = relation.node
    key = node.model._meta.pk
    if relation.labelled or key.name in node.members or has_meaningless_key(node.model):
        return ["pk"]
    return [one.field.attname for one in node.columns.values() if one.is_comparable]
