"""Where a page ends: the values of its last row, in a signed cursor that nobody else can use.

Whoever decodes it finds what the page showed: rows are ordered by what is exposed alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet

from mcp_django.core.context import Context
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.execution.call import CURSORS
from mcp_django.protocol.cursors import MAX_CURSOR_LENGTH, decode_cursor, encode_cursor
from mcp_django.schema.values import jsonable
from mcp_django.sources.models.ordering import Term

Position = list[Any]


def scope(ctx: Context, tool: str, given: Mapping[str, Any]) -> str:
    """What a cursor is good for: this list, for this caller, narrowed and ordered like this."""
    asked = {name: value for name, value in given.items() if name not in {"cursor", "limit"}}
    text = json.dumps(jsonable(asked), sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{ctx.server.name}:{tool}:{ctx.principal.key}:{digest}"


def position(obj: Model, terms: Sequence[Term]) -> Position:
    """Where an object is in the order."""
    return [term.position(obj) for term in terms]


def cursor(at: Position, *, scope: str) -> str:
    """The cursor behind a position.

    Raises:
        ToolError: the client could not send it back.
    """
    made = encode_cursor(at, scope=scope, signer=CURSORS)
    if len(made) > MAX_CURSOR_LENGTH:
        raise ToolError("The values to order by are too long; give another order_by.")
    return made


def read(text: str, terms: Sequence[Term], *, scope: str) -> list[Any]:
    """The values behind which the next page begins.

    Raises:
        ToolError: the cursor was altered, or belongs to another list.
    """
    try:
        at = decode_cursor(text, scope=scope, signer=CURSORS)
        return [
            None if one is None else term.value(one) for term, one in zip(terms, at, strict=True)
        ]
    except (InvalidParams, ValidationError, ValueError, TypeError):
        raise ToolError(
            "cursor: not valid here. Send next_cursor of the page before, with the same arguments "
            "otherwise, or begin again without one."
        ) from None


def behind(rows: QuerySet[Any], terms: Sequence[Term], values: Sequence[Any]) -> QuerySet[Any]:
    """The rows that come later than these values."""
    later, equal = Q(), Q()
    for term, value in zip(terms, values, strict=True):
        step = _beyond(term, value)
        if step is not None:
            later |= equal & step
        name = term.expression
        equal &= Q(**{f"{name}__isnull": True}) if value is None else Q(**{name: value})
    return rows.filter(later)


def _beyond(term: Term, value: Any) -> Q | None:
    """What comes later by one column alone; behind those without a value there is nothing."""
    if value is None:
        return None
    step = Q(**{f"{term.expression}__{'lt' if term.is_descending else 'gt'}": value})
    return step | Q(**{f"{term.expression}__isnull": True}) if term.is_nullable else step
