"""Who may view, add, change and delete: Django's model permissions, unless the class says more."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.contrib import auth
from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable

from mcp_django.auth.permissions import BasePermission, permissions
from mcp_django.auth.principal import Principal
from mcp_django.core.context import Context

if TYPE_CHECKING:
    from mcp_django.sources.models.declaration import Action, ModelComponents

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
        ctx.principal.is_authenticated and knows_objects()
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
    return has_own_rules(declaration) or knows_objects()


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


def asking(declaration: ModelComponents[Any], ctx: Context, rows: QuerySet[Any]) -> QuerySet[Any]:
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
    if handed_on is not None:
        return handed_on
    from mcp_django.sources.models.declaration import ModelComponents

    return type(declaration).has_permission is not ModelComponents.has_permission


def knows_objects() -> bool:
    """Whether an authentication backend of the site may know permissions of single objects."""
    return any(
        not _defined_in(type(backend), name).startswith(tuple(PLAIN))
        for backend in auth.get_backends()
        for name in ("has_perm", "get_all_permissions")
        if hasattr(backend, name)
    )


def _defined_in(cls: type, name: str) -> str:
    return next(one.__module__ for one in cls.__mro__ if name in vars(one))
