"""The caller is the user of Django's request, while the function runs and afterwards."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import AnonymousUser, User
from django.core.asgi import get_asgi_application as get_django_application
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.test import Client
from django.urls import include, path
from rest_framework.authentication import SessionAuthentication, TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from mcp_django import MCPServer
from mcp_django.asgi import get_asgi_application
from mcp_django.auth.permissions import AllowAny
from mcp_django.execution import invoke
from tests.kit.drivers import Answer, message, send
from tests.transports.mounts import in_thread, wsgi

pytestmark = pytest.mark.django_db(transaction=True)

HERE = "tests.transports.test_exchange_carried_caller"
server = MCPServer("carried", permission=AllowAny, auth=["tokens", "drf"])
plain = MCPServer("plainly", permission=AllowAny, auth=["tokens"])
urlpatterns = [
    path("", include([path("mcp", server.urls)])),
    path("", include([path("plain/mcp", plain.urls)])),
]
# As in many packages, middleware stores the request here for models to read.
_thread = threading.local()
seen: list[HttpRequest] = []


class Keeping:
    """Stores the request in its thread, and adds it to `seen` afterwards."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        _thread.request = request
        try:
            return self.get_response(request)
        finally:
            del _thread.request
            seen.append(request)


def find_author() -> str:
    request = getattr(_thread, "request", None)
    return "none" if request is None else request.user.get_username() or "anonymous"


@plain.tool
@server.tool
def sync_author() -> str:
    """Name the author of a change."""
    return find_author()


@server.tool
async def async_author() -> str:
    """Name the author of a change."""
    return await sync_to_async(find_author)()


class NamedToken(TokenAuthentication):
    """Accepts the name of a user as a token."""

    def authenticate_credentials(self, key: str) -> tuple[User, str]:
        try:
            return User.objects.get(username=key), key
        except User.DoesNotExist:
            raise AuthenticationFailed("no user") from None


class BrowserSession(SessionAuthentication):
    """REST framework's class, which is tried first."""


@pytest.fixture(autouse=True)
def _site(settings, _stage):
    settings.ROOT_URLCONF = HERE
    settings.MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        f"{HERE}.Keeping",
    ]
    settings.MCP_DJANGO = {
        "DRF": [f"{HERE}.BrowserSession", f"{HERE}.NamedToken"],
        "THREAD_CONTEXT": "tests.transports.test_view_thread_context.Entering",
    }
    seen.clear()


async def ask(mount: str, name: str, address: str = "/mcp", **changes: str | None) -> Answer:
    body = message("tools/call", {"name": name, "arguments": {}})
    if mount == "wsgi":
        return await in_thread(wsgi, address, body, client=Client(), **changes)
    application = get_asgi_application() if mount == "lane" else get_django_application()
    return await send(application, address, body, **changes)


def text_of(answer: Answer) -> str:
    text: str = answer.json()["result"]["content"][0]["text"]
    return text


@pytest.mark.parametrize("mount", ["lane", "view", "wsgi"])
@pytest.mark.parametrize("name", ["sync_author", "async_author"])
async def test_the_caller_is_on_the_request_and_nowhere_else(mount, name, token):
    answer = await ask(mount, name, authorization=token)
    assert text_of(answer) == "ada"
    assert "set-cookie" not in answer.headers
    [request] = seen
    assert request.user.get_username() == "ada"
    assert (await request.auser()).get_username() == "ada"
    auth: Any = request.auth
    assert (auth.user.get_username(), auth.is_valid()) == ("ada", True)
    assert token.removeprefix("Bearer ") not in repr(vars(auth))
    assert not request.session.modified
    assert not await request.session.aexists(request.session.session_key or "none")


@pytest.mark.parametrize("mount", ["lane", "view", "wsgi"])
async def test_no_caller_follows_another(mount, token):
    for authorization, author in ((token, "ada"), (None, "anonymous"), (token, "ada")):
        assert text_of(await ask(mount, "sync_author", authorization=authorization)) == author
    assert [request.auth is None for request in seen] == [
        False,
        True,
        False,
    ]


async def test_a_user_of_the_site_that_is_not_the_caller_is_not_the_author():
    browser = Client()
    await sync_to_async(browser.force_login)(await User.objects.acreate(username="browser"))
    cookie = f"sessionid={browser.cookies['sessionid'].value}"
    answer = await ask("lane", "sync_author", "/plain/mcp", cookie=cookie)
    assert text_of(answer) == "anonymous"
    assert isinstance(seen[-1].user, AnonymousUser)


async def test_a_call_that_asks_again_is_authenticated_as_it_came(monkeypatch):
    """REST framework's session class would take the caller on the request for a browser's user."""
    await User.objects.acreate(username="bea")
    monkeypatch.setattr(invoke, "LATE_SECONDS", -1.0)
    answers = await asyncio.gather(
        *[ask("lane", name, authorization="Token bea") for name in ("sync_author", "async_author")]
    )
    assert list(map(text_of, answers)) == ["bea", "bea"]
