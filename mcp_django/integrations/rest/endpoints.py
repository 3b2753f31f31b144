"""Endpoints of a REST framework view: what it does, by which action or method, and the tool's name.

An ``Endpoint`` is one thing that a view does, and the view in the state that it has while it does
that.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import override
from rest_framework import mixins
from rest_framework.generics import GenericAPIView
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

READING = frozenset({"get", "head", "options"})
# How a view fails that looks at its request to decide, which is not known yet.
NEEDS_REQUEST = (AssertionError, AttributeError, KeyError, TypeError)
_ASKING = frozenset({"request", "user", "kwargs", "query_params", "headers", "version", "getattr"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Endpoint:
    """A method of a view class, or an action of a viewset.

    ``action`` is the viewset's, or what a generic view's method amounts to (``list``, ``create``,
    …); empty for a view that is neither. ``function`` is the view as the site made it with
    ``as_view`` or ``@api_view``, where it was registered as one. ``is_extra`` says that the action
    is none of the standard ones.
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


# Endpoints of viewsets and other REST views -------------------------------------------------------

# What a router binds: the verb, and whether the action is about one object.
STANDARD: Mapping[str, tuple[str, bool]] = {
    "list": ("get", False),
    "create": ("post", False),
    "retrieve": ("get", True),
    "update": ("put", True),
    "partial_update": ("patch", True),
    "destroy": ("delete", True),
}
DEFAULT = ("list", "retrieve")
METHODS = ("get", "post", "put", "patch", "delete")
OTHER_WORDS = {"get": "retrieve", "delete": "destroy", "change": "partial_update", "add": "create"}


def viewset_endpoints(
    viewset: Any, actions: Iterable[str] | None, *, basename: str
) -> list[Endpoint]:
    """The endpoints of these actions; those that list and retrieve when none are named.

    Raises:
        ImproperlyConfigured: it is no viewset, or has no such action.
    """
    if not (isinstance(viewset, type) and issubclass(viewset, ViewSetMixin)):
        raise ImproperlyConfigured(
            f"register_viewset takes a viewset class, not {viewset!r}; "
            "register_api_view takes other views."
        )
    if isinstance(actions, str):
        raise ImproperlyConfigured(f"actions is a list: write actions=[{actions!r}].")
    assert issubclass(viewset, APIView)
    known = _known(viewset, basename)
    wanted = list(dict.fromkeys(actions or (name for name in DEFAULT if name in known)))
    if not wanted:
        raise ImproperlyConfigured(
            f"{viewset.__qualname__} neither lists nor retrieves; name what it may do: "
            f"actions=[…] of {', '.join(known) or 'none'}."
        )
    found = [endpoint for name in wanted for endpoint in _named(viewset, name, known)]
    return _one_update(found, known)


def _named(viewset: type, name: str, known: Mapping[str, list[Endpoint]]) -> list[Endpoint]:
    if name in known:
        return known[name]
    other = OTHER_WORDS.get(name)
    nearest = [other] if other in known else difflib.get_close_matches(str(name), known, n=1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"it has {', '.join(known) or 'none'}."
    raise ImproperlyConfigured(f"{viewset.__qualname__} has no action {name!r}; {hint}")


def _one_update(endpoints: list[Endpoint], known: Mapping[str, list[Endpoint]]) -> list[Endpoint]:
    """``update`` and ``partial_update`` are one tool, which changes what it is given."""
    found: list[Endpoint] = []
    for endpoint in endpoints:
        one = endpoint
        if endpoint.action == "update" and not endpoint.is_extra:
            one = known.get("partial_update", [endpoint])[0]
        if one not in found:
            found.append(one)
    return found


def _known(viewset: type[APIView], basename: str) -> dict[str, list[Endpoint]]:
    known: dict[str, list[Endpoint]] = {}
    for endpoint in (*_standard(viewset, basename), *_extra(viewset, basename)):
        if endpoint.method in viewset.http_method_names:
            known.setdefault(endpoint.action, []).append(endpoint)
    return known


def _standard(viewset: type[APIView], basename: str) -> Iterator[Endpoint]:
    for action, (method, detail) in STANDARD.items():
        if callable(getattr(viewset, action, None)):
            yield Endpoint(
                view_class=viewset,
                method=method,
                action=action,
                detail=detail,
                is_viewset=True,
                basename=basename,
                url_name="detail" if detail else "list",
                initkwargs={
                    "basename": basename,
                    "detail": detail,
                    "suffix": "Instance" if detail else "List",
                },
            )


def _extra(viewset: Any, basename: str) -> Iterator[Endpoint]:
    for action in viewset.get_extra_actions():
        for method, name in action.mapping.items():
            yield Endpoint(
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


def api_view_endpoints(view: Any, methods: Iterable[str], *, url_name: str) -> list[Endpoint]:
    """The endpoints of an ``APIView`` class, or of what ``as_view`` or ``@api_view`` made.

    Raises:
        ImproperlyConfigured: it is none of them, or has no such method.
    """
    view_class: Any = getattr(view, "cls", view)
    if not (isinstance(view_class, type) and issubclass(view_class, APIView)):
        raise ImproperlyConfigured(
            f"register_api_view takes a view of REST framework, not {view!r}; "
            "register_view takes the URL name of any other."
        )
    if issubclass(view_class, ViewSetMixin):
        raise ImproperlyConfigured(
            f"{view_class.__qualname__} is a viewset; write register_viewset("
            f"{view_class.__qualname__}, …)."
        )
    if isinstance(methods, str):
        raise ImproperlyConfigured(f"methods is a list: write methods=[{methods!r}].")
    wanted = list(dict.fromkeys(str(method).lower() for method in methods))
    known = [
        method
        for method in METHODS
        if method in view_class.http_method_names and hasattr(view_class, method)
    ]
    for method in wanted:
        if method not in known:
            raise ImproperlyConfigured(
                f"{view_class.__qualname__} has no method {method!r}; it has "
                f"{', '.join(known) or 'none'}."
            )
    return [_of_method(view, view_class, method, url_name) for method in wanted]


def _of_method(view: Any, view_class: type[APIView], method: str, url_name: str) -> Endpoint:
    action, detail = _meaning(view_class, method)
    return Endpoint(
        view_class=view_class,
        method=method,
        action=action,
        detail=detail,
        url_name=url_name,
        initkwargs=getattr(view, "initkwargs", {}),
        function=None if isinstance(view, type) else view,
    )


def _meaning(view_class: type[Any], method: str) -> tuple[str, bool]:
    """What a generic view's method amounts to, and whether it is about one object."""
    for base, action in (
        (mixins.ListModelMixin, "list"),
        (mixins.CreateModelMixin, "create"),
        (mixins.RetrieveModelMixin, "retrieve"),
        (mixins.UpdateModelMixin, "update"),
        (mixins.UpdateModelMixin, "partial_update"),
        (mixins.DestroyModelMixin, "destroy"),
    ):
        verb, detail = STANDARD[action]
        if verb == method and issubclass(view_class, base):
            return action, detail
    return "", False


# Names and descriptions of tools ------------------------------------------------------------------

VERBS = {
    "list": "list",
    "retrieve": "get",
    "create": "create",
    "update": "update",
    "partial_update": "update",
    "destroy": "delete",
}
SENTENCES = {
    "list": "List {plural}.",
    "retrieve": "Get one {noun}.",
    "create": "Create one {noun}.",
    "update": "Replace one {noun}; what is left out is lost.",
    "partial_update": "Change one {noun}; what is left out stays as it is.",
    "destroy": "Delete one {noun}.",
}
SUFFIXES = ("ViewSet", "APIView", "View")


def basename_of(viewset: Any, basename: str | None) -> str:
    """The base of the URL names, as a router derives it: from the model of the queryset.

    Raises:
        ImproperlyConfigured: there is none.
    """
    if basename:
        return basename
    queryset = getattr(viewset, "queryset", None)
    if queryset is None:
        raise ImproperlyConfigured(
            f"{getattr(viewset, '__qualname__', viewset)} has no queryset to name it after; write "
            "basename='…', as you do for the router."
        )
    return str(queryset.model._meta.object_name).lower()


def snake(name: str) -> str:
    """``SalesReportView`` as ``sales_report``."""
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            name = name.removesuffix(suffix)
            break
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return slug(spaced)


def slug(text: str) -> str:
    """The text as part of a tool's name."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def plural_of(noun: str, model: Any) -> str:
    """Several of them: as the model's ``Meta`` says, or with an s."""
    if model is not None:
        with override(None):
            singular, plural = model._meta.verbose_name, model._meta.verbose_name_plural
            if slug(str(singular)) == noun:
                return slug(str(plural))
    return _several(noun)


def _several(words: str) -> str:
    return words if words.endswith("s") else f"{words}s"


def viewset_tool_name(endpoint: Endpoint, noun: str, plural: str) -> str:
    """``list_returns``, ``get_return``, ``approve_return``."""
    if endpoint.is_extra:
        return f"{slug(endpoint.action)}_{noun if endpoint.detail else plural}"
    return f"{VERBS[endpoint.action]}_{plural if endpoint.action == 'list' else noun}"


def api_view_tool_name(endpoint: Endpoint, noun: str, *, is_alone: bool) -> str:
    """The view's own name where it has one method; ``create_report`` and the like else."""
    if is_alone:
        return noun
    # A view may have both, and only one of them keeps what is left out.
    verb = "replace" if endpoint.action == "update" else VERBS.get(endpoint.action)
    return f"{verb or endpoint.method}_{noun}"


def description_of(endpoint: Endpoint, noun: str) -> str:
    """What the author wrote of the action, or of the view after what the action does."""
    own = _doc(endpoint.handler)
    if own and not _is_framework(endpoint.handler):
        return own
    view_class = endpoint.view_class
    # Not inspect.getdoc, which would quote what REST framework says of its base classes.
    about = "" if _is_framework(view_class) else _doc(view_class)
    words = noun.replace("_", " ")
    texts = [text for text in (_sentence(endpoint, words), about) if text]
    return "\n\n".join(texts) or f"{words.capitalize()}."


def _sentence(endpoint: Endpoint, words: str) -> str:
    plural = _several(words)
    if endpoint.model is not None:
        with override(None):
            words = str(endpoint.model._meta.verbose_name)
            plural = str(endpoint.model._meta.verbose_name_plural)
    return SENTENCES.get(endpoint.action, "").format(noun=words, plural=plural)


def _doc(documented: Any) -> str:
    return inspect.cleandoc(getattr(documented, "__doc__", None) or "")


def _is_framework(documented: Any) -> bool:
    return str(getattr(documented, "__module__", "")).startswith("rest_framework.")
