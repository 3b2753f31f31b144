"""Functions that clean, escape and shorten texts, and compare them with known names.

Databases cannot store NUL and lone surrogates, spreadsheets run some texts as formulas, and
untrusted text may contain invisible characters.
"""

from __future__ import annotations

import csv
import difflib
import io
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# The zero-width joiners that Persian and Indic scripts need.
_JOINERS = frozenset("\u200c\u200d")
_JOINERS_AND_LINES = _JOINERS | frozenset("\n\t")
# Spreadsheets run cells that begin with these characters as formulas (CSV injection, OWASP), in
# East Asian locales also with the full-width forms. Line breaks and tabs begin new cells.
_FORMULA_PREFIXES = frozenset("=+-@\uff1d\uff0b\uff0d\uff20")
_CELL_BREAKS = ("\t", "\r", "\n")


def clip(text: object, *, limit: int = 80) -> str:
    """Return `text` in at most `limit` characters, since client input may be megabytes long."""
    string = str(text)
    return string if len(string) <= limit else f"{string[: limit - 1]}…"


def storable(value: Any) -> Any:
    """Return a JSON value without NUL and lone surrogates, which databases cannot store.

    NUL becomes U+FFFD and a lone surrogate becomes `?`, in strings, keys, members and items.
    """
    if isinstance(value, str):
        return value.encode(errors="replace").decode().replace("\0", "\ufffd")
    if isinstance(value, Mapping):
        return {storable(key): storable(member) for key, member in value.items()}
    if isinstance(value, list):
        return [storable(element) for element in value]
    return value


def escape_invisible(text: str, *, lines: bool = True) -> str:
    """Return a text with invisible characters escaped; every database can store the result.

    Without `lines`, line breaks and tabs are escaped too: the result cannot fake a second log line.
    """
    if text.isprintable():
        return text
    allowed = _JOINERS_AND_LINES if lines else _JOINERS
    return "".join(
        character
        if character in allowed or unicodedata.category(character) not in _INVISIBLE
        else f"\\u{{{ord(character):x}}}"
        for character in text
    )


def one_line(text: str, *, limit: int = 120) -> str:
    """Return the start of a text as one line of at most `limit` characters, all visible."""
    return clip(escape_invisible(text[: limit + 1], lines=False), limit=limit)


def printable(text: str, *, limit: int = 120) -> str:
    """Return text as one line, without control, bidirectional and invisible characters."""
    spaced = " ".join(unicodedata.normalize("NFC", text).split())
    return clip(
        "".join(character for character in spaced if character.isprintable()).strip(), limit=limit
    )


def csv_line(values: Iterable[Any]) -> str:
    """Return a line of a CSV file of JSON values and times, with formulas escaped.

    Each text is quoted: where the comma is the decimal separator, spreadsheets separate cells by
    semicolons, so a text with a semicolon could begin a new cell.
    """
    cells = []
    for value in values:
        cell = value
        if isinstance(value, (list, dict)):
            cell = json.dumps(value, ensure_ascii=False)
        elif hasattr(value, "isoformat"):
            cell = value.isoformat()
        if isinstance(cell, str):
            # Programs that trim a cell ignore its leading white space and invisible characters.
            start = next((char for char in cell if char.isprintable() and not char.isspace()), "")
            is_formula = start in _FORMULA_PREFIXES or cell.startswith(_CELL_BREAKS)
            cell = f"'{cell}" if is_formula else cell
        cells.append(cell)
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_NONNUMERIC).writerow(cells)
    return line.getvalue()


def similar(name: object, names: Iterable[str], *, most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return up to `most` known names that resemble `name`, the nearest first.

    `cutoff` is the minimum similarity, from 0 to 1. A comparison takes milliseconds if the texts
    are long.
    """
    return difflib.get_close_matches(str(name), names, n=most, cutoff=cutoff)


def nearest(name: object, names: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that is most similar to `name`; `None` if no name is."""
    return next(iter(similar(name, names, most=1, cutoff=cutoff)), None)


def did_you_mean(name: object, names: Iterable[str], otherwise: str) -> str:
    """Return "did you mean" with the nearest known name, or `otherwise` if there is none."""
    suggestion = nearest(name, names)
    return otherwise if suggestion is None else f"did you mean {suggestion!r}?"
