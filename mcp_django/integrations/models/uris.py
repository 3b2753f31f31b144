"""The URI template of a ``ModelResource``: its variables are field paths that identify an object.

The variables are arguments of the resource, of its prompts and of its completions. Each value has
exactly one spelling, so that an object has one URI: reads and subscriptions use the same URI.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured, ObjectDoesNotExist, ValidationError
from django.db.models import Model

from mcp_django.integrations.models.columns import (
    MAX_TEXT,
    Column,
    ColumnKind,
    FieldPath,
    accessor_name,
    are_unique_together,
    validate_storable_text,
)
from mcp_django.protocol.uritemplate import URITemplate
from mcp_django.schema.arguments import (
    InvalidArguments,
    ValidationProblem,
    unknown_argument_problem,
)
from mcp_django.schema.structure import Schema

if TYPE_CHECKING:
    from mcp_django.integrations.models.exposed_fields import FieldDeclaration


def _integer(text: str) -> int:
    # Parsing far more digits than any column can hold takes a long time.
    number = int(text[:20])
    if not -(2**63) <= number < 2**63:
        raise ValueError
    return number


def _text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise ValueError
    return validate_storable_text(text)


READERS: Mapping[ColumnKind, tuple[Callable[[str], Any], str]] = {
    "integer": (_integer, "must be an integer, such as 17"),
    "text": (_text, f"must be text of at most {MAX_TEXT} characters without NUL"),
    "uuid": (UUID, "must be a lowercase UUID with hyphens"),
    "date": (dt.date.fromisoformat, "must be a date, such as 2026-01-31"),
}


class URIVariables:
    """The URI template of one declaration, and the arguments of its components."""

    def __init__(self, declaration: FieldDeclaration, uri: str) -> None:
        self.declaration = declaration
        try:
            self.template = URITemplate(uri, is_lookup=True)
        except ValueError as exc:
            raise ImproperlyConfigured(f"{declaration}: uri: {exc}.") from None
        if not self.template.variables:
            declaration.refuse(
                f"uri = {uri!r} is the same for every {declaration.noun}; add a variable, "
                f"as in {uri.rstrip('/')}/{{{declaration.model._meta.pk.name}}}."
            )
        self.paths = {name: self._path(name) for name in self.template.variables}
        # ``URITemplate`` does not report which variables are optional.
        if "{?" in uri:
            declaration.refuse(
                f"uri = {uri!r}: variables in {{?…}} are optional, so they cannot identify an "
                "object; write them in the path."
            )
        if not are_unique_together(declaration.model, self.paths):
            declaration.refuse(
                f"uri = {uri!r}: several objects can share {', '.join(self.paths)}; use a unique "
                "field, or fields that are unique together."
            )

    def _path(self, name: str) -> FieldPath:
        path = self.declaration.exposed.require_path(name, option="uri")
        if path.is_many:
            self.declaration.refuse(
                f"uri: {name!r} leads to many objects, but a URI has only one value for it."
            )
        if not path.field.concrete:
            key = path.column.name
            self.declaration.refuse(f"uri: {name!r} is a relation; write {name}__{key} instead.")
        if Column(path.column).kind not in READERS:
            self.declaration.refuse(
                f"uri: {name!r} is a {type(path.column).__name__}, which has no unique spelling "
                f"in a URI; use text, an integer, a UUID or a date."
            )
        return path

    @cached_property
    def json_schema(self) -> Schema:
        """The JSON Schema, in which every variable is text, as in a URI."""
        return {
            "type": "object",
            "properties": {
                name: {
                    "type": "string",
                    "description": Column(path.column).description
                    or f"The {' of its '.join(reversed(path.names))}.",
                }
                for name, path in self.paths.items()
            },
            "required": list(self.paths),
            "additionalProperties": False,
        }

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the values in the types of their columns.

        Raises:
            InvalidArguments: no object can have such values.
        """
        arguments = json.loads(raw)
        problems = [
            unknown_argument_problem(name, self.paths)
            for name in arguments
            if name not in self.paths
        ]
        values: dict[str, Any] = {}
        for name, path in self.paths.items():
            if name not in arguments:
                problems.append(ValidationProblem(path=name, message="required"))
                continue
            try:
                values[name] = parse_value(path, arguments[name])
            except ValueError:
                rule = READERS[Column(path.column).kind][1]
                problems.append(ValidationProblem(path=name, value=arguments[name], message=rule))
        if problems:
            raise InvalidArguments(problems)
        return values

    @property
    def expressions(self) -> list[str]:
        """The names of the variables' values in query expressions; they are unique together."""
        return [path.expression for path in self.paths.values()]

    def lookups(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the filter arguments for the object with these values."""
        return {self.paths[name].expression: value for name, value in values.items()}

    def texts(self, obj: Model) -> dict[str, str] | None:
        """Return the values of an object as text; ``None`` if it lacks one of them."""
        values = {name: value_of(obj, path) for name, path in self.paths.items()}
        if any(value is None for value in values.values()):
            return None
        return {name: str(value) for name, value in values.items()}

    def uri(self, texts: Mapping[str, str] | None) -> str | None:
        """Return the URI for these values; ``None`` if no URI can contain them, such as ``..``."""
        if texts is None:
            return None
        try:
            return self.template.expand(texts)
        except ValueError:
            return None


def parse_value(path: FieldPath, text: str) -> Any:
    """Return the value that the text represents.

    Raises:
        ValueError: the text is not a valid value, or not its only accepted spelling.
    """
    value = READERS[Column(path.column).kind][0](text)
    if str(value) != text:
        raise ValueError(text)
    return value


def value_of(obj: Model, path: FieldPath) -> Any:
    """Return the value of an object at the end of a path to one object; ``None`` without a value.

    The value is converted to the type of the column: an object that was not loaded from the
    database may have text in a number field.
    """
    owner: Any = obj
    try:
        for hop in path.hops:
            owner = getattr(owner, accessor_name(hop), None)
    except ObjectDoesNotExist:
        return None
    value = None if owner is None else getattr(owner, path.field.attname)
    # An expression that the database has not computed yet.
    if hasattr(value, "resolve_expression"):
        return None
    try:
        return path.column.to_python(value)
    except ValidationError:
        # SQLite can store a value of another type; saving must not fail because of notifications.
        return None


def related_names(paths: Iterable[FieldPath]) -> list[str]:
    """Return the relations of the paths, as arguments of ``select_related``."""
    return ["__".join(path.names[:-1]) for path in paths if path.hops]
