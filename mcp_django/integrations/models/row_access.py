"""Permissions and row rules: who may view, add, change and delete which objects of a model.

Django's model permissions apply, unless the class overrides ``has_permission``. The row rule,
``get_queryset``, determines which rows a caller can see.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from django.contrib import auth
from django.db.models import ForeignObjectRel, Model, Q, QuerySet
from django.db.models.query import ModelIterable

from mcp_django.auth.permissions import BasePermission, parse_permissions
from mcp_django.auth.principal import Principal
from mcp_django.components.context import Context

if TYPE_CHECKING:
    from mcp_django.components.registry import Registrar

logger = logging.getLogger("mcp_django")

Action = Literal["view", "add", "change", "delete"]

# The maximum number of objects that are checked if permissions are per object.
MAX_CHECKED_OBJECTS = 1000
# The authentication backends of Django and of this package have no per-object permissions.
BACKENDS_WITHOUT_OBJECT_PERMISSIONS = frozenset({"django.contrib.auth.backends", "mcp_django.auth"})


class RowRules(Protocol):
    """The part of a declaration that determines the visible rows of a model."""

    model: Any
    server: Any
    permission: Any

    def rows(self, ctx: Context) -> QuerySet[Any]:
        """Return the rows that the caller may see, as a plain query."""

    def has_permission(self, ctx: Context, action: Action, obj: Any = None) -> bool:
        """Return whether the caller may perform the action on the model, or on one object."""

    def may_have_permission(self, ctx: Context, action: Action) -> bool:
        """Return whether the caller may perform the action on the model, or possibly an object."""

    def is_overridden(self, name: str) -> bool:
        """Return whether the class overrides this option or hook."""


class ModelPermission(BasePermission):
    """Requires that the caller may perform an action on a model, or possibly on an object."""

    def __init__(self, declaration: RowRules, action: Action) -> None:
        self._declaration = declaration
        self._action = action

    def __str__(self) -> str:
        if self._action == "view" and self._declaration.permission is not None:
            return "has_permission"
        return codename(self._declaration.model, self._action)

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the declaration authorizes this caller."""
        ctx = Context(server=self._declaration.server, principal=principal, protocol_version="")
        return self._declaration.may_have_permission(ctx, self._action)


def codename(model: type[Model], action: str) -> str:
    """Return the name of Django's permission for an action on a model: ``shop.view_order``."""
    options = model._meta
    return f"{options.app_label}.{auth.get_permission_codename(action, options)}"


def has_default_permission(
    declaration: RowRules, ctx: Context, action: Action, obj: Model | None
) -> bool:
    """Return the result of ``has_permission`` for a class that does not override it."""
    if action == "view" and declaration.permission is not None:
        return all(
            permission.has_permission(ctx.principal)
            for permission in parse_permissions(declaration.permission)
        )
    name = codename(declaration.model, action)
    return bool(ctx.user.has_perm(name) or (obj is not None and ctx.user.has_perm(name, obj)))


def can_view_all(declaration: RowRules, ctx: Context) -> bool:
    """Return whether the caller may view every row of the row rule, without a check of each object.

    If a class overrides ``has_permission``, the method is called for each object: its result
    without an object may always be true, as with ``return obj is None or …``.
    """
    return not overrides_has_permission(declaration) and declaration.has_permission(ctx, "view")


def may_view_some_objects(declaration: RowRules, ctx: Context) -> bool:
    """Return whether single objects have to be checked, since some may be allowed."""
    return overrides_has_permission(declaration) or has_object_permission_backend()


def filter_viewable(declaration: RowRules, ctx: Context, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the viewable rows; at most ``MAX_CHECKED_OBJECTS`` if each has to be checked."""
    if can_view_all(declaration, ctx):
        return rows
    return rows.filter(
        pk__in=[
            obj.pk for obj in filter_by_object_permission(declaration, ctx, rows.order_by("pk"))
        ]
    )


def filter_by_object_permission(
    declaration: RowRules, ctx: Context, rows: QuerySet[Any]
) -> Iterator[Any]:
    """Yield the objects that the caller may view, of the first ``MAX_CHECKED_OBJECTS``."""
    if not may_view_some_objects(declaration, ctx):
        return
    number = 0
    for obj in rows[:MAX_CHECKED_OBJECTS].iterator(chunk_size=100):
        number += 1
        if declaration.has_permission(ctx, "view", obj):
            yield obj
    if number == MAX_CHECKED_OBJECTS:
        logger.warning(
            "%s: stopped after a permission check of %d objects; limit get_queryset().",
            declaration,
            MAX_CHECKED_OBJECTS,
        )


def _with_object_checks(declaration: RowRules, ctx: Context, rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return the same queryset, but each object is checked when it is loaded.

    This is for code whose objects are not known beforehand, such as a prefetch. Do not call
    ``count()`` on it.
    """

    class CheckedIterable(ModelIterable):  # type: ignore[type-arg]  # generic in the stubs only
        def __iter__(self) -> Iterator[Any]:
            return (
                instance
                for instance in super().__iter__()
                if declaration.has_permission(ctx, "view", instance)
            )

    queryset = rows.all()
    queryset._iterable_class = CheckedIterable
    return queryset


def overrides_has_permission(declaration: RowRules) -> bool:
    """Return whether the class overrides ``has_permission``.

    A class of this package that delegates the check sets ``checks_each_object`` instead.
    """
    checks_each_object: bool | None = getattr(declaration, "checks_each_object", None)
    return (
        declaration.is_overridden("has_permission")
        if checks_each_object is None
        else checks_each_object
    )


def has_object_permission_backend() -> bool:
    """Return whether an authentication backend of the site may have per-object permissions."""
    defining_modules = (
        next(cls.__module__ for cls in type(backend).__mro__ if name in vars(cls))
        for backend in auth.get_backends()
        for name in ("has_perm", "get_all_permissions")
        if hasattr(backend, name)
    )
    return any(
        not module.startswith(tuple(BACKENDS_WITHOUT_OBJECT_PERMISSIONS))
        for module in defining_modules
    )


M = TypeVar("M", bound=Model)


def normalize_queryset(queryset: Any, declaration: RowRules) -> QuerySet[M]:
    """Return the same rows, each once, without order, related objects and deferred columns.

    The result can be filtered, ordered, counted and sliced.

    Raises:
        TypeError: ``get_queryset`` did not return a QuerySet of objects of the model.
    """
    model = declaration.model
    if not isinstance(queryset, QuerySet) or not issubclass(queryset.model, model):
        raise TypeError(
            f"get_queryset() of {declaration} returned {type(queryset).__name__}; return a "
            f"QuerySet of {model.__name__}."
        )
    if not issubclass(queryset._iterable_class, ModelIterable):
        raise TypeError(
            f"get_queryset() of {declaration} returned values; remove .values() and "
            ".values_list(), since fields says what is shown."
        )
    if _is_plain(queryset):
        rows = queryset.order_by()
    else:
        # A join can return a row twice, and a slice or a union cannot be filtered.
        rows = model._base_manager.using(queryset.db).filter(pk__in=queryset.values("pk"))
    plain: QuerySet[M] = rows.select_related(None).prefetch_related(None).defer(None)
    return plain


def _is_plain(queryset: QuerySet[Any]) -> bool:
    query = queryset.query
    join_fields = (getattr(join, "join_field", None) for join in query.alias_map.values())
    return not (
        query.is_sliced
        or query.combinator
        or query.distinct
        or query.group_by
        or query.annotations
        or query.extra
        # A join that can return a row several times.
        or any(isinstance(field, ForeignObjectRel) and field.multiple for field in join_fields)
    )


# Related rows that a caller may view --------------------------------------------------------------

EVERYTHING = Q()


def apply_row_rules(
    server: Registrar, model: type[Model], ctx: Context, *, among: Q = EVERYTHING
) -> QuerySet[Any] | None:
    """Return the rows of a model that its registrations on this server let the caller see.

    Return ``None`` if the model is not registered, so that no rule is known. ``among`` limits the
    rows, so that fewer objects are checked if a registration checks each object.
    """
    declarations = server.declarations_of(model)
    if not declarations:
        return None
    querysets = [
        filter_viewable(registration, ctx, registration.rows(ctx).filter(among))
        for registration in _registrations_with_rows(declarations, ctx)
    ]
    if len(querysets) == 1:
        return querysets[0]
    if not querysets:
        return model._base_manager.none()
    either = reduce(or_, (Q(pk__in=queryset.values("pk")) for queryset in querysets))
    return model._base_manager.using(querysets[0].db).filter(either)


def rows_with_visible_labels(
    server: Registrar, model: type[Model], ctx: Context, *, among: Q = EVERYTHING
) -> QuerySet[Any] | None:
    """Return the rows, limited by ``among``, whose labels the caller may see; ``None`` for none.

    The row rule of the model decides if it is registered, otherwise Django's view permission.
    """
    visible = apply_row_rules(server, model, ctx, among=among)
    if visible is not None:
        return visible
    if ctx.user.has_perm(codename(model, "view")):
        return model._default_manager.filter(among)
    return None


class Visibility(Enum):
    """Which rows of a model a caller may see."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def visibility(server: Registrar, model: type[Model], ctx: Context) -> Visibility:
    """Return which rows of a model the caller may see, without loading any.

    ``SOME`` means that a row rule, a manager or a permission of each object decides.
    """
    declarations = server.declarations_of(model)
    if not declarations:
        if not ctx.user.has_perm(codename(model, "view")):
            return Visibility.NONE
        is_all = _is_unfiltered(model._default_manager.all(), model)
        return Visibility.ALL if is_all else Visibility.SOME
    registrations = _registrations_with_rows(declarations, ctx)
    if not registrations:
        return Visibility.NONE
    is_all = any(
        can_view_all(registration, ctx) and _is_unfiltered(registration.rows(ctx), model)
        for registration in registrations
    )
    return Visibility.ALL if is_all else Visibility.SOME


def _is_unfiltered(rows: QuerySet[Any], model: type[Model]) -> bool:
    # A queryset of a child model has the rows of this child only.
    is_own = rows.model._meta.concrete_model is model._meta.concrete_model
    return is_own and _is_plain(rows) and not rows.query.where


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedRows:
    """The rows that a to-many relation shows, loaded for many objects in one query."""

    rows: QuerySet[Any]
    has_labels: bool
    is_checked: bool = False
    """Whether each object is checked when it is loaded, so that more are loaded than shown."""


def related_rows(server: Registrar, model: type[Model], ctx: Context) -> RelatedRows:
    """Return the rows of a model that the caller may see in a relation that is named alone."""
    if not server.declarations_of(model):
        may_view = bool(ctx.user.has_perm(codename(model, "view")))
        return RelatedRows(rows=model._default_manager.all(), has_labels=may_view)
    registration = _find_checking_registration(server, model, ctx)
    if registration is not None:
        return RelatedRows(
            rows=_with_object_checks(registration, ctx, registration.rows(ctx)),
            has_labels=True,
            is_checked=True,
        )
    visible = apply_row_rules(server, model, ctx)
    assert visible is not None, "it is registered"
    return RelatedRows(rows=visible, has_labels=True)


def limit_to_visible(rows: QuerySet[Any], server: Registrar, ctx: Context) -> QuerySet[Any]:
    """Return the rows that the caller may see; the calling code decides what is loaded of them."""
    registration = _find_checking_registration(server, rows.model, ctx)
    if registration is not None:
        seen = registration.rows(ctx).using(rows.db)
        return _with_object_checks(registration, ctx, rows.filter(pk__in=seen.values("pk")))
    visible = apply_row_rules(server, rows.model, ctx)
    return rows if visible is None else rows.filter(pk__in=visible.using(rows.db).values("pk"))


def _find_checking_registration(
    server: Registrar, model: type[Model], ctx: Context
) -> RowRules | None:
    """Return the registration that decides, if there is only one and it checks each object."""
    registrations = _registrations_with_rows(server.declarations_of(model), ctx)
    return (
        registrations[0]
        if len(registrations) == 1 and not can_view_all(registrations[0], ctx)
        else None
    )


def _registrations_with_rows(declarations: list[RowRules], ctx: Context) -> list[RowRules]:
    """Return the registrations that let the caller see at least some rows."""
    return [
        declaration
        for declaration in declarations
        if can_view_all(declaration, ctx) or may_view_some_objects(declaration, ctx)
    ]
