"""``list_orders`` and ``get_order``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from django.db.models import Model, QuerySet
from pydantic import Field

from mcp_django.core import declare
from mcp_django.core.context import Context
from mcp_django.core.declare import Argument
from mcp_django.core.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.protocol.cursors import MAX_CURSOR_LENGTH
from mcp_django.schema.arguments import quote
from mcp_django.schema.structure import Schema
from mcp_django.sources.models.describing import get_words, list_words
from mcp_django.sources.models.filters import Filters
from mcp_django.sources.models.guarding import may_this
from mcp_django.sources.models.ordering import Ordering
from mcp_django.sources.models.pages import Listing
from mcp_django.sources.models.search import Search
from mcp_django.sources.models.shortening import shortened

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import Action, ModelComponents
    from mcp_django.sources.models.tools import ModelTools


def list_tool(declaration: ModelTools[Any]) -> Tool:
    """The tool that lists, narrows, searches and orders."""
    filters, search, ordering = Filters(declaration), Search(declaration), Ordering(declaration)
    name = f"list_{declaration.plurals}"
    listing = Listing(declaration, filters, search, ordering, tool=name)
    named = {
        **search.arguments,
        **filters.arguments,
        **ordering.arguments,
        **_paging(declaration.page_size),
    }
    return Tool(
        name=name,
        description=list_words(declaration),
        function=declare.function(listing.page, name=name),
        arguments=declare.arguments(name, named),
        output=declare.MadeHere(_page_schema(declaration)),
        permission=declaration.guards("view"),
        scopes=declaration.needed_scopes("view"),
        read_only=True,
    )


def get_tool(declaration: ModelTools[Any]) -> Tool:
    """The tool that shows one object."""
    key = declaration.lookup
    name = f"get_{declaration.singular}"
    return Tool(
        name=name,
        description=get_words(declaration),
        function=declare.function(partial(_get, declaration), name=name),
        arguments=declare.arguments(
            name, {key.name: Argument(annotation=key.annotation, required=True)}
        ),
        output=declare.MadeHere(declaration.exposed.schema),
        permission=declaration.guards("view"),
        scopes=declaration.needed_scopes("view"),
        read_only=True,
    )


def _get(declaration: ModelTools[Any], ctx: Context, given: dict[str, Any]) -> dict[str, Any]:
    rows = matching(declaration, ctx, given[declaration.lookup.name])
    obj = first(declaration, ctx, declaration.exposed.prepare(rows, ctx), given)
    return shortened(declaration.exposed.dump(obj, ctx))


def matching(declaration: ModelComponents[Any], ctx: Context, key: Any) -> QuerySet[Any]:
    """The row with this key, if it is within the row gate."""
    return declaration.rows(ctx).filter(**{declaration.lookup.name: key})


def first(
    declaration: ModelComponents[Any],
    ctx: Context,
    rows: QuerySet[Any],
    given: dict[str, Any],
    action: Action = "view",
) -> Model:
    """The object, if there is one and the caller may do this to it.

    Raises:
        ToolError: in the same words whether it does not exist or is not for this caller.
    """
    name = declaration.lookup.name
    obj: Model | None = next(iter(rows[:1]), None)
    if obj is None or not may_this(declaration, ctx, action, obj):
        raise ToolError(
            f"There is no {declaration.noun} with {name} {quote(given[name])}{_see(declaration)}."
        )
    return obj


def _see(declaration: ModelComponents[Any]) -> str:
    name = f"list_{declaration.plurals}"
    return f"; see {name}" if name in declaration.server.tools else ""


def _paging(size: int) -> dict[str, Argument]:
    return {
        "limit": Argument(
            annotation=Annotated[int, Field(ge=1, le=size)],
            description=f"How many, {size} if left out.",
        ),
        "cursor": Argument(
            annotation=Annotated[str, Field(max_length=MAX_CURSOR_LENGTH)],
            description="next_cursor of the page before.",
        ),
    }


def _page_schema(declaration: ModelTools[Any]) -> Schema:
    return {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": declaration.exposed.schema},
            "total": {"type": "integer", "description": "On the first page: how many match."},
            "next_cursor": {"type": "string", "description": "There are more; absent at the end."},
        },
        "required": ["items"],
    }
