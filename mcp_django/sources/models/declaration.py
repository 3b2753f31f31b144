"""``ModelComponents``: what a class says of a model, and the hooks that its author overrides.

``ModelTools`` and ``ModelResource`` build on it. There is one instance for each registration, so a
hook finds ``self.model`` and ``self.server``.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeVar

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from django.utils.text import slugify
from django.utils.translation import override

from mcp_django.core.component import Completion, Component
from mcp_django.core.context import Context
from mcp_django.sources.models.exposed import ExposedFields
from mcp_django.sources.models.guarding import ModelPermission, may, may_some
from mcp_django.sources.models.keys import Key, find_key
from mcp_django.sources.models.rows import clean

if TYPE_CHECKING:
    from mcp_django.sources.registering import Registering

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
        # They build on this module.
        from mcp_django.sources.models.resource import ModelResource
        from mcp_django.sources.models.tools import ModelTools

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
    return cls.__module__.startswith("mcp_django.sources.")


def snake_case(name: str) -> str:
    """The name of a class as a name of a tool."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
