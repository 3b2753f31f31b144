"""A view exposure as the registration that a developer would have written."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from mcp_django.core.component import Component
from mcp_django.managed.exposures.options import ViewOptions
from mcp_django.managed.exposures.safety import closed_form, closed_route
from mcp_django.managed.exposures.scratch import Scratch
from mcp_django.managed.exposures.spec import ExposureSpec
from mcp_django.managed.narrowing import guards_of
from mcp_django.sources.site.routes import Route, routes, routes_called
from mcp_django.sources.views.source import ViewSource

NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
METHODS = ("get", "post", "put", "patch", "delete")


def routes_to_expose() -> list[Route]:
    """The named URLs of the site whose views may be exposed, one for each name."""
    found: dict[str, Route] = {}
    for route in routes():
        if route.name and not route.trouble and not closed_route(route):
            found.setdefault(route.full_name, route)
    return [found[name] for name in sorted(found)]


def route_of(target: str) -> Route:
    """The URL that a row names.

    Raises:
        ImproperlyConfigured: the site has none, or its view may not be exposed.
    """
    route = routes_called(target)[0]
    if reason := closed_route(route):
        raise ImproperlyConfigured(reason)
    return route


def is_rest(route: Route) -> bool:
    """Whether a view is one of REST framework, which is not imported to find that out."""
    views = sys.modules.get("rest_framework.views")
    return (
        views is not None and isinstance(route.view, type) and issubclass(route.view, views.APIView)
    )


def register_view(spec: ExposureSpec, scratch: Scratch) -> None:
    """Offer what a row says of a view.

    Raises:
        AlreadyRegistered: another exposure has one of the names.
        ImproperlyConfigured: the row cannot work; the message says what to change.
    """
    options = ViewOptions.read(spec.read())
    if spec.name and not NAME.fullmatch(spec.name):
        raise ImproperlyConfigured(
            f"name is {spec.name!r}; use at most 100 of A-Z a-z 0-9 _ - and the point."
        )
    route = route_of(spec.target)
    common: dict[str, Any] = {
        "permission": list(guards_of(spec.groups, spec.permissions)) or None,
        "scopes": list(spec.scopes),
    }
    before = set(map(id, scratch))
    if is_rest(route):
        _register_rest(spec, options, route, scratch, common)
    else:
        common |= {
            "name": spec.name or None,
            "title": options.title,
            "description": options.description,
        }
        _register_page(spec, options, scratch, common)
    for one in list(scratch):
        if id(one) not in before and (problem := problem_of(one)):
            raise ImproperlyConfigured(problem)


def _register_page(
    spec: ExposureSpec, options: ViewOptions, scratch: Scratch, common: Mapping[str, Any]
) -> None:
    if options.methods != ("get",):
        raise ImproperlyConfigured("methods are for views of REST framework alone.")
    if options.becomes == "form":
        if options.uri or options.is_readable is not True:
            raise ImproperlyConfigured("A form has no URI, and its answer is always text.")
        scratch.register_form(spec.target, query=options.parameters or None, **common)
        return
    scratch.register_view(
        spec.target,
        kind=options.becomes,  # type: ignore[arg-type]  # one of BECOMES without the form
        uri=options.uri or None,
        query=options.parameters or None,
        readable=options.is_readable,
        **common,
    )


def _register_rest(
    spec: ExposureSpec,
    options: ViewOptions,
    route: Route,
    scratch: Scratch,
    common: Mapping[str, Any],
) -> None:
    if options.becomes != "tool" or options.uri or options.query:
        raise ImproperlyConfigured(
            "A view of REST framework becomes tools, whose parameters are those of the view; "
            "leave URI and parameters of the address empty."
        )
    for method in options.methods:
        if method not in METHODS:
            raise ImproperlyConfigured(
                f"methods has {method!r:.20}; there is {', '.join(METHODS)}."
            )
    actions: Mapping[str, str] | None = getattr(route.callback, "actions", None)
    if actions is None:
        # What ``as_view`` or ``@api_view`` made.
        scratch.register_api_view(
            route.callback,
            methods=options.methods,
            name=spec.name,
            title=options.title,
            description=options.description,
            url_name=route.full_name,
            **common,
        )
        return
    lacking = [method for method in options.methods if method not in actions]
    if lacking:
        raise ImproperlyConfigured(
            f"The URL {route.full_name!r} has no {lacking[0]}; it has {', '.join(actions)}."
        )
    if options.title:
        raise ImproperlyConfigured("The tools of a viewset have no title; leave it empty.")
    wanted = list(dict.fromkeys(actions[method] for method in options.methods))
    space = ":".join(instance for instance, _ in route.namespaces)
    base = getattr(route.callback, "initkwargs", {}).get("basename") or ""
    described = dict.fromkeys(wanted, options.description) if options.description else {}
    scratch.register_viewset(
        route.view,
        basename=f"{space}:{base}" if space and base else base or None,
        actions=wanted,
        name=spec.name,
        descriptions=described,
        **common,
    )


def files_of(component: Component) -> frozenset[str]:
    """What the page takes and the component does not: JSON carries no files."""
    found: frozenset[str] = getattr(getattr(component, "arguments", None), "files", frozenset())
    return found


def problem_of(component: Component) -> str:
    """Why a component of a view cannot be called, or must not be; empty when it can."""
    source: Any = getattr(component.callable, "__self__", component.callable)
    problem = getattr(source, "problem", None)
    found = str(problem()) if callable(problem) else ""
    form = source.arguments.layout.form if not found and isinstance(source, ViewSource) else None
    return found or (closed_form(form.form_class) if form is not None else "")
