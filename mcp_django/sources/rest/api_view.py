"""``register_api_view``: the methods of a REST view as tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mcp_django.core.tool import Tool
from mcp_django.sources.rest.actions import api_view_endpoints
from mcp_django.sources.rest.naming import (
    api_view_tool_name,
    description_of,
    snake,
)
from mcp_django.sources.rest.tools import Options, rest_tool


def api_view_tools(
    view: Any,
    *,
    methods: Sequence[str] = ("get",),
    name: str = "",
    title: str = "",
    description: str = "",
    url_name: str = "",
    serializer: Any = None,
    input_schema: Mapping[str, Any] | None = None,
    read_only: bool | None = None,
    **options: Any,
) -> Iterator[Tool]:
    """One tool for each method.

    Raises:
        ImproperlyConfigured: there is no such method, or no way to call it with arguments.
    """
    endpoints = api_view_endpoints(view, methods, url_name=url_name)
    shared = Options(**options)
    for endpoint in endpoints:
        noun = name or snake(endpoint.view_class.__name__)
        yield rest_tool(
            endpoint,
            shared,
            name=api_view_tool_name(endpoint, noun, is_alone=len(endpoints) == 1),
            title=title,
            description=description or description_of(endpoint, noun),
            # Of several methods those that read get nothing but what the view declares.
            serializer=None if endpoint.is_reading and len(endpoints) > 1 else serializer,
            input_schema=None if endpoint.is_reading and len(endpoints) > 1 else input_schema,
            read_only=read_only,
        )
