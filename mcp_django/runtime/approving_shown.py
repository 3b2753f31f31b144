"""The arguments of a call as they are bound to a yes, and as a person gets to see them.

Nothing is left out that the person says yes to but secrets: what is too long to be looked through
is refused, and a character that shows as nothing, or turns the text around, is written out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from django.utils.crypto import salted_hmac

from mcp_django.core.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.protocol.jsonrpc import encode
from mcp_django.protocol.text import visible
from mcp_django.schema.secrets import HIDDEN, is_secret, without_secrets
from mcp_django.schema.structure import Path

SALT = "mcp_django.approval"
# More than this nobody reads before he says yes.
MAX_BYTES = 100_000
MAX_PREVIEW_BYTES = 20_000
MAX_DIGITS = 15
TOO_LARGE = {"too_large": True}


def read(raw: bytes) -> dict[str, Any]:
    """The arguments, number by number as they were written.

    Raises:
        ToolError: a person could not tell what they say.
    """
    if len(raw) > MAX_BYTES:
        raise ToolError(
            f"A person has to approve this call, and its arguments have {len(raw)} bytes; send at "
            f"most {MAX_BYTES}."
        )
    found: dict[str, Any] = json.loads(
        raw, parse_float=Decimal, parse_int=Decimal, object_pairs_hook=_once
    )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # One reader takes the first of them, another the last.
        raise ToolError("An argument is named twice; name each once.")
    return found


def digest(server: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """What a yes is bound to, whatever the order in which arguments were written.

    Keyed, since a short argument could be guessed from its digest otherwise.
    """
    text = repr([server, tool, _ordered(arguments)])
    return salted_hmac(SALT, text, algorithm="sha256").hexdigest()


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [(name, _ordered(value[name])) for name in sorted(value)]
    if isinstance(value, list):
        return [_ordered(one) for one in value]
    return value


def shown(tool: Tool, value: Any, path: Path = ()) -> Any:
    """Values for a person: without the secrets among them, and with nothing that cannot be seen."""
    if path and is_secret(tool.arguments.json_schema, path, sensitive=tool.sensitive):
        return HIDDEN
    if isinstance(value, Mapping):
        return {visible(name): shown(tool, one, (*path, name)) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [shown(tool, one, (*path, n)) for n, one in enumerate(value)]
    if isinstance(value, str):
        return visible(without_secrets(value))
    return _exact(value) if isinstance(value, Decimal) else value


def _exact(number: Decimal) -> int | str:
    """A number of which no digit is lost on the way to the page."""
    is_short = number.is_finite() and len(number.as_tuple().digits) <= MAX_DIGITS
    if is_short and number.as_tuple().exponent == 0:
        return int(number)
    return str(number)


def preview_of(tool: Tool, result: Mapping[str, Any]) -> Any:
    """What a dry run answered, for the page."""
    found = result.get("structuredContent")
    if found is None:
        found = texts(result.get("content", ()))
    found = shown(tool, found)
    return found if len(encode(found)) <= MAX_PREVIEW_BYTES else TOO_LARGE


def texts(content: Iterable[Mapping[str, Any]]) -> str:
    """The text of a result."""
    return "\n".join(str(one["text"]) for one in content if one.get("type") == "text")
