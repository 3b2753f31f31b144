"""What may be asked of a list: the parameters of filter backends and of the paginator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from rest_framework.filters import OrderingFilter, SearchFilter
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import BasePagination

from mcp_django.schema.structure import Schema
from mcp_django.sources.rest.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryParameter:
    """One parameter of the query; ``several`` says how more than one value is written."""

    name: str
    schema: Schema
    required: bool = False
    several: Literal["", "comma", "repeat"] = ""

    def pairs(self, value: Any) -> Iterator[tuple[str, str]]:
        """The value as it stands in a URL."""
        if not isinstance(value, list):
            yield self.name, _text(value)
        elif self.several == "comma":
            yield self.name, ",".join(map(_text, value))
        else:
            for item in value:
                yield self.name, _text(item)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def query_parameters(endpoint: Endpoint) -> list[QueryParameter]:
    """What the view reads of its query, as far as its backends and its paginator tell."""
    view = endpoint.prototype()
    if not isinstance(view, GenericAPIView) or not endpoint.is_reading:
        return []
    found: list[QueryParameter] = []
    if endpoint.action == "list" or endpoint.names("filter_queryset"):
        for backend in view.filter_backends:
            found.extend(_of_backend(backend(), view))
    if endpoint.action == "list" or endpoint.names("paginate_queryset"):
        found.extend(_of_paginator(view.paginator, view))
    return found


def _of_backend(backend: Any, view: Any) -> Iterator[QueryParameter]:
    if isinstance(backend, SearchFilter):
        if getattr(view, "search_fields", None):
            yield QueryParameter(
                name=str(backend.search_param),
                schema={"type": "string", "description": "Words that all have to be found."},
            )
    elif isinstance(backend, OrderingFilter):
        yield from _ordering(backend, view)
    elif _is_django_filter(backend):
        from mcp_django.sources.rest.filtersets import filterset_parameters

        yield from filterset_parameters(backend, view)
    else:
        yield from _declared(backend, view)


def _is_django_filter(backend: Any) -> bool:
    if find_spec("django_filters") is None:
        return False
    from django_filters.rest_framework import DjangoFilterBackend

    return isinstance(backend, DjangoFilterBackend)


def _ordering(backend: Any, view: Any) -> Iterator[QueryParameter]:
    fields = _ordering_fields(backend, view)
    if not fields:
        return
    values = [sign + name for name in fields for sign in ("", "-")]
    yield QueryParameter(
        name=str(backend.ordering_param),
        schema={
            "type": "array",
            "items": {"type": "string", "enum": values},
            "description": "What to sort by, the most important first; - is descending.",
        },
        several="comma",
    )


def _ordering_fields(backend: Any, view: Any) -> list[str]:
    declared = getattr(view, "ordering_fields", backend.ordering_fields)
    if isinstance(declared, list | tuple):
        return [name if isinstance(name, str) else name[0] for name in declared]
    model = getattr(getattr(view, "queryset", None), "model", None)
    if declared == "__all__":
        return [] if model is None else [field.name for field in model._meta.fields]
    try:
        # Without a declaration it is what the serializer shows.
        return [name for name, _ in backend.get_default_valid_fields(view.queryset, view)]
    except (AttributeError, TypeError, AssertionError):
        return []


def _of_paginator(paginator: Any, view: Any) -> Iterator[QueryParameter]:
    if paginator is None:
        return
    for parameter in _declared(paginator, view):
        schema = parameter.schema
        if schema.get("type") == "integer":
            schema = {**schema, "minimum": 0 if _is_offset(paginator, parameter.name) else 1}
        if _is_cursor(paginator, parameter.name):
            schema = {"type": "string", "description": _CURSOR.format(name=parameter.name)}
        yield QueryParameter(name=parameter.name, schema=schema)


_CURSOR = "Where to go on: the value of {name} in the address called next of the page before."


def _is_offset(paginator: BasePagination, name: str) -> bool:
    return name == getattr(paginator, "offset_query_param", None)


def _is_cursor(paginator: BasePagination, name: str) -> bool:
    return name == getattr(paginator, "cursor_query_param", None)


def _declared(source: Any, view: Any) -> Iterator[QueryParameter]:
    """What a backend or paginator says of itself for OpenAPI."""
    describe = getattr(source, "get_schema_operation_parameters", None)
    for one in describe(view) if describe else ():
        if isinstance(one, Mapping) and one.get("in") == "query":
            described = {"description": str(one["description"])} if one.get("description") else {}
            yield QueryParameter(
                name=str(one["name"]),
                schema={**one.get("schema", {"type": "string"}), **described},
                required=bool(one.get("required")),
            )
