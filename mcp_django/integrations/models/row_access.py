"""Permissions and row rules: who may view, add, change and delete which objects of a model.

Django's model permissions decide, unless the class says otherwise. Which rows there are is
decided by the row rule, ``get_queryset``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

from django.contrib import auth
from django.db.models import ForeignObjectRel, Model, Q, QuerySet
from django.db.models.query import ModelIterable

from mcp_django.auth.permissions import BasePermission, permissions
from mcp_django.auth.principal import Principal
from mcp_django.core.context import Context

if TYPE_CHECKING:
    from mcp_django.integrations.models.declaration import Action, ModelComponents
    from mcp_django.integrations.registration import Registering

    _ModelIterable = ModelIterable[Any]
else:
    # Generic in the stubs only.
    _ModelIterable = ModelIterable

logger = logging.getLogger("mcp_django")

# So many objects are asked about where the site decides about each.
MAX_ASKED = 1000
# Backends of Django's own, which know no permissions of single objects.
PLAIN = frozenset({"django.contrib.auth.backends", "mcp_django.auth"})


class ModelPermission(BasePermission):
    """Whether the caller may do something to a model, or perhaps to one of its objects."""

    def __init__(self, declaration: ModelComponents[Any], action: Action) -> None:
        self._declaration = declaration
        self._action = action

    def __str__(self) -> str:
        if self._action == "view" and self._declaration.permission is not None:
            return "has_permission"
        return codename(self._declaration.model, self._action)

    def has_permission(self, principal: Principal) -> bool:
        """Whether the declaration lets this caller in."""
        ctx = Context(server=self._declaration.server, principal=principal, protocol_version="")
        return self._declaration.may_some(ctx, self._action)


def codename(model: type[Model], action: str) -> str:
    """The permission that Django makes for an action on a model: ``shop.view_order``."""
    options = model._meta
    return f"{options.app_label}.{auth.get_permission_codename(action, options)}"


def may(declaration: ModelComponents[Any], ctx: Context, action: Action, obj: Model | None) -> bool:
    """The answer of ``has_permission`` where the class does not give its own."""
    if action == "view" and declaration.permission is not None:
        return all(one.has_permission(ctx.principal) for one in permissions(declaration.permission))
    name = codename(declaration.model, action)
    return bool(ctx.user.has_perm(name) or (obj is not None and ctx.user.has_perm(name, obj)))


def may_some(declaration: ModelComponents[Any], ctx: Context, action: Action) -> bool:
    """Whether the caller may do it to the model, or a backend might allow it for an object."""
    return declaration.has_permission(ctx, action) or (
        ctx.principal.is_authenticated and _knows_objects()
    )


def may_this(declaration: ModelComponents[Any], ctx: Context, action: Action, obj: Model) -> bool:
    """Whether the caller may do it to this object.

    A class with rules of its own is asked about the object, whatever it says of the model.
    """
    return declaration.has_permission(ctx, action, obj)


def sees_all(declaration: ModelComponents[Any], ctx: Context) -> bool:
    """Whether the caller may view every row of the gate, so that no object has to be asked about.

    A class with rules of its own is asked about each, since what it says of the model alone may
    be ``obj is None or …``.
    """
    return not has_own_rules(declaration) and declaration.has_permission(ctx, "view")


def may_see_some(declaration: ModelComponents[Any], ctx: Context) -> bool:
    """Whether it is worth asking about single objects."""
    return has_own_rules(declaration) or _knows_objects()


def permitted(
    declaration: ModelComponents[Any], ctx: Context, rows: QuerySet[Any]
) -> QuerySet[Any]:
    """Those of the rows that the caller may view; where each is asked about, of the first ones."""
    if sees_all(declaration, ctx):
        return rows
    return rows.filter(pk__in=[obj.pk for obj in asked(declaration, ctx, rows.order_by("pk"))])


def asked(declaration: ModelComponents[Any], ctx: Context, rows: QuerySet[Any]) -> Iterator[Any]:
    """The objects of a query that the caller may view, each asked about, until it is enough."""
    if not may_see_some(declaration, ctx):
        return
    number = 0
    for obj in rows[:MAX_ASKED].iterator(chunk_size=100):
        number += 1
        if may_this(declaration, ctx, "view", obj):
            yield obj
    if number == MAX_ASKED:
        logger.warning(
            "%s: %d objects were asked about, and no more; narrow get_queryset().",
            declaration,
            MAX_ASKED,
        )


def _asking(declaration: ModelComponents[Any], ctx: Context, rows: QuerySet[Any]) -> QuerySet[Any]:
    """The same query, whose objects are asked about while they are loaded.

    For what loads objects that nobody can name beforehand, as a prefetch does. It must not be
    counted.
    """

    class Asking(_ModelIterable):
        def __iter__(self) -> Iterator[Any]:
            return (one for one in super().__iter__() if may_this(declaration, ctx, "view", one))

    found = rows.all()
    found._iterable_class = Asking
    return found


def has_own_rules(declaration: ModelComponents[Any]) -> bool:
    """Whether the author of a class overrode ``has_permission``.

    A class of ours that hands the question on knows better (``asks_of_each``).
    """
    handed_on: bool | None = getattr(declaration, "asks_of_each", None)
    return declaration.is_overridden("has_permission") if handed_on is None else handed_on


def _knows_objects() -> bool:
    """Whether an authentication backend of the site may know permissions of single objects."""
    return any(
        not _defined_in(type(backend), name).startswith(tuple(PLAIN))
        for backend in auth.get_backends()
        for name in ("has_perm", "get_all_permissions")
        if hasattr(backend, name)
    )


def _defined_in(cls: type, name: str) -> str:
    return next(one.__module__ for one in cls.__mro__ if name in vars(one))


# The row rule as a plain query --------------------------------------------------------------------

M = TypeVar("M", bound=Model)


def clean(queryset: Any, declaration: ModelComponents[Any]) -> QuerySet[M]:
    """The same rows, each once, without an order and without what is loaded beside them.

    They can be filtered, ordered, counted and sliced.

    Raises:
        TypeError: ``get_queryset`` returned something else than a query for the model.
    """
    model = declaration.model
    if not isinstance(queryset, QuerySet) or not issubclass(queryset.model, model):
        raise TypeError(
            f"get_queryset() of {declaration} returned {type(queryset).__name__}; return a "
            f"QuerySet of {model.__name__}."
        )
    if not issubclass(queryset._iterable_class, ModelIterable):
        raise TypeError(
            f"get_queryset() of {declaration} returned values; leave .values() and .values_list() "
            "away, since fields says what is shown."
        )
    if _is_plain(queryset):
        rows = queryset.order_by()
    else:
        # A join can give a row twice, and a slice or a union cannot be filtered any more.
        rows = model._base_manager.using(queryset.db).filter(pk__in=queryset.values("pk"))
    plain: QuerySet[M] = rows.select_related(None).prefetch_related(None).defer(None)
    return plain


def _is_plain(queryset: QuerySet[Any]) -> bool:
    query = queryset.query
    return not (
        query.is_sliced
        or query.combinator
        or query.distinct
        or query.group_by
        or query.annotations
        or query.extra
        or any(_multiplies(join) for join in query.alias_map.values())
    )


def _multiplies(join: Any) -> bool:
    field = getattr(join, "join_field", None)
    return isinstance(field, ForeignObjectRel) and field.multiple


# Related rows that a caller may view --------------------------------------------------------------

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
        return Entries(rows=_asking(one, ctx, one.rows(ctx)), has_labels=True, is_asked=True)
    visible = gate(server, model, ctx)
    assert visible is not None, "it is registered"
    return Entries(rows=visible, has_labels=True)


def limited(rows: QuerySet[Any], server: Registering, ctx: Context) -> QuerySet[Any]:
    """Those of the rows that the caller may see, for code that loads what it needs of them."""
    one = _asked_about(server, rows.model, ctx)
    if one is not None:
        seen = one.rows(ctx).using(rows.db)
        return _asking(one, ctx, rows.filter(pk__in=seen.values("pk")))
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
