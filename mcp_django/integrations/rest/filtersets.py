"""The filters of a django-filter ``FilterSet`` as query parameters; django-filter is optional."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django_filters.fields import BaseCSVField
from django_filters.filters import AllValuesFilter, AllValuesMultipleFilter
from django_filters.widgets import SuffixedMultiWidget

from mcp_django.integrations.rest.endpoints import QueryParameter
from mcp_django.schema.django_forms import add_description, field_schema
from mcp_django.schema.structure import Schema


def filterset_parameters(backend: Any, view: Any) -> Iterator[QueryParameter]:
    """Yield one parameter for each filter, and two for a filter with a range."""
    queryset = getattr(view, "queryset", None)
    filterset_class = backend.get_filterset_class(view, queryset)
    if filterset_class is None:
        return
    filterset = filterset_class(queryset=queryset)
    prefix = f"{filterset.form_prefix}-" if filterset.form_prefix else ""
    for filter_name, query_filter in filterset.filters.items():
        name, field = prefix + filter_name, _field(query_filter)
        label = str(query_filter.label or "")
        if isinstance(field, BaseCSVField):
            schema: Schema = {"type": "array", "items": _schema(field)}
            yield _parameter(name, field, label, schema, several="comma")
        elif isinstance(field, forms.MultiValueField):
            widget: Any = field.widget
            names = (
                [widget.suffixed(name, suffix) for suffix in widget.suffixes]
                if isinstance(widget, SuffixedMultiWidget)
                else [name + suffix for suffix in widget.widgets_names]
            )
            for own, part in zip(names, field.fields, strict=True):
                yield _parameter(own, part, label, _schema(part))
        else:
            schema = _schema(field)
            several = "repeat" if schema.get("type") == "array" else ""
            yield _parameter(name, field, label, schema, several=several)


def _field(query_filter: Any) -> Any:
    """Return the form field of a filter, without querying the database for its choices."""
    if isinstance(query_filter, AllValuesFilter | AllValuesMultipleFilter):
        return forms.CharField(required=query_filter.extra["required"])
    try:
        return query_filter.field
    except (AttributeError, KeyError, TypeError):
        # The rows of a model choice may depend on the request, which does not exist yet.
        return forms.CharField(required=query_filter.extra["required"])


def _parameter(
    name: str, field: Any, label: str, schema: Schema, *, several: Any = ""
) -> QueryParameter:
    words = add_description(schema, name, label=label, help_text=field.help_text)
    return QueryParameter(name=name, schema=words, required=field.required, list_style=several)


def _schema(field: Any) -> Schema:
    choices = getattr(field, "choices", None)
    if callable(getattr(choices, "choices", None)):
        # The choices are computed for each request, perhaps from rows.
        return {"type": "string"}
    try:
        return field_schema(field)
    except ImproperlyConfigured:
        return {"type": "string"}
