"""``AdminTools``: a model as tools by the rules of its ``ModelAdmin``.

The admin is asked with a request of the caller, for every decision anew: which rows there are, who
may do what, with which form, and how it is saved and logged. The site's own admin is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django.contrib.admin import ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured, PermissionDenied
from django.db.models import FileField, Model, QuerySet

from mcp_django.core.component import Component
from mcp_django.core.context import Context
from mcp_django.sources.model_admin.fields import AdminFields
from mcp_django.sources.model_admin.inputs import AdminInputs, plain
from mcp_django.sources.model_admin.requests import admin_request, widest
from mcp_django.sources.models import log
from mcp_django.sources.models.declaration import Action
from mcp_django.sources.models.tools import ModelTools
from mcp_django.sources.site.fresh import FreshRequest

M = TypeVar("M", bound=Model)


class AdminTools(ModelTools[M]):
    """The tools of one ``ModelAdmin``; ``actions`` names those of its actions that are offered.

    ``form_fields`` narrows what its form lets write. ``left_out`` says what of the admin could not
    be taken over, for a system check.
    """

    model_admin: ModelAdmin[M]
    actions: Sequence[str] = ()
    form_fields: Sequence[str] | None = None
    form_reader = AdminInputs
    left_out: Sequence[str] = ()

    def components(self) -> Iterator[Component]:
        """The tools of the model, and one for each action."""
        from mcp_django.sources.model_admin.actions import action_tool

        yield from super().components()
        for name in self.sequence("actions"):
            yield action_tool(self, name)

    # The rules of the admin -----------------------------------------------------------------------

    def request(self, ctx: Context) -> FreshRequest:
        """The request by which the admin is asked about the caller, one for each call."""
        found = self._requests.get(ctx)
        if found is None:
            found = self._requests[ctx] = admin_request(ctx, self.model_admin)
        return found

    @cached_property
    def _requests(self) -> WeakKeyDictionary[Context, FreshRequest]:
        return WeakKeyDictionary()

    @cached_property
    def asks_of_each(self) -> bool:
        """Whether the admin decides about each object whether it may be viewed.

        Its list shows the others, too, but here a row also has what it shows on a page.
        """
        return type(self.model_admin).has_view_permission is not ModelAdmin.has_view_permission

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """The rows of the admin's list for this caller."""
        return self.model_admin.get_queryset(self.request(ctx))

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Whether the caller could do it in the admin."""
        request = self.request(ctx)
        if not self.model_admin.admin_site.has_permission(request):
            return False
        if action == "add":
            return bool(self.model_admin.has_add_permission(request))
        ask = getattr(self.model_admin, f"has_{action}_permission")
        return bool(ask(request, obj))

    @cached_property
    def exposed(self) -> AdminFields:
        """The allow-list, checked; what is code in the admin may be named in it, too."""
        return AdminFields(self.model, self.fields, declaration=self)

    def may_some(self, ctx: Context, action: Action) -> bool:
        """Whether the admin would have a list, or a button, for this caller."""
        return self.has_permission(ctx, action)

    # Its form -------------------------------------------------------------------------------------

    def make_form(self, ctx: Context, obj: M | None) -> Any:
        """The class of the form that the admin shows to this caller."""
        request = self.request(ctx)
        is_change = obj is not None
        names = flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
        fields = [name for name in names if self._is_written(name)]
        return plain(self.model_admin.get_form(request, obj, change=is_change, fields=fields))

    def widest_form(self, *, is_change: bool) -> Any:
        """The class of the form for somebody who may do everything."""
        obj = self.model() if is_change else None
        try:
            return self.make_form(widest(self.server), obj)
        except Exception as exc:
            raise ImproperlyConfigured(
                f"{self}: {type(self.model_admin).__name__}.get_form() failed for a user who may "
                f"do everything ({type(exc).__name__}: {exc}). Offer no tools that write, or have "
                "it answer for such a user."
            ) from exc

    def _is_written(self, name: str) -> bool:
        if self.form_fields is not None and name not in self.form_fields:
            return False
        try:
            field: Any = self.model._meta.get_field(name)
        except FieldDoesNotExist:
            return True
        # JSON carries no files.
        return not isinstance(field, FileField)

    # Its way of writing ---------------------------------------------------------------------------

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object as the admin does, and log it there."""
        return self._save(ctx, form, is_change=False)

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object as the admin does, and log it there."""
        return self._save(ctx, form, is_change=True)

    def _save(self, ctx: Context, form: Any, *, is_change: bool) -> M:
        request, admin = self.request(ctx), self.model_admin
        obj: M = admin.save_form(request, form, is_change)
        admin.save_model(request, obj, form, is_change)
        admin.save_related(request, form, [], is_change)
        message: Any = admin.construct_change_message(request, form, [], not is_change)
        if is_change:
            admin.log_change(request, obj, message)
        else:
            admin.log_addition(request, obj, message)
        return obj

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object as the admin does, with all that its user may delete, and log it there.

        Raises:
            PermissionDenied: something would go with it that the caller may not delete.
        """
        request, admin = self.request(ctx), self.model_admin
        _, _, needed, _ = admin.get_deleted_objects([obj], request)
        if needed:
            names = ", ".join(sorted(map(str, needed)))
            raise PermissionDenied(
                f"You may not delete this {self.noun}: it would take along what you may not "
                f"delete ({names})."
            )
        rows = self.model._base_manager.using(obj._state.db).filter(pk=obj.pk)
        admin.log_deletions(request, rows)
        admin.delete_model(request, obj)

    def record(
        self,
        ctx: Context,
        obj: M,
        key: Any,
        deed: log.Deed,
        *,
        tool: str,
        fields: Iterable[str] = (),
    ) -> None:
        """Leave no second entry: the admin has made its own."""
