"""Results described by a schema that was written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp_django.schema.arguments import Problem
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.jsonable import jsonable
from mcp_django.schema.output import OutputMismatch


class RawOutput:
    """Checks results against a JSON Schema and writes them as plain JSON."""

    def __init__(self, output_schema: Mapping[str, Any]) -> None:
        self._schema = CompiledSchema(output_schema, what="output_schema")
        self.json_schema = self._schema.schema

    def dump(self, value: Any) -> Any:
        """Return the value as plain JSON.

        Raises:
            OutputMismatch: it does not fit the schema.
        """
        try:
            plain = jsonable(value)
        except (TypeError, ValueError) as exc:
            raise OutputMismatch([Problem(path="", message=str(exc))]) from exc
        if problems := self._schema.problems(plain):
            raise OutputMismatch(problems)
        return plain
