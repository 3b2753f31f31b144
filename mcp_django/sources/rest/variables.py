"""The variables of an endpoint's URL: names and kinds, without a look at the URLconf.

That is imported later. The lookup of a viewset, the parameters of the site's own handler and what
the registration says are known by then.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

from django.core.exceptions import FieldDoesNotExist, ImproperlyConfigured
from rest_framework.settings import api_settings

from mcp_django.schema.django_forms import key_schema
from mcp_django.schema.structure import Schema
from mcp_django.sources.rest.endpoint import Endpoint

KINDS: Mapping[Any, Schema] = {
    int: {"type": "integer"},
    str: {"type": "string"},
    UUID: {"type": "string", "format": "uuid"},
}


def url_variables(
    endpoint: Endpoint, declared: Mapping[str, Any], fixed: Mapping[str, Any]
) -> dict[str, tuple[Schema, bool]]:
    """The variables of the URL, each with its schema and whether it is required."""
    found = {name: (_kind(endpoint, name, kind), True) for name, kind in declared.items()}
    for parameter in _parameters(endpoint):
        if parameter.name not in found:
            # A viewset's action has one route, whatever defaults its signature gives.
            is_required = endpoint.is_viewset or parameter.default is parameter.empty
            found[parameter.name] = (_schema_of(parameter), is_required)
    if endpoint.lookup is not None:
        name, lookup_field = endpoint.lookup
        if name not in declared:
            found[name] = (_lookup_schema(endpoint.model, lookup_field), True)
    return {name: one for name, one in found.items() if name not in fixed}


def _kind(endpoint: Endpoint, name: str, kind: Any) -> Schema:
    if isinstance(kind, Mapping):
        return dict(kind)
    if kind not in KINDS:
        raise ImproperlyConfigured(
            f"{endpoint}: url_kwargs[{name!r}] is {kind!r}; write int, str, UUID or a JSON Schema."
        )
    return KINDS[kind]


def _parameters(endpoint: Endpoint) -> Iterator[inspect.Parameter]:
    """What the site's own handler takes besides the request."""
    handler = endpoint.handler
    if str(getattr(handler, "__module__", "")).startswith("rest_framework."):
        return
    parameters = list(inspect.signature(handler).parameters.values())
    named = [one for one in parameters if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}]
    for one in named[1 if endpoint.is_function else 2 :]:
        if one.name != api_settings.FORMAT_SUFFIX_KWARG:
            yield one


def _schema_of(parameter: inspect.Parameter) -> Schema:
    by_name = {"int": int, "UUID": UUID, "uuid.UUID": UUID}
    annotation = by_name.get(parameter.annotation, parameter.annotation)
    return KINDS.get(annotation, {"type": "string"})


def _lookup_schema(model: Any, name: str) -> Schema:
    if model is None:
        return {"type": "string"}
    try:
        one = model._meta.pk if name == "pk" else model._meta.get_field(name)
    except FieldDoesNotExist:
        return {"type": "string"}
    return key_schema(one)
