"""``fields`` of a declaration as a tree: the allow-list of all model data that leaves the site.

Output, filters, search and ordering use this tree, so that there is one allow-list. A relation is
followed where a path says so. A relation that is named alone gives the key of the related object,
and its label to callers who may view that object.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist
from django.db.models import (
    AutoField,
    BigAutoField,
    BooleanField,
    Field,
    Model,
    Prefetch,
    Q,
    QuerySet,
    SmallAutoField,
    UUIDField,
    Value,
)

from mcp_django.core.context import Context
from mcp_django.integrations.models.columns import (
    SHORT_TEXT,
    Column,
    FieldPath,
    accessor,
    key_column,
    leads_to_many,
    nearest,
    own_names,
    resolve,
)
from mcp_django.integrations.models.row_access import MAX_ASKED, entries, viewable
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema

if TYPE_CHECKING:
    from mcp_django.integrations.models.declaration import ModelComponents
    from mcp_django.integrations.registration import Registering

# What is asked of each row, and so can leave out what a caller may not see.
ROW_BY_ROW = frozenset({"filter_fields", "search_fields"})


class ExposedFields:
    """The allow-list of one declaration."""

    def __init__(
        self, model: type[Model], fields: Sequence[str], *, declaration: ModelComponents[Any]
    ) -> None:
        self.model = model
        self._declaration = declaration
        self.paths = {text: self._resolve(text) for text in self._names(fields)}
        self.tree = Node(model, declaration.server)
        for path in self.paths.values():
            self.tree.add(path)
        for name in self.tree.clashes():
            raise ImproperlyConfigured(
                f"{declaration}: fields has {name!r}, which has the name of something shown beside "
                "it; name the relation alone, or only what is behind it."
            )

    # What there is --------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> dict[str, Field[Any, Any]]:
        """The model's own columns by the name that they have in answers."""
        return {
            text: path.field
            for text, path in self.paths.items()
            if not path.hops and not path.is_relation
        }

    @cached_property
    def schema(self) -> Schema:
        """The schema of one object in answers, in the portable subset."""
        return portable_output(self.tree.schema())

    def require(self, text: str, *, option: str) -> FieldPath:
        """The path that an option names.

        Raises:
            ImproperlyConfigured: it leads nowhere, or out of ``fields``: who could filter, search
                or sort by a hidden value could find it out.
        """
        what = f"{self._declaration}: {option}"
        path = resolve(self.model, text, what=what)
        if text in self.paths or self._is_other_name(path):
            if option not in ROW_BY_ROW and not path.is_many:
                self._refuse_behind_rows(path, what)
            return path
        raise ImproperlyConfigured(
            f"{what} has {text!r}, which is not in fields, and would tell of it; add it to fields. "
            f"For now {nearest(text, self.paths)}"
        )

    def gated(self, path: FieldPath) -> dict[str, type[Model]]:
        """The relations on the way, by their paths, that show rows only to those who may see them.

        Their end is one of them. Whoever uses the path has to leave those rows out.
        """
        found: dict[str, type[Model]] = {}
        node = self.tree
        for number, name in enumerate(path.names, start=1):
            relation = node.relations.get(name)
            if relation is None:
                break
            if relation.labelled and (relation.is_many or not relation.field.concrete):
                found["__".join(path.names[:number])] = relation.node.model
            node = relation.node
        return found

    def _refuse_behind_rows(self, path: FieldPath, what: str) -> None:
        for alone in self.gated(path):
            if alone != path.text:
                raise ImproperlyConfigured(
                    f"{what} has {path.text!r}, and fields has {alone!r} alone, too, which is "
                    f"shown to those only who may see it; leave {alone!r} out of fields, or "
                    f"{path.text!r} out of this."
                )

    # What leaves the site -------------------------------------------------------------------------

    def prepare(self, queryset: QuerySet[Any], ctx: Context) -> QuerySet[Any]:
        """The query, told to load what ``dump`` needs in a fixed number of statements."""
        return self.tree.prepare(queryset, ctx)

    def dump(self, obj: Model, ctx: Context) -> dict[str, Any]:
        """One object of a prepared query as plain JSON."""
        return self.dump_all([obj], ctx)[0]

    def dump_all(self, objects: Iterable[Model], ctx: Context) -> list[dict[str, Any]]:
        """Objects of a prepared query as plain JSON, with one statement for labels of a model."""
        blanks = Blanks(self._declaration.server)
        rows = [self.tree.dump(obj, blanks) for obj in objects]
        blanks.fill(ctx)
        return rows

    def rows(self, queryset: QuerySet[Any], ctx: Context) -> list[dict[str, Any]]:
        """Every object of a query as plain JSON."""
        return self.dump_all(self.prepare(queryset, ctx), ctx)

    # Reading the option ---------------------------------------------------------------------------

    def _names(self, fields: Sequence[str]) -> list[str]:
        if not fields:
            known = ", ".join(own_names(self.model))
            raise ImproperlyConfigured(
                f"{self._declaration}: fields is missing; name what callers may see of: {known}."
            )
        doubled = sorted({name for name in fields if list(fields).count(name) > 1})
        if doubled:
            raise ImproperlyConfigured(
                f"{self._declaration}: fields has {', '.join(doubled)} more than once."
            )
        return list(fields)

    def _resolve(self, text: str) -> FieldPath:
        return resolve(self.model, text, what=f"{self._declaration}: fields")

    def _is_other_name(self, path: FieldPath) -> bool:
        """A foreign key and its column hold the same."""
        return any(
            path.hops == other.hops and path.field == other.field
            for other in self.paths.values()
            if path.field.is_relation
        )


# The field that names one object ------------------------------------------------------------------

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
    unique = _unique_columns(declaration)
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


def _unique_columns(declaration: ModelComponents[Any]) -> list[str]:
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
    unique = _unique_columns(declaration)
    keys = [name for name in unique if declaration.exposed.columns[name].primary_key]
    found = [*keys, *(name for name in unique if is_short(declaration.exposed.columns[name]))]
    if not found:
        raise ImproperlyConfigured(
            f"{declaration}: nothing in fields says where a page of {declaration.nouns} ends: "
            f"{_add(declaration)}, or leave 'list' out of tools."
        )
    return found[0]


def _has_meaningless_key(model: type[Model]) -> bool:
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


# Loading a tree of fields -------------------------------------------------------------------------

MAX_RELATED = 100
LABELLED = "mcp_labelled"
_YES = Value(True, output_field=BooleanField())  # noqa: FBT003 - the value is what it is about


def _list_attribute(name: str) -> str:
    """Where an object keeps the related ones that are shown."""
    return f"mcp_list_{name}"


@dataclass(slots=True)
class _Plan:
    columns: set[str] = field(default_factory=lambda: {"pk"})
    joins: set[str] = field(default_factory=set)
    prefetches: list[Prefetch[Any]] = field(default_factory=list)


class Loading:
    """Loads for one caller, whose view of related objects decides about their labels.

    It takes as many statements for a thousand rows as for one.
    """

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
                plan.prefetches.append(Prefetch(source, related, to_attr=_list_attribute(name)))
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
    if relation.labelled or key.name in node.members or _has_meaningless_key(node.model):
        return ["pk"]
    return [one.field.attname for one in node.columns.values() if one.is_comparable]


# Labels of related objects ------------------------------------------------------------------------


def labels(
    server: Registering, model: type[Model], column: str, keys: Iterable[Any], ctx: Context
) -> dict[Any, str]:
    """The labels of the objects with these keys, without those that the caller may not view.

    It takes one statement.
    """
    wanted = {key for key in keys if key is not None}
    if not wanted:
        return {}
    shown = viewable(server, model, ctx, among=Q(**{f"{column}__in": wanted}))
    return {getattr(obj, column): str(obj) for obj in shown or ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Blank:
    """A place in a row that waits for a label.

    ``row[name]`` is the related object as it is shown. With ``is_gated`` it is shown only if the
    caller may view it.
    """

    key: Any
    row: dict[str, Any]
    name: str
    is_gated: bool

    def fill(self, label: str | None) -> None:
        """Put the label in, or take away what must not be shown without one."""
        if label is not None:
            self.row[self.name]["label"] = label
        elif self.is_gated:
            self.row[self.name] = None
        else:
            del self.row[self.name]["label"]


class Blanks:
    """Every place in some rows that waits for a label."""

    def __init__(self, server: Registering) -> None:
        self._server = server
        self._blanks: defaultdict[tuple[type[Model], str], list[Blank]] = defaultdict(list)

    def add(self, model: type[Model], column: str, blank: Blank) -> None:
        """Remember a place; ``column`` of the model has its key."""
        self._blanks[model, column].append(blank)

    def fill(self, ctx: Context) -> None:
        """Put in what this caller may see."""
        for (model, column), blanks in self._blanks.items():
            keys = [blank.key for blank in blanks]
            known = labels(self._server, model, column, keys, ctx)
            for blank in blanks:
                blank.fill(known.get(blank.key))


# Columns and relations ----------------------------------------------------------------------------


@dataclass
class Relation:
    """A relation, and the tree behind it; ``labelled`` says that it was named alone, too."""

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
                related = getattr(obj, _list_attribute(name))
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
