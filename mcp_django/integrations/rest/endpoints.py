"""Endpoints of a REST framework view: its actions or methods, and the names of their tools.

A ``RestEndpoint`` is one action or method of a view, and can create the view in the state in which
it runs that action. A ``QueryParameter`` is a parameter of its query string.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any, Literal

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_script_prefix
from django.utils.translation import override
from rest_framework import mixins
from rest_framework.generics import GenericAPIView
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from mcp_django.integrations.models.declaration import snake_case
from mcp_django.integrations.site_requests import (
    CallerRequest,
    SiteRequest,
    build_request,
    superuser_context,
)
from mcp_django.protocol.text import did_you_mean
from mcp_django.schema.deferred import runs_own_code
from mcp_django.schema.structure import Schema

SAFE_METHODS = frozenset({"get", "head", "options"})
# The exceptions that a view raises if it uses the request, which does not exist yet.
NEEDS_REQUEST = (AssertionError, AttributeError, KeyError, TypeError)
_REQUEST_NAMES = frozenset(
    {"request", "user", "kwargs", "query_params", "headers", "version", "getattr"}
)


@dataclass(frozen=True, kw_only=True, eq=False)
class RestEndpoint:
    """A method of a view class, or an action of a viewset.

    ``action`` is that of the viewset, or the equivalent of a generic view's method (``list``,
    ``create``, …); it is empty for any other view. ``function`` is the view that the site made
    with ``as_view`` or ``@api_view``, if that was registered. ``is_extra`` means that the action
    is not one of the standard actions.
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
    def expected_url_name(self) -> str:
        """The URL name to look for in the URLconf."""
        return f"{self.basename}-{self.url_name}" if self.is_viewset else self.url_name

    @property
    def is_safe(self) -> bool:
        """Whether the HTTP method is safe, so that it must not change anything."""
        return self.method in SAFE_METHODS

    @cached_property
    def handler(self) -> Callable[..., Any]:
        """The site's own function, which creates the response."""
        method = self._method
        if getattr(method, "__module__", "") == "rest_framework.decorators":
            # ``@api_view`` stores the function in a closure.
            return inspect.getclosurevars(method).nonlocals.get("func") or method
        return method

    @property
    def is_function(self) -> bool:
        """Whether the handler takes the request as its first argument, without a view before it."""
        return self.handler is not self._method

    @cached_property
    def _method(self) -> Callable[..., Any]:
        name = self.action if self.is_viewset else self.method
        method: Callable[..., Any] = getattr(self.view_class, name)
        return method

    def prototype(self, user: Any = None) -> Any:
        """Return a view as it is during a request of a user, by default of a superuser.

        REST framework's own schema generator uses such views.
        """
        view: Any = self.view_class(**self.initkwargs)
        view.args, view.kwargs, view.request, view.format_kwarg = (), {}, None, None
        # The conventional flag that tells code not to use the request.
        view.swagger_fake_view = True
        if self.is_viewset:
            view.action, view.action_map = self.action, {self.method: self.action}
        with suppress(*NEEDS_REQUEST):
            if apps.is_installed("django.contrib.auth"):
                ctx = superuser_context(None)
                sending = SiteRequest(method=self.method.upper(), path=get_script_prefix())
                request = view.initialize_request(build_request(ctx, sending, CallerRequest))
                request.user = ctx.user if user is None else user
                view.request = request
        return view

    def serializer(self, user: Any = None) -> Any:
        """Return the serializer of this action, or ``None`` if the view does not define it.

        Raises:
            Exception: any exception of the site's code, which may need more than a request.
        """
        view = self.prototype(user)
        if not isinstance(view, GenericAPIView):
            return None
        if self.is_extra and "serializer_class" in self.initkwargs:
            # Declared for this action, so it has priority over the view's get_serializer().
            return self.initkwargs["serializer_class"](context=view.get_serializer_context())
        if self.is_extra and not self.uses_name("is_valid"):
            # Most extra actions take only the object.
            return None
        own = ("get_serializer", "get_serializer_class")
        if view.serializer_class is None and self.inherits_unchanged(GenericAPIView, *own):
            return None
        return view.get_serializer()

    def make_serializer(self, serializer_class: Any, user: Any = None) -> Any:
        """Return a serializer that was declared for the tool, with the context of the view.

        Raises:
            Exception: any exception of the site's code.
        """
        view = self.prototype(user)
        if isinstance(view, GenericAPIView):
            return serializer_class(context=view.get_serializer_context())
        return serializer_class(context={"request": view.request, "view": view})

    def runs_own_code(self, declared: Any) -> bool:
        """Return whether a serializer of the site runs its own code when it is created."""
        serializer_class = declared or self._setting("serializer_class")
        return isinstance(serializer_class, type) and _runs_own_code(serializer_class)

    def depends_on_caller(self, declared: Any) -> bool:
        """Return whether the serializer may differ between callers."""
        if self.runs_own_code(declared):
            return True
        if declared is not None or not issubclass(self.view_class, GenericAPIView):
            return False
        own = ("get_serializer", "get_serializer_context")
        return not (self.has_fixed_serializer and self.inherits_unchanged(GenericAPIView, *own))

    def parsers(self) -> list[Any]:
        """Return the parsers of the view."""
        with suppress(*NEEDS_REQUEST):
            return list(self.prototype().get_parsers())
        return [kind() for kind in self._setting("parser_classes")]

    def renderers(self) -> list[Any]:
        """Return the renderers of the view; empty if they depend on the request."""
        with suppress(*NEEDS_REQUEST):
            return list(self.prototype().get_renderers())
        return []

    def uses_name(self, what: str) -> bool:
        """Return whether the handler's own code uses a name, such as ``paginate_queryset``."""
        return any(what in name for name in _names_in_code(self.handler))

    @property
    def has_fixed_serializer(self) -> bool:
        """Whether the serializer does not depend on the request."""
        chosen = getattr(self.view_class, "get_serializer_class", None)
        if chosen is GenericAPIView.get_serializer_class:
            return True
        return not _REQUEST_NAMES.intersection(_names_in_code(chosen))

    def inherits_unchanged(self, base: type, *methods: str) -> bool:
        """Return whether the view inherits all of these methods from the base class unchanged."""
        return all(getattr(self.view_class, name, None) is getattr(base, name) for name in methods)

    @property
    def model(self) -> Any:
        """The model of the view, or ``None`` if the class does not define it."""
        queryset = self._setting("queryset")
        if hasattr(queryset, "model"):
            return queryset.model
        meta = getattr(self._setting("serializer_class"), "Meta", None)
        return getattr(meta, "model", None)

    @property
    def lookup(self) -> tuple[str, str] | None:
        """The URL variable and the lookup field of the object; ``None`` for lists."""
        if not self.detail:
            return None
        name = self._setting("lookup_field") or "pk"
        return str(self._setting("lookup_url_kwarg") or name), str(name)

    def _setting(self, name: str) -> Any:
        return self.initkwargs.get(name, getattr(self.view_class, name, None))


def _runs_own_code(serializer_class: type[Any]) -> bool:
    if runs_own_code(serializer_class, "__init__", "get_fields"):
        return True
    fields = getattr(serializer_class, "_declared_fields", {}).values()
    nested = [getattr(field, "child", field) for field in fields]
    return any(_runs_own_code(type(field)) for field in nested if isinstance(field, BaseSerializer))


def _names_in_code(function: Any) -> Iterator[str]:
    target = inspect.unwrap(function)
    pending: list[Any] = [target.__code__] if isinstance(target, FunctionType) else []
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            yield from code.co_names
            pending.extend(code.co_consts)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One parameter of the query string; ``list_style`` is the format of several values."""

    name: str
    schema: Schema
    required: bool = False
    list_style: Literal["", "comma", "repeat"] = ""

    def pairs(self, value: Any) -> Iterator[tuple[str, str]]:
        """Yield the parameters for the value, as they are written in a URL."""
        if not isinstance(value, list):
            yield self.name, _query_text(value)
        elif self.list_style == "comma":
            yield self.name, ",".join(map(_query_text, value))
        else:
            for element in value:
                yield self.name, _query_text(element)


def _query_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class StandardAction:
    """An action that a router binds, with the verb and the description of its tool."""

    method: str
    detail: bool
    """Whether the action is for one object."""
    verb: str
    mixin: type
    """The class that defines the action, for viewsets and generic views."""
    description: str


STANDARD_ACTIONS: Mapping[str, StandardAction] = {
    name: StandardAction(*columns)
    for name, columns in {
        "list": ("get", False, "list", mixins.ListModelMixin, "List {plural}."),
        "create": ("post", False, "create", mixins.CreateModelMixin, "Create one {noun}."),
        "retrieve": ("get", True, "get", mixins.RetrieveModelMixin, "Get one {noun}."),
        "update": (
            *("put", True, "update", mixins.UpdateModelMixin),
            "Replace one {noun}; values that are left out are lost.",
        ),
        "partial_update": (
            *("patch", True, "update", mixins.UpdateModelMixin),
            "Change one {noun}; values that are left out stay as they are.",
        ),
        "destroy": ("delete", True, "delete", mixins.DestroyModelMixin, "Delete one {noun}."),
    }.items()
}
DEFAULT = ("list", "retrieve")
METHODS = ("get", "post", "put", "patch", "delete")
ACTION_SYNONYMS = {
    "get": "retrieve",
    "delete": "destroy",
    "change": "partial_update",
    "add": "create",
}


def viewset_endpoints(
    viewset: Any, actions: Iterable[str] | None, *, basename: str
) -> list[RestEndpoint]:
    """Return the endpoints of these actions, by default of ``list`` and ``retrieve``.

    Raises:
        ImproperlyConfigured: ``viewset`` is not a viewset, or has no such action.
    """
    if not (isinstance(viewset, type) and issubclass(viewset, ViewSetMixin)):
        raise ImproperlyConfigured(
            f"register_viewset takes a viewset class, not {viewset!r}; "
            "register_api_view takes other views."
        )
    if isinstance(actions, str):
        raise ImproperlyConfigured(f"actions is a list: write actions=[{actions!r}].")
    assert issubclass(viewset, APIView)
    endpoints_by_action = _all_endpoints(viewset, basename)
    names = list(
        dict.fromkeys(actions or (name for name in DEFAULT if name in endpoints_by_action))
    )
    if not names:
        raise ImproperlyConfigured(
            f"{viewset.__qualname__} has neither a list nor a retrieve action; pass actions=[…] "
            f"with some of its actions: {', '.join(endpoints_by_action) or 'none'}."
        )
    endpoints: list[RestEndpoint] = []
    for name in names:
        if name not in endpoints_by_action:
            other = ACTION_SYNONYMS.get(name)
            close = other if other in endpoints_by_action else name
            hint = did_you_mean(
                close, endpoints_by_action, f"it has {', '.join(endpoints_by_action) or 'none'}."
            )
            raise ImproperlyConfigured(f"{viewset.__qualname__} has no action {name!r}; {hint}")
        for endpoint in endpoints_by_action[name]:
            merged_endpoint = endpoint
            if name == "update" and not endpoint.is_extra:
                # Both update actions become one tool, which changes only given fields.
                merged_endpoint = endpoints_by_action.get("partial_update", [endpoint])[0]
            if merged_endpoint not in endpoints:
                endpoints.append(merged_endpoint)
    return endpoints


def _all_endpoints(viewset: Any, basename: str) -> dict[str, list[RestEndpoint]]:
    """Return the endpoints of the standard actions and of the extra actions, by action."""
    standard_endpoints = [
        RestEndpoint(
            view_class=viewset,
            method=standard.method,
            action=action,
            detail=standard.detail,
            is_viewset=True,
            basename=basename,
            url_name="detail" if standard.detail else "list",
            initkwargs={
                "basename": basename,
                "detail": standard.detail,
                "suffix": "Instance" if standard.detail else "List",
            },
        )
        for action, standard in STANDARD_ACTIONS.items()
        if callable(getattr(viewset, action, None))
    ]
    extra_endpoints = [
        RestEndpoint(
            view_class=viewset,
            method=method,
            action=name,
            detail=action.detail,
            is_viewset=True,
            is_extra=True,
            basename=basename,
            url_name=action.url_name,
            initkwargs={"basename": basename, "detail": action.detail, **action.kwargs},
        )
        for action in viewset.get_extra_actions()
        for method, name in action.mapping.items()
    ]
    endpoints_by_action: dict[str, list[RestEndpoint]] = {}
    for endpoint in (*standard_endpoints, *extra_endpoints):
        if endpoint.method in viewset.http_method_names:
            endpoints_by_action.setdefault(endpoint.action, []).append(endpoint)
    return endpoints_by_action


def api_view_endpoints(view: Any, methods: Iterable[str], *, url_name: str) -> list[RestEndpoint]:
    """Return the endpoints of an ``APIView`` class, or of a view from ``as_view`` or ``@api_view``.

    Raises:
        ImproperlyConfigured: ``view`` is not such a view, or has no such method.
    """
    view_class: Any = getattr(view, "cls", view)
    if not (isinstance(view_class, type) and issubclass(view_class, APIView)):
        raise ImproperlyConfigured(
            f"register_api_view takes a view of REST framework, not {view!r}; "
            "register_view takes the URL name of any other view."
        )
    if issubclass(view_class, ViewSetMixin):
        raise ImproperlyConfigured(
            f"{view_class.__qualname__} is a viewset; write register_viewset("
            f"{view_class.__qualname__}, …)."
        )
    if isinstance(methods, str):
        raise ImproperlyConfigured(f"methods is a list: write methods=[{methods!r}].")
    method_names = list(dict.fromkeys(str(method).lower() for method in methods))
    supported_methods = [
        method
        for method in METHODS
        if method in view_class.http_method_names and hasattr(view_class, method)
    ]
    for method in method_names:
        if method not in supported_methods:
            raise ImproperlyConfigured(
                f"{view_class.__qualname__} has no method {method!r}; it has "
                f"{', '.join(supported_methods) or 'none'}."
            )
    return [_method_endpoint(view, view_class, method, url_name) for method in method_names]


def _method_endpoint(
    view: Any, view_class: type[APIView], method: str, url_name: str
) -> RestEndpoint:
    # The action that a generic view's method performs, and whether it is for one object.
    action, detail = next(
        (
            (name, standard.detail)
            for name, standard in STANDARD_ACTIONS.items()
            if standard.method == method and issubclass(view_class, standard.mixin)
        ),
        ("", False),
    )
    return RestEndpoint(
        view_class=view_class,
        method=method,
        action=action,
        detail=detail,
        url_name=url_name,
        initkwargs=getattr(view, "initkwargs", {}),
        function=None if isinstance(view, type) else view,
    )


# Names and descriptions of tools ------------------------------------------------------------------

SUFFIXES = ("ViewSet", "APIView", "View")


def basename_of(viewset: Any, basename: str | None) -> str:
    """Return the base of the URL names, as a router derives it from the model of the queryset.

    Raises:
        ImproperlyConfigured: the viewset has no queryset.
    """
    if basename:
        return basename
    queryset = getattr(viewset, "queryset", None)
    if queryset is None:
        raise ImproperlyConfigured(
            f"{getattr(viewset, '__qualname__', viewset)} has no queryset that names it; pass "
            "basename='…', as for the router."
        )
    return str(queryset.model._meta.object_name).lower()


def snake(name: str) -> str:
    """Return the name of a view class in snake case: ``sales_report`` for ``SalesReportView``."""
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix) and name != suffix), "")
    name = name.removesuffix(suffix)
    return slug(snake_case(name))


def slug(text: str) -> str:
    """Return the text as part of a tool's name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def plural_of(noun: str, model: Any) -> str:
    """Return the plural of a noun: that of the model's ``Meta``, or the noun with an s."""
    if model is not None:
        with override(None):
            singular, plural = model._meta.verbose_name, model._meta.verbose_name_plural
            if slug(str(singular)) == noun:
                return slug(str(plural))
    return _add_plural_s(noun)


def _add_plural_s(words: str) -> str:
    return words if words.endswith("s") else f"{words}s"


def viewset_tool_name(endpoint: RestEndpoint, noun: str, plural: str) -> str:
    """Return the name of a tool, such as ``list_returns``, ``get_return``, ``approve_return``."""
    if endpoint.is_extra:
        return f"{slug(endpoint.action)}_{noun if endpoint.detail else plural}"
    verb = STANDARD_ACTIONS[endpoint.action].verb
    return f"{verb}_{plural if endpoint.action == 'list' else noun}"


def api_view_tool_name(endpoint: RestEndpoint, noun: str, *, is_alone: bool) -> str:
    """Return the view's own name if it has one method, else a name like ``create_report``."""
    if is_alone:
        return noun
    standard = STANDARD_ACTIONS.get(endpoint.action)
    verb = endpoint.method if standard is None else standard.verb
    # A view may have PUT and PATCH, and only PATCH keeps values that are left out.
    return f"{'replace' if endpoint.action == 'update' else verb}_{noun}"


def description_of(endpoint: RestEndpoint, noun: str) -> str:
    """Return the docstring of the action, or a sentence about it and the docstring of the view."""
    own = _doc(endpoint.handler)
    if own and not _is_framework(endpoint.handler):
        return own
    view_class = endpoint.view_class
    # Not inspect.getdoc(), which would return the docstrings of REST framework's base classes.
    about = "" if _is_framework(view_class) else _doc(view_class)
    words = noun.replace("_", " ")
    singular, plural = words, _add_plural_s(words)
    if endpoint.model is not None:
        with override(None):
            singular = str(endpoint.model._meta.verbose_name)
            plural = str(endpoint.model._meta.verbose_name_plural)
    standard = STANDARD_ACTIONS.get(endpoint.action)
    sentence = "" if standard is None else standard.description.format(noun=singular, plural=plural)
    return "\n\n".join(filter(None, (sentence, about))) or f"{words.capitalize()}."


def _doc(documented: Any) -> str:
    return inspect.cleandoc(getattr(documented, "__doc__", None) or "")


def _is_framework(documented: Any) -> bool:
    return str(getattr(documented, "__module__", "")).startswith("rest_framework.")
