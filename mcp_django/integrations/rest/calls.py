"""Call a REST framework view: its request, the site's middleware around it, and its response.

The view runs inside the site's own middleware, as for an external request, with a new request of
the caller and a body of any media type. For REST framework the request is already authenticated,
so the view's own authenticators do not run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch, set_urlconf
from django.utils.crypto import salted_hmac
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.versioning import AcceptHeaderVersioning, QueryParameterVersioning

from mcp_django.auth.credentials import CallerToken
from mcp_django.auth.principal import Principal
from mcp_django.components.component import ComponentFunction
from mcp_django.components.context import Context
from mcp_django.exceptions import ToolError
from mcp_django.integrations import site_responses
from mcp_django.integrations.rest.endpoints import RestEndpoint
from mcp_django.integrations.rest.inputs import RestArguments, RestValues, encode_body
from mcp_django.integrations.rest.routing import Routes
from mcp_django.integrations.site_requests import (
    CallerRequest,
    SiteHandler,
    SiteRequest,
    build_request,
    discard_session,
    send_isolated,
)
from mcp_django.integrations.site_responses import SiteResponse, read_response
from mcp_django.protocol.content import ToolResult
from mcp_django.schema.arguments import format_problems
from mcp_django.schema.serializers import explain_errors
from mcp_django.schema.values import jsonable
from mcp_django.tenants import by_tenant


class RestCall:
    """Runs one endpoint for the caller of a tool."""

    def __init__(
        self,
        endpoint: RestEndpoint,
        *,
        routes: Routes,
        fixed: dict[str, Any],
        version: str = "",
    ) -> None:
        self.endpoint = endpoint
        self._routes = routes
        self._fixed = fixed
        # The query parameters and headers that select an API version, if the URL does not.
        self._query: list[tuple[str, str]] = []
        self._meta: dict[str, str] = {}
        scheme = endpoint.view_class.versioning_class
        if version and scheme is not None:
            parameter = str(scheme.version_param)
            if issubclass(scheme, QueryParameterVersioning):
                self._query = [(parameter, version)]
            elif issubclass(scheme, AcceptHeaderVersioning):
                accept = f"application/json; {parameter}={version}, {ACCEPT}"
                self._meta = {"HTTP_ACCEPT": accept}
        # Shown in the error about two components with the same name.
        self.__module__ = endpoint.view_class.__module__
        self.__name__ = self.__qualname__ = str(endpoint)

    @property
    def function(self) -> ComponentFunction:
        """The function of the tool."""
        return ComponentFunction(function=self, is_async=False, context_parameter="ctx")

    def configuration_problem(self) -> str:
        """Return why no call can succeed, for the system check; empty if calls can succeed."""
        return self._routes.routing_problem()

    def __call__(self, ctx: Context, values: RestValues) -> ToolResult:
        """Return the response of the view as a tool result."""
        request = self._build_request(ctx, values)

        def read(response: HttpResponseBase) -> ToolResult:
            if response.status_code >= 400:
                assert values.source is not None
                raise_error(ctx, request, response, values.source, values)
            answer = read_response(request, response, is_over=lambda: ctx.cancelled)
            return tool_result(request, answer)

        return send_isolated(request, read, handler_class=RestHandler)

    def _build_request(self, ctx: Context, values: RestValues) -> RestRequest:
        path, match = self._routes.resolve_view({**self._fixed, **values.url})
        body, content_type = b"", ""
        assert values.source is not None
        media_type = values.source.media_type
        if values.body is not None and media_type:
            body, content_type = encode_body(values.body, media_type)
        meta = {
            "HTTP_ACCEPT": ACCEPT,
            "CONTENT_TYPE": content_type,
            "CONTENT_LENGTH": str(len(body)),
            **self._meta,
        }
        sending = SiteRequest(
            method=self.endpoint.method.upper(),
            path=path,
            query=[*self._query, *values.query],
            body=body,
            meta=meta,
        )
        request = build_request(ctx, sending, RestRequest)
        principal = ctx.principal
        scopes = "*" if principal.scopes is None else " ".join(sorted(principal.scopes))
        signed = by_tenant(f"{principal.key}\n{scopes}")
        digest = salted_hmac("mcp_django.integrations.rest", signed, algorithm="sha256").hexdigest()
        request.resolved, request.authorization_mark = match, f"MCP {digest}"
        _authenticate(request, principal)
        return request


class _FailureResponse(HttpResponse):
    """The response that middleware gets if the view raised, in place of Django's error page."""

    def __init__(self) -> None:
        super().__init__(status=500)


class RestHandler(SiteHandler):
    """Runs the site's middleware around a view that is already selected."""

    def get_response(self, request: Any) -> HttpResponseBase:
        """Return the rendered response of the request's view.

        Raises:
            Exception: any exception of the view.
        """
        response = self._middleware_chain(request)  # type: ignore[attr-defined]  # not in the stubs
        if isinstance(response, _FailureResponse):
            assert request.view_exception is not None
            raise request.view_exception
        assert isinstance(response, HttpResponseBase)
        return response

    def resolve_request(self, request: Any) -> Any:
        """Return the view, and set the match that ``reverse`` and versioning use."""
        if hasattr(request, "urlconf"):
            # The URLconf of the host, which a middleware selected.
            set_urlconf(request.urlconf)
        match = request.resolver_match = request.resolved
        request.META["HTTP_AUTHORIZATION"] = request.authorization_mark
        return match.func, (), dict(match.kwargs)

    def _get_response(self, request: Any) -> HttpResponseBase:
        try:
            response = super()._get_response(request)
        except Exception:  # noqa: BLE001 - the site's view; stored in the request, raised later
            response = _FailureResponse()
        session = getattr(request, "session", None)
        if session is not None:
            # Delete a session that the view started, because its cookie is not sent to the caller.
            discard_session(request)
            request.session = type(session)()
        return response


ACCEPT = "application/json, */*;q=0.5"


class RestRequest(CallerRequest):
    """A request whose view is known.

    ``authorization_mark`` replaces the ``Authorization`` header for the view only, not for
    middleware. It distinguishes callers if the view caches its responses and varies them by this
    header. It is not a valid credential.
    """

    resolved: ResolverMatch
    authorization_mark: str


def _authenticate(request: Any, principal: Principal) -> None:
    """Set the user for Django and for REST framework, and turn off CSRF checks."""
    request.user = user = principal.user
    request.csrf_processing_done = True
    token: Any
    if principal.is_authenticated:
        token = CallerToken(principal)
    else:
        anonymous_class: Any = api_settings.UNAUTHENTICATED_USER
        user = anonymous_class() if anonymous_class else None
        # With neither a user nor a token, the view would run its own authenticators.
        token = False if user is None else None
    # The attributes that rest_framework.test.force_authenticate() sets. They override the view's
    # authenticators, however these are declared, and leave the view class unchanged.
    request._force_auth_user = user
    request._force_auth_token = token


MAX_DETAIL = 2000


def tool_result(request: RestRequest, answer: SiteResponse) -> ToolResult:
    """Return the result of a view that succeeded.

    Raises:
        ToolError: the response is a redirect to sign in, or any redirect of a GET.
    """
    if answer.is_redirect:
        site_responses.check_status(answer, method=request.method or "")
    return site_responses.tool_result(answer, is_readable=True)


def raise_error(
    ctx: Context,
    request: RestRequest,
    response: HttpResponseBase,
    arguments: RestArguments,
    values: RestValues,
) -> NoReturn:
    """Raise the exception for a status of 400 and above, which the model can read.

    For 400 it has the serializer's errors by field, otherwise a text about a missing object, a
    denied permission or a throttled request.

    Raises:
        Http404: the object does not exist, or the caller may not see it.
        PermissionDenied: the view denied permission.
        ToolError: any other status; the message says what would work.
    """
    data: Any = None
    if isinstance(response, Response) and response is request.view_response:
        # A response that is not the view's own has no error data.
        data = response.data
    status = response.status_code
    # The message of REST framework's own exceptions; empty for other error data.
    detail = data
    if isinstance(data, Mapping) and set(data) <= {"detail", "code"}:
        detail = data.get("detail")
    detail = str(detail) if isinstance(detail, str) else ""
    if status == 404:
        raise Http404(detail or "Not found.")
    if status in {401, 403}:
        if not ctx.principal.is_authenticated:
            raise PermissionDenied(
                "You may not do this without signing in: this call is anonymous."
            )
        raise PermissionDenied(f"You may not do this. {detail}".strip())
    if status == 429:
        wait = response.headers.get("Retry-After", "")
        when = f"in {wait} seconds" if wait.isdecimal() else "later"
        raise ToolError(
            f"Too many requests: the site limits how often this can be done. Try again {when}."
        )
    if status == 400 and isinstance(data, dict | list) and not detail:
        raise ToolError(
            format_problems([*explain_errors(*arguments.errors_by_argument(data, values))])
        )
    if not detail and data is not None:
        with suppress(TypeError, ValueError):
            detail = json.dumps(jsonable(data), ensure_ascii=False)[:MAX_DETAIL]
    raise ToolError(f"The site answered {status} {response.reason_phrase}. {detail}".strip())
