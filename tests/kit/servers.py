"""Servers and callers that a test declares for itself."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.http import HttpResponse
from django.test import Client, RequestFactory

from mcp_django import MCPServer
from mcp_django.auth.permissions import AllowAny
from mcp_django.components.catalog import Catalog
from mcp_django.models import AccessToken
from mcp_django.test import CallResult, MCPClient
from tests.kit.drivers import headers_for
from tests.published.listening import Exchange


def open_to_all(**options: Any) -> MCPServer:
    """Return a new server that authorizes every caller."""
    return MCPServer("inline", permission=AllowAny, **options)


def real_client(**options: Any) -> MCPClient:
    """Return a client that gets the same answer for a bug as a client over the network."""
    return MCPClient(raise_exceptions=False, **options)


def call(function: Callable[..., Any], /, *, user: Any = None, **arguments: Any) -> CallResult:
    """Return the result of calling a function that is registered as the only tool of a server."""
    server = open_to_all()
    server.tool("tool")(function)
    return real_client(server=server, user=user).call_tool("tool", arguments, check=False)


def person(username: str = "ada", **details: Any) -> Any:
    """Return a new user."""
    # The model cannot be imported before the apps are ready.
    from django.contrib.auth import get_user_model

    return get_user_model().objects.create_user(username, **details)


def token_for(user: Any, *scopes: str, **details: Any) -> tuple[AccessToken, str]:
    """Return a new token of a user, with its plaintext."""
    return AccessToken.objects.issue(user, name="test", scopes=scopes, **details)


def post(
    path: str,
    body: dict[str, Any],
    *,
    token: str | None = None,
    client: Client | None = None,
    **changes: str | None,
) -> HttpResponse:
    """Send a request to the site through Django's test client."""
    if token is not None:
        changes["authorization"] = f"Bearer {token}"
    sender = client or Client()
    response: HttpResponse = sender.post(
        path,
        json.dumps(body),
        content_type="application/json",
        headers=headers_for(body, **changes),
    )
    return response


def through_view(server: MCPServer, raw: str, headers: Mapping[str, str]) -> HttpResponse:
    """Send a request to the view of a server, which needs no URL."""
    request = RequestFactory().post(
        "/",
        raw,
        content_type="application/json",
        headers=headers,
    )
    exchange = Exchange("/", headers)
    exchange.ask(raw.encode())
    response: Any = server.view(request)
    exchange.take_response(response)
    exchange.complain()
    answer: HttpResponse = response
    return answer


def changed_catalog(catalog, **changes):
    """Return a copy of a catalog, with some arguments of its constructor changed."""
    kept = {name: getattr(catalog, name) for name in inspect.signature(Catalog).parameters}
    return Catalog(**kept | changes)
