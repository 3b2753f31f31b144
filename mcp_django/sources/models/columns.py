"""One column of a model: what it is in JSON, as an argument and in an answer.

The table of kinds is keyed by Django's internal types, which custom fields keep, too.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.db.models import Field, FileField
from django.utils.translation import override
from pydantic import AfterValidator, IPvAnyAddress
from pydantic import Field as Rule

from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable
from mcp_django.sources.models.paths import key_column
from mcp_django.sources.models.values import (
    MAX_TEXT,
    bounded_duration,
    local_datetime,
    naive_time,
    text_of_address,
    without_nul,
)

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
    "datetime": Annotated[dt.datetime, AfterValidator(local_datetime)],
    "time": Annotated[dt.time, AfterValidator(naive_time)],
    "duration": Annotated[dt.timedelta, AfterValidator(bounded_duration)],
    "uuid": UUID,
    "address": Annotated[IPvAnyAddress, AfterValidator(text_of_address)],
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
    import base64

    return base64.b64encode(bytes(value)).decode()
