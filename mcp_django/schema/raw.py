"""Arguments described by a schema that was written by hand.

It is published as it was written: whoever writes JSON Schema means what it says, and `lint` names
what hosts will not like.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.schema.arguments import MAX_KEPT_PROBLEMS, InvalidArguments, unknown_argument
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.decoding import decode_arguments, finite_float
from mcp_django.schema.raw_output import RawOutput

__all__ = ["RawArguments", "RawOutput"]


class RawArguments:
    """Checks arguments against a JSON Schema and hands them on as plain JSON values.

    `closed` refuses names that the schema does not list, whatever else it says: the function has
    parameters for those alone, and one that is its own affair is none of the caller's.
    """

    def __init__(self, input_schema: Mapping[str, Any], *, closed: bool = False) -> None:
        self._closed = closed
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
        arguments = decode_arguments(raw, parse_float=finite_float)
        known = self.json_schema.get("properties", {})
        if self._closed and (unknown := [name for name in arguments if name not in known]):
            raise InvalidArguments(
                [unknown_argument(name, known) for name in unknown[:MAX_KEPT_PROBLEMS]]
            )
        if problems := self._schema.problems(arguments):
            raise InvalidArguments(problems)
        return arguments
