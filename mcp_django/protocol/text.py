"""Text from outside, made safe to store, to log and to show.

Databases do not store NUL and halves of surrogate pairs, so ``storable`` replaces them. Text that
another party chose may hold invisible characters, so ``visible`` and ``one_line`` escape them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# What Persian and Indic writing joins letters with.
_JOINERS = frozenset("\u200c\u200d")
_PLAIN = _JOINERS | frozenset("\n\t")


def storable(value: Any) -> Any:
    """A value of JSON without what a database does not store: NUL, and halves of surrogate pairs.

    They become U+FFFD, in text and in the names and items within.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(key): storable(one) for key, one in value.items()}
    if isinstance(value, list):
        return [storable(one) for one in value]
    return value


def visible(text: str) -> str:
    """A text in which every character is to be seen, and that every database can hold."""
    return _with_plain(text, _PLAIN)


def one_line(text: str) -> str:
    """The same without line ends, so that it cannot look like two lines of a log."""
    return _with_plain(text, _JOINERS)


def _with_plain(text: str, plain: frozenset[str]) -> str:
    if text.isprintable():
        return text
    return "".join(one if one in plain else _seen(one) for one in text)


def _seen(character: str) -> str:
    if unicodedata.category(character) not in _INVISIBLE:
        return character
    return f"\\u{{{ord(character):x}}}"
