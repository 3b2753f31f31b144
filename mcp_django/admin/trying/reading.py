"""What is typed into a field, as the JSON value that it stands for.

The server checks everything again; what is refused here could not even be sent, or saves a round.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime, parse_time
from django.utils.translation import gettext_lazy as _

from mcp_django.admin.trying.shapes import Shape, bounds
from mcp_django.protocol.jsonrpc import encode
from mcp_django.schema.compiled import CompiledSchema
from mcp_django.schema.decoding import finite_float, is_too_deep


def reader_of(shape: Shape) -> Callable[[str], Any]:
    """What reads the text for a shape."""

    def read(text: str) -> Any:
        return _READERS[shape.kind](text, shape)

    return read


def _integer(text: str, shape: Shape) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValidationError(_("Enter a whole number.")) from None
    return int(_bounded(value, shape))


def _float(text: str, shape: Shape) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValidationError(_("Enter a number."))
    # So that 5 is sent as it was typed.
    is_whole = value.is_integer() and abs(value) < 2**53
    return _bounded(int(value) if is_whole else value, shape)


def _bounded(value: float, shape: Shape) -> float:
    low, high = bounds(shape)
    if value < low:
        raise ValidationError(_("Enter a number of at least %(limit)s."), params={"limit": low})
    if value > high:
        raise ValidationError(_("Enter a number of at most %(limit)s."), params={"limit": high})
    return value


def _date(text: str, shape: Shape) -> str:
    return _parsed(text, parse_date, _("Enter a date, as 2026-03-01."))


def _time(text: str, shape: Shape) -> str:
    return _parsed(text, parse_time, _("Enter a time, as 14:30."))


def _parsed(text: str, parse: Callable[[str], Any], otherwise: Any) -> str:
    try:
        found = parse(text.strip())
    except ValueError:
        found = None
    if found is None:
        raise ValidationError(otherwise)
    return text.strip()


def _datetime(text: str, shape: Shape) -> str:
    """A moment; what names no zone is meant in that of the site."""
    try:
        found = parse_datetime(text.strip())
    except ValueError:
        found = None
    if found is None:
        raise ValidationError(_("Enter a date and a time, as 2026-03-01T14:30."))
    if settings.USE_TZ and timezone.is_naive(found):
        found = timezone.make_aware(found)
    return found.isoformat()


def _typed_text(text: str, shape: Shape) -> str:
    return text.strip()


def _boolean(text: str, shape: Shape) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValidationError(_("Enter true or false."))
    return text.strip().lower() == "true"


def _lines(text: str, shape: Shape) -> list[Any]:
    item = shape.item
    assert item is not None
    # Of text, blanks may matter; empty lines stand for nothing.
    lines = [line for line in text.split("\n") if line.strip()]
    read = _READERS.get(item.kind)
    return lines if read is None else [read(line, item) for line in lines]


def _json(text: str, shape: Shape) -> Any:
    value = read_json(text)
    try:
        problems = CompiledSchema(shape.schema, what="schema").problems(value)
    except ImproperlyConfigured:
        # It refers to what is elsewhere; the server checks it anyway.
        problems = ()
    if problems:
        raise ValidationError([str(problem) for problem in problems])
    return value


def read_json(text: str) -> Any:
    """The JSON value that a text is.

    Raises:
        ValidationError: it is none, or none that can be sent.
    """
    try:
        value = json.loads(text, parse_float=finite_float, parse_constant=_refused)
        raw = encode(value)
    except (ValueError, OverflowError, RecursionError):
        raise ValidationError(_("Enter valid JSON.")) from None
    if is_too_deep(raw, value):
        raise ValidationError(_("This is nested too deep."))
    return value


def _refused(constant: str) -> Any:
    raise ValueError(constant)


def _whole(text: str, shape: Shape) -> Any:
    # What the server says of arguments that do not fit is worth seeing, too.
    return read_json(text)


def _mixed(text: str, shape: Shape) -> Any:
    """JSON where that is of a type that fits, and text else: "5" in quotes is text."""
    members = shape.schema.get("anyOf") or shape.schema.get("oneOf")
    declared = shape.schema.get("type") if members is None else [m.get("type") for m in members]
    kinds = set(declared) if isinstance(declared, list) else {declared}
    try:
        value = read_json(text)
    except ValidationError:
        value = text
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if any(fits.get(str(kind)) for kind in kinds):
        return value
    if "string" in kinds:
        return text
    raise ValidationError(
        _("Enter a value of one of these types: %(kinds)s."),
        params={"kinds": ", ".join(sorted(map(str, kinds)))},
    )


_READERS: Mapping[str, Callable[[str, Shape], Any]] = {
    "integer": _integer,
    "number": _float,
    "boolean": _boolean,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "email": _typed_text,
    "uri": _typed_text,
    "lines": _lines,
    "json": _json,
    "whole": _whole,
    "mixed": _mixed,
}
