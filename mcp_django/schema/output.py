"""Results with a declared type: their schema, and the value checked and written as plain JSON.

A client refuses a result that does not fit the published schema, so a value is checked before it
is sent (MCP 2026-07-28, "Tools", structured content). Results without such a type go through
`jsonable`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Protocol

from django.core.exceptions import ImproperlyConfigured
from django.db.models import QuerySet
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaError

from mcp_django.protocol.errors import MCPDjangoError
from mcp_django.schema.arguments import Problem, describe
from mcp_django.schema.generator import BASE64, json_schema_of, reason_of
from mcp_django.schema.jsonable import check_finite, jsonable
from mcp_django.schema.portable import RULES, portable_output
from mcp_django.schema.problems import explain
from mcp_django.schema.references import inline
from mcp_django.schema.results import has_structure, without_laziness
from mcp_django.schema.signature import shown
from mcp_django.schema.structure import Schema, walk

_TRUSTING = ConfigDict(allow_inf_nan=False, ser_json_inf_nan="constants", **BASE64)
_REVALIDATING = ConfigDict(revalidate_instances="always", **_TRUSTING)

_BOUNDS = frozenset(
    {
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "pattern",
        "minItems",
        "maxItems",
        RULES,
    }
)
_SAYS_WHAT = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})
_NOT_BUILDABLE = (
    PydanticUserError,
    PydanticUndefinedAnnotation,
    SchemaError,
    TypeError,
    ValueError,
)


class OutputMismatch(MCPDjangoError):
    """A function returned something else than it declares: a bug of the site, not of the caller."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"The result is not what was declared.\n{describe(self.problems)}")


class OutputAdapter(Protocol):
    """Writes results of one declared shape."""

    @property
    def json_schema(self) -> dict[str, Any]:
        """The schema to publish, in the portable subset; its root may be anything."""
        ...

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON that fits the schema.

        Raises:
            OutputMismatch: it does not fit.
        """
        ...


def output_adapter(annotation: Any) -> OutputAdapter | None:
    """Return an adapter, or `None` for a result without structure: text, content.

    Raises:
        ImproperlyConfigured: the type has structure that JSON cannot say.
    """
    return TypedOutput(annotation) if has_structure(annotation) else None


class TypedOutput:
    """Writes results of one Python type.

    An instance of a dataclass is taken as it is while its values are of the declared types, so
    that `__post_init__` runs once. Where a value has to be converted, or the type sets bounds, the
    fields are validated as if they had come in a dict.
    """

    def __init__(self, annotation: Any) -> None:
        try:
            hint = without_laziness(annotation)
            self._adapters = (_boxed(hint, _TRUSTING), _boxed(hint, _REVALIDATING))
            self._shape = inline(json_schema_of(self._adapters[0], "serialization"))
            self.json_schema = portable_output(_unboxed(self._shape))
        except _NOT_BUILDABLE as exc:
            raise ImproperlyConfigured(
                f"The result type {shown(annotation)} cannot be written as JSON: {reason_of(exc)}. "
                "Return dataclasses, pydantic models, lists and dicts of strings and numbers."
            ) from exc
        members = [member for _, member in walk(self._shape)]
        self._has_bounds = any(_BOUNDS & member.keys() for member in members)
        self._may_be_infinite = any(_admits_floats(member) for member in members)

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: it does not fit the declared type.
        """
        box = {"result": list(value) if isinstance(value, Iterator | QuerySet) else value}
        trusting, revalidating = self._adapters
        try:
            if not self._has_bounds:
                with suppress(PydanticSerializationError):
                    return self._dump(trusting, box)
            return self._dump(revalidating, box)
        except ValidationError as exc:
            raise OutputMismatch(explain(exc, box, self._shape)) from exc
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([Problem(path="result", message=str(exc))]) from exc

    def _dump(self, adapter: TypeAdapter[Any], box: dict[str, Any]) -> Any:
        checked = adapter.validate_python(box)
        plain = adapter.dump_python(
            checked, mode="json", by_alias=True, warnings="error", fallback=jsonable
        )
        if self._may_be_infinite:
            check_finite(plain)
        return plain["result"]


def _boxed(hint: Any, config: ConfigDict) -> TypeAdapter[Any]:
    """Return an adapter for the type inside a dict, which unlike some types may be configured.

    pydantic passes the configuration on to dataclasses and to `TypedDict`s inside.
    """
    return TypeAdapter(dict[str, hint], config=config)


def _unboxed(schema: Schema) -> Schema:
    definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {**schema["additionalProperties"], **definitions}


def _admits_floats(schema: Schema) -> bool:
    is_open = _SAYS_WHAT.isdisjoint(schema) or schema.get("additionalProperties") is True
    return is_open or schema.get("type") == "number"
