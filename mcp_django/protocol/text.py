"""Sanitizing of untrusted text for storage, logs and display.

Databases cannot store NUL and lone surrogates, so ``storable`` replaces them. Untrusted text may
contain invisible characters, so ``escape_invisible`` and ``escape_to_one_line`` escape them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# The zero-width joiners that Persian and Indic scripts need.
_JOINERS = frozenset("\u200c\u200d")
_UNESCAPED = _JOINERS | frozenset("\n\t")


def storable(value: Any) -> Any:
    """Return a JSON value without NUL and lone surrogates, which databases cannot store.

    NUL becomes U+FFFD and a lone surrogate becomes `?`, in strings, keys, members and items.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(key): storable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [storable(one) for one in value]
    return value


def escape_invisible(text: str) -> str:
    """Return a text with invisible characters escaped; every database can store the result."""
    return _escape_except(text, _UNESCAPED)


def escape_to_one_line(text: str) -> str:
    """Return the text as `escape_invisible` does, on one line: it cannot fake a second log line."""
    return _escape_except(text, _JOINERS)


def _escape_except(text: str, allowed: frozenset[str]) -> str:
    if text.isprintable():
        return text
    return "".join(one if one in allowed else _escape_character(one) for one in text)


def _escape_character(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"\\u{{{ord(character):x}}}"
