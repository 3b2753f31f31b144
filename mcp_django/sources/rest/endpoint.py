"""``Endpoint``: one thing that a REST view does, and the view as it is while it does that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from rest_framework.generics import GenericAPIView
from rest_framework.views import APIView

READING = frozenset({"get", "head", "options"})
# How a view fails that looks at its request to decide, which is not known yet.
NEEDS_REQUEST = (AssertionError, AttributeError, KeyError, TypeError)
_ASKING = frozenset({"request", "user", "kwargs", "query_params", "headers", "version", "getattr"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Endpoint:
    """A method of a view class, or an action of a viewset.

    ``action`` is the viewset's, or what a generic view's method amounts to (``list``, ``create``,
    …); empty for a view that is neither. ``function`` is the view as the site made it with
    ``as_view`` or ``@api_view``, where it was registered as one. ``extra`` says that the action is
    none of the standard ones.
    """

    view_class: type[APIView]
    method: str
    action: str = ""
    detail: bool = False
    is_viewset: bool = False
    is_extra: bool = False
    basename: str = ""
    url_name: str = ""
    initkwargs: Mapping[str, Any] = field(default_factory=dict)
    function: Callable[..., Any] | None = None

    def __str__(self) -> str:
        name = self.view_class.__qualname__
        return f"{name}.{self.action if self.is_viewset else self.method}"

    @property
    def wanted_name(self) -> str:
        """The URL name by which it is looked for."""
        return f"{self.basename}-{self.url_name}" if self.is_viewset else self.url_name

    @property
    def is_reading(self) -> bool:
        """Whether the verb promises to change nothing."""
        return self.method in READING

    @cached_property
    def handler(self) -> Callable[..., Any]:
        """The site's own function, in which the answer is made."""
        return _function_view(self._method) or self._method

    @property
    def is_function(self) -> bool:
        """Whether the handler takes the request first, and no view before it."""
        return self.handler is not self._method

    @cached_property
    def _method(self) -> Callable[..., Any]:
        name = self.action if self.is_viewset else self.method
        method: Callable[..., Any] = getattr(self.view_class, name)
        return method

    def prototype(self) -> Any:
        """A view as it is during a request, without one.

        It is what REST framework's own schema generator looks at.
        """
        view: Any = self.view_class(**self.initkwargs)
        view.args, view.kwargs, view.request, view.format_kwarg = (), {}, None, None
        # The agreed sign for code that would look at its request.
        view.swagger_fake_view = True
        if self.is_viewset:
            view.action, view.action_map = self.action, {self.method: self.action}
        return view

    def serializer(self) -> Any:
        """The serializer of this action, ``None`` where the view does not say which."""
        view = self.prototype()
        if not isinstance(view, GenericAPIView):
            return None
        if self.is_extra and not self._names_serializer():
            return None
        if self.is_extra and "serializer_class" in self.initkwargs:
            # Said for this action, whatever the view's method makes of it.
            return self.initkwargs["serializer_class"]()
        with suppress(*NEEDS_REQUEST):
            return view.get_serializer()
        return None

    def parsers(self) -> list[Any]:
        """What the view parses a body with."""
        with suppress(*NEEDS_REQUEST):
            return list(self.prototype().get_parsers())
        return [kind() for kind in self._setting("parser_classes")]

    def renderers(self) -> list[Any]:
        """What the view may write an answer with; empty where that depends on the request."""
        with suppress(*NEEDS_REQUEST):
            return list(self.prototype().get_renderers())
        return []

    def _names_serializer(self) -> bool:
        """Whether an extra action reads a serializer: most take nothing but the object."""
        return "serializer_class" in self.initkwargs or self.names("is_valid")

    def names(self, what: str) -> bool:
        """Whether the handler's own code speaks of something, as ``paginate_queryset``."""
        return any(what in name for name in _names(self.handler))

    @property
    def has_fixed_serializer(self) -> bool:
        """Whether the serializer depends on nothing that only a request knows."""
        chosen = getattr(self.view_class, "get_serializer_class", None)
        if chosen is GenericAPIView.get_serializer_class:
            return True
        return not _ASKING.intersection(_names(chosen))

    def is_own(self, base: type, *methods: str) -> bool:
        """Whether all of these methods are the base class's, so that they do what it says."""
        return all(getattr(self.view_class, name, None) is getattr(base, name) for name in methods)

    @property
    def model(self) -> Any:
        """The model that the view is about, ``None`` where the class does not say."""
        queryset = self.initkwargs.get("queryset", getattr(self.view_class, "queryset", None))
        if hasattr(queryset, "model"):
            return queryset.model
        serializer = self.initkwargs.get(
            "serializer_class", getattr(self.view_class, "serializer_class", None)
        )
        return getattr(getattr(serializer, "Meta", None), "model", None)

    @property
    def lookup(self) -> tuple[str, str] | None:
        """The URL's name for the object and the field it is found by; ``None`` for lists."""
        if not self.detail:
            return None
        name = self._setting("lookup_field") or "pk"
        return str(self._setting("lookup_url_kwarg") or name), str(name)

    def _setting(self, name: str) -> Any:
        return self.initkwargs.get(name, getattr(self.view_class, name, None))


def _function_view(handler: Any) -> Callable[..., Any] | None:
    """The function under ``@api_view``, which keeps it in a closure."""
    if getattr(handler, "__module__", "") != "rest_framework.decorators":
        return None
    cells = inspect.getclosurevars(handler).nonlocals
    return cells.get("func")


def _names(function: Any) -> Iterator[str]:
    target = inspect.unwrap(function)
    pending: list[Any] = [target.__code__] if isinstance(target, FunctionType) else []
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield from code.co_names
            pending.extend(code.co_consts)
