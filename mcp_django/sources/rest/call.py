"""``RestCall``: the function behind a REST tool."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.http.response import HttpResponseBase
from rest_framework.versioning import AcceptHeaderVersioning, QueryParameterVersioning
from rest_framework.views import APIView

from mcp_django.core.component import ComponentFunction
from mcp_django.core.context import Context
from mcp_django.protocol.content import ToolResult
from mcp_django.sources.rest import answers
from mcp_django.sources.rest.body import encode
from mcp_django.sources.rest.endpoint import Endpoint
from mcp_django.sources.rest.handler import run
from mcp_django.sources.rest.inputs import RestArguments, Values
from mcp_django.sources.rest.request import ACCEPT, Ask, RestRequest, new_request
from mcp_django.sources.rest.routing import Routes
from mcp_django.sources.site.answers import read_answer
from mcp_django.sources.site.handler import release, visit


class RestCall:
    """Runs one endpoint for the caller of a tool."""

    def __init__(
        self,
        endpoint: Endpoint,
        arguments: RestArguments,
        *,
        routes: Routes,
        fixed: dict[str, Any],
        version: str = "",
        media_type: str = "",
    ) -> None:
        self.endpoint = endpoint
        self._arguments = arguments
        self._routes = routes
        self._fixed = fixed
        self._media_type = media_type
        self._query, self._meta = _versioned(endpoint.view_class, version)
        # What a message about two components of one name shows.
        self.__module__ = endpoint.view_class.__module__
        self.__name__ = self.__qualname__ = str(endpoint)

    @property
    def function(self) -> ComponentFunction:
        """What the runtime has to know to call it."""
        return ComponentFunction(function=self, is_async=False, context_parameter="ctx")

    def problem(self) -> str:
        """Why no call can succeed, for the system check; empty when all is well."""
        return self._routes.problem()

    def __call__(self, ctx: Context, values: Values) -> ToolResult:
        """What the view answers."""
        place = self._routes.place({**self._fixed, **values.url})
        request = new_request(ctx, place, self._ask(values))
        return visit(request, partial(self._answer, ctx, request, values))

    def _answer(self, ctx: Context, request: RestRequest, values: Values) -> ToolResult:
        response = run(request)
        try:
            return self._read(ctx, request, response, values)
        finally:
            release(response)

    def _ask(self, values: Values) -> Ask:
        body, content_type = b"", ""
        if values.body is not None and self._media_type:
            body, content_type = encode(values.body, self._media_type)
        return Ask(
            method=self.endpoint.method,
            query=[*self._query, *values.query],
            body=body,
            content_type=content_type,
            meta=self._meta,
        )

    def _read(
        self, ctx: Context, request: RestRequest, response: HttpResponseBase, values: Values
    ) -> ToolResult:
        if response.status_code >= 400:
            answers.refuse(request, response, self._arguments, values)
        answer = read_answer(request, response, is_over=lambda: ctx.cancelled)
        return answers.result(request, answer)


def _versioned(
    view_class: type[APIView], version: str
) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """How a request asks for a version, unless its address does: query and headers."""
    scheme = view_class.versioning_class
    if not version or scheme is None:
        return [], {}
    parameter = str(scheme.version_param)
    if issubclass(scheme, QueryParameterVersioning):
        return [(parameter, version)], {}
    if issubclass(scheme, AcceptHeaderVersioning):
        return [], {"HTTP_ACCEPT": f"application/json; {parameter}={version}, {ACCEPT}"}
    return [], {}
