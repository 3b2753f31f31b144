"""The MCP request as a component sees it."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest
from django.test import RequestFactory

from mcp_django.auth.credentials import without_credentials
from mcp_django.auth.principal import Principal, principal_for
from mcp_django.execution.call import Call, Channel
from mcp_django.protocol.envelope import Envelope
from mcp_django.protocol.jsonrpc import Request
from mcp_django.protocol.revisions import LATEST
from mcp_django.transports.asgi_handler import exchange_of
from tests.sites.example.mcp import open_server
from tests.spec import spec

ADA = principal_for(User(pk=1, username="ada"))
HEADERS = {
    "authorization": "Bearer secret-token",
    "proxy-authorization": "Basic secret-proxy",
    "cookie": "sessionid=secret-cookie",
    "accept-language": "nl",
}


def wsgi() -> HttpRequest:
    return RequestFactory().post("/mcp?a=b", b"body", content_type="text/plain", headers=HEADERS)


def asgi() -> HttpRequest:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "query_string": b"a=b",
        "headers": [(b"host", b"testserver")]
        + [(name.title().encode(), value.encode()) for name, value in HEADERS.items()],
        "cookies": {"sessionid": "secret-cookie"},
        "session": "secret-session",
        "user": "secret-user",
    }
    return ASGIRequest(scope, BytesIO(b"body"))


@spec("AUT-10")
@pytest.mark.parametrize("build", [wsgi, asgi])
@pytest.mark.parametrize("is_read_before", [True, False])
def test_the_twin_has_everything_but_credentials(build, is_read_before):
    request = build()
    if is_read_before:
        assert (request.headers["Authorization"], len(request.COOKIES)) == (
            HEADERS["authorization"],
            1,
        )
    request.user = "somebody else"
    request.set_by_middleware = "kept"
    twin: Any = without_credentials(request, ADA)
    assert "secret" not in repr(vars(twin))
    assert "secret" not in repr(dict(twin.headers))
    assert twin.COOKIES == {}
    assert (twin.headers["Accept-Language"], twin.GET["a"], twin.body) == ("nl", "b", b"body")
    assert (twin.path, twin.method, twin.get_host()) == ("/mcp", "POST", "testserver")
    assert (twin.user, twin.set_by_middleware) == (ADA.user, "kept")
    # Middleware still has the unchanged request.
    assert request.headers["Authorization"] == HEADERS["authorization"]
    assert request.COOKIES["sessionid"] == "secret-cookie"
    assert request.user == "somebody else"


async def test_the_twin_knows_its_user_in_async_code_too():
    twin: Any = without_credentials(wsgi(), ADA)
    assert await twin.auser() is ADA.user


def test_the_twin_is_made_once_and_only_when_asked_for():
    built: list[HttpRequest] = []

    class Post(Channel):
        def build_component_request(self, principal: Principal) -> HttpRequest:
            built.append(without_credentials(wsgi(), principal))
            return built[-1]

    request = Request(id=1, method="ping")
    envelope = Envelope(revision=LATEST, client_capabilities={})
    call = Call(
        server=open_server, request=request, envelope=envelope, principal=ADA, channel=Post()
    )
    assert built == []
    assert call.http_request() is call.http_request() is call.nested().http_request()
    assert len(built) == 1
    without = Call(server=open_server, request=request, envelope=envelope, principal=ADA)
    assert without.http_request() is None


def test_the_repr_of_a_request_and_of_what_holds_it_shows_no_header():
    scope = {**asgi().scope, "scheme": "https"}
    exchange = exchange_of(scope)
    call = Call(
        server=open_server,
        request=Request(id=1, method="ping"),
        envelope=Envelope(revision=LATEST, client_capabilities={}),
        principal=ADA,
        channel=exchange,
    )
    held = [exchange, call, call.headers, vars(call.context()), vars(call.nested().context())]
    assert exchange.headers.get("authorization") == HEADERS["authorization"]
    assert "secret" not in repr(held)
