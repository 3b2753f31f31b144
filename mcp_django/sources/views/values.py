"""Values that a URL carries: typed where it says so, checked before they are sent.

The variables of a path have the types of their converters; what a query may hold is declared by
name and type. Every value goes out as text, as a browser would send it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Annotated, Any, Protocol, Required
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.urls import converters
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError
from typing_extensions import TypedDict

from mcp_django.schema.arguments import InvalidArguments
from mcp_django.schema.portable import portable_input
from mcp_django.schema.problems import explain
from mcp_django.schema.signature import json_schema_of, reason_of
from mcp_django.schema.structure import Schema, inline
from mcp_django.schema.values import jsonable
from mcp_django.sources.site.fresh import Pairs

_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)
_NOT_BUILDABLE = (PydanticUserError, PydanticUndefinedAnnotation, SchemaError, TypeError)

HINTS: Mapping[type, Any] = {
    converters.IntConverter: Annotated[int, Field(ge=0)],
    converters.StringConverter: Annotated[str, Field(min_length=1, pattern=r"^[^/]+$")],
    converters.SlugConverter: Annotated[str, Field(pattern=r"^[-a-zA-Z0-9_]+$")],
    converters.UUIDConverter: UUID,
    converters.PathConverter: Annotated[str, Field(min_length=1)],
}


class Values(Protocol):
    """A part of a request: what may be in it, and how that is written."""

    @property
    def json_schema(self) -> Schema:
        """The schema of the arguments that go into this part."""
        ...

    def pairs(self, arguments: dict[str, Any]) -> Pairs:
        """Return the names and texts to send.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        ...


class TypedValues:
    """Values that are declared by name and type.

    Raises:
        ImproperlyConfigured: JSON has nothing for a type.
    """

    def __init__(self, hints: Mapping[str, Any], *, required: Collection[str] = ()) -> None:
        fields = {
            name: Required[hint] if name in required else hint for name, hint in hints.items()
        }
        create: Any = TypedDict
        shape = create("Values", fields, total=False)
        shape.__pydantic_config__ = _CONFIG
        try:
            self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(shape)
            self._shape = inline(json_schema_of(self._adapter, "validation"))
            self.json_schema = portable_input(self._shape)
        except (*_NOT_BUILDABLE, ValueError) as exc:
            raise ImproperlyConfigured(
                f"{', '.join(hints)}: a type has no JSON ({reason_of(exc)}); take str, int, bool, "
                "date, Literal and the like."
            ) from exc

    def read(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the values in their own types.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        try:
            return self._adapter.validate_python(arguments)
        except ValidationError as exc:
            raise InvalidArguments(explain(exc, arguments, self._shape)) from exc

    def pairs(self, arguments: dict[str, Any]) -> Pairs:
        """Return the names and texts to send; a list is its name several times."""
        return [
            (name, text)
            for name, value in self.read(arguments).items()
            for text in _texts(jsonable(value))
        ]


def variables(found: Mapping[str, Any], *, required: Collection[str]) -> TypedValues:
    """The variables of a path, given the converter of each."""
    hints = {name: _hint(converter) for name, converter in found.items()}
    return TypedValues(hints, required=required)


def _hint(converter: Any) -> Any:
    if converter is None:
        # A regular expression: Django says whether the URL as a whole matches.
        return Annotated[str, Field(min_length=1, coerce_numbers_to_str=True)]
    hint = HINTS.get(type(converter))
    if hint is not None:
        return hint
    words = str(type(converter).__doc__ or "").strip().partition("\n")[0]
    return Annotated[
        str,
        Field(coerce_numbers_to_str=True, description=words or None),
        AfterValidator(_converted(converter)),
    ]


def _converted(converter: Any) -> Callable[[str], Any]:
    """What the site's own converter makes of a text, as it does of the same text in a path."""

    def convert(text: str) -> Any:
        if not re.fullmatch(converter.regex, text):
            raise ValueError(f"must match the pattern {converter.regex}")
        try:
            value = converter.to_python(text)
            converter.to_url(value)
        except ValueError:
            # Its text, if any, was written for nobody: Django drops it.
            raise ValueError("is not known here") from None
        return value

    return convert


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif value is not None:
        yield str(value)
