"""What a person types into a field, as a value of the field's type."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.dateparse import parse_date, parse_datetime

from mcp_django.management.values import WORDS
from mcp_django.protocol.errors import clip


class UnfitText(ValueError):
    """What was typed is not what the field wants; the text says what would be."""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UnfitText(f"{clip(text)!r} is no whole number.") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UnfitText(f"{clip(text)!r} is no number.")
    return int(value) if value.is_integer() else value


def _boolean(text: str) -> bool:
    words = {**WORDS, "y": True, "n": False}
    if text.lower() not in words:
        raise UnfitText(f"{clip(text)!r} is neither yes nor no.")
    return words[text.lower()]


READERS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}


def _is_email(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def _is_parsed(parse: Callable[[str], Any]) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return parse(text) is not None
        except ValueError:
            return False

    return check


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "email": _is_email,
    "uri": lambda text: bool(urlsplit(text).scheme),
    "date": _is_parsed(parse_date),
    "date-time": _is_parsed(parse_datetime),
}
