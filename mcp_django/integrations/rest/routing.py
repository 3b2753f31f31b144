"""The URLs of a REST view in the site's URLconf, so that the view runs at its own URL.

The URLconf is searched when a URL is first needed, because it is imported after components are
registered.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote
from uuid import UUID
from weakref import WeakKeyDictionary

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from django.http import Http404
from django.urls import NoReverseMatch, Resolver404, URLResolver, resolve
from django.urls.base import get_script_prefix
from django.urls.resolvers import ResolverMatch
from rest_framework.settings import api_settings

from mcp_django.integrations.rest.endpoints import RestEndpoint
from mcp_django.integrations.site_requests import URLRoute, all_routes, resolver_of
from mcp_django.schema.django_forms import key_schema
from mcp_django.schema.structure import Schema

logger = logging.getLogger("mcp_django")


@dataclass(frozen=True, kw_only=True, eq=False)
class Routes:
    """The patterns of one endpoint in the current URLconf.

    ``urlconf`` is the URLconf that must contain the patterns, if it is not that of the site: a call
    from a host without these URLs gets "not found".
    """

    endpoint: RestEndpoint
    namespace: str = ""
    urlconf: str | None = None
    _resolved: WeakKeyDictionary[URLResolver, list[URLRoute]] = field(
        default_factory=WeakKeyDictionary
    )

    def resolve_view(self, kwargs: Mapping[str, Any]) -> tuple[str, ResolverMatch]:
        """Return the URL of the view for these URL variables, and the match.

        Raises:
            Http404: no URL accepts the values.
            ImproperlyConfigured: no URL with the registered name leads to the view.
        """
        for route in self._routes(None):
            try:
                path = route.reverse_path(kwargs)
            except NoReverseMatch:
                continue
            try:
                match = resolve("/" + unquote(path).removeprefix(get_script_prefix()))
            except Resolver404:
                # The message of Resolver404 would list every URL of the site.
                raise Http404 from None
            if match.func is not route.callback:
                # With this key of an object, the URL belongs to another action.
                raise Http404
            return path, match
        if problem := self.routing_problem():
            raise ImproperlyConfigured(problem)
        logger.info("No URL of %s accepts %r.", self.endpoint, dict(kwargs))
        raise Http404

    def _routes(self, urlconf: str | None) -> list[URLRoute]:
        resolver = resolver_of(urlconf)
        routes = self._resolved.get(resolver)
        if routes is None:
            url_name = "" if self.endpoint.is_viewset else self.endpoint.url_name
            routes = self._resolved[resolver] = [
                route
                for route in all_routes(urlconf)
                if route.is_reversible
                and _leads_to(self.endpoint, route.callback)
                and (not self.namespace or self.namespace == route.namespace)
                and (not url_name or url_name in {route.name, route.full_name})
            ]
        return routes

    def routing_problem(self) -> str:
        """Return why the view cannot be called: it has no URL, or none with the registered name.

        Decorators that the URLconf puts around a view apply to calls, too, so a view can only be
        called at one of its URLs.
        """
        try:
            if self._routes(self.urlconf):
                return ""
        except ImproperlyConfigured as exc:
            return str(exc)
        routes = all_routes(self.urlconf)
        same = [
            route for route in routes if _leads_to(self.endpoint, route.callback, by_any_name=True)
        ]
        names = {route.full_name for route in same if route.is_reversible}
        if not names:
            lacking = "a URL with a name" if same else "a URL"
            return f"No URL leads to {self.endpoint}; add {lacking} for it to the URLconf."
        url_name = ":".join(filter(None, (self.namespace, self.endpoint.expected_url_name)))
        return (
            f"{self.endpoint} is registered for the URL name {url_name}, which does not exist; the "
            f"URLconf has {', '.join(sorted(names))}."
        )


def _leads_to(endpoint: RestEndpoint, callback: Any, *, by_any_name: bool = False) -> bool:
    """Return whether a view is the endpoint: the same action of the same class."""
    if endpoint.function is not None:
        # The URLconf may put decorators around the function.
        while callback is not endpoint.function and hasattr(callback, "__wrapped__"):
            callback = callback.__wrapped__
        return callback is endpoint.function
    if getattr(callback, "cls", None) is not endpoint.view_class:
        return False
    if not endpoint.is_viewset:
        return True
    is_same = (getattr(callback, "actions", None) or {}).get(endpoint.method) == endpoint.action
    is_named = by_any_name or callback.initkwargs.get("basename") in {None, endpoint.basename}
    return is_same and is_named


TYPE_SCHEMAS: Mapping[Any, Schema] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    UUID: {"type": "string", "format": "uuid"},
}
# Annotations are texts in modules that postpone their evaluation.
_ANNOTATIONS: Mapping[Any, type] = {"int": int, "UUID": UUID, "uuid.UUID": UUID}


def url_variables(
    endpoint: RestEndpoint, declared: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, tuple[Schema, bool]]:
    """Return the variables of the URL, each with its schema and whether it is required.

    They are determined without the URLconf, which is imported later. The lookup of a viewset, the
    parameters of the site's own handler and the options of the registration are known when the
    tool is registered.
    """
    variables = {
        name: (_declared_schema(endpoint, name, kind), True) for name, kind in declared.items()
    }
    parameters: list[inspect.Parameter] = []
    handler = endpoint.handler
    # Only the site's own handlers name the variables.
    if not str(getattr(handler, "__module__", "")).startswith("rest_framework."):
        parameters = [
            parameter
            for parameter in inspect.signature(handler).parameters.values()
            if parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
        ]
    # Without ``self`` and the request.
    for parameter in parameters[1 if endpoint.is_function else 2 :]:
        if parameter.name not in variables and parameter.name != api_settings.FORMAT_SUFFIX_KWARG:
            # A viewset's action has one route, even if its signature has defaults.
            is_required = endpoint.is_viewset or parameter.default is parameter.empty
            annotation = _ANNOTATIONS.get(parameter.annotation, parameter.annotation)
            schema = TYPE_SCHEMAS.get(annotation, {"type": "string"})
            variables[parameter.name] = (schema, is_required)
    if endpoint.lookup is not None:
        name, lookup_field = endpoint.lookup
        if name not in declared:
            variables[name] = (_lookup_schema(endpoint.model, lookup_field), True)
    return {name: variable for name, variable in variables.items() if name not in fixed}


def _declared_schema(endpoint: RestEndpoint, name: str, kind: Any) -> Schema:
    if isinstance(kind, Mapping):
        return dict(kind)
    if kind not in TYPE_SCHEMAS:
        raise ImproperlyConfigured(
            f"{endpoint}: url_kwargs[{name!r}] is {kind!r}; write int, str, UUID or a JSON Schema."
        )
    return TYPE_SCHEMAS[kind]


def _lookup_schema(model: Any, name: str) -> Schema:
    if model is None:
        return {"type": "string"}
    try:
        lookup_field = model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        return {"type": "string"}
    return key_schema(lookup_field)
