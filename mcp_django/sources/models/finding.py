"""One object of a ``ModelResource``, by the variables of its URI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.db.models import Model

from mcp_django.core.context import Context
from mcp_django.sources.models.guarding import may_this

if TYPE_CHECKING:
    from mcp_django.sources.models.resource import ModelResource


def find(declaration: ModelResource[Any], ctx: Context, values: Mapping[str, Any]) -> Model:
    """The object with these values, with what is shown of it loaded.

    Raises:
        ObjectDoesNotExist: there is none, or none that the caller may know of.
    """
    rows = declaration.rows(ctx).filter(**declaration.variables.lookups(values))
    found: Model | None = next(iter(declaration.exposed.prepare(rows, ctx)[:1]), None)
    if found is None or not may_this(declaration, ctx, "view", found):
        raise declaration.model.DoesNotExist
    # A database may find "A-1" for "a-1"; that object has another URI.
    if declaration.variables.texts(found) != {name: str(one) for name, one in values.items()}:
        raise declaration.model.DoesNotExist
    return found
