"""Texts that somebody else chose, so that whoever reads them sees every character."""

from __future__ import annotations

import unicodedata

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# What Persian and Indic writing joins letters with.
_JOINERS = frozenset("\u200c\u200d")
_PLAIN = _JOINERS | frozenset("\n\t")


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
