"""Which rows of a related model a caller may view, and so may see the labels of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from django.db.models import Model, Q, QuerySet

from mcp_django.core.context import Context
from mcp_django.sources.models.guarding import (
    asking,
    codename,
    may_see_some,
    permitted,
    sees_all,
)

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import ModelComponents
    from mcp_django.sources.registering import Registering

EVERYTHING = Q()


def gate(
    server: Registering, model: type[Model], ctx: Context, *, among: Q = EVERYTHING
) -> QuerySet[Any] | None:
    """The rows of a model that its registrations on this server let the caller see.

    ``None`` where it is not registered, and no rule is known. Where a registration is asked about
    each object, it is asked about those ``among`` the ones that matter.
    """
    declarations = server.declared(model)
    if not declarations:
        return None
    rows = [permitted(one, ctx, one.rows(ctx).filter(among)) for one in _opening(declarations, ctx)]
    if len(rows) == 1:
        return rows[0]
    if not rows:
        return model._base_manager.none()
    either = reduce(or_, (Q(pk__in=one.values("pk")) for one in rows))
    return model._base_manager.using(rows[0].db).filter(either)


def viewable(
    server: Registering, model: type[Model], ctx: Context, *, among: Q = EVERYTHING
) -> QuerySet[Any] | None:
    """The rows ``among`` some whose labels the caller may see, ``None`` for none.

    Where the model is registered its row gate decides, else Django's permission to view it.
    """
    gated = gate(server, model, ctx, among=among)
    if gated is not None:
        return gated
    if ctx.user.has_perm(codename(model, "view")):
        return model._default_manager.filter(among)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What a relation to many shows of each row, loaded for many rows at once."""

    rows: QuerySet[Any]
    has_labels: bool
    is_asked: bool = False
    """Whether the objects are asked about as they are loaded, which takes more than are shown."""


def entries(server: Registering, model: type[Model], ctx: Context) -> Entries:
    """The rows of a model that the caller may see in a relation that is named alone."""
    if not server.declared(model):
        may_view = bool(ctx.user.has_perm(codename(model, "view")))
        return Entries(rows=model._default_manager.all(), has_labels=may_view)
    one = _asked_about(server, model, ctx)
    if one is not None:
        return Entries(rows=asking(one, ctx, one.rows(ctx)), has_labels=True, is_asked=True)
    visible = gate(server, model, ctx)
    assert visible is not None, "it is registered"
    return Entries(rows=visible, has_labels=True)


def limited(rows: QuerySet[Any], server: Registering, ctx: Context) -> QuerySet[Any]:
    """Those of the rows that the caller may see, for code that loads what it needs of them."""
    one = _asked_about(server, rows.model, ctx)
    if one is not None:
        seen = one.rows(ctx).using(rows.db)
        return asking(one, ctx, rows.filter(pk__in=seen.values("pk")))
    visible = gate(server, rows.model, ctx)
    return rows if visible is None else rows.filter(pk__in=visible.using(rows.db).values("pk"))


def _asked_about(
    server: Registering, model: type[Model], ctx: Context
) -> ModelComponents[Any] | None:
    """The registration that decides, if it is one alone and is asked about each object."""
    found = _opening(server.declared(model), ctx)
    return found[0] if len(found) == 1 and not sees_all(found[0], ctx) else None


def _opening(declarations: list[ModelComponents[Any]], ctx: Context) -> list[ModelComponents[Any]]:
    """The registrations that let the caller see at least some rows."""
    return [one for one in declarations if sees_all(one, ctx) or may_see_some(one, ctx)]
