"""Validation of written values by a model serializer of Django REST framework.

An update is like a PATCH request: ``partial=True``. This module is imported only when a declaration
has a serializer, since REST framework is optional.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.components.context import Context
from mcp_django.integrations.models.write_forms import keep_hidden_links, limit_querysets
from mcp_django.schema.arguments import InvalidArguments, ValidationProblem
from mcp_django.schema.serializers import explain_errors, serializer_schema, writable_fields
from mcp_django.schema.structure import Schema, without_null


class SerializerInputs:
    """Validates values with a serializer; ``without`` names a field that updates do not write."""

    def __init__(self, declaration: Any, *, is_change: bool, without: str = "") -> None:
        self._declaration = declaration
        serializer = declaration.serializer
        if not (isinstance(serializer, type) and hasattr(serializer, "run_validation")):
            raise ImproperlyConfigured(
                f"{declaration}: serializer = {serializer!r} is not a serializer class; name a "
                f"ModelSerializer of {declaration.model.__name__}."
            )
        if declaration.form is not None or declaration.write_fields is not None:
            declaration.refuse(
                "has a serializer and also a form or write_fields; keep one of them."
            )
        self._class: Any = serializer
        try:
            sample = self._class()
            shape = serializer_schema(sample, without=[without], partial=is_change)
            fields = writable_fields(sample)
        except (ImproperlyConfigured, ValueError) as exc:
            raise ImproperlyConfigured(f"{declaration}: serializer: {exc}") from exc
        # Callers empty a field with the argument ``clear``, since some clients send null for
        # arguments that they leave out.
        self.properties: dict[str, Schema] = {
            name: without_null(schema) for name, schema in shape["properties"].items()
        }
        self.required = list(shape.get("required", ()))
        self.emptiable = [
            name
            for name, field in fields.items()
            if name in self.properties
            and (field.allow_null or getattr(field, "allow_blank", False))
        ]
        self._shape: Schema = {**shape, "properties": self.properties}

    def check_types(self, values: Mapping[str, Any]) -> Iterator[ValidationProblem]:
        """Yield nothing: a serializer checks types itself."""
        yield from ()

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """Return the valid serializer.

        Raises:
            InvalidArguments: a value is not valid; the caller can correct it.
        """
        serializer = self._class(
            instance,
            data={},
            partial=instance is not None,
            context={"request": ctx.request, "ctx": ctx},
        )
        fields = writable_fields(serializer)
        emptied = {name: None if fields[name].allow_null else "" for name in call.clear}
        values = {**call.values, **emptied}
        serializer.initial_data = values
        limit_querysets(fields, list(values), self._declaration.server, ctx)
        if not serializer.is_valid():
            raise InvalidArguments(explain_errors(serializer.errors, values, self._shape))
        if instance is not None:
            server = self._declaration.server
            keep_hidden_links(serializer.validated_data, instance, server, ctx)
        return serializer
