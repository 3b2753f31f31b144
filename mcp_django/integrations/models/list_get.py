"""The list and get tools of a model, such as ``list_orders`` and ``get_order``, and keyset pages.

A page ends with a signed cursor that contains the values of its last row and is valid only for the
same list, the same arguments and the same caller. Decoding it reveals nothing that the page did
not show, because rows are ordered by exposed columns only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from django.core.exceptions import ValidationError
from django.db.models import Model, Q, QuerySet
from pydantic import Field

from mcp_django.components import declare
from mcp_django.components.context import Context
from mcp_django.components.declare import GeneratedArgument
from mcp_django.components.tool import Tool
from mcp_django.exceptions import InvalidParams, ToolError
from mcp_django.execution import results
from mcp_django.execution.handlers.listing import CURSOR_SIGNER
from mcp_django.integrations.models.declaration import ModelComponents, ModelTools
from mcp_django.integrations.models.exposed_fields import RowLoader
from mcp_django.integrations.models.filtering import Filters, Ordering, OrderTerm
from mcp_django.integrations.models.row_access import (
    Action,
    can_view_all,
    may_view_some_objects,
)
from mcp_django.protocol.cursors import MAX_CURSOR_LENGTH, Pager, Position
from mcp_django.schema.arguments import to_json_text
from mcp_django.schema.structure import Schema
from mcp_django.schema.values import jsonable
from mcp_django.tenants import by_tenant


def list_tool(declaration: ModelTools[Any]) -> Tool:
    """Return the list tool, which filters, searches and orders rows."""
    name = f"list_{declaration.plurals}"
    listing = ListFunction(declaration, tool=name)
    ways = [
        word
        for word, option in (
            ("search", "search_fields"),
            ("filter", "filter_fields"),
            ("order", "ordering_fields"),
        )
        if getattr(declaration, option)
    ]
    how = f" {' and '.join(ways).capitalize()} by the arguments." if ways else ""
    # The schema of the arguments has the details.
    words = f"List {declaration.nouns}.{how}"
    schema: Schema = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": declaration.exposed.schema},
            "total": {"type": "integer", "description": "Number of matches; on the first page."},
            "next_cursor": {"type": "string", "description": "Absent on the last page."},
        },
        "required": ["items"],
    }
    return reading_tool(declaration, name, words, listing.page, listing.arguments, schema)


def get_tool(declaration: ModelTools[Any]) -> Tool:
    """Return the get tool, which shows one object."""
    key = declaration.lookup
    name, words = f"get_{declaration.singular}", f"Get one {declaration.noun} by its {key.name}."
    arguments = {key.name: GeneratedArgument(annotation=key.annotation, required=True)}
    schema = declaration.exposed.object_schema
    return reading_tool(declaration, name, words, partial(_get, declaration), arguments, schema)


def reading_tool(
    declaration: ModelTools[Any],
    name: str,
    words: str,
    function: Callable[..., Any],
    arguments: Mapping[str, GeneratedArgument],
    schema: Schema,
) -> Tool:
    """Return a tool that reads; its description ends with the docstring of the declaration."""
    return Tool(
        name=name,
        description=f"{words} {declaration.doc}".strip(),
        function=declare.build_function(function, name=name),
        arguments=declare.build_arguments(name, arguments),
        output=declare.TrustedOutput(schema),
        **declaration.access("view"),
    )


def _get(declaration: ModelTools[Any], ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
    rows = declaration.rows(ctx).filter(
        **{declaration.lookup.name: arguments[declaration.lookup.name]}
    )
    obj = get_permitted_object(declaration, ctx, declaration.exposed.prepare(rows, ctx), arguments)
    return shorten_result(declaration.exposed.dump(obj, ctx))


def get_permitted_object(
    declaration: ModelComponents[Any],
    ctx: Context,
    rows: QuerySet[Any],
    arguments: dict[str, Any],
    action: Action = "view",
) -> Model:
    """Return the first object of ``rows`` if the caller may perform the action on it.

    Raises:
        ToolError: the object does not exist, or the caller may not see it; the message is the same.
    """
    name = declaration.lookup.name
    obj: Model | None = next(iter(rows[:1]), None)
    if obj is None or not declaration.has_permission(ctx, action, obj):
        listing = f"list_{declaration.plurals}"
        see = f"; see {listing}" if listing in declaration.server.registry.tools else ""
        raise ToolError(
            f"There is no {declaration.noun} with {name} {to_json_text(arguments[name])}{see}."
        )
    return obj


class ListFunction:
    """The function of a list tool, which returns a page of the rows that the caller may see."""

    def __init__(self, declaration: ModelTools[Any], *, tool: str) -> None:
        self._declaration = declaration
        self._filters = Filters(declaration)
        self._ordering = Ordering(declaration)
        self._tool = tool

    @property
    def arguments(self) -> dict[str, GeneratedArgument]:
        """The arguments: search and filters, the order, and the page."""
        size = self._declaration.page_size
        return {
            **self._filters.arguments,
            **self._ordering.arguments,
            "limit": GeneratedArgument(
                annotation=Annotated[int, Field(ge=1, le=size)],
                description=f"The page size, {size} by default.",
            ),
            "cursor": GeneratedArgument(
                annotation=Annotated[str, Field(max_length=MAX_CURSOR_LENGTH)],
                description="next_cursor of the previous page.",
            ),
        }

    def page(self, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return a page; the first page has the total, and every page except the last has a cursor.

        Raises:
            ToolError: the cursor was altered, or belongs to another list.
        """
        terms = self._ordering.terms(arguments.get("order_by"))
        size = arguments.get("limit") or self._declaration.page_size
        # A cursor is valid for this list, this caller, and these filters and order.
        criteria = {
            name: value for name, value in arguments.items() if name not in {"cursor", "limit"}
        }
        text = json.dumps(jsonable(criteria), sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        scope = by_tenant(f"{ctx.server.name}:{self._tool}:{ctx.principal.key}:{digest}")
        pager = Pager(scope, size, CURSOR_SIGNER)
        try:
            at = pager.position(arguments.get("cursor"))
            # The values after which the page begins, ``None`` for the first page.
            behind = None if at is None else _parsed(at, terms)
        except (InvalidParams, ValidationError, ValueError, TypeError):
            raise ToolError(
                "cursor: not valid here. Send next_cursor of the previous page with otherwise the "
                "same arguments, or start again without a cursor."
            ) from None
        rows = self._filters.rows(ctx, arguments)
        page: dict[str, Any] = {}
        # With per-object permissions, the total would reveal the number of hidden rows.
        is_whole = can_view_all(self._declaration, ctx)
        if behind is None and self._declaration.count and is_whole:
            page["total"] = rows.count()
        objects = self._load_objects(rows, terms, behind, size + 1, ctx, is_whole=is_whole)
        items = self._declaration.exposed.dump_all(objects[:size], ctx)
        # A page that is too long gets fewer items.
        number = len(items)
        while True:
            result = {"items": items[:number], **page}
            if number < len(objects):
                position = _position(objects[number - 1], terms)
                result["next_cursor"] = _make_cursor(position, pager)
            if number <= 1 or results.fits(result):
                return shorten_result(result)
            # The cursor takes space, too.
            number = max(1, min(number - 1, results.count_fitting(items)))

    def _load_objects(
        self,
        rows: QuerySet[Any],
        terms: Sequence[OrderTerm],
        behind: list[Any] | None,
        limit: int,
        ctx: Context,
        *,
        is_whole: bool,
    ) -> list[Model]:
        """Return at most ``limit`` objects, in order."""
        rows = rows.order_by(*(term.order for term in terms))
        # A permission check of an object may use any of its columns.
        rows = RowLoader(ctx).prepare(rows, self._declaration.exposed.tree, whole=not is_whole)
        if is_whole:
            rows = rows if behind is None else _rows_after(rows, terms, behind)
            return list(rows[:limit])
        if not may_view_some_objects(self._declaration, ctx):
            return []
        objects: list[Model] = []
        # The query limits of the call end the loop if it finds too few objects.
        while True:
            batch = list((rows if behind is None else _rows_after(rows, terms, behind))[:limit])
            for obj in batch:
                if self._declaration.has_permission(ctx, "view", obj):
                    objects.append(obj)
                if len(objects) == limit:
                    return objects
            if len(batch) < limit:
                return objects
            behind = _parsed(_position(batch[-1], terms), terms)


def _position(obj: Model, terms: Sequence[OrderTerm]) -> Position:
    """Return the position of an object in the order."""
    return [term.position(obj) for term in terms]


def _make_cursor(at: Position, pager: Pager) -> str:
    """Return the cursor for the rows after a position.

    Raises:
        ToolError: the cursor is too long for the client to send it.
    """
    cursor = pager.next(at)
    if len(cursor) > MAX_CURSOR_LENGTH:
        raise ToolError("The values to order by are too long for a cursor; use another order_by.")
    return cursor


def _parsed(at: Position, terms: Sequence[OrderTerm]) -> list[Any]:
    """Return the values of a position."""
    return [
        None if text is None else term.value(text) for term, text in zip(terms, at, strict=True)
    ]


def _rows_after(
    rows: QuerySet[Any], terms: Sequence[OrderTerm], values: Sequence[Any]
) -> QuerySet[Any]:
    """Return the rows that come after these values."""
    later, equal = Q(), Q()
    for term, value in zip(terms, values, strict=True):
        name = term.path.expression
        is_missing = Q(**{f"{name}__isnull": True})
        if value is None:
            # Missing values come last.
            equal &= is_missing
            continue
        step = Q(**{f"{name}__{'lt' if term.is_descending else 'gt'}": value})
        later |= equal & (step | is_missing if term.path.is_nullable else step)
        equal &= Q(**{name: value})
    return rows.filter(later)


# In an object, or in a page that has only one item, the longest texts are cut.
LENGTHS = (20_000, 5_000, 1_000, 200)


def shorten_result(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the result; if it is too long, long texts are cut, with a note of their length."""
    cut = answer
    for length in LENGTHS:
        if results.fits(cut):
            break
        cut = {
            name: member if name == "next_cursor" else _cut(member, length)
            for name, member in answer.items()
        }
    return cut


def _cut(value: Any, length: int) -> Any:
    if isinstance(value, str) and len(value) > length:
        return f"{value[:length]}… [Cut: the first {length} of {len(value)} characters.]"
    if isinstance(value, dict):
        return {name: _cut(member, length) for name, member in value.items()}
    if isinstance(value, list):
        return [_cut(element, length) for element in value]
    return value
