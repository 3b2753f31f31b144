"""The tree that ``fields`` draws: columns, and relations with a tree of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Model, QuerySet

from mcp_django.core.context import Context
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.columns import Column
from mcp_django.sources.models.labels import Blank, Blanks
from mcp_django.sources.models.loading import (
    LABELLED,
    MAX_RELATED,
    Loading,
    list_attribute,
)
from mcp_django.sources.models.paths import FieldPath, accessor, key_column, leads_to_many

if TYPE_CHECKING:
    from mcp_django.sources.registering import Registering


@dataclass
class Relation:
    """A relation in the tree; ``labelled`` says that it was named alone, too."""

    field: Any
    node: Node
    labelled: bool = False

    @cached_property
    def is_many(self) -> bool:
        """Whether it leads to several objects."""
        return leads_to_many(self.field)

    @cached_property
    def key(self) -> Column:
        """The column that identifies what it leads to."""
        return Column(key_column(self.field))

    @cached_property
    def target(self) -> str:
        """The attribute of a related object that holds the key."""
        if self.field.concrete and not self.is_many:
            return str(self.field.target_field.attname)
        return str(self.node.model._meta.pk.attname)

    @property
    def is_gated(self) -> bool:
        """Whether it leads to rows of which only those exist that their own row gate lets through.

        The key of a foreign key is a column of the row at hand; what points here is a row of its
        own.
        """
        return not self.field.concrete and bool(self.node.server.declared(self.node.model))

    @property
    def is_joined(self) -> bool:
        """Whether the related object itself is needed, and not its key alone."""
        return bool(self.node.members) or not self.field.concrete


@dataclass
class Node:
    """What is exposed of one model at one place of the tree."""

    model: type[Model]
    server: Registering
    members: dict[str, Column | Relation] = field(default_factory=dict)
    is_whole: bool = False
    """Whether code looks at the objects, and so at any column of them."""

    # Drawing --------------------------------------------------------------------------------------

    def add(self, path: FieldPath) -> None:
        """Put a path into the tree."""
        node = self
        *before, last = path.names
        for name, hop in zip(before, path.hops, strict=True):
            node = node._relation(name, hop).node
        if path.is_relation:
            node._relation(last, path.field).labelled = True
        else:
            node.members[last] = Column(path.field)

    def _relation(self, name: str, hop: Any) -> Relation:
        found = self.members.setdefault(name, Relation(hop, Node(hop.related_model, self.server)))
        # A column and a relation of one name would be one field of the model.
        assert isinstance(found, Relation)
        return found

    @property
    def columns(self) -> dict[str, Column]:
        """The columns at this place."""
        return {name: one for name, one in self.members.items() if isinstance(one, Column)}

    @property
    def relations(self) -> dict[str, Relation]:
        """The relations at this place."""
        return {name: one for name, one in self.members.items() if isinstance(one, Relation)}

    def clashes(self) -> Iterator[str]:
        """Names that two things would have in an answer."""
        for name, relation in self.relations.items():
            inner = relation.node.members
            if relation.labelled and "label" in inner:
                yield f"{name}__label"
            known = inner.get("id")
            if relation.labelled and known is not None and known != relation.key:
                yield f"{name}__id"
            if relation.is_many and f"{name}_cut" in self.members:
                yield f"{name}_cut"
            yield from (f"{name}__{one}" for one in relation.node.clashes())

    # Describing -----------------------------------------------------------------------------------

    def schema(self) -> Schema:
        """The schema of an object at this place."""
        properties: Schema = {}
        required: list[str] = []
        for name, member in self.members.items():
            required.append(name)
            if isinstance(member, Column):
                properties[name] = member.schema
                continue
            properties[name] = _relation_schema(member)
            if member.is_many:
                properties[f"{name}_cut"] = {
                    "type": "boolean",
                    "description": f"There are more than the {MAX_RELATED} shown.",
                }
        return {"type": "object", "properties": properties, "required": required}

    # Reading --------------------------------------------------------------------------------------

    def prepare(self, queryset: QuerySet[Any], ctx: Context) -> QuerySet[Any]:
        """The query, told what to load."""
        return Loading(ctx).prepare(queryset, self)

    def dump(self, obj: Model, blanks: Blanks) -> dict[str, Any]:
        """An object of a prepared query as plain JSON, with blanks where labels belong."""
        shown: dict[str, Any] = {}
        for name, member in self.members.items():
            if isinstance(member, Column):
                shown[name] = member.dump(getattr(obj, name))
            elif member.is_many:
                related = getattr(obj, list_attribute(name))
                shown[name] = [_dump_many(one, member, blanks) for one in related[:MAX_RELATED]]
                if len(related) > MAX_RELATED:
                    shown[f"{name}_cut"] = True
            else:
                _dump_one(shown, obj, name, member, blanks)
        return shown


def _relation_schema(relation: Relation) -> Schema:
    schema = relation.node.schema()
    if relation.labelled:
        own: Schema = {
            "id": relation.key.schema,
            "label": {"type": "string", "description": "Only of what you may view."},
        }
        schema["properties"] = {**own, **schema["properties"]}
        schema["required"] = list(dict.fromkeys(["id", *schema["required"]]))
    if relation.is_many:
        return {"type": "array", "items": schema}
    return {"anyOf": [schema, {"type": "null"}]} if _may_be_null(relation) else schema


def _may_be_null(relation: Relation) -> bool:
    return not relation.field.concrete or bool(relation.field.null)


def _dump_one(
    shown: dict[str, Any], obj: Model, name: str, relation: Relation, blanks: Blanks
) -> None:
    related = _related(obj, relation.field) if relation.is_joined else None
    key = _key_of(obj, relation, related)
    shown[name] = None
    if key is None or (relation.is_joined and related is None):
        return
    own: dict[str, Any] = {}
    if relation.labelled:
        own = {"id": relation.key.dump(key), "label": None}
        blank = Blank(key=key, row=shown, name=name, is_gated=relation.is_gated)
        blanks.add(relation.node.model, relation.target, blank)
    shown[name] = own if related is None else own | relation.node.dump(related, blanks)


def _related(obj: Model, relation: Any) -> Model | None:
    try:
        found: Model | None = getattr(obj, accessor(relation))
    except ObjectDoesNotExist:
        return None
    return found


def _key_of(obj: Model, relation: Relation, related: Model | None) -> Any:
    if relation.field.concrete:
        return getattr(obj, relation.field.attname)
    return None if related is None else related.pk


def _dump_many(obj: Model, relation: Relation, blanks: Blanks) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if relation.labelled:
        shown["id"] = relation.key.dump(obj.pk)
        if getattr(obj, LABELLED, False):
            shown["label"] = str(obj)
    return shown | relation.node.dump(obj, blanks)
