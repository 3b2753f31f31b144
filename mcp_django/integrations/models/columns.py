"""Field paths through a model and the columns they end at: JSON Schema, values and lookups."""

from __future__ import annotations

import base64
import datetime as dt
import inspect
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

from django.conf import settings
from django.core import validators
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.db import connections, router
from django.db.models import Field, FileField, ManyToManyField, Model
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import override
from pydantic import AfterValidator, Field as Rule, IPvAnyAddress, WithJsonSchema

from mcp_django.exceptions import ToolError
from mcp_django.protocol.headers import MAX_SAFE_INTEGER
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.django_forms import is_large_integer
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import exact_integers, jsonable
from mcp_django.schema.vocabulary import LARGE_INTEGER, RULES_KEYWORD, append_sentence

logger = logging.getLogger("mcp_django")

# Paths through a model ----------------------------------------------------------------------------

# Paths are written as in ``fields``: ``lines__product__name``.

MAX_HOPS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldPath:
    """A path to a column, or to a relation as a whole.

    ``hops`` are the relations that the path follows, ``field`` is the field at its end. ``is_key``
    is true for the column of a foreign key, written by its own name: ``customer_id``.
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
        """Whether the path names a related object, not a column."""
        return bool(self.field.is_relation) and not self.is_key

    @property
    def is_many(self) -> bool:
        """Whether one row can have several values."""
        return any(leads_to_many(field) for field in (*self.hops, self.field))

    @property
    def is_nullable(self) -> bool:
        """Whether a row can have no value."""
        return any(
            not (field.concrete or isinstance(field, ManyToManyField)) or field.null
            for field in (*self.hops, self.field)
        )

    @property
    def column(self) -> Field[Any, Any]:
        """The column with the value; for a relation, the key column of the related object."""
        return key_column(self.field) if self.field.is_relation else self.field

    @property
    def expression(self) -> str:
        """The name of the value in a query expression; for a foreign key, its own column.

        Ordering by the name of the relation would use the related model's ``Meta.ordering``, which
        may contain columns that are not exposed.
        """
        if self.field.is_relation and getattr(self.field, "attname", None):
            return "__".join([*self.names[:-1], self.field.attname])
        return self.text


def resolve_path(model: type[Model], text: str, *, label: str) -> FieldPath:
    """Return the ``FieldPath`` of a path that starts at a model.

    Raises:
        ImproperlyConfigured: the path does not exist; the message suggests similar names.
    """
    hops: list[Any] = []
    current = model
    *before, last = text.split("__")
    if len(before) > MAX_HOPS:
        raise ImproperlyConfigured(
            f"{label} has {text!r}, which follows more than {MAX_HOPS} relations."
        )
    for name in before:
        field = _field(current, name, text, label)
        if not field.is_relation or name == getattr(field, "attname", None) != field.name:
            raise ImproperlyConfigured(
                f"{label} has {text!r}, but {name!r} of {current.__name__} is not a relation."
            )
        hops.append(field)
        current = field.related_model
    field = _field(current, last, text, label)
    return FieldPath(
        text=text,
        hops=tuple(hops),
        field=field,
        is_key=field.is_relation and last != field.name and last == getattr(field, "attname", None),
    )


def leads_to_many(field: Any) -> bool:
    """Return whether a relation can lead to several objects."""
    return bool(field.is_relation and (field.one_to_many or field.many_to_many))


def accessor_name(field: Any) -> str:
    """Return the name of the attribute that returns the related object or manager."""
    name = field.get_accessor_name() if hasattr(field, "get_accessor_name") else field.name
    return str(name)


def has_own_manager(field: Any) -> bool:
    """Return whether the manager of a to-many relation is that of another package.

    Such managers (django-taggit, django-modelcluster, sorted relations) may refuse querysets in a
    prefetch, and return objects that are not those of a ``QuerySet``.
    """
    accessor = inspect.getattr_static(field.model, accessor_name(field), None)
    return not type(accessor).__module__.startswith("django.")


def key_column(relation: Any) -> Field[Any, Any]:
    """Return the column that identifies the related object."""
    if relation.concrete and not relation.many_to_many:
        target: Field[Any, Any] = relation.target_field
        return key_column(target) if target.is_relation else target
    key = relation.related_model._meta.pk
    return key_column(key) if key.is_relation else key


def own_names(model: type[Model]) -> list[str]:
    """Return the names with which a path from this model can begin."""
    usable = [field for field in model._meta.get_fields() if _is_usable(field)]
    # ``get_fields()`` returns reverse relations first, which are the least likely to be meant.
    return [field.name for field in sorted(usable, key=lambda field: not field.concrete)]


def suggest_name(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar valid name, or all of them."""
    choices = list(names)
    return did_you_mean(name, choices, f"valid names: {', '.join(choices) or 'none'}.")


def _field(model: type[Model], name: str, text: str, what: str) -> Any:
    if name == "pk":
        raise ImproperlyConfigured(
            f"{what} has {text!r}; write the name of the primary key of {model.__name__}: "
            f"{model._meta.pk.name!r}."
        )
    try:
        field = model._meta.get_field(name)
    except FieldDoesNotExist:
        raise ImproperlyConfigured(
            f"{what} has {text!r}, but {model.__name__} has no field {name!r}; "
            f"{suggest_name(name, own_names(model))}"
        ) from None
    if not _is_usable(field):
        raise ImproperlyConfigured(
            f"{what} has {text!r}, but {name!r} of {model.__name__} is neither a column nor a "
            "relation to one model."
        )
    return field


def _is_usable(field: Any) -> bool:
    if getattr(field, "hidden", False) and not field.concrete:
        return False
    if field.is_relation:
        return isinstance(field.related_model, type)
    return bool(field.concrete) and field.column is not None


def are_unique_together(model: type[Model], paths: Collection[str]) -> bool:
    """Return whether the values at these paths are unique together.

    Only uniqueness that the database guarantees counts.
    """
    return any(
        all(_is_covered(model, name, paths) for name in names) for names in _unique_sets(model)
    )


def _unique_sets(model: type[Model]) -> Iterator[Iterable[str]]:
    """Yield the sets of names that are unique together.

    Its own columns come first: a class with a unique column can be registered while models are
    still loading, when Django does not know related objects yet.
    """
    for field in model._meta.concrete_fields:
        if field.unique:
            yield (field.name,)
    for relation in model._meta.related_objects:
        if relation.one_to_one:
            yield (relation.name,)
    for base in (model, *model._meta.all_parents):
        yield from base._meta.unique_together
        # Only constraints without a condition and without expressions.
        yield from (constraint.fields for constraint in base._meta.total_unique_constraints)


def _is_covered(model: type[Model], name: str, paths: Collection[str]) -> bool:
    field: Any = model._meta.get_field(name)
    if name in paths or getattr(field, "attname", name) in paths:
        return True
    if not field.is_relation:
        return False
    inner = [path.removeprefix(f"{name}__") for path in paths if path.startswith(f"{name}__")]
    return bool(inner) and are_unique_together(field.related_model, inner)


# Limits of values ---------------------------------------------------------------------------------

# Bounds of at least this size come from the column type, not from its meaning; they are left out.
_LARGE = 2**31 - 1
_BOUNDS: tuple[tuple[type[validators.BaseValidator], str, str], ...] = (
    (validators.MinValueValidator, "minimum", "at least"),
    (validators.MaxValueValidator, "maximum", "at most"),
    (validators.MinLengthValidator, "minLength", ""),
    (validators.MaxLengthValidator, "maxLength", ""),
)


def add_validator_limits(schema: Schema, rules: Iterable[Any]) -> Schema:
    """Return the schema with the bounds and patterns that these validators require.

    Callers then do not have to learn them from errors.
    """
    limited = dict(schema)
    if "enum" in schema:
        return limited
    words: list[str] = []
    bounds = [
        (keyword, rule.limit_value, word)
        for rule in rules
        for kind, keyword, word in _BOUNDS
        if isinstance(rule, kind)
    ]
    for keyword, value, word in bounds:
        limit: Any = value() if callable(value) else value
        if isinstance(limit, int) and abs(limit) >= _LARGE:
            continue
        if schema.get("type") in {"integer", "number"} or "Length" in keyword:
            limited.setdefault(keyword, limit)
        elif word:
            words.append(f"{word} {limit}")
    if words:
        limited[RULES_KEYWORD] = ", ".join(
            [*words, *([schema[RULES_KEYWORD]] if RULES_KEYWORD in schema else [])]
        )
    if "format" not in schema:
        # Not all clients know Python's regex syntax, so the description has the error texts.
        for rule in rules:
            if isinstance(rule, validators.RegexValidator):
                description = limited.get("description", "")
                limited["description"] = append_sentence(description, str(rule.message))
    return limited


MAX_TEXT = 1000
# Databases without an interval type store microseconds in 64 bits.
MAX_DURATION = dt.timedelta(microseconds=2**63 - 1)

# Closer to the ends of the calendar, conversion to some time zones overflows.
FIRST_DAY = dt.date.min + dt.timedelta(days=2)
LAST_DAY = dt.date.max - dt.timedelta(days=2)


def validate_storable_text(value: str) -> str:
    """Return the text if databases can store it, else raise ``ValueError``.

    PostgreSQL cannot store NUL characters, and lone surrogates cannot be encoded.
    """
    if "\0" in value:
        raise ValueError("must not contain NUL characters")
    if not value.isprintable() and any("\ud800" <= character <= "\udfff" for character in value):
        raise ValueError("must not contain lone surrogates")
    return value


def _local_datetime(value: dt.datetime) -> dt.datetime:
    """Return a datetime as the site stores it: aware with ``USE_TZ``, otherwise naive.

    A naive value is interpreted in the current time zone.
    """
    if not FIRST_DAY <= value.date() <= LAST_DAY:
        raise ValueError("must be a date and time between the years 1 and 9999")
    if settings.USE_TZ:
        return value if timezone.is_aware(value) else timezone.make_aware(value)
    if timezone.is_aware(value):
        return timezone.make_naive(value, timezone.get_default_timezone())
    return value


def _naive_time(value: dt.time) -> dt.time:
    """Return the time of day; one with an offset cannot be stored and raises ``ValueError``."""
    if value.tzinfo is not None:
        raise ValueError("must be a time of day without an offset")
    return value


def validate_duration(value: dt.timedelta) -> dt.timedelta:
    """Return the duration if databases can store it, else raise ``ValueError``."""
    if abs(value) > MAX_DURATION:
        raise ValueError(f"must be at most {MAX_DURATION.days} days")
    return value


# Columns ------------------------------------------------------------------------------------------

ColumnKind = Literal[
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

# By ``get_internal_type()``, which custom fields usually inherit.
_KINDS: Mapping[str, ColumnKind] = {
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

_SCHEMAS: Mapping[ColumnKind, Schema] = {
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

_ARGUMENTS: Mapping[ColumnKind, Any] = {
    "number": float,
    "boolean": bool,
    "date": dt.date,
    "datetime": Annotated[dt.datetime, AfterValidator(_local_datetime)],
    "time": Annotated[dt.time, AfterValidator(_naive_time)],
    "duration": Annotated[dt.timedelta, AfterValidator(validate_duration)],
    "uuid": UUID,
    # Django's fields accept addresses as text.
    "address": Annotated[IPvAnyAddress, AfterValidator(str)],
    "text": Annotated[str, Rule(max_length=MAX_TEXT), AfterValidator(validate_storable_text)],
}
_COMPARABLE = frozenset({*_ARGUMENTS, "integer", "decimal"})
_JSON_TYPES = (dict, list, float, tuple)


class Column:
    """A model column in JSON: its schema, its values and the types of its arguments."""

    def __init__(self, field: Field[Any, Any]) -> None:
        self.field = field
        # A foreign key has the type of the related key, a generated column that of its output.
        value_field = (
            key_column(field) if field.is_relation else getattr(field, "output_field", field)
        )
        self.value_field: Any = value_field
        self.kind: ColumnKind = _KINDS.get(value_field.get_internal_type(), "other")
        if isinstance(field, FileField):
            self.kind = "file"
        self.is_large = self.kind == "integer" and is_large_integer(value_field)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Column) and other.field == self.field

    def __hash__(self) -> int:
        return hash(self.field)

    @property
    def is_comparable(self) -> bool:
        """Whether rows can be filtered and ordered by the column."""
        return self.kind in _COMPARABLE

    @property
    def choices(self) -> dict[Any, str]:
        """The choices of the field with their labels, without groups and the empty choice."""
        with override(None):
            pairs = getattr(self.value_field, "flatchoices", None) or ()
            return {value: str(label) for value, label in pairs if value not in (None, "")}

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the column's values in results.

        Choices are described but are not an ``enum``: older rows may have other values.
        """
        schema = dict(LARGE_INTEGER if self.is_large else _SCHEMAS[self.kind])
        if self.kind == "datetime" and not settings.USE_TZ:
            # RFC 3339, the format "date-time", requires an offset.
            del schema["format"]
        if self.field.null or self.kind in {"file", "number", "decimal"}:
            schema = {"anyOf": [schema, {"type": "null"}]} if schema else {}
        words = self.description
        return {**schema, "description": words} if words else schema

    @property
    def description(self) -> str:
        """The help text, and the choices with their labels."""
        with override(None):
            words = str(getattr(self.field, "help_text", ""))
        choices = [f"{value}: {label}" for value, label in self.choices.items()]
        return " ".join(part for part in (words, ", ".join(choices[:50])) if part)

    def dump(self, value: Any) -> Any:
        """Return a value of the column as plain JSON, with integers beyond 2^53-1 as digits.

        Raises:
            ToolError: such an integer is in a column whose schema excludes it.
        """
        if type(value) is int and not -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER:
            return self._digits(value)
        if value is None or type(value) in (str, int, bool):
            return value
        if self.kind == "file":
            return _file(value)
        if self.kind == "json" and not isinstance(value, _JSON_TYPES):
            # A field of another package stores its own type of value. ``str()`` of such a value
            # may render templates, as Wagtail's ``StreamField`` does.
            value = self.value_field.get_prep_value(value)
            if isinstance(value, str | bytes):
                with suppress(ValueError):
                    value = json.loads(value)
        if self.kind == "binary":
            return base64.b64encode(bytes(value)).decode()
        try:
            return exact_integers(jsonable(value))
        except ValueError:
            # JSON cannot represent NaN and infinity.
            return None
        except TypeError:
            return str(value)

    def _digits(self, value: int) -> str:
        if self.is_large or self.kind != "integer":
            return str(value)
        advice = "set LARGE_KEYS" if self.value_field.primary_key else "use a BigIntegerField"
        logger.error(
            "%s holds %d, which JavaScript would round: %s.", self.value_field, value, advice
        )
        raise ToolError(
            f"{self.value_field.name} holds {value}, which is beyond 2^53-1 and not published as "
            "such. The error was logged."
        )

    def argument(self) -> Any:
        """Return the type of an argument that is compared with the column.

        Raises:
            ImproperlyConfigured: values of the column cannot be compared.
        """
        if self.choices and all(type(choice) in (str, int) for choice in self.choices):
            return Literal[tuple(self.choices)]
        if self.kind == "integer":
            model = getattr(self.value_field, "model", self.field.model)
            operations: Any = connections[router.db_for_read(model)].ops
            low, high = operations.integer_field_range(self.value_field.get_internal_type())
            # Database drivers accept at most 64-bit integers.
            low = -(2**63) if low is None else low
            high = 2**63 - 1 if high is None else high
            # The bounds of 64-bit integers do not help a caller.
            bounds = {"minimum": low, "maximum": high} if high < MAX_SAFE_INTEGER else {}
            schema = LARGE_INTEGER if self.is_large else {"type": "integer", **bounds}
            return Annotated[int, Rule(ge=low, le=high), WithJsonSchema(dict(schema))]
        if self.kind == "decimal":
            digits = getattr(self.value_field, "max_digits", None) or 30
            places = getattr(self.value_field, "decimal_places", None)
            places = 10 if places is None else places
            return Annotated[Decimal, Rule(max_digits=digits, decimal_places=places)]
        if self.kind not in _ARGUMENTS:
            raise ImproperlyConfigured(
                f"{self.field} is a {type(self.field).__name__}, whose values cannot be compared."
            )
        return _ARGUMENTS[self.kind]


def _file(value: Any) -> dict[str, str] | None:
    if not value:
        return None
    file = {"name": str(value.name)}
    # Storages without URLs raise one of these.
    with suppress(NotImplementedError, ValueError):
        file["url"] = str(value.url)
    return file


# Lookups that a column can be filtered by ---------------------------------------------------------

# Regular-expression lookups are left out.

MAX_IN = 100
# The maximum length of text columns that have an ``in`` lookup by default and fit into a cursor.
SHORT_TEXT = 255

_ORDERED = ("exact", "gt", "gte", "lt", "lte")
_TEXT = ("exact", "icontains", "startswith")
_DEFAULT: Mapping[ColumnKind, tuple[str, ...]] = {
    "text": _TEXT,
    "address": ("exact",),
    "boolean": ("exact",),
    "uuid": ("exact", "in"),
}
_EXTRA_LOOKUPS: Mapping[ColumnKind, tuple[str, ...]] = {
    "text": ("iexact", "contains", "istartswith", "endswith", "iendswith", *_ORDERED[1:]),
    "date": ("year", "month", "day"),
    "datetime": ("date", "year", "month", "day"),
}
_LOOKUP_TYPES: Mapping[str, Any] = {
    "isnull": bool,
    "date": dt.date,
    # In some time zones, the years 1 and 9999 extend beyond the calendar.
    "year": Annotated[int, Rule(ge=2, le=9998)],
    "month": Annotated[int, Rule(ge=1, le=12)],
    "day": Annotated[int, Rule(ge=1, le=31)],
}
_LOOKUP_DESCRIPTIONS: Mapping[str, str] = {
    "gt": "greater",
    "gte": "at least",
    "lt": "less",
    "lte": "at most",
    "icontains": "contains, ignoring case",
    "contains": "contains",
    "startswith": "begins with",
    "istartswith": "begins with, ignoring case",
    "endswith": "ends with",
    "iendswith": "ends with, ignoring case",
    "iexact": "equal, ignoring case",
    "in": "one of",
    "isnull": "whether the value is missing",
}


def default_lookups(path: FieldPath) -> tuple[str, ...]:
    """Return the lookups of a filter for which ``filter_fields`` names none."""
    column = Column(path.column)
    if path.is_relation or path.is_key or column.choices:
        lookups: tuple[str, ...] = ("exact", "in")
    else:
        lookups = _DEFAULT.get(column.kind, _ORDERED)
        length = getattr(path.column, "max_length", None) or SHORT_TEXT + 1
        if column.kind == "text" and length <= SHORT_TEXT:
            lookups = (*lookups, "in")
    return (*lookups, "isnull") if path.is_nullable and not path.is_many else lookups


def known_lookups(path: FieldPath) -> tuple[str, ...]:
    """Return every lookup that a filter of this path can have."""
    more = () if path.is_relation else _EXTRA_LOOKUPS.get(Column(path.column).kind, ())
    return tuple(dict.fromkeys((*default_lookups(path), *more, "in", "isnull")))


def lookup_annotation(path: FieldPath, lookup: str) -> Any:
    """Return the type of the argument that the path is compared with."""
    if lookup in _LOOKUP_TYPES:
        return _LOOKUP_TYPES[lookup]
    value: Any = Column(path.column).argument()
    if lookup == "in":
        return Annotated[list[value], Rule(min_length=1, max_length=MAX_IN)]
    return value


def describe_lookup(path: FieldPath, lookup: str) -> str:
    """Return the description of a filter argument, for the language model."""
    if lookup in _LOOKUP_DESCRIPTIONS:
        return f"{capfirst(_LOOKUP_DESCRIPTIONS[lookup])}."
    if lookup == "exact":
        return "The key." if path.field.is_relation else Column(path.field).description
    return ""
