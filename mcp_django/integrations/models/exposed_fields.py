"""The ``fields`` of a declaration as a tree: the allow-list of model data that leaves the site.

Output, filters, search and ordering use this tree, so that there is one allow-list. A path such as
``customer__name`` exposes a field of a related object. A relation that is named alone exposes the
key of the related object, and its label to callers who may view that object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.db.models import (
    AutoField,
    BooleanField,
    Field,
    Model,
    Prefetch,
    Q,
    QuerySet,
    UUIDField,
    Value,
)

from mcp_django.components.context import Context
from mcp_django.integrations.models.columns import (
    SHORT_TEXT,
    Column,
    FieldPath,
    accessor_name,
    has_own_manager,
    key_column,
    leads_to_many,
    own_names,
    resolve_path,
    suggest_name,
)
from mcp_django.integrations.models.row_access import (
    MAX_CHECKED_OBJECTS,
    related_rows,
    rows_with_visible_labels,
)
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema
from mcp_django.schema.vocabulary import SchemaSource

if TYPE_CHECKING:
    from mcp_django.components.registry import Registrar

# Options whose queries can leave out related rows that the caller may not see.
ROW_FILTER_OPTIONS = frozenset({"filter_fields", "search_fields"})


class FieldDeclaration(Protocol):
    """A declaration of a model, with an allow-list of fields."""

    model: Any
    server: Any
    key: str

    @property
    def exposed(self) -> ExposedFields:
        """The validated allow-list."""

    @property
    def noun(self) -> str:
        """The name of the model in messages."""

    @property
    def nouns(self) -> str:
        """The plural name of the model in messages."""

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``ImproperlyConfigured``, naming the declaration."""


class ExposedFields:
    """The allow-list of one declaration."""

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: FieldDeclaration
    ) -> None:
        self.model = model
        self._declaration = declaration
        if not fields:
            raise ImproperlyConfigured(
                f"{declaration}: fields is missing; name the fields that callers may see, out of: "
                f"{', '.join(own_names(model))}."
            )
        names = list(fields)
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ImproperlyConfigured(
                f"{declaration}: fields contains {', '.join(duplicates)} more than once."
            )
        label = f"{declaration}: fields"
        self.paths = {text: resolve_path(model, text, label=label) for text in names}
        self.tree = Node(model, declaration.server)
        for path in self.paths.values():
            self.tree.add(path)
        for name in self.tree.clashes():
            raise ImproperlyConfigured(
                f"{declaration}: fields has {name!r}, a name that the output of the relation "
                "already uses; name the relation alone, or only the fields behind it."
            )

    @cached_property
    def columns(self) -> dict[str, Field[Any, Any]]:
        """The model's own columns by their names in results."""
        return {
            text: path.field
            for text, path in self.paths.items()
            if not path.hops and not path.is_relation
        }

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of one object in results, in the portable subset."""
        return portable_output(self.tree.schema(), SchemaSource.COLUMNS)

    @property
    def object_schema(self) -> Schema:
        """The schema of an object that is read alone, which may show more than a row of a list."""
        return self.schema

    @property
    def comparable_paths(self) -> Mapping[str, FieldPath]:
        """The paths by which rows may be grouped and summed up."""
        return self.paths

    def require_path(self, text: str, *, option: str) -> FieldPath:
        """Return the path that an option names.

        Raises:
            ImproperlyConfigured: the path does not exist, or is not in ``fields``: callers who can
                filter, search or sort by a hidden value can find out what it is.
        """
        what = f"{self._declaration}: {option}"
        path = resolve_path(self.model, text, label=what)
        # ``fields`` may have a foreign key under its other name: that of the relation or column.
        is_exposed = text in self.paths or any(
            path.hops == other.hops and path.field == other.field
            for other in self.paths.values()
            if path.field.is_relation
        )
        if not is_exposed:
            raise ImproperlyConfigured(
                f"{what} has {text!r}, which is not in fields and would be revealed; add it to "
                f"fields, or use a path that is in fields ({suggest_name(text, self.paths)})"
            )
        if option not in ROW_FILTER_OPTIONS and not path.is_many:
            for relation in self.restricted_relations(path):
                if relation != text:
                    raise ImproperlyConfigured(
                        f"{what} has {text!r}, but fields also has {relation!r} alone, whose rows "
                        f"are shown only to callers who may see them; remove {relation!r} from "
                        f"fields, or {text!r} from this option."
                    )
        return path

    def restricted_relations(self, path: FieldPath) -> dict[str, type[Model]]:
        """Return the relations on a path that show only rows that the caller may see.

        The keys are the paths of the relations; the end of the path can be one of them. Code that
        uses the path must leave out rows that the caller may not see.
        """
        relations: dict[str, type[Model]] = {}
        node = self.tree
        for number, name in enumerate(path.names, start=1):
            relation = node.relations.get(name)
            if relation is None:
                break
            if relation.labelled and (relation.is_many or not relation.field.concrete):
                relations["__".join(path.names[:number])] = relation.node.model
            node = relation.node
        return relations

    def prepare(self, queryset: QuerySet[Any], ctx: Context) -> QuerySet[Any]:
        """Return the queryset, set to load what ``dump`` needs in a fixed number of queries."""
        return RowLoader(ctx).prepare(queryset, self.tree)

    def dump(self, obj: Model, ctx: Context) -> dict[str, Any]:
        """Return an object of a prepared queryset as plain JSON."""
        return self.dump_all([obj], ctx)[0]

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Return objects of a prepared queryset as plain JSON; labels take one query per model."""
        blanks = LabelPlaceholders(self._declaration.server)
        rows = [self.tree.dump(obj, blanks) for obj in objects]
        blanks.fill(ctx)
        return rows


# The field that identifies one object -------------------------------------------------------------

# The order of such keys reveals at most which row was created first.
OPAQUE_KEY_FIELDS = (AutoField, UUIDField)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The argument that identifies an object, and its column."""

    name: str
    field: Field[Any, Any]

    @property
    def annotation(self) -> Any:
        """The type of the argument."""
        return Column(self.field).argument()


def find_key(declaration: FieldDeclaration) -> Key:
    """Return the ``key`` of the declaration, or the most suitable unique field.

    Raises:
        ImproperlyConfigured: no exposed column is unique, or ``key`` is not one of them.
    """
    unique = _unique_columns(declaration)
    name = declaration.key or next(iter(unique), "")
    if declaration.key and name not in unique:
        raise ImproperlyConfigured(
            f"{declaration}: key = {name!r} is not a unique column in fields; unique columns: "
            f"{', '.join(unique) or 'none'}."
        )
    if not name:
        raise ImproperlyConfigured(
            f"{declaration}: no field in fields identifies one {declaration.noun}: "
            f"{_add(declaration)}, or write tools = ['count']."
        )
    return Key(name=name, field=declaration.exposed.columns[name])


def _unique_columns(declaration: FieldDeclaration) -> list[str]:
    """Return the exposed unique columns: those in the URI first, then the primary key."""
    columns = declaration.exposed.columns
    names = [name for name, field in columns.items() if identifies_object(field)]
    uri = str(getattr(declaration, "uri", ""))
    return sorted(names, key=lambda name: (f"{{{name}}}" not in uri, not columns[name].primary_key))


def identifies_object(field: Field[Any, Any]) -> bool:
    """Return whether a value of the column names one object, and can be an argument."""
    return field.unique and not field.null and Column(field).is_comparable


def find_tie_breaker(declaration: FieldDeclaration) -> str:
    """Return the unique column that makes an order of rows definite.

    Its values are stored in cursors, so it must be a column that the rows show.

    Raises:
        ImproperlyConfigured: there is no such column.
    """
    unique = _unique_columns(declaration)
    keys = [name for name in unique if declaration.exposed.columns[name].primary_key]
    candidates = [
        *keys,
        *(name for name in unique if fits_in_cursor(declaration.exposed.columns[name])),
    ]
    if not candidates:
        raise ImproperlyConfigured(
            f"{declaration}: fields has no unique column to order pages of {declaration.nouns} by: "
            f"{_add(declaration)}, or remove 'list' from tools."
        )
    return candidates[0]


def _add(declaration: FieldDeclaration) -> str:
    return f"add {declaration.model._meta.pk.attname!r} or another unique field to fields"


def fits_in_cursor(field: Field[Any, Any]) -> bool:
    """Return whether the values of a column are short enough for a cursor."""
    column = Column(field)
    length = getattr(column.value_field, "max_length", None) or SHORT_TEXT + 1
    return column.kind != "text" or length <= SHORT_TEXT


# Loading a tree of fields and its labels ----------------------------------------------------------

MAX_RELATED = 100
LABEL_ANNOTATION = "mcp_labelled"
_TRUE = Value(True, output_field=BooleanField())  # noqa: FBT003 - an SQL literal


def _list_attribute(name: str) -> str:
    """Return the attribute in which an object has its prefetched related objects."""
    return f"mcp_list_{name}"


@dataclass(slots=True)
class RowLoader:
    """Loads rows once for one caller, whose permission for related objects decides about labels.

    The number of queries does not depend on the number of rows.
    """

    ctx: Context
    columns: set[str] = field(default_factory=lambda: {"pk"})
    joins: set[str] = field(default_factory=set)
    prefetches: list[Prefetch[Any] | str] = field(default_factory=list)

    def prepare(
        self,
        queryset: QuerySet[Any],
        node: Node,
        *,
        whole: bool = False,
        also: frozenset[str] = frozenset(),
    ) -> QuerySet[Any]:
        """Return the queryset, set to load what the tree shows.

        With ``whole`` it loads every column of a row, otherwise also the columns in ``also``.
        """
        self.columns |= also
        self._plan_node(node, "", "")
        if self.joins:
            queryset = queryset.select_related(*sorted(self.joins))
        if not (whole or node.needs_all_columns):
            queryset = queryset.only(*sorted(self.columns))
        return queryset.prefetch_related(*self.prefetches)

    def _plan_node(self, node: Node, lookup: str, attribute: str) -> None:
        """Plan one node; its prefixes differ if a reverse relation's accessor is not its name."""
        self.columns |= {f"{lookup}{column.field.name}" for column in node.columns.values()}
        for name, relation in node.relations.items():
            source = f"{attribute}{accessor_name(relation.field)}"
            if relation.is_many:
                foreign_key = getattr(relation.field, "field", None)
                if relation.field.one_to_many and foreign_key is not None:
                    # The columns on this side by which related rows are found.
                    columns = getattr(foreign_key, "foreign_related_fields", ())
                    self.columns |= {f"{lookup}{column.name}" for column in columns}
                if relation.has_own_manager:
                    if _can_be_prefetched(relation.field):
                        self.prefetches.append(source)
                    continue
                related = self._many(relation)
                self.prefetches.append(Prefetch(source, related, to_attr=_list_attribute(name)))
                continue
            if relation.field.concrete:
                self.columns.add(f"{lookup}{name}")
            if relation.is_joined:
                self._join(relation, f"{lookup}{name}", source)

    def _join(self, relation: Relation, lookup: str, attribute: str) -> None:
        self.joins.add(lookup)
        self.columns.add(f"{lookup}__{relation.node.model._meta.pk.name}")
        if not relation.field.concrete:
            # ``select_related`` cannot follow a reverse relation whose column is deferred.
            self.columns.add(f"{lookup}__{relation.field.field.name}")
        self._plan_node(relation.node, f"{lookup}__", f"{attribute}__")

    def _many(self, relation: Relation) -> QuerySet[Any]:
        node = relation.node
        # Only a relation that is named alone is limited to the rows that the caller may see.
        related = related_rows(node.server, node.model, self.ctx) if relation.labelled else None
        rows = node.model._default_manager.all() if related is None else related.rows
        is_labelled = related is not None and related.has_labels
        is_checked = related is not None and related.is_checked
        if is_labelled:
            rows = rows.annotate(**{LABEL_ANNOTATION: _TRUE})
        # The columns on the other side by which related rows are assigned to their objects.
        also: frozenset[str] = frozenset()
        hop = relation.field
        is_generic = hasattr(hop, "object_id_field_name")
        if is_generic:
            also = frozenset({hop.object_id_field_name, hop.content_type_field_name})
        elif hop.one_to_many:
            also = frozenset({hop.field.name})
        # ``__str__`` and object permission checks may use any column.
        rows = RowLoader(self.ctx).prepare(rows, node, whole=is_labelled or is_checked, also=also)
        key: Any = node.model._meta.pk
        is_shown = relation.labelled or key.name in node.members
        while not is_shown and key.is_relation:
            key = key.target_field
        # By key, unless it is hidden and its order reveals it.
        order = ["pk"]
        if not is_shown and not isinstance(key, OPAQUE_KEY_FIELDS):
            columns = node.columns.values()
            order = [column.field.attname for column in columns if column.is_comparable]
        rows = rows.order_by(*order)
        if is_generic:
            # Django cannot slice a generic relation for each object.
            return rows
        return rows[: MAX_CHECKED_OBJECTS if is_checked else MAX_RELATED + 1]


def _can_be_prefetched(relation: Any) -> bool:
    """Return whether the manager of another package can prefetch the rows of many objects."""
    try:
        # Managers like Django's need an object that looks saved.
        manager = getattr(relation.model(pk=0), accessor_name(relation))
    except (TypeError, ValueError):
        return False
    return hasattr(manager, "get_prefetch_querysets") or hasattr(manager, "get_prefetch_queryset")


def load_labels(
    server: Registrar, model: type[Model], column: str, keys: Iterable[Any], ctx: Context
) -> dict[Any, str]:
    """Return the labels of the objects with these keys that the caller may view, in one query."""
    present_keys = {key for key in keys if key is not None}
    if not present_keys:
        return {}
    rows = rows_with_visible_labels(server, model, ctx, among=Q(**{f"{column}__in": present_keys}))
    return {getattr(row, column): str(row) for row in rows or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPlaceholder:
    """A placeholder in a row for a label that is filled in later.

    ``row[name]`` is the related object as it is shown. With ``is_restricted`` it is shown only if
    the caller may view it.
    """

    key: Any
    row: Any
    name: str | int
    is_restricted: bool

    def fill(self, label: str | None) -> None:
        """Set the label, or remove what must not be shown without one."""
        if label is not None:
            self.row[self.name]["label"] = label
        elif self.is_restricted:
            self.row[self.name] = None
        else:
            del self.row[self.name]["label"]


class LabelPlaceholders:
    """The placeholders for labels in a number of rows."""

    def __init__(self, server: Registrar) -> None:
        self._server = server
        self._blanks: dict[tuple[type[Model], str], list[LabelPlaceholder]] = defaultdict(list)
        self._lists: list[list[Any]] = []

    def add(self, model: type[Model], column: str, blank: LabelPlaceholder) -> None:
        """Add a placeholder whose key is a value of ``column`` of the model."""
        self._blanks[model, column].append(blank)

    def add_item(self, relation: Relation, obj: Model, items: list[Any], index: int) -> None:
        """Add an item of a list; it is removed if the caller may not see its object."""
        model = relation.node.model
        is_restricted = bool(self._server.declarations_of(model))
        blank = LabelPlaceholder(key=obj.pk, row=items, name=index, is_restricted=is_restricted)
        self.add(model, model._meta.pk.attname, blank)
        if is_restricted and index == 0:
            self._lists.append(items)

    def fill(self, ctx: Context) -> None:
        """Set the labels that this caller may see."""
        for (model, column), blanks in self._blanks.items():
            keys = [blank.key for blank in blanks]
            labels = load_labels(self._server, model, column, keys, ctx)
            for blank in blanks:
                blank.fill(labels.get(blank.key))
        for items in self._lists:
            items[:] = [row for row in items if row is not None]


# Columns and relations ----------------------------------------------------------------------------


@dataclass
class Relation:
    """A relation and the tree behind it; ``labelled`` means that it is (also) named alone."""

    field: Any
    node: Node
    labelled: bool = False

    @cached_property
    def is_many(self) -> bool:
        """Whether the relation leads to several objects."""
        return leads_to_many(self.field)

    @cached_property
    def has_own_manager(self) -> bool:
        """Whether another package loads the related objects of a relation to many."""
        return has_own_manager(self.field)

    @cached_property
    def key(self) -> Column:
        """The column that identifies the related object."""
        return Column(key_column(self.field))

    @cached_property
    def target(self) -> str:
        """The attribute of a related object that contains the key."""
        if self.field.concrete and not self.is_many:
            return str(self.field.target_field.attname)
        return str(self.node.model._meta.pk.attname)

    @property
    def is_restricted(self) -> bool:
        """Whether the related row is shown only if its own row rule includes it.

        A foreign key is a column of the current row, and its key is shown; a reverse relation leads
        to a row of its own.
        """
        return not self.field.concrete and bool(self.node.server.declarations_of(self.node.model))

    @property
    def is_joined(self) -> bool:
        """Whether the related object itself is needed, not only its key."""
        return bool(self.node.members) or not self.field.concrete


@dataclass
class Node:
    """The exposed fields of one model at one position in the tree."""

    model: Any
    server: Any
    members: dict[str, Column | Relation] = field(default_factory=dict)
    needs_all_columns: bool = False
    """Whether code uses the objects directly, and so may use any column of them."""

    def add(self, path: FieldPath) -> None:
        """Add a path to the tree."""
        node = self
        *before, last = path.names
        for name, hop in zip(before, path.hops, strict=True):
            node = node._relation(name, hop).node
        if path.is_relation:
            node._relation(last, path.field).labelled = True
        else:
            node.members[last] = Column(path.field)

    def _relation(self, name: str, hop: Any) -> Relation:
        member = self.members.setdefault(name, Relation(hop, Node(hop.related_model, self.server)))
        # Names of fields are unique in a model, so a name is either a column or a relation.
        assert isinstance(member, Relation)
        return member

    @property
    def columns(self) -> dict[str, Column]:
        """The columns at this position."""
        return {name: member for name, member in self.members.items() if isinstance(member, Column)}

    @property
    def relations(self) -> dict[str, Relation]:
        """The relations at this position."""
        return {
            name: member for name, member in self.members.items() if isinstance(member, Relation)
        }

    def clashes(self) -> Iterator[str]:
        """Yield the names that two values would share in a result."""
        for name, relation in self.relations.items():
            inner = relation.node.members
            if relation.labelled and "label" in inner:
                yield f"{name}__label"
            id_member = inner.get("id")
            if relation.labelled and id_member is not None and id_member != relation.key:
                yield f"{name}__id"
            if relation.is_many and f"{name}_cut" in self.members:
                yield f"{name}_cut"
            yield from (f"{name}__{clash}" for clash in relation.node.clashes())

    def schema(self) -> Schema:
        """Return the JSON Schema of an object at this position."""
        properties: Schema = {}
        required: list[str] = []
        for name, member in self.members.items():
            required.append(name)
            if isinstance(member, Column):
                properties[name] = member.schema
                continue
            schema = member.node.schema()
            if member.labelled:
                own: Schema = {
                    "id": member.key.schema,
                    "label": {"type": "string", "description": "Present only if you may view it."},
                }
                schema["properties"] = {**own, **schema["properties"]}
                schema["required"] = list(dict.fromkeys(["id", *schema["required"]]))
            if member.is_many:
                properties[name] = {"type": "array", "items": schema}
                properties[f"{name}_cut"] = {
                    "type": "boolean",
                    "description": f"There are more than the {MAX_RELATED} shown.",
                }
            elif not member.field.concrete or member.field.null:
                properties[name] = {"anyOf": [schema, {"type": "null"}]}
            else:
                properties[name] = schema
        return {"type": "object", "properties": properties, "required": required}

    def dump(self, obj: Model, blanks: LabelPlaceholders) -> dict[str, Any]:
        """Return an object of a prepared queryset as plain JSON, with placeholders for labels."""
        row: dict[str, Any] = {}
        for name, member in self.members.items():
            if isinstance(member, Column):
                row[name] = member.dump(getattr(obj, name))
            elif member.is_many:
                _dump_many(row, obj, name, member, blanks)
            else:
                _dump_one(row, obj, name, member, blanks)
        return row


def _dump_one(
    row: dict[str, Any], obj: Model, name: str, relation: Relation, blanks: LabelPlaceholders
) -> None:
    try:
        related = getattr(obj, accessor_name(relation.field)) if relation.is_joined else None
    except ObjectDoesNotExist:
        related = None
    if relation.field.concrete:
        key = getattr(obj, relation.field.attname)
    else:
        key = None if related is None else related.pk
    row[name] = None
    if key is None or (relation.is_joined and related is None):
        return
    own: dict[str, Any] = {}
    if relation.labelled:
        own = {"id": relation.key.dump(key), "label": None}
        blank = LabelPlaceholder(key=key, row=row, name=name, is_restricted=relation.is_restricted)
        blanks.add(relation.node.model, relation.target, blank)
    row[name] = own if related is None else own | relation.node.dump(related, blanks)


def _dump_many(
    row: dict[str, Any], obj: Model, name: str, relation: Relation, blanks: LabelPlaceholders
) -> None:
    related: Sequence[Any] | None = getattr(obj, _list_attribute(name), None)
    if related is None:
        # One more than are shown, if there are more.
        related = list(getattr(obj, accessor_name(relation.field)).all()[: MAX_RELATED + 1])
    row[name] = items = []
    for index, related_object in enumerate(related[:MAX_RELATED]):
        own: dict[str, Any] = {}
        if relation.labelled:
            own["id"] = relation.key.dump(related_object.pk)
            if relation.has_own_manager:
                own["label"] = None
            elif getattr(related_object, LABEL_ANNOTATION, False):
                own["label"] = str(related_object)
        items.append(own | relation.node.dump(related_object, blanks))
        if relation.labelled and relation.has_own_manager:
            blanks.add_item(relation, related_object, items, index)
    if len(related) > MAX_RELATED:
        row[f"{name}_cut"] = True
