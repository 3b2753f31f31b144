"""``ModelTools`` and ``ModelResource``: the classes that declare a model, and their hooks.

Both build on ``ModelComponents``. There is one instance for each registration, so a hook finds
``self.model`` and ``self.server``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.utils.text import slugify
from django.utils.translation import override

from mcp_django.core.component import Completion, Component
from mcp_django.core.context import Context
from mcp_django.core.tool import Tool
from mcp_django.integrations.models import resources, write_effects
from mcp_django.integrations.models.changes import Changes
from mcp_django.integrations.models.columns import nearest
from mcp_django.integrations.models.counting import count_tool
from mcp_django.integrations.models.exposed_fields import ExposedFields, Key, find_key
from mcp_django.integrations.models.list_get import get_tool, list_tool
from mcp_django.integrations.models.row_access import ModelPermission, clean, may, may_some
from mcp_django.integrations.models.uris import Variables
from mcp_django.integrations.models.writing import create_tool, delete_tool, update_tool

if TYPE_CHECKING:
    from mcp_django.integrations.registration import Registering


M = TypeVar("M", bound=Model)
Action = Literal["view", "add", "change", "delete"]
NAME = re.compile(r"[a-z][a-z0-9_]*")


class ModelComponents(Generic[M]):
    """The options and hooks that tools and resources of a model share.

    ``fields`` is mandatory and names everything that may leave the site, relations by their path
    (``customer__name``). ``name`` and ``plural`` are the words in the names of the components.
    ``permission`` replaces Django's permission to view the model; writing always asks Django's
    permissions, unless ``has_permission`` says otherwise. ``key`` is the field by which one object
    is named.
    """

    fields: Sequence[str] = ()
    name: str = ""
    plural: str = ""
    key: str = ""
    permission: Any = None
    scopes: Sequence[str] = ()

    def __init__(self, model: type[M], server: Registering) -> None:
        self.model = model
        self.server = server
        self.check()

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self.model._meta.label}"

    # What a subclass of ours adds ---------------------------------------------------------------

    def components(self) -> Iterator[Component]:
        """What registering this offers."""
        yield from ()

    def completions(self) -> Iterator[Completion]:
        """Completions of what ``components`` offers."""
        yield from ()

    def connect(self) -> None:
        """Begin to listen to signals, once everything was registered."""

    def disconnect(self) -> None:
        """Stop what ``connect`` began, once everything was unregistered."""

    # What the author overrides ------------------------------------------------------------------

    def get_queryset(self, ctx: Context) -> QuerySet[M]:
        """The rows that this caller may know of: the row gate.

        Override it and narrow ``super().get_queryset(ctx)``. A row outside answers everywhere like
        one that does not exist.
        """
        return self.model._default_manager.get_queryset()

    def has_permission(self, ctx: Context, action: Action, obj: M | None = None) -> bool:
        """Whether the caller may ``view``, ``add``, ``change`` or ``delete``.

        Asked without an object first. Where the answer is no, and an authentication backend of the
        site knows permissions of single objects, it is asked again with each object.
        """
        return may(self, ctx, action, obj)

    # What ours use --------------------------------------------------------------------------------

    def rows(self, ctx: Context) -> QuerySet[M]:
        """``get_queryset`` as a query that can be filtered, ordered, counted and cut."""
        return clean(self.get_queryset(ctx), self)

    def may_some(self, ctx: Context, action: Action) -> bool:
        """Whether the caller may do this to the model, or perhaps to one of its objects."""
        return may_some(self, ctx, action)

    def guards(self, action: Action) -> tuple[Any, ...]:
        """The ``permission`` of a component that does this."""
        own = () if self.permission is None else (self.permission,)
        return (*own, ModelPermission(self, action))

    def needed_scopes(self, action: Action) -> tuple[str, ...]:
        """The scopes of a component that does this: the class's, and those that the server makes.

        ``shop:read`` to view, ``shop:write`` for everything else.
        """
        made = self.server.generated_scopes
        if not made:
            return self.sequence("scopes")
        word = self.model._meta.app_label if made is True else made
        scope = f"{word}:{'read' if action == 'view' else 'write'}"
        return tuple(dict.fromkeys((*self.sequence("scopes"), scope)))

    def is_overridden(self, name: str) -> bool:
        """Whether the author of the class says something of his own under this name."""
        bases: tuple[type[Any], ...] = (WriteHooks, ModelComponents)
        return any(
            isinstance(self, base) and getattr(type(self), name) is not getattr(base, name)
            for base in bases
            if hasattr(base, name)
        )

    @cached_property
    def exposed(self) -> ExposedFields:
        """The allow-list, checked."""
        return ExposedFields(self.model, self.fields, declaration=self)

    @cached_property
    def lookup(self) -> Key:
        """The field by which a caller names one object.

        Raises:
            ImproperlyConfigured: none of the exposed fields is unique.
        """
        return find_key(self)

    @cached_property
    def singular(self) -> str:
        """The model in the names of tools: ``order_line``."""
        return self.name or snake_case(self.model.__name__)

    @cached_property
    def plurals(self) -> str:
        """Several of them in the names of tools: ``order_lines``."""
        if self.plural:
            return self.plural
        with override(None):
            words = slugify(str(self.model._meta.verbose_name_plural)).replace("-", "_")
        return words if NAME.fullmatch(words) else f"{self.singular}s"

    @cached_property
    def noun(self) -> str:
        """One of them in prose, in the language that the site was written in."""
        with override(None):
            return str(self.model._meta.verbose_name)

    @cached_property
    def nouns(self) -> str:
        """Several of them in prose."""
        with override(None):
            return str(self.model._meta.verbose_name_plural)

    @cached_property
    def doc(self) -> str:
        """What the author of the class says of it."""
        return inspect.cleandoc(type(self).__dict__.get("__doc__") or "")

    # Mistakes -------------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            ImproperlyConfigured: saying what to write.
        """
        for option in ("name", "plural"):
            value = getattr(self, option)
            if value and not NAME.fullmatch(value):
                self.refuse(f"{option}={value!r}; write lower-case letters, digits and _.")
        self._check_spelling()
        self._check_bases()
        self.sequence("scopes")
        if self.fields == "__all__" or "__all__" in self.sequence("fields"):
            self.refuse(
                "fields = '__all__' would expose what is added to the model later; name each field."
            )
        _ = self.exposed

    def refuse(self, problem: str) -> NoReturn:
        """Raise ``ImproperlyConfigured``, naming this class and its model."""
        raise ImproperlyConfigured(f"{self}: {problem}")

    def sequence(self, option: str) -> tuple[str, ...]:
        """An option that is a list of names."""
        value = getattr(self, option)
        if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
            self.refuse(f"{option} is a list: write {option} = [{value!r}].")
        names = tuple(value)
        for name in names:
            if not isinstance(name, str):
                self.refuse(f"{option} has {name!r}; each entry is a name.")
        return names

    def _check_spelling(self) -> None:
        """An option that is nearly one of ours would be ignored, and be missed too late."""
        known = {name for cls in type(self).__mro__ for name in _public(cls) if _is_ours(cls)}
        written = [name for cls in type(self).__mro__ for name in _public(cls) if not _is_ours(cls)]
        for name in written:
            if name in known or callable(getattr(type(self), name)):
                continue
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
            if nearest:
                self.refuse(f"there is no option {name!r}; did you mean {nearest[0]!r}?")

    def _check_bases(self) -> None:
        """An option of the class that is not among the bases would be ignored."""
        ours = [cls for cls in type(self).__mro__ if _is_ours(cls)]
        known = {name for cls in ours for name in _public(cls)}
        written = {name for cls in type(self).__mro__ if cls not in ours for name in _options(cls)}
        for base in (ModelTools, ModelResource):
            options = {name for cls in base.__mro__ if _is_ours(cls) for name in _options(cls)}
            for name in sorted(written & options - known):
                self.refuse(
                    f"{name} is an option of {base.__name__}: add {base.__name__} to the bases of "
                    "the class, or leave it out."
                )


def _public(cls: type) -> list[str]:
    return [name for name in vars(cls) if not name.startswith("_")]


def _options(cls: type) -> list[str]:
    """What of a class is a value and no method."""
    kinds = (property, cached_property)
    return [
        name
        for name in _public(cls)
        if not (inspect.isroutine(vars(cls)[name]) or isinstance(vars(cls)[name], kinds))
    ]


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("mcp_django.integrations.")


def snake_case(name: str) -> str:
    """The name of a class as a name of a tool."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# Options and hooks of writing ---------------------------------------------------------------------


class WriteHooks(ModelComponents[M]):
    """The options of ``create``, ``update`` and ``delete``.

    ``write_fields`` are the columns that callers may write, by default the editable ones of
    ``fields``. ``form`` is a model form to use instead of the one that is made of them;
    ``serializer`` is a model serializer of Django REST framework to use instead.

    ``has_permission`` is asked of the model, which decides whether the tool is there, and then with
    the object: of ``add`` once it is saved, and what is refused is taken back.

    The hooks run within the transaction, and in a preview, too: what must not happen then belongs
    in ``transaction.on_commit``.
    """

    write_fields: Sequence[str] | None = None
    form: type[Any] | None = None
    serializer: type[Any] | None = None
    form_reader: type[Any] | None = None

    def perform_create(self, ctx: Context, form: Any) -> M:
        """Save a new object from a valid form (or serializer) and return it.

        Set what callers do not send: ``form.instance.owner = ctx.user``.
        """
        saved: M = form.save()
        return saved

    def perform_update(self, ctx: Context, form: Any) -> M:
        """Save a changed object from a valid form (or serializer) and return it."""
        saved: M = form.save()
        return saved

    def perform_delete(self, ctx: Context, obj: M) -> None:
        """Delete an object; a model that only hides its rows does that here."""
        obj.delete()

    def record(
        self,
        ctx: Context,
        obj: M,
        key: Any,
        deed: write_effects.Deed,
        *,
        tool: str,
        fields: Iterable[str] = (),
    ) -> None:
        """Leave an entry in the history of an object, whose own key a deleted one has lost."""
        write_effects.record(ctx, obj, key, deed, tool=tool, fields=fields)


# Objects of a model as resources ------------------------------------------------------------------


class ModelResource(ModelComponents[M]):
    """A model as resources: one for each object, by the variables of ``uri``.

    The variables are unique among ``fields``. ``list`` says whether the objects are listed,
    ``title`` and ``last_modified`` name the fields that the list shows, ``blobs`` the files that
    can be read, ``prompts`` have ``{object}`` in their text. With ``subscribe`` a saved object
    notifies its subscribers, after commit; for what sends no signals, such as
    ``QuerySet.update``, call ``mcp.notify_changed(Order, rows)``.
    """

    uri: str = ""
    list: bool = True
    title: str = ""
    last_modified: str = ""
    blobs: Sequence[str] = ()
    max_blob_bytes: int = 1024 * 1024
    prompts: Mapping[str, str] = {}
    subscribe: bool = False

    def components(self) -> Iterator[Component]:
        """The templates and prompts, after what else the class offers."""
        yield from super().components()
        yield from resources.components(self)

    def completions(self) -> Iterator[Completion]:
        """The keys of visible objects, for templates and prompts."""
        yield from super().completions()
        yield from resources.completions(self)

    def connect(self) -> None:
        """Listen to what is saved and deleted."""
        super().connect()
        if self.subscribe:
            self._changes.connect()

    def disconnect(self) -> None:
        """Stop listening."""
        super().disconnect()
        self._changes.disconnect()

    def notify(self, changed: QuerySet[Any, Any] | Iterable[M]) -> None:
        """Tell the subscribers of these objects that they changed; ``QuerySet.update`` does not."""
        self._changes.notify(changed)

    @cached_property
    def variables(self) -> Variables:
        """The variables of ``uri``, checked."""
        return Variables(self, self.uri)

    @cached_property
    def _changes(self) -> Changes:
        return Changes(self)


# Tools of a model ---------------------------------------------------------------------------------

MAX_PAGE_SIZE = 1000

BUILDERS: Mapping[str, Callable[[ModelTools[Any]], Tool]] = {
    "list": list_tool,
    "get": get_tool,
    "count": count_tool,
    "create": create_tool,
    "update": update_tool,
    "delete": delete_tool,
}


class ModelTools(WriteHooks[M]):
    """A model as tools: ``list`` and ``get``, and by name ``count``, ``create``, ``update``,
    ``delete``.

    ``search_fields``, ``filter_fields`` and ``ordering_fields`` are paths within ``fields``;
    ``filter_fields`` may say which lookups: ``{"placed_at": ["gte", "lt"]}``. ``write_fields`` are
    those that ``create`` and ``update`` take, by default the editable columns of ``fields``.
    """

    tools: Sequence[str] = ("list", "get")
    search_fields: Sequence[str] = ()
    filter_fields: Sequence[str] | Mapping[str, Sequence[str]] = ()
    ordering_fields: Sequence[str] = ()
    ordering: Sequence[str] = ()
    page_size: int = 50
    count: bool = True

    def components(self) -> Iterator[Component]:
        """The tools, after what else the class offers."""
        yield from super().components()
        yield from self.operations.values()

    @cached_property
    def operations(self) -> dict[str, Tool]:
        """The tools by what they do, in the words of ``tools``."""
        found: dict[str, Tool] = {}
        for name in self.sequence("tools"):
            if name not in BUILDERS:
                self.refuse(f"tools has {name!r}; {nearest(name, BUILDERS)}")
            found[name] = BUILDERS[name](self)
        return found

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        if isinstance(self.page_size, bool) or not 1 <= self.page_size <= MAX_PAGE_SIZE:
            self.refuse(f"page_size={self.page_size!r}; a page has 1 to {MAX_PAGE_SIZE} objects.")
