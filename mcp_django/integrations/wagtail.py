"""``PageTools``: the pages of Wagtail as tools, with its tree, drafts, permissions and log.

A page is created below a parent, as a draft. A change is a new revision; what visitors see changes
when it is published, which is a tool of its own. Each step checks the caller's page permissions
in Wagtail. Wagtail is optional, so this module is imported by the site that uses it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import DEFAULT_DB_ALIAS, router, transaction
from django.db.models import Field, Model, QuerySet
from wagtail.blocks import StreamValue
from wagtail.fields import StreamField
from wagtail.models import Page
from wagtail.permission_policies.pages import PagePermissionPolicy

from mcp_django.auth.permissions import BasePermission, parse_permissions
from mcp_django.auth.principal import Principal
from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.components.declare import (
    GeneratedArgument,
    TrustedOutput,
    build_arguments,
    build_function,
)
from mcp_django.components.tool import Tool
from mcp_django.exceptions import ToolError
from mcp_django.integrations.models.columns import suggest_name
from mcp_django.integrations.models.declaration import ModelTools
from mcp_django.integrations.models.exposed_fields import ExposedFields
from mcp_django.integrations.models.list_get import get_permitted_object
from mcp_django.integrations.models.row_access import Action
from mcp_django.integrations.models.write_forms import FormInputs, WriteForm, writable_fields

P = TypeVar("P", bound=Model)

PARENT = "parent"
EDITING = frozenset({"add", "change", "publish"})
"""The page permissions that each let a user edit some pages."""


class PageTools(ModelTools[P]):
    """The tools of one type of page.

    ``create`` has the argument ``parent``, the key of a page, and saves a draft. ``update`` saves a
    revision. ``page_actions`` names further tools: ``publish`` and ``unpublish``.

    Callers see the pages that are live and public, and those that they may edit in Wagtail's
    admin; ``get`` shows the newest draft of a page that the caller may edit. ``permission``
    replaces the permission to view.
    """

    page_actions: Sequence[str] = ()

    @cached_property
    def policy(self) -> PagePermissionPolicy:
        """Wagtail's permissions for pages."""
        return PagePermissionPolicy()

    def get_queryset(self, ctx: Context) -> QuerySet[P]:
        """Return the pages that are live and public, and those that the caller may edit."""
        pages: Any = self.model._default_manager.all()
        editable = self.policy.instances_user_has_any_permission_for(ctx.user, EDITING)
        public = pages.live().public()
        queryset: QuerySet[P] = pages.filter(pk__in=editable.values("pk")) | public
        return queryset

    def has_permission(self, ctx: Context, action: Action, obj: P | None = None) -> bool:
        """Return whether the caller may perform the action on the page, or on some pages."""
        if action == "view":
            return self.permission is None or all(
                permission.has_permission(ctx.principal)
                for permission in parse_permissions(self.permission)
            )
        if action == "add":
            # The permission to add a page below its parent is checked when the parent is known.
            return bool(self.policy.user_has_permission(ctx.user, "add"))
        if obj is None:
            return bool(self.policy.user_has_any_permission(ctx.user, EDITING))
        tester = obj.permissions_for_user(ctx.user)  # type: ignore[attr-defined]  # a page
        return bool(tester.can_delete() if action == "delete" else tester.can_edit())

    @property
    def checks_each_object(self) -> bool:
        """Always false: ``get_queryset`` already selects the pages that the caller may view."""
        return False

    @cached_property
    def exposed(self) -> PageFields:
        """The validated allow-list."""
        return PageFields(self.model, self.fields, declaration=self)

    @property
    def inputs_class(self) -> type[Any]:  # type: ignore[override]  # an attribute of the base
        """The class that validates the values of a page."""
        return PageInputs

    def perform_create(self, ctx: Context, form: Any) -> P:
        """Save a draft below its parent.

        Raises:
            PermissionDenied: the caller may not add a page below the parent.
            ToolError: the parent cannot have a page of this type.
        """
        parent = form.cleaned_data[PARENT].specific
        page = form.instance
        if not parent.permissions_for_user(ctx.user).can_add_subpage():
            raise PermissionDenied(
                f"You may not add a page below {parent.get_admin_display_title()!r}."
            )
        if not type(page).can_create_at(parent):
            raise ToolError(
                f"A {self.noun} cannot be below {parent.get_admin_display_title()!r}; send another "
                "parent."
            )
        page.live, page.has_unpublished_changes, page.owner = False, True, _user_of(ctx)
        parent.add_child(instance=page)
        _save_relations(form)
        page.save_revision(user=_user_of(ctx), log_action=True, clean=False)
        saved: P = page
        return saved

    def perform_update(self, ctx: Context, form: Any) -> P:
        """Save a revision; the live page does not change."""
        page = form.instance
        _save_relations(form)
        page.save_revision(user=_user_of(ctx), log_action=True, clean=False)
        saved: P = page
        return saved

    def perform_delete(self, ctx: Context, obj: P) -> None:
        """Delete the page and the pages below it, and log the deletion in Wagtail."""
        obj.delete(user=_user_of(ctx))  # type: ignore[call-arg]  # a page

    def components(self) -> Iterator[Component]:
        """Yield the components of the base class, and a tool for each page action."""
        yield from super().components()
        for action in self.get_name_list("page_actions"):
            if action not in _ACTIONS:
                self.refuse(f"page_actions has {action!r}; {suggest_name(action, _ACTIONS)}")
            name = f"{action}_{self.singular}"
            key = GeneratedArgument(annotation=self.lookup.annotation, required=True)
            on_default = router.db_for_write(self.model) == DEFAULT_DB_ALIAS
            words = _ACTIONS[action].format(noun=self.noun)
            yield Tool(
                name=name,
                description=f"{words} {self.doc}".strip(),
                function=build_function(partial(self._run_action, action), name=name),
                arguments=build_arguments(name, {self.lookup.name: key}),
                output=TrustedOutput(self.exposed.object_schema),
                permission=_ActionPermission(self),
                scopes=self.needed_scopes("change"),
                read_only=False,
                destructive=True,
                idempotent=True,
                atomic=True if on_default else None,
            )

    def check(self) -> None:
        """Validate the options of the class."""
        if not issubclass(self.model, Page):
            raise ImproperlyConfigured(
                f"{self}: PageTools is for pages of Wagtail; write ModelTools for "
                f"{self.model.__name__}."
            )
        super().check()

    def _run_action(self, action: str, ctx: Context, arguments: dict[str, Any]) -> dict[str, Any]:
        alias = router.db_for_write(self.model)
        with transaction.atomic(using=alias):
            rows = (
                self.rows(ctx)
                .using(alias)
                .filter(**{self.lookup.name: arguments[self.lookup.name]})
            )
            page: Any = get_permitted_object(self, ctx, rows, arguments, "change")
            permissions: Any = page.permissions_for_user(ctx.user)
            is_publication = action == "publish"
            if not (permissions.can_publish() if is_publication else permissions.can_unpublish()):
                raise PermissionDenied(f"You may not {action} this page.")
            user = _user_of(ctx)
            if is_publication:
                revision = page.latest_revision or page.specific.save_revision(user=user)
                revision.publish(user=user)
            else:
                page.unpublish(user=user)
            row = self.exposed.prepare(self.rows(ctx).using(alias).filter(pk=page.pk), ctx).first()
            if row is None:
                raise ToolError("Nothing was changed: you would lose access to this page.")
            return self.exposed.dump(row, ctx)


class _ActionPermission(BasePermission):
    """Allow callers who may edit some pages; the action itself checks the page."""

    def __init__(self, declaration: PageTools[Any]) -> None:
        self._declaration = declaration

    def __str__(self) -> str:
        return "a page permission of Wagtail"

    def has_permission(self, principal: Principal) -> bool:
        """Return whether the caller may edit some pages."""
        declaration = self._declaration
        ctx = Context(server=declaration.server, principal=principal, protocol_version="")
        return declaration.has_permission(ctx, "change")


def _user_of(ctx: Context) -> Any:
    return ctx.user if ctx.user.is_authenticated else None


_ACTIONS = {
    "publish": "Publish the newest draft of one {noun}.",
    "unpublish": "Take one {noun} from the site; it stays as a draft.",
}


class PageFields(ExposedFields):
    """The exposed fields of a page; an editor who gets a page sees its newest draft."""

    def dump(self, obj: Model, ctx: Context) -> dict[str, Any]:
        """Return a page as plain JSON."""
        page: Any = obj
        if page.has_unpublished_changes and page.permissions_for_user(ctx.user).can_edit():
            page = page.get_latest_revision_as_object()
        return super().dump(page, ctx)


class StreamFormField(forms.JSONField):
    """Reads the blocks of a ``StreamField`` as JSON, and checks them as Wagtail's editor does."""

    def __init__(self, *, block: Any, **options: Any) -> None:
        super().__init__(**options)
        self._block = block

    def to_python(self, value: Any) -> Any:
        """Return the blocks.

        Raises:
            ValidationError: the value is not a list of blocks of the field's types.
        """
        blocks = super().to_python(value)
        if blocks in self.empty_values:
            return self._block.to_python([])
        kinds = list(self._block.child_blocks)
        if not isinstance(blocks, list):
            raise forms.ValidationError('must be a list of blocks: [{"type": …, "value": …}]')
        for index, block in enumerate(blocks):
            kind = block.get("type") if isinstance(block, dict) else None
            if kind not in kinds or "value" not in block:
                raise forms.ValidationError(
                    f'[{index}] must be {{"type": …, "value": …}} with one of the types '
                    f"{', '.join(kinds)}"
                )
        return self._block.to_python(blocks)

    def clean(self, value: Any) -> Any:
        """Return the validated blocks."""
        blocks = super().clean(value)
        try:
            return self._block.clean(blocks)
        except forms.ValidationError as exc:
            raise forms.ValidationError(_block_errors(exc) or exc.messages) from exc

    def prepare_value(self, value: Any) -> Any:
        """Return the blocks as they are stored."""
        if isinstance(value, StreamValue):
            return json.dumps(value.get_prep_value())
        return super().prepare_value(value)


def _block_errors(error: Any, path: str = "") -> list[str]:
    """Return the errors of nested blocks, each with the path of its block."""
    errors: list[str] = []
    inner = getattr(error, "block_errors", None) or {}
    for step, block_error in inner.items() if isinstance(inner, dict) else enumerate(inner):
        if block_error is None:
            continue
        place = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}"
        errors += _block_errors(block_error, place) or [
            f"{place}: {' '.join(block_error.messages)}"
        ]
    own_errors = getattr(error, "non_block_errors", None)
    if own_errors:
        errors += [
            f"{path}: {message}".removeprefix(": ")
            for own_error in own_errors
            for message in own_error.messages
        ]
    return errors


class PageInputs(FormInputs):
    """Validates the values of a page; a new page also has a parent."""

    def form_class(self, declaration: Any, *, is_change: bool) -> Any:
        """Return the class of the form."""
        form = forms.modelform_factory(
            declaration.model,
            form=WriteForm,
            fields=writable_fields(declaration),
            formfield_callback=_form_field,
        )
        if is_change:
            return form
        parent = forms.ModelChoiceField(
            queryset=Page.objects.all(), help_text="The page below which it is created."
        )
        new: Any = type(form.__name__, (form,), {PARENT: parent, "__module__": __name__})
        if "slug" in new.base_fields:
            # Wagtail derives the slug from the title.
            new.base_fields["slug"].required = False
        return new

    def bind(self, ctx: Context, call: Any, instance: Any) -> Any:
        """Return the valid form of the newest draft.

        Raises:
            InvalidArguments: a value is not valid; the caller can correct it.
        """
        draft = instance
        if instance is not None and instance.has_unpublished_changes:
            draft = instance.get_latest_revision_as_object()
        return super().bind(ctx, call, draft)


def _form_field(column: Field[Any, Any], **options: Any) -> Any:
    if isinstance(column, StreamField):
        kinds = ", ".join(column.stream_block.child_blocks)
        return StreamFormField(
            block=column.stream_block,
            required=not column.blank,
            label=column.verbose_name,
            help_text=f'A list of blocks, as in [{{"type": …, "value": …}}]; types: {kinds}.',
        )
    return column.formfield(**options)


def _save_relations(form: Any) -> None:
    """Set the relations of a draft, which are stored with its revision."""
    forms.BaseModelForm._save_m2m(form)  # type: ignore[attr-defined]  # not in the stubs
