"""A ``ModelAdmin`` as tools, with the fields, filters, permissions, forms and log of the admin.

Each call uses the methods of the ``ModelAdmin`` with a request of the caller. They determine the
rows, the permissions of the caller, the form, and how an object is saved and logged. The site's own
admin is not changed. This module is imported when it is first used, because a site may not use the
admin.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import (
    ImproperlyConfigured,
    PermissionDenied,
)
from django.db.models import FileField, Model, QuerySet
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext

from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.integrations.admin_actions import action_tool, admin_request
from mcp_django.integrations.admin_fields import (
    FORM_HOOKS,
    AdminFields,
    derive_options,
    is_protected,
)
from mcp_django.integrations.models import write_effects
from mcp_django.integrations.models.declaration import ModelResource, ModelTools
from mcp_django.integrations.models.row_access import Action
from mcp_django.integrations.models.write_forms import FormInputs
from mcp_django.integrations.site_requests import CallerRequest, superuser_context
from mcp_django.protocol.text import nearest
from mcp_django.schema.arguments import InvalidArguments, unknown_argument_problem


def _find_registered(target: type, site: AdminSite) -> ModelAdmin[Any] | None:
    if issubclass(target, Model):
        return site._registry.get(target)
    admins = [model_admin for model_admin in site._registry.values() if type(model_admin) is target]
    if len(admins) > 1:
        names = ", ".join(model_admin.model.__name__ for model_admin in admins)
        raise ImproperlyConfigured(
            f"{target.__name__} is registered for several models; pass one of them: {names}."
        )
    return admins[0] if admins else None


class AdminInputs(FormInputs):
    """Form input: the schema is that of a superuser's form, each call uses the caller's form."""

    _declaration: AdminTools[Any]

    def __init__(
        self,
        declaration: AdminTools[Any],
        *,
        is_change: bool,
        without: str = "",
        principal: Principal | None = None,
    ) -> None:
        self._principal = principal
        super().__init__(declaration, is_change=is_change, without=without)

    def form_class(self, declaration: AdminTools[Any], *, is_change: bool) -> Any:
        """Return the class of the form that the admin shows to the caller, or to a superuser."""
        if self._principal is None:
            return declaration.superuser_form(is_change=is_change)
        server = declaration.server
        ctx = Context(server=server, principal=self._principal, protocol_version="")
        return declaration.make_form(ctx, declaration.model() if is_change else None)

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """Return the valid form.

        Raises:
            InvalidArguments: the arguments are not valid; the model can correct the call.
        """
        own = copy.copy(self)
        own._form_class = self._declaration.make_form(ctx, instance)
        fields = own._form_class.base_fields  # type: ignore[attr-defined]  # not in the stubs
        own._fields = {name: field for name, field in fields.items() if name in self._fields}
        problems = [
            unknown_argument_problem(name, own._fields)
            for name in call.written
            if name not in own._fields or own._fields[name].disabled
        ]
        if problems:
            raise InvalidArguments(problems)
        return super(AdminInputs, own).bind(ctx, call, instance)


M = TypeVar("M", bound=Model)

# Django's own help text in the admin, which is about the mouse and makes no sense for a tool.
_MULTIPLE_SELECT_HELP = "Hold down “Control”, or “Command” on a Mac, to select more than one."


class AdminTools(ModelTools[M]):
    """The tools of one ``ModelAdmin``; ``actions`` names the admin actions that become tools.

    ``form_fields`` restricts which fields of the admin's form can be written. ``left_out`` lists
    what could not be derived from the admin, for a system check.
    """

    model_admin: ModelAdmin[M]
    actions: Sequence[str] = ()
    form_fields: Sequence[str] | None = None
    inputs_class = AdminInputs
    left_out: Sequence[str] = ()
    object_fields: Sequence[str] = ()
    """The relations that are shown when an object is read alone."""
    inlines: Sequence[Any] = ()
    """The inlines whose rows are shown when an object is read alone."""
    always_shown: Collection[str] | None = None
    """The fields that every caller sees; ``None`` if the admin shows all fields to all callers."""

    def components(self) -> Iterator[Component]:
        """Yield the components of the base class, and a tool for each admin action."""
        yield from super().components()
        for name in self.get_name_list("actions"):
            yield action_tool(self, name)

    def request(self, ctx: Context) -> CallerRequest:
        """Return the request that is passed to the admin, one for each call."""
        request = self._requests.get(ctx)
        if request is None:
            request = self._requests[ctx] = admin_request(ctx, self.model_admin)
        return request

    @cached_property
    def _requests(self) -> WeakKeyDictionary[Context, CallerRequest]:
        return WeakKeyDictionary()

    @cached_property
    def checks_each_object(self) -> bool:
        """Whether the admin may allow or deny viewing for each object.

        The admin's list also shows objects that the caller may not view, but here a row also has
        values that the admin shows only on the object's page.
        """
        return type(self.model_admin).has_view_permission is not ModelAdmin.has_view_permission

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """Return the rows of the admin's list for this caller."""
        return self.model_admin.get_queryset(self.request(ctx))

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Return whether the caller has the permission in the admin."""
        request = self.request(ctx)
        if not self.model_admin.admin_site.has_permission(request):
            return False
        if action == "add":
            return bool(self.model_admin.has_add_permission(request))
        has_action_permission = getattr(self.model_admin, f"has_{action}_permission")
        return bool(has_action_permission(request, obj))

    @cached_property
    def exposed(self) -> AdminFields:
        """The validated allow-list, which may also name methods of the admin and of the model."""
        return AdminFields(self.model, self.fields, declaration=self)

    @cached_property
    def depends_on_caller(self) -> bool:  # type: ignore[override]  # an attribute of the base
        """Whether the admin may show different forms to different callers."""
        own = type(self.model_admin)
        return any(getattr(own, name) is not getattr(ModelAdmin, name) for name in FORM_HOOKS)

    def may_have_permission(self, ctx: Context, action: Action) -> bool:
        """Return whether the admin shows the list, or the button of the action, to this caller."""
        return self.has_permission(ctx, action)

    def make_form(self, ctx: Context, obj: M | None) -> Any:
        """Return the class of the form that the admin shows to this caller."""
        request = self.request(ctx)
        is_change = obj is not None
        names = flatten_fieldsets(self.model_admin.get_fieldsets(request, obj))
        # JSON cannot contain files.
        files = {field.name for field in self.model._meta.fields if isinstance(field, FileField)}
        if self.form_fields is None:
            # An assistant must not become able to do everything because of a text that it reads.
            allowed = [
                name for name in names if not is_protected(self.model, name, is_change=is_change)
            ]
        else:
            allowed = [name for name in names if name in self.form_fields]
        fields = [name for name in allowed if name not in files]
        form_class: Any = self.model_admin.get_form(request, obj, change=is_change, fields=fields)
        for field in form_class.base_fields.values():
            if isinstance(field, forms.ModelMultipleChoiceField):
                # Other widgets may expect a list of keys as one text. The form class is built for
                # this call, and Django does not share its fields.
                field.widget = forms.SelectMultiple()
                field.help_text = (
                    str(field.help_text).replace(gettext(_MULTIPLE_SELECT_HELP), "").strip()
                )
        return form_class

    def superuser_form(self, *, is_change: bool) -> Any:
        """Return the class of the form for a superuser."""
        obj = self.model() if is_change else None
        try:
            return self.make_form(superuser_context(self.server), obj)
        except Exception as exc:
            raise ImproperlyConfigured(
                f"{self}: {type(self.model_admin).__name__}.get_form() failed for a superuser "
                f"({type(exc).__name__}: {exc}). Make it work for a superuser, or remove the tools "
                "that write."
            ) from exc

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object as the admin does, and add an entry to the admin's log."""
        return self._save(ctx, form, is_change=False)

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object as the admin does, and add an entry to the admin's log."""
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

    @property
    def has_own_deletion(self) -> bool:
        """Whether the admin overrides ``delete_model``."""
        return type(self.model_admin).delete_model is not ModelAdmin.delete_model

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object as the admin does, and add an entry to the admin's log.

        Raises:
            PermissionDenied: the caller may not delete a related object that is deleted with it.
        """
        request, admin = self.request(ctx), self.model_admin
        _, _, needed, _ = admin.get_deleted_objects([obj], request)
        if needed:
            names = ", ".join(sorted(map(str, needed)))
            raise PermissionDenied(
                f"You may not delete this {self.noun}: related objects would be deleted that you "
                f"may not delete ({names})."
            )
        rows = self.model._base_manager.using(obj._state.db).filter(pk=obj.pk)
        admin.log_deletions(request, rows)
        admin.delete_model(request, obj)

    def record_history(
        self,
        ctx: Context,
        obj: M,
        key: Any,
        action: write_effects.WriteAction,
        *,
        tool: str,
        fields: Iterable[str] = (),
    ) -> None:
        """Do nothing, because the admin has already added its own log entry."""


def admin_declaration(
    server: Any, target: Any, site: AdminSite | None, options: Mapping[str, Any]
) -> tuple[type[Model], type[AdminTools[Any]]]:
    """Return the model, and a class with the options that are derived from its admin.

    ``target`` is the model or a ``ModelAdmin`` class. An option that is not ``None`` replaces the
    derived one.

    Raises:
        ImproperlyConfigured: no admin is registered; the message suggests the closest name.
    """
    if not apps.is_installed("django.contrib.admin"):
        raise ImproperlyConfigured(
            'register_admin() needs the admin of the site: add "django.contrib.admin" to '
            "INSTALLED_APPS, or register the model with register()."
        )
    if not isinstance(target, type) or not issubclass(target, Model | ModelAdmin):
        raise ImproperlyConfigured(
            f"register_admin() takes a model or a ModelAdmin, not {target!r}."
        )
    chosen = admin.site if site is None else site
    model_admin = _find_registered(target, chosen)
    if model_admin is None:
        # An ``mcp`` module may be imported before the ``admin`` module of its app. In that case all
        # ``admin`` modules are imported first, as the admin's own autodiscovery does later.
        autodiscover_modules("admin", register_to=chosen)
        model_admin = _find_registered(target, chosen)
    if model_admin is None:
        names = [model.__name__ for model in chosen._registry]
        if not issubclass(target, Model):
            names = [type(registered).__name__ for registered in chosen._registry.values()]
        close = nearest(target.__name__, names)
        hint = f"; did you mean {close}?" if close else "; register it there, or pass site=…."
        raise ImproperlyConfigured(
            f"{target.__name__} is not registered at the admin site {chosen.name!r}{hint}"
        )
    given_options = {name: value for name, value in options.items() if value is not None}
    derived = derive_options(model_admin, given_options.get("fields"), server)
    if not given_options.get("tools", AdminTools.tools):
        # Without tools for the rows, nothing is missing from them.
        derived["left_out"] = []
    bases = (AdminTools, ModelResource) if "uri" in given_options else (AdminTools,)
    members = {**derived, **given_options, "model_admin": model_admin}
    # Without the docstring of the admin's class, which is written for its developers.
    cls: type[AdminTools[Any]] = type(type(model_admin).__name__, bases, members)
    return model_admin.model, cls
