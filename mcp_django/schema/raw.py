"""Arguments and results described by schemas that were written by hand.

They are published as they were written: whoever writes JSON Schema means what it says, and `lint`
names what hosts will not like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.arguments import InvalidArguments, Problem
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.decoding import decode_arguments
from mcp_django.schema.jsonable import jsonable
from mcp_django.schema.output import OutputMismatch


class RawArguments:
    """Checks arguments against a JSON Schema and hands them on as plain JSON values."""

    def __init__(self, input_schema: Mapping[str, Any]) -> None:
        self._schema = CompiledSchema(input_schema, what="input_schema")
        self.json_schema = self._schema.schema
        if self.json_schema.get("type") != "object":
            raise ImproperlyConfigured(
                'input_schema has to have "type": "object" at its root, as arguments have names.'
            )

    def parse(self, raw: bytes) -> dict[str, Any]:
        """Return the arguments by name.

        Raises:
            InvalidArguments: the model can repair the call.
        """
        arguments = decode_arguments(raw, parse_float=float)
        if problems := self._schema.problems(arguments):
            raise InvalidArguments(problems)
        return arguments


class RawOutput:
    """Writes results as plain JSON and checks them against a JSON Schema."""

    def __init__(self, output_schema: Mapping[str, Any]) -> None:
        self._schema = CompiledSchema(output_schema, what="output_schema")
        self.json_schema = self._schema.schema

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: it is no JSON or does not fit the schema.
        """
        try:
            plain = jsonable(value)
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([Problem(path="", message=str(exc))]) from exc
        if problems := self._schema.problems(plain):
            raise OutputMismatch(problems)
        return plain
