"""``ExposedModel``: a model exposure as the class that a developer would have written.

It is a ``ModelTools``, a ``ModelResource`` or both, so a call goes the same way. What it adds only
narrows: the groups and permissions of the row, and the rules of every class that code registers of
the model on this server.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet

from mcp_django.auth.permissions import BasePermission, HasCodename
from mcp_django.core.context import Context
from mcp_django.managed.exposures.options import ACTIONS, ModelOptions
from mcp_django.managed.exposures.safety import closed_model, closed_path, decides_access
from mcp_django.managed.exposures.scratch import Scratch
from mcp_django.managed.exposures.spec import ExposureSpec
from mcp_django.managed.narrowing import guards_of
from mcp_django.sources.models.changes import Changes
from mcp_django.sources.models.declaration import Action, ModelComponents
from mcp_django.sources.models.guarding import (
    ModelPermission,
    codename,
    has_own_rules,
    may,
    may_this,
)
from mcp_django.sources.models.hooks import WriteHooks
from mcp_django.sources.models.paths import resolve
from mcp_django.sources.models.resource import ModelResource
from mcp_django.sources.models.tools import ModelTools

M = TypeVar("M", bound=Model)

WRITE_HOOKS = (
    *("form", "form_reader", "serializer", "write_fields"),
    *("perform_create", "perform_update", "perform_delete"),
)


class ExposedModel(ModelComponents[M]):
    """What every model exposure has before its options."""

    server: Scratch
    _guards: ClassVar[tuple[BasePermission, ...]] = ()
    _operations: ClassVar[tuple[str, ...]] = ()

    def __str__(self) -> str:
        return f"exposure of {self.model._meta.label}"

    # Rules --------------------------------------------------------------------------------------

    @property
    def _twins(self) -> list[ModelComponents[Any]]:
        return self.server.twins(self.model)

    @property
    def asks_of_each(self) -> bool:
        """Whether code decides about each object of the model."""
        return any(has_own_rules(twin) for twin in self._twins)

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """The rows that every registration of code lets the caller know of."""
        rows = super().get_queryset(ctx)
        for twin in self._twins:
            rows = rows.filter(pk__in=twin.rows(ctx).using(rows.db).values("pk"))
        return rows

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Whether the row, Django's permissions and code let the caller do it."""
        if not all(one.has_permission(ctx.principal) for one in self._guards):
            return False
        if not may(self, ctx, action, obj):
            return False
        if obj is None:
            # Asked with the server of code in the context.
            asked = (ModelPermission(twin, action) for twin in self._twins)
            return all(one.has_permission(ctx.principal) for one in asked)
        return all(may_this(twin, ctx, action, obj) for twin in self._twins)

    def guards(self, action: Action) -> tuple[Any, ...]:
        """The rules of the row beside those of the model, and of the models shown beside it."""
        beside = sorted(self._shown_beside(), key=lambda one: one._meta.label)
        needed = (HasCodename(codename(model, "view")) for model in beside)
        by_code = (
            guard
            for model in beside
            for twin in self.server.twins(model)
            for guard in twin.guards("view")
        )
        return (*super().guards(action), *self._guards, *needed, *by_code)

    # Hearing ------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Nothing: ``hearing`` listens for every process, whether it serves this server or not."""

    def listen(self) -> None:
        """Begin to listen to what is saved and deleted."""
        super().connect()

    @property
    def receivers(self) -> tuple[Any, ...]:
        """Who listens to which signal of which model."""
        changes: Changes | None = getattr(self, "_changes", None)
        return changes.receivers if changes is not None else ()

    # What the admin may not expose --------------------------------------------------------------

    def check(self) -> None:
        """Refuse what only code may expose."""
        super().check()
        for path in self.exposed.paths.values():
            if reason := closed_path(path, self.server.shown_by_code):
                self.refuse(f"fields: {path.text!r} {reason}")
        for model in self._shown_beside():
            self._check_beside(model)
        if not isinstance(self, ModelTools) and not isinstance(self, ModelResource):
            self.refuse("it offers nothing; choose operations, or write a URI for resources.")
        if set(self._operations).intersection(ACTIONS):
            self._check_writing()

    def _shown_beside(self) -> set[type[Model]]:
        """The related models of which columns are shown."""
        paths = self.exposed.paths.values()
        return {hop.related_model for path in paths for hop in path.hops}

    def _check_beside(self, model: type[Model]) -> None:
        for twin in self.server.twins(model):
            if has_own_rules(twin) or is_overridden(twin, "get_queryset"):
                self.refuse(
                    f"fields shows columns of {model._meta.label}, which has rules of its own in "
                    f"code ({type(twin).__name__}); name the relation alone, which obeys them."
                )

    def _check_writing(self) -> None:
        for name in getattr(self, "write_fields", None) or ():
            path = resolve(self.model, name, what=f"{self}: write_fields")
            if reason := closed_path(path, self.server.shown_by_code):
                self.refuse(f"write_fields: {name!r} {reason}")
        if decides_access(self.model):
            self.refuse(
                "operations: who may do what is decided in the admin, and not by a client; choose "
                "list, get and count alone."
            )
        for twin in self._twins:
            own = [name for name in WRITE_HOOKS if is_overridden(twin, name)]
            if own:
                self.refuse(
                    f"operations: code has rules for writing {self.model._meta.label} "
                    f"({type(twin).__name__}: {', '.join(own)}); offer create, update and delete "
                    "there."
                )


def is_overridden(twin: ModelComponents[Any], name: str) -> bool:
    """Whether a class of code says something of its own."""
    bases: tuple[type[Any], ...] = (WriteHooks, ModelComponents)
    return any(
        isinstance(twin, base) and getattr(type(twin), name) is not getattr(base, name)
        for base in bases
        if hasattr(base, name)
    )


def model_of(target: str) -> type[Model]:
    """The model that a row names.

    Raises:
        ImproperlyConfigured: the site has none, or it may not be exposed.
    """
    try:
        model = apps.get_model(target)
    except (LookupError, ValueError):
        raise ImproperlyConfigured(
            f"The site has no model {target!r}; write it as 'shop.Order'."
        ) from None
    if reason := closed_model(model):
        raise ImproperlyConfigured(reason)
    return model


def register_model(spec: ExposureSpec, scratch: Scratch) -> None:
    """Offer what a row says of a model.

    Raises:
        AlreadyRegistered: another exposure has one of the names.
        ImproperlyConfigured: the row cannot work; the message says what to change.
    """
    options = ModelOptions.read(spec.read())
    scratch.register(model_of(spec.target), declaration_of(spec, options))


def declaration_of(spec: ExposureSpec, options: ModelOptions) -> type[ModelComponents[Any]]:
    """The class that a developer would have written."""
    said: dict[str, Any] = {
        "__doc__": options.description,
        "__module__": __name__,
        "_guards": guards_of(spec.groups, spec.permissions),
        "_operations": options.operations,
        "fields": list(options.fields),
        "name": spec.name,
        "plural": options.plural,
        "scopes": list(spec.scopes),
    }
    bases: tuple[type, ...] = (ExposedModel,)
    if options.uri:
        bases = (*bases, ModelResource)
        said |= {"uri": options.uri, "list": options.is_listed, "subscribe": options.subscribe}
    if options.operations:
        bases = (*bases, ModelTools)
        said |= {
            "tools": list(options.operations),
            "filter_fields": list(options.filter_fields),
            "search_fields": list(options.search_fields),
            "ordering_fields": list(options.ordering_fields),
            "ordering": list(options.ordering),
            "page_size": options.page_size,
            "write_fields": list(options.write_fields) or None,
        }
    return type("Exposure", bases, said)
