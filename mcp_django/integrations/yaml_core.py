"""Parse YAML frontmatter by the core schema of YAML 1.2.

Hosts compare the frontmatter of a listed skill with the result of their own parser, and those
parsers follow YAML 1.2, where ``yes`` and ``2026-01-31`` are strings. PyYAML's own loaders follow
YAML 1.1, so only its event parser is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from django.core.exceptions import ImproperlyConfigured

MAX_DEPTH = 20
# The largest integer that a double represents exactly; hosts in JavaScript would round others.
MAX_INTEGER = 2**53 - 1

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_MAX_DIGITS = 32
# Half of a surrogate pair: a YAML escape can express it, but a JSON message cannot contain it.
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def parse_yaml(text: str) -> Any:
    """Return the value of a YAML document, in types that JSON has.

    Raises:
        ImproperlyConfigured: PyYAML is not installed.
        SkillError: the text cannot be parsed, or has a value that JSON cannot express.
    """
    yaml = _yaml()
    try:
        events = iter(yaml.parse(text, Loader=yaml.SafeLoader))
        return _ValueBuilder(yaml, events).document()
    except SkillError:
        raise
    except yaml.YAMLError as exc:
        raise SkillError(_error_text(exc)) from None
    except (ValueError, OverflowError):
        # Raised inside PyYAML, without a line number.
        raise SkillError("it has an escape sequence that is not a valid character.") from None


def _yaml() -> ModuleType:
    try:
        import yaml
    except ImportError:
        raise ImproperlyConfigured(
            "Skills in folders need PyYAML, which parses the frontmatter of a SKILL.md: "
            "pip install 'django-mcp-provider[skills]'."
        ) from None
    return yaml


def _error_text(exc: Any) -> str:
    mark = getattr(exc, "problem_mark", None)
    why = getattr(exc, "problem", None) or getattr(exc, "reason", None) or "it cannot be read"
    if str(why).startswith("mapping values"):
        why = f"{why}; put a text that contains a colon and a space in quotes"
    # The YAML starts in the second line of the file.
    return f"line {mark.line + 2}: {why}" if mark is not None else str(why)


class _ValueBuilder:
    """Builds a value from the events of a parser, without storing the events."""

    def __init__(self, yaml: ModuleType, events: Iterator[Any]) -> None:
        self._yaml = yaml
        self._events = events

    def document(self) -> Any:
        """Return the value of the document; a second document is an error."""
        value: Any = None
        for event in self._events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                value = self._value(next(self._events), 0)
                break
        if any(isinstance(event, self._yaml.DocumentStartEvent) for event in self._events):
            raise SkillError("it contains a second YAML document.")
        return value

    def _value(self, event: Any, depth: int) -> Any:
        line = event.start_mark.line + 2
        if isinstance(event, self._yaml.AliasEvent) or event.anchor is not None:
            raise SkillError(f"line {line}: anchors and aliases are not supported; write it out.")
        if depth > MAX_DEPTH:
            raise SkillError(f"line {line}: it is nested more than {MAX_DEPTH} levels deep.")
        if event.tag not in (None, "!"):
            raise SkillError(f"line {line}: tags such as {event.tag} are not supported; remove it.")
        if isinstance(event, self._yaml.ScalarEvent):
            if _LONE_SURROGATE.search(event.value):
                raise SkillError(f"line {line}: half of a surrogate pair is not a character.")
            # A scalar with a style is quoted or a block, so it is always text.
            return event.value if event.style or event.tag else _resolve_scalar(event.value, line)
        if isinstance(event, self._yaml.SequenceStartEvent):
            values = []
            while not isinstance(inner := next(self._events), self._yaml.SequenceEndEvent):
                values.append(self._value(inner, depth + 1))
            return values
        return self._mapping(depth)

    def _mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), self._yaml.MappingEndEvent):
            line = event.start_mark.line + 2
            key = self._value(event, depth + 1)
            if not isinstance(key, str):
                raise SkillError(f"line {line}: {key!r:.40} is not text; put the key in quotes.")
            if key in mapping:
                raise SkillError(f"line {line}: the key {key!r:.40} occurs twice.")
            mapping[key] = self._value(next(self._events), depth + 1)
        return mapping


def _resolve_scalar(text: str, line: int) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if (number := _number(text)) is None:
        if _NOT_JSON.fullmatch(text):
            raise SkillError(f"line {line}: {text} is not a number in JSON; put it in quotes.")
        return text
    if (isinstance(number, int) and abs(number) > MAX_INTEGER) or math.isinf(number):
        raise SkillError(f"line {line}: {text:.40} is too large a number; put it in quotes.")
    return number


def _number(text: str) -> int | float | None:
    if _DECIMAL.fullmatch(text):
        # Longer numbers are too large in any case, and slow to parse.
        return int(text) if len(text) <= _MAX_DIGITS else math.inf
    for pattern, base in ((_OCTAL, 8), (_HEXADECIMAL, 16)):
        if pattern.fullmatch(text):
            return int(text[2:], base) if len(text) <= _MAX_DIGITS else math.inf
    return float(text) if _FLOAT.fullmatch(text) else None


class SkillError(ValueError):
    """A skill is not valid; ``field`` names the field of the frontmatter that is wrong, if any."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field
