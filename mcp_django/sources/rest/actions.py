"""Which endpoints a viewset or another REST view has."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from rest_framework import mixins
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from mcp_django.sources.rest.endpoint import Endpoint

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
