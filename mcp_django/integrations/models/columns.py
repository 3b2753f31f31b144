"""Paths through a model and the columns at their ends: JSON Schema, values and lookups."""

from __future__ import annotations

import base64
import datetime as dt
import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from django.conf import settings
from django.core import validators
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import connections, router
from django.db.models import Field, FileField, ManyToManyField, Model
from django.utils import timezone
from django.utils.translation import override
from pydantic import AfterValidator, Field as Rule, IPvAnyAddress

from mcp_django.schema.portable import RULES, with_sentence
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable

# Paths through a model ----------------------------------------------------------------------------

# As they are written in ``fields``: ``lines__product__name``.

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
        return any(_may_be_missing(one) for one in (*self.hops, self.field))

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


def _may_be_missing(field: Any) -> bool:
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


# Paths that identify one object -------------------------------------------------------------------

# Only what the database itself guarantees counts.


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


# Limits of validators in the schema ---------------------------------------------------------------

# The schema states what the validators of a model require, so that a caller need not find out by
# trying.

# Bounds of a column's type, which say nothing about what it is for.
_LARGE = 2**31 - 1
_BOUNDS: tuple[tuple[type[validators.BaseValidator], str, str], ...] = (
    (validators.MinValueValidator, "minimum", "at least"),
    (validators.MaxValueValidator, "maximum", "at most"),
    (validators.MinLengthValidator, "minLength", ""),
    (validators.MaxLengthValidator, "maxLength", ""),
)


def with_limits(schema: Schema, rules: Iterable[Any]) -> Schema:
    """The schema with the bounds and patterns that these validators hold a value to."""
    limited = dict(schema)
    if "enum" in schema:
        return limited
    words: list[str] = []
    for keyword, limit, word in _bounds(rules):
        if schema.get("type") in {"integer", "number"} or "Length" in keyword:
            limited.setdefault(keyword, limit)
        elif word:
            words.append(f"{word} {limit}")
    if words:
        limited[RULES] = ", ".join([*words, *([schema[RULES]] if RULES in schema else [])])
    if "format" not in schema:
        for sentence in _patterns(rules):
            limited["description"] = with_sentence(limited.get("description", ""), sentence)
    return limited


def _bounds(rules: Iterable[Any]) -> Iterator[tuple[str, Any, str]]:
    for rule in rules:
        for kind, keyword, word in _BOUNDS:
            if isinstance(rule, kind):
                limit: Any = rule.limit_value
                limit = limit() if callable(limit) else limit
                if not isinstance(limit, int) or abs(limit) < _LARGE:
                    yield keyword, limit, word


def _patterns(rules: Iterable[Any]) -> Iterator[str]:
    """What a pattern asks for, in the words of its author; not every host reads Python's own."""
    for rule in rules:
        if isinstance(rule, validators.RegexValidator):
            yield str(rule.message)


# Values that a database cannot store --------------------------------------------------------------

MAX_TEXT = 1000
# Databases without a type for it keep microseconds in 64 bits.
MAX_DURATION = dt.timedelta(microseconds=2**63 - 1)

# Nearer to the ends of the calendar a moment has no name in some time zones.
FIRST_DAY = dt.date.min + dt.timedelta(days=2)
LAST_DAY = dt.date.max - dt.timedelta(days=2)


def without_nul(value: str) -> str:
    """Text that a database can hold; PostgreSQL has no NUL, and no encoding has half a pair."""
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    if not value.isprintable() and any("\ud800" <= one <= "\udfff" for one in value):
        raise ValueError("must not contain lone surrogates")
    return value


def _local_datetime(value: dt.datetime) -> dt.datetime:
    """A moment as the site keeps it: with an offset under ``USE_TZ``, without one else.

    One without an offset is meant in the site's current time zone.
    """
    if not FIRST_DAY <= value.date() <= LAST_DAY:
        raise ValueError("must be a moment between the years 1 and 9999")
    if settings.USE_TZ:
        return value if timezone.is_aware(value) else timezone.make_aware(value)
    if timezone.is_aware(value):
        return timezone.make_naive(value, timezone.get_default_timezone())
    return value


def _naive_time(value: dt.time) -> dt.time:
    """A time of day, which has no offset in a database."""
    if value.tzinfo is not None:
        raise ValueError("must be a time of day without an offset")
    return value


def bounded_duration(value: dt.timedelta) -> dt.timedelta:
    """A duration that fits."""
    if abs(value) > MAX_DURATION:
        raise ValueError(f"must be at most {MAX_DURATION.days} days")
    return value


def _text_of_address(value: Any) -> str:
    """An IP address as Django's fields take it."""
    return str(value)


# Columns ------------------------------------------------------------------------------------------

Kind = Literal[
    "integer",
    "number",
    "decimal",
    "boolean",
    "date",
    "datetime",
    "time",
    "duration",
    "uuid",
    "text",
    "address",
    "file",
    "json",
    "binary",
    "list",
    "other",
]

# By Django's internal types, which custom fields keep, too.
_KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(("AutoField", "BigAutoField", "SmallAutoField"), "integer"),
    **dict.fromkeys(("IntegerField", "BigIntegerField", "SmallIntegerField"), "integer"),
    "PositiveIntegerField": "integer",
    "PositiveBigIntegerField": "integer",
    "PositiveSmallIntegerField": "integer",
    "FloatField": "number",
    "DecimalField": "decimal",
    "BooleanField": "boolean",
    "DateField": "date",
    "DateTimeField": "datetime",
    "TimeField": "time",
    "DurationField": "duration",
    "UUIDField": "uuid",
    **dict.fromkeys(("CharField", "TextField", "SlugField", "FilePathField"), "text"),
    **dict.fromkeys(("GenericIPAddressField", "IPAddressField"), "address"),
    "FileField": "file",
    "JSONField": "json",
    "BinaryField": "binary",
    "ArrayField": "list",
}

_SCHEMAS: Mapping[Kind, Schema] = {
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "decimal": {"type": "string", "format": "decimal"},
    "boolean": {"type": "boolean"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "time": {"type": "string", "format": "time"},
    "duration": {"type": "string", "format": "duration"},
    "uuid": {"type": "string", "format": "uuid"},
    "text": {"type": "string"},
    "address": {"type": "string"},
    "file": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "url": {"type": "string"}},
        "required": ["name"],
    },
    "json": {},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "list": {"type": "array", "items": {}},
    "other": {},
}

_ARGUMENTS: Mapping[Kind, Any] = {
    "number": float,
    "boolean": bool,
    "date": dt.date,
    "datetime": Annotated[dt.datetime, AfterValidator(_local_datetime)],
    "time": Annotated[dt.time, AfterValidator(_naive_time)],
    "duration": Annotated[dt.timedelta, AfterValidator(bounded_duration)],
    "uuid": UUID,
    "address": Annotated[IPvAnyAddress, AfterValidator(_text_of_address)],
    "text": Annotated[str, Rule(max_length=MAX_TEXT), AfterValidator(without_nul)],
}
_COMPARABLE = frozenset({*_ARGUMENTS, "integer", "decimal"})


class Column:
    """What a column is outside of the database."""

    def __init__(self, field: Field[Any, Any]) -> None:
        self.field = field
        # A foreign key is a column of keys, a generated column one of what it holds.
        held = key_column(field) if field.is_relation else getattr(field, "output_field", field)
        self.held: Any = held
        self.kind: Kind = _KINDS.get(held.get_internal_type(), "other")
        if isinstance(field, FileField):
            self.kind = "file"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and other.field == self.field

    def __hash__(self) -> int:
        return hash(self.field)

    @property
    def is_comparable(self) -> bool:
        """Whether it can be filtered and ordered by."""
        return self.kind in _COMPARABLE

    @property
    def choices(self) -> dict[Any, str]:
        """The values that it may have with their labels, without groups and the empty one."""
        with override(None):
            pairs = getattr(self.held, "flatchoices", None) or ()
            return {value: str(label) for value, label in pairs if value not in (None, "")}

    # In answers -----------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The schema of its values in answers.

        It names the choices and does not insist on them: a row may be older than they are.
        """
        schema = dict(_SCHEMAS[self.kind])
        if self.kind == "datetime" and not settings.USE_TZ:
            # RFC 3339 knows no moment without an offset.
            del schema["format"]
        if self.field.null or self.kind in {"file", "number", "decimal"}:
            schema = {"anyOf": [schema, {"type": "null"}]} if schema else {}
        words = self.description
        return {**schema, "description": words} if words else schema

    @property
    def description(self) -> str:
        """The help text, and what the choices mean."""
        with override(None):
            words = str(getattr(self.field, "help_text", ""))
        named = [f"{value}: {label}" for value, label in self.choices.items()]
        return " ".join(part for part in (words, ", ".join(named[:50])) if part)

    def dump(self, value: Any) -> Any:
        """A value of the column as plain JSON."""
        if value is None or type(value) in (str, int, bool):
            return value
        if self.kind == "file":
            return _file(value)
        if self.kind == "binary":
            return _base64(value)
        try:
            return jsonable(value)
        except ValueError:
            # NaN and infinity, which JSON cannot say.
            return None
        except TypeError:
            return str(value)

    # As arguments ---------------------------------------------------------------------------------

    def argument(self) -> Any:
        """The type of an argument that is compared with the column.

        Raises:
            ImproperlyConfigured: nothing can be compared with it.
        """
        if self.choices and all(type(one) in (str, int) for one in self.choices):
            return Literal[tuple(self.choices)]
        if self.kind == "integer":
            low, high = self._integer_bounds()
            return Annotated[int, Rule(ge=low, le=high)]
        if self.kind == "decimal":
            digits, places = self._decimal_bounds()
            return Annotated[Decimal, Rule(max_digits=digits, decimal_places=places)]
        if self.kind not in _ARGUMENTS:
            raise ImproperlyConfigured(
                f"{self.field} holds {type(self.field).__name__}, which cannot be compared."
            )
        return _ARGUMENTS[self.kind]

    def _integer_bounds(self) -> tuple[int, int]:
        operations = connections[
            router.db_for_read(getattr(self.held, "model", self.field.model))
        ].ops
        low, high = cast(Any, operations).integer_field_range(self.held.get_internal_type())
        # No driver takes more.
        return -(2**63) if low is None else low, 2**63 - 1 if high is None else high

    def _decimal_bounds(self) -> tuple[int, int]:
        digits = getattr(self.held, "max_digits", None)
        places = getattr(self.held, "decimal_places", None)
        return digits or 30, 10 if places is None else places


def _file(value: Any) -> dict[str, str] | None:
    if not value:
        return None
    shown = {"name": str(value.name)}
    # Django's base storage says by this exception that it has no addresses.
    with suppress(NotImplementedError, ValueError):
        shown["url"] = str(value.url)
    return shown


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


# Lookups that a column can be filtered by ---------------------------------------------------------

# Regular expressions are not among them.

MAX_IN = 100
# What a person would still put into a list of alternatives.
SHORT_TEXT = 255

_ORDERED = ("exact", "gt", "gte", "lt", "lte")
_TEXT = ("exact", "icontains", "startswith")
_DEFAULT: Mapping[Kind, tuple[str, ...]] = {
    "text": _TEXT,
    "address": ("exact",),
    "boolean": ("exact",),
    "uuid": ("exact", "in"),
}
_MORE: Mapping[Kind, tuple[str, ...]] = {
    "text": (
        "iexact",
        "contains",
        "istartswith",
        "endswith",
        "iendswith",
        "gt",
        "gte",
        "lt",
        "lte",
    ),
    "date": ("year", "month", "day"),
    "datetime": ("date", "year", "month", "day"),
}
_PARTS: Mapping[str, Any] = {
    "isnull": bool,
    "date": dt.date,
    # In another time zone the first and the last year begin or end beyond the calendar.
    "year": Annotated[int, Rule(ge=2, le=9998)],
    "month": Annotated[int, Rule(ge=1, le=12)],
    "day": Annotated[int, Rule(ge=1, le=31)],
}
_WORDS: Mapping[str, str] = {
    "gt": "greater",
    "gte": "at least",
    "lt": "less",
    "lte": "at most",
    "icontains": "contains, whatever the case",
    "contains": "contains",
    "startswith": "begins with",
    "istartswith": "begins with, whatever the case",
    "endswith": "ends with",
    "iendswith": "ends with, whatever the case",
    "iexact": "equal, whatever the case",
    "in": "one of",
    "isnull": "whether there is none",
}


def default_lookups(path: FieldPath) -> tuple[str, ...]:
    """The comparisons that a filter offers when its author names none."""
    column = Column(path.column)
    if path.is_relation or path.is_key or column.choices:
        found: tuple[str, ...] = ("exact", "in")
    else:
        found = _DEFAULT.get(column.kind, _ORDERED)
        if (
            column.kind == "text"
            and (getattr(path.column, "max_length", None) or 10**6) <= SHORT_TEXT
        ):
            found = (*found, "in")
    return (*found, "isnull") if path.is_nullable and not path.is_many else found


def known_lookups(path: FieldPath) -> tuple[str, ...]:
    """Every comparison that a filter of this path may offer."""
    more = () if path.is_relation else _MORE.get(Column(path.column).kind, ())
    return tuple(dict.fromkeys((*default_lookups(path), *more, "in", "isnull")))


def annotation(path: FieldPath, lookup: str) -> Any:
    """The type of what the path is compared with."""
    if lookup in _PARTS:
        return _PARTS[lookup]
    value: Any = Column(path.column).argument()
    if lookup == "in":
        return Annotated[list[value], Rule(min_length=1, max_length=MAX_IN)]
    return value


def words(path: FieldPath, lookup: str) -> str:
    """What the filter does, for a model to read."""
    if lookup in _WORDS:
        return _WORDS[lookup][:1].upper() + _WORDS[lookup][1:] + "."
    if lookup == "exact":
        return "The key." if path.field.is_relation else Column(path.field).description
    return ""
