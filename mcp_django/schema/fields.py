"""What form fields and serializer fields have in common: words, choices, keys."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import models
from django.forms.utils import pretty_name
from django.utils.html import strip_tags

from mcp_django.schema.arguments import quote
from mcp_django.schema.jsonable import jsonable
from mcp_django.schema.rewriting import RULES, with_sentence
from mcp_django.schema.structure import JSON_TYPES, Schema

MAX_LABELS = 40


def described(schema: Schema, name: str, *, label: Any, help_text: Any) -> Schema:
    """Return the schema with what a person would have read beside the field."""
    text = "" if label is None or _is_name(str(label), name) else str(label)
    for sentence in (strip_tags(str(help_text or "")), schema.get("description", "")):
        text = with_sentence(text, sentence) if sentence else text
    return {**schema, "description": text} if text else schema


def choice_schema(choices: Iterable[tuple[Any, Any]]) -> Schema:
    """Return an enumeration of values, with their labels where those say more."""
    pairs = [(_plain(value), str(label)) for value, label in choices if value not in ("", None)]
    if not pairs:
        return {"type": "string"}
    schema: Schema = {"enum": [value for value, _ in pairs]}
    labels = [
        f"{quote(value)} = {label}" for value, label in pairs if not _is_name(label, str(value))
    ]
    if 0 < len(labels) <= MAX_LABELS:
        schema["description"] = f"Values: {', '.join(labels)}."
    return schema


def key_schema(field: models.Field[Any, Any]) -> Schema:
    """Return the schema of what identifies a database object: its key, not the object."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    if isinstance(field, models.IntegerField):
        return {"type": "integer"}
    return {"type": "string", **({"format": "uuid"} if isinstance(field, models.UUIDField) else {})}


def decimal_schema(field: Any) -> Schema:
    """Return the schema of a decimal field, whose bounds no keyword can say of a string."""
    rules = [
        words.format(value)
        for words, value in (
            ("at least {}", field.min_value),
            ("at most {}", field.max_value),
            ("of at most {} digits", field.max_digits),
            ("of at most {} decimal places", field.decimal_places),
        )
        if value is not None
    ]
    schema = {"type": "string", "format": "decimal"}
    return {**schema, RULES: ", ".join(rules)} if rules else schema


def bounded(schema: Schema, **bounds: Any) -> Schema:
    """Return the schema with those bounds that a field has."""
    return schema | {keyword: bound for keyword, bound in bounds.items() if bound is not None}


def with_default(schema: Schema, default: Any) -> Schema:
    """Return the schema with a default, unless JSON cannot say it."""
    try:
        return {**schema, "default": jsonable(default)}
    except (TypeError, ValueError):
        return schema


def _plain(value: Any) -> Any:
    return value if type(value) in JSON_TYPES else str(value)


def _is_name(label: str, name: str) -> bool:
    return label.strip().casefold() in {name.casefold(), pretty_name(name).casefold()}
