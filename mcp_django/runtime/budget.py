"""The size of an answer: too much is cut with a note that says how much there was.

Hosts refuse or drop a result over their own limit and then the whole call is lost, so a tool
never fails for size: a list loses its tail, a text its end.
"""

from __future__ import annotations

import json
from typing import Any

from mcp_django.conf import get_settings
from mcp_django.exceptions import ToolError


def cut_text(text: str) -> str:
    """The text, or its beginning with a line that says what is missing."""
    limit = get_settings().max_result_bytes
    # Half a surrogate pair cannot be sent; a question mark can.
    raw = text.encode(errors="replace")
    if len(raw) <= limit:
        return raw.decode()
    kept = raw[:limit].decode(errors="ignore")
    return (
        f"{kept}\n\n[Cut: the first {len(kept)} of {len(text)} characters. "
        "Ask for less, or for one part at a time.]"
    )


def cut_structure(value: Any) -> tuple[Any, str]:
    """The JSON value and an empty note, or a shorter one and a note that says what is missing.

    Cut is a list at the root, or the longest list directly under it; the rest of the value stays
    whole, so it still fits its schema.

    Raises:
        ToolError: there is no list to cut; the message asks for a narrower call.
    """
    limit = get_settings().max_result_bytes
    size = _size(value)
    if size <= limit:
        return value, ""
    if isinstance(value, list):
        kept = _fitting(value, limit)
        if kept:
            return value[:kept], _note(kept, len(value))
    if isinstance(value, dict):
        name = max(
            (k for k, v in value.items() if isinstance(v, list)),
            key=lambda k: _size(value[k]),
            default=None,
        )
        if name is not None:
            items = value[name]
            kept = _fitting(items, limit - (size - _size(items)))
            if kept:
                return {**value, name: items[:kept]}, f"{name}: {_note(kept, len(items))}"
    raise ToolError(
        f"The answer has {size} bytes and {limit} are allowed; narrow the request and try again."
    )


def fitting(items: list[Any]) -> int:
    """How many items fit into an answer, from the beginning.

    A tool that pages by itself asks, since a page cut by ``cut_structure`` would keep a cursor
    behind rows that it lost.
    """
    return _fitting(items, get_settings().max_result_bytes)


def fits(value: Any) -> bool:
    """Whether an answer may be as long as this."""
    return _size(value) <= get_settings().max_result_bytes


def _fitting(items: list[Any], limit: int) -> int:
    """How many items fit into so many bytes."""
    used, kept = 2, 0
    for item in items:
        used += _size(item) + 2
        if used > limit:
            break
        kept += 1
    return kept


def _note(kept: int, total: int) -> str:
    return f"[Cut: the first {kept} of {total}. Narrow the request, or ask for the next part.]"


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, allow_nan=False).encode())
