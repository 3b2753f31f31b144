"""``ModelTools`` and ``ModelResource``: the classes that declare a model, and their hooks.

Both build on ``ModelComponents``. Each registration has its own instance, so hooks can use
``self.model`` and ``self.server``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.utils.text import slugify
from django.utils.translation import override

from mcp_django.components.component import Component
from mcp_django.components.context import Context
from mcp_django.components.tool import Tool
from mcp_django.integrations.models import write_effects
from mcp_django.integrations.models.changes import ModelSignalReceivers
from mcp_django.integrations.models.exposed_fields import ExposedFields, Key, find_key
from mcp_django.integrations.models.row_access import (
    Action,
    ModelPermission,
    has_default_permission,
    has_object_permission_backend,
    normalize_queryset,
)
from mcp_django.integrations.models.uris import URIVariables
from mcp_django.protocol.text import nearest

if TYPE_CHECKING:
    from mcp_django.components.registry import Registrar


M = TypeVar("M", bound=Model)
NAME = re.compile(r"[a-z][a-z0-9_]*")


class ModelComponents(Generic[M]):
    """The options and hooks shared by the tools and the resources of a model.

    ``fields`` is mandatory and names all data that may leave the site; fields of related objects
    are paths (``customer__name``). ``name`` and ``plural`` are used in the names of the components.
    ``permission`` replaces Django's permission to view the model; writing always requires Django's
    permissions, unless ``has_permission`` is overridden. ``key`` is the field that identifies one
    object in arguments.
    """

    fields: Sequence[str] = ()
    name: str = ""
    plural: str = ""
    key: str = ""
    permission: Any = None
    scopes: Sequence[str] = ()

    def __init__(self, model: type[M], server: Registrar) -> None:
        self.model = model
        self.server = server
        self.check()

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.model._meta.label}"

    def components(self) -> Iterator[Component]:
        """Yield additional components of the class, such as its actions."""
        yield from ()

    def connect(self) -> None:
        """Connect signal receivers, after everything is registered."""

    def disconnect(self) -> None:
        """Disconnect signal receivers, after everything is unregistered."""

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """Return the rows that this caller may see: the row rule.

        Override it and filter ``super().get_queryset(ctx)``. Any other row is treated everywhere as
        if it did not exist.
        """
        return self.model._default_manager.get_queryset()

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Return whether the caller may ``view``, ``add``, ``change`` or ``delete``.

        Override it to decide otherwise. It is first called without an object. It is called again
        with each object if a class overrides it, or if it returned false and an authentication
        backend of the site may have per-object permissions.
        """
        return has_default_permission(self, ctx, action, obj)

    def rows(self, ctx: Context) -> QuerySet[M]:
        """Return ``get_queryset`` as a query that can be filtered, ordered, counted and sliced."""
        return normalize_queryset(self.get_queryset(ctx), self)

    def may_have_permission(self, ctx: Context, action: Action) -> bool:
        """Return whether the caller may perform the action on the model, or possibly an object."""
        return self.has_permission(ctx, action) or (
            ctx.principal.is_authenticated and has_object_permission_backend()
        )

    def permissions_for(self, action: Action) -> tuple[Any, ...]:
        """Return the ``permission`` of a component that performs the action."""
        own = () if self.permission is None else (self.permission,)
        return (*own, ModelPermission(self, action))

    def needed_scopes(self, action: Action) -> tuple[str, ...]:
        """Return the scopes of a component that performs the action.

        These are the ``scopes`` of the class and, if the server has ``generated_scopes``,
        ``shop:read`` to view and ``shop:write`` for all other actions.
        """
        generated_scopes = self.server.generated_scopes
        if not generated_scopes:
            return self.get_name_list("scopes")
        word = self.model._meta.app_label if generated_scopes is True else generated_scopes
        scope = f"{word}:{'read' if action == 'view' else 'write'}"
        return tuple(dict.fromkeys((*self.get_name_list("scopes"), scope)))

    def access(self, action: Action) -> dict[str, Any]:
        """Return the access options of a component that performs the action."""
        return {
            "permission": self.permissions_for(action),
            "scopes": self.needed_scopes(action),
            "read_only": action == "view",
        }

    def is_overridden(self, name: str) -> bool:
        """Return whether the class overrides this option or hook."""
        bases: tuple[type[Any], ...] = (WriteHooks, ModelComponents)
        return any(
            isinstance(self, base) and getattr(type(self), name) is not getattr(base, name)
            for base in bases
            if hasattr(base, name)
        )

    @cached_property
    def exposed(self) -> ExposedFields:
        """The validated allow-list ``fields``."""
        return ExposedFields(self.model, self.fields, declaration=self)

    @cached_property
    def lookup(self) -> Key:
        """The field by which callers identify one object.

        Raises:
            ImproperlyConfigured: none of the exposed fields is unique.
        """
        return find_key(self)

    @cached_property
    def singular(self) -> str:
        """The singular name of the model in tool names: ``order_line``."""
        return self.name or snake_case(self.model.__name__)

    @cached_property
    def plurals(self) -> str:
        """The plural name of the model in tool names: ``order_lines``."""
        if self.plural:
            return self.plural
        with override(None):
            words = slugify(str(self.model._meta.verbose_name_plural)).replace("-", "_")
        return words if NAME.fullmatch(words) else f"{self.singular}s"

    @cached_property
    def noun(self) -> str:
        """The ``verbose_name`` of the model, untranslated, for descriptions and messages."""
        with override(None):
            return str(self.model._meta.verbose_name)

    @cached_property
    def nouns(self) -> str:
        """The ``verbose_name_plural`` of the model, untranslated."""
        with override(None):
            return str(self.model._meta.verbose_name_plural)

    @cached_property
    def doc(self) -> str:
        """The docstring of the class, which is appended to descriptions."""
        return inspect.cleandoc(type(self).__dict__.get("__doc__") or "")

    def check(self) -> None:
        """Validate the options of the class.

        Raises:
            ImproperlyConfigured: an option is not valid; the message says what to write.
        """
        for option in ("name", "plural"):
            value = getattr(self, option)
            if value and not NAME.fullmatch(value):
                self.refuse(
                    f"{option}={value!r} is not valid; write lowercase letters, digits and _."
                )
        # A misspelled option would otherwise be ignored silently.
        classes = type(self).__mro__
        options = {name for cls in classes if _is_package_class(cls) for name in _public(cls)}
        for name in (name for cls in classes for name in _public(cls)):
            if name in options or callable(getattr(type(self), name)):
                continue
            if name == "aliases":
                self.refuse(
                    "no option named 'aliases': the names of generated tools cannot have aliases; "
                    "keep name and plural, so that clients can go on using the tools."
                )
            if close := nearest(name, options, cutoff=0.8):
                self.refuse(f"no option named {name!r}; did you mean {close!r}?")
        self._check_bases()
        self.get_name_list("scopes")
        if self.fields == "__all__" or "__all__" in self.get_name_list("fields"):
            self.refuse(
                "fields = '__all__' would expose fields added to the model later; name each field."
            )
        _ = self.exposed

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``ImproperlyConfigured``, naming this class and its model."""
        raise ImproperlyConfigured(f"{self}: {problem}")

    def get_name_list(self, option: str) -> tuple[str, ...]:
        """Return the value of an option that is a list of names."""
        value = getattr(self, option)
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            self.refuse(f"{option} must be a list: write {option} = [{value!r}].")
        names = tuple(value)
        for name in names:
            if not isinstance(name, str):
                self.refuse(f"{option} has {name!r}; each item must be a name (a string).")
        return names

    def _check_bases(self) -> None:
        """Reject an option whose base class is missing; it would otherwise be ignored."""
        package_classes = [cls for cls in type(self).__mro__ if _is_package_class(cls)]
        names = {name for cls in package_classes for name in _public(cls)}
        written = {
            name
            for cls in type(self).__mro__
            if cls not in package_classes
            for name in _options(cls)
        }
        for base in (ModelTools, ModelResource):
            options = {
                name for cls in base.__mro__ if _is_package_class(cls) for name in _options(cls)
            }
            for name in sorted(written & options - names):
                self.refuse(
                    f"{name} is an option of {base.__name__}: add {base.__name__} to the bases of "
                    f"the class, or remove {name}."
                )


def _public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def _options(cls: type) -> list[str]:
    """Return the public attributes of a class that are not methods or properties."""
    kinds = (property, cached_property)
    return [
        name
        for name in _public(cls)
        if not (inspect.isroutine(vars(cls)[name]) or isinstance(vars(cls)[name], kinds))
    ]


def _is_package_class(cls: type) -> bool:
    return cls.__module__.startswith("mcp_django.integrations.")


def snake_case(name: str) -> str:
    """Return the name of a class in snake case, as in tool names."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class WriteHooks(ModelComponents[M]):
    """The options and hooks of ``create``, ``update`` and ``delete``.

    ``write_fields`` are the columns that callers may write, by default the editable ones of
    ``fields``. ``form`` is a model form to use instead of the generated one; ``serializer`` is a
    model serializer of Django REST framework to use instead of a form.

    ``has_permission`` is called for the model, to decide whether the tool is available, and then
    with the object. For ``add`` this happens after saving; if the object is rejected, the
    transaction is rolled back.

    The hooks run within the transaction, also in a preview: side effects that a preview must not
    have belong in ``transaction.on_commit``. With ``preview = False`` there are no previews, for
    models whose signals immediately change something outside of the database, such as a search
    index.
    """

    preview: bool = True
    write_fields: Sequence[str] | None = None
    form: type[Any] | None = None
    serializer: type[Any] | None = None
    inputs_class: type[Any] | None = None
    depends_on_caller: bool = False
    """Whether the fields to write differ between callers."""

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object from a valid form (or serializer) and return it.

        Override it to set values that callers do not send: ``form.instance.owner = ctx.user``.
        """
        saved: M = form.save()
        return saved

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object from a valid form (or serializer) and return it."""
        saved: M = form.save()
        return saved

    @property
    def has_own_deletion(self) -> bool:
        """Whether objects are deleted by something other than their ``delete()``."""
        return self.is_overridden("perform_delete")

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object; override it for models that only mark rows as deleted."""
        obj.delete()

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
        """Add an entry to the admin history of an object.

        ``key`` is the primary key, which a deleted object no longer has.
        """
        write_effects.record_history(ctx, obj, key, action, tool=tool, fields=fields)


class ModelResource(ModelComponents[M]):
    """A model as resources: one for each object, identified by the variables of ``uri``.

    The variables are names in ``fields`` that are unique together. ``list`` sets whether the
    objects are listed, ``title`` and ``last_modified`` name the fields that the list shows,
    ``blobs`` the file fields that can be read; the texts of ``prompts`` contain ``{object}``. With
    ``subscribe``, saving an object notifies its subscribers after the commit; for changes without
    signals, such as ``QuerySet.update``, call ``mcp.notify_changed(Order, rows)``.
    """

    uri: str = ""
    list: bool = True
    title: str = ""
    last_modified: str = ""
    blobs: Sequence[str] = ()
    max_blob_bytes: int = 1024 * 1024
    prompts: Mapping[str, str] = {}
    subscribe: bool = False

    def connect(self) -> None:
        """Connect the receivers of change signals, if ``subscribe`` is set."""
        super().connect()
        if self.subscribe:
            self._changes.connect()

    def disconnect(self) -> None:
        """Disconnect the receivers of change signals."""
        super().disconnect()
        self._changes.disconnect()

    def notify(self, changed: QuerySet[Any, Any] | Iterable[M]) -> None:
        """Notify the subscribers of these objects, for example after ``QuerySet.update``."""
        self._changes.notify(changed)

    @cached_property
    def variables(self) -> URIVariables:
        """The validated variables of ``uri``."""
        return URIVariables(self, self.uri)

    @cached_property
    def _changes(self) -> ModelSignalReceivers:
        return ModelSignalReceivers(self)


MAX_PAGE_SIZE = 1000


class ModelTools(WriteHooks[M]):
    """A model as tools; ``tools`` lists them.

    ``tools`` is ``list`` and ``get`` by default; ``count``, ``create``, ``update`` and ``delete``
    can be added. ``search_fields``, ``filter_fields`` and ``ordering_fields`` are paths in
    ``fields``; ``filter_fields`` may name the lookups: ``{"placed_at": ["gte", "lt"]}``.
    ``write_fields`` are the columns that ``create`` and ``update`` accept, by default the editable
    ones of ``fields``.
    """

    tools: Sequence[str] = ("list", "get")
    search_fields: Sequence[str] = ()
    filter_fields: Sequence[str] | Mapping[str, Sequence[str]] = ()
    ordering_fields: Sequence[str] = ()
    ordering: Sequence[str] = ()
    page_size: int = 50
    count: bool = True

    def __init__(self, model: type[M], server: Registrar) -> None:
        self.operations: dict[str, Tool] = {}
        """The tools by their names in ``tools``; ``register`` builds them."""
        super().__init__(model, server)

    def check(self) -> None:
        """Validate the options of the class."""
        super().check()
        if isinstance(self.page_size, bool) or not 1 <= self.page_size <= MAX_PAGE_SIZE:
            self.refuse(
                f"page_size={self.page_size!r} is not valid; write a number from 1 to "
                f"{MAX_PAGE_SIZE}."
            )
