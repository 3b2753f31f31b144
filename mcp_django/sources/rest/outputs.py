"""The schema of what a REST view answers, where it is certain; otherwise there is none.

A client refuses a result that does not fit its schema, so nothing is guessed: a method that is the
site's own, a serializer that writes in its own way, a renderer that renames, an envelope of a
paginator's own making leave the result without a schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django.core.exceptions import FieldDoesNotExist
from django.db.models import CharField
from rest_framework import fields, mixins, relations, serializers
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import (
    CursorPagination,
    LimitOffsetPagination,
    PageNumberPagination,
)
from rest_framework.renderers import JSONRenderer
from rest_framework.views import APIView

from mcp_django.schema.django_forms import key_schema
from mcp_django.schema.portable import portable_output
from mcp_django.schema.structure import Schema, map_children
from mcp_django.sources.rest.endpoint import Endpoint

MIXINS: Mapping[str, type] = {
    "list": mixins.ListModelMixin,
    "retrieve": mixins.RetrieveModelMixin,
    "create": mixins.CreateModelMixin,
    "update": mixins.UpdateModelMixin,
    "partial_update": mixins.UpdateModelMixin,
}
# What every one of them goes through on its way out.
COMMON = ("get_serializer", "paginate_queryset", "get_paginated_response")
PAGINATORS = (PageNumberPagination, LimitOffsetPagination, CursorPagination)


def output_schema(endpoint: Endpoint) -> Schema | None:
    """The schema of an endpoint's answers, ``None`` where it is not certain."""
    if not _is_plain(endpoint):
        return None
    serializer = endpoint.serializer()
    if not isinstance(serializer, serializers.Serializer):
        return None
    item = _serializer(serializer)
    if not item:
        return None
    if endpoint.action != "list":
        return portable_output(item)
    several = _envelope(endpoint, {"type": "array", "items": item})
    return None if several is None else portable_output(several)


def _is_plain(endpoint: Endpoint) -> bool:
    base = MIXINS.get(endpoint.action)
    if base is None or endpoint.is_extra or not issubclass(endpoint.view_class, GenericAPIView):
        return False
    own = (endpoint.action, *(("update",) if endpoint.action == "partial_update" else ()))
    renderers = endpoint.renderers()
    return (
        endpoint.is_own(base, *own)
        and endpoint.is_own(GenericAPIView, *COMMON)
        and endpoint.is_own(APIView, "finalize_response")
        and endpoint.has_fixed_serializer
        and any(type(one) is JSONRenderer for one in renderers)
        and not any(
            isinstance(one, JSONRenderer) and type(one) is not JSONRenderer for one in renderers
        )
    )


def _envelope(endpoint: Endpoint, several: Schema) -> Schema | None:
    paginator: Any = endpoint.prototype().paginator
    if paginator is None:
        return several
    for kind in PAGINATORS:
        if isinstance(paginator, kind):
            is_own = all(
                getattr(type(paginator), name) is getattr(kind, name)
                for name in ("get_paginated_response", "paginate_queryset")
            )
            # Without a size of its own it may leave the list as it is.
            size = getattr(paginator, "default_limit", None) or getattr(
                paginator, "page_size", None
            )
            if not is_own or not size:
                return None
            described = paginator.get_paginated_response_schema(several)
            wrapped: Schema = _without_examples(described)
            return wrapped
    return None


def _without_examples(schema: Any) -> Any:
    """JSON Schema of what was OpenAPI."""
    if not isinstance(schema, dict):
        return schema
    kept = {name: rule for name, rule in schema.items() if name not in {"example", "nullable"}}
    kept = map_children(kept, _without_examples)
    return {"anyOf": [kept, {"type": "null"}]} if schema.get("nullable") else kept


def _serializer(serializer: Any) -> Schema:
    """What a serializer writes; empty where it writes in its own way."""
    kind = type(serializer)
    if kind.to_representation is not serializers.Serializer.to_representation:
        return {}
    if kind.data is not serializers.Serializer.data:
        return {}
    shown = {name: _nullable(one) for name, one in serializer.fields.items() if not one.write_only}
    return {"type": "object", "properties": shown}


def _nullable(field: Any) -> Schema:
    schema = _schema(field)
    if not schema or _is_never_null(field):
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _is_never_null(field: Any) -> bool:
    """Whether it stands for a column that holds a value in every row."""
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    if model is None or field.allow_null:
        return False
    try:
        column = model._meta.get_field(field.source)
    except FieldDoesNotExist:
        return False
    is_many = bool(column.many_to_many or column.one_to_many)
    return is_many or not getattr(column, "null", True)


def _schema(field: Any) -> Schema:
    if isinstance(field, serializers.Serializer):
        return _serializer(field)
    kind: Any
    for kind in type(field).__mro__:
        if kind in _SCHEMAS:
            # A field of the site's own may write anything.
            is_own = type(field).to_representation is kind.to_representation
            return _SCHEMAS[kind](field) if is_own else {}
    return {}


def _plain(**schema: Any) -> Callable[[Any], Schema]:
    return lambda field: dict(schema)


def _decimal(field: Any) -> Schema:
    as_text = getattr(field, "coerce_to_string", True) or field.localize
    return {"type": "string" if as_text else "number"}


def _big(field: Any) -> Schema:
    return {"type": "string" if getattr(field, "coerce_to_string", False) else "integer"}


def _choice(field: Any) -> Schema:
    # A row may hold what is no choice any more.
    return {"type": "string"} if all(isinstance(one, str) for one in field.choices) else {}


def _slug(field: Any) -> Schema:
    model = None if field.queryset is None else field.queryset.model
    try:
        column = None if model is None else model._meta.get_field(field.slug_field)
    except FieldDoesNotExist:
        return {}
    return {"type": "string"} if isinstance(column, CharField) else {}


def _key(field: Any) -> Schema:
    if field.pk_field is not None:
        return {}
    model = getattr(getattr(field.parent, "Meta", None), "model", None)
    source = field.source
    if isinstance(field.parent, relations.ManyRelatedField):
        model = getattr(getattr(field.parent.parent, "Meta", None), "model", None)
        source = field.parent.source
    if field.queryset is not None:
        return key_schema(field.queryset.model._meta.pk)
    try:
        related = model._meta.get_field(source).related_model if model is not None else None
    except FieldDoesNotExist:
        related = None
    return {} if related is None else key_schema(related._meta.pk)


def _list_of(child: Any) -> Schema:
    item = _schema(child)
    # An entry may be missing.
    return {"type": "array", "items": {"anyOf": [item, {"type": "null"}]} if item else {}}


_SCHEMAS: Mapping[type, Callable[[Any], Schema]] = {
    serializers.ListSerializer: lambda field: {"type": "array", "items": _schema(field.child)},
    fields.BooleanField: _plain(type="boolean"),
    fields.CharField: _plain(type="string"),
    fields.UUIDField: lambda field: {} if field.uuid_format == "int" else {"type": "string"},
    fields.IntegerField: _plain(type="integer"),
    # Not in every release.
    getattr(fields, "BigIntegerField", fields.IntegerField): _big,
    fields.FloatField: _plain(type="number"),
    fields.DecimalField: _decimal,
    fields.DateTimeField: _plain(type="string"),
    fields.DateField: _plain(type="string"),
    fields.TimeField: _plain(type="string"),
    fields.DurationField: _plain(type="string"),
    fields.ListField: lambda field: _list_of(field.child),
    fields.DictField: _plain(type="object"),
    fields.ChoiceField: _choice,
    # Its address; a column without a file is empty and not null.
    fields.FileField: _plain(anyOf=[{"type": "string"}, {"type": "null"}]),
    relations.StringRelatedField: _plain(type="string"),
    relations.PrimaryKeyRelatedField: _key,
    relations.SlugRelatedField: _slug,
    relations.HyperlinkedRelatedField: _plain(type="string"),
    relations.ManyRelatedField: lambda field: {
        "type": "array",
        "items": _schema(field.child_relation),
    },
}
