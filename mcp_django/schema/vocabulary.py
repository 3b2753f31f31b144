"""The source of a schema and the private keywords in it, which ``portable`` reads and removes.

Also the schemas of large integers, and how rules are written in words.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from mcp_django.schema.structure import Schema


class SchemaSource(Enum):
    """Where a schema comes from, which decides what it promises about its values."""

    TYPE = "type"
    """A Python type: pydantic validates and writes the values."""
    COLUMNS = "columns"
    """The site's models, forms and filters: the values are built to fit the schema."""
    BY_HAND = "by hand"
    """The author's JSON Schema, whose keywords are kept where possible."""


RULES_KEYWORD: Final = "x-rules"
"""Rules in words that portable keywords cannot express; added to the description."""

LOCAL_DATETIME: Final = "local-date-time"
"""The format of a date and time that may lack an offset; JSON Schema does not define it."""

BY_HAND_KEYWORD: Final = "x-by-hand"
"""Marks a part of pydantic's schema to which the author added keywords."""

DIGITS: Final[Schema] = {"type": "string", "pattern": "^-?[0-9]+$"}
"""An integer as text, since JavaScript rounds numbers beyond 2^53-1 (RFC 7493, section 2.2)."""
LARGE_INTEGER: Final[Schema] = {"anyOf": [{"type": "integer"}, DIGITS]}
"""An integer that may be beyond 2^53-1."""


def format_number(value: float) -> str:
    """Return a number as text without a trailing `.0`: `5`, not `5.0`."""
    return str(value).removesuffix(".0")


def append_sentence(text: str, sentence: str) -> str:
    """Return `text` with a sentence appended, and with a full stop between them if needed."""
    text = text.rstrip()
    if not text:
        return sentence
    return f"{text} {sentence}" if re.search(r"[.!?:]$", text) else f"{text}. {sentence}"
