"""`ctx.upstream`: the caller's own access, and the request for it where it is missing (AUT-33)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import clear_url_caches, path
from django.utils import timezone

from mcp_django import Context, MCPServer
from mcp_django.auth.pages import new_interaction
from mcp_django.auth.permissions import AllowAny
from mcp_django.auth.principal import anonymous_principal, principal_for
from mcp_django.exceptions import UpstreamNotConnected
from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream.grants import decrypt
from mcp_django.test import ACCEPT, DECLINE, MCPClient
from tests.oauth import urls
from tests.oauth.exchanges import call
from tests.oauth.parties import ORIGIN, SETTINGS, make_app, make_token, make_user
from tests.oauth.upstream.parties import asked_by, configured, make_grant

pytestmark = pytest.mark.django_db(transaction=True)


def reading(**options: Any) -> MCPServer:
    """Return a server with tools that use the caller's access at Acme."""
    server = MCPServer("files", permission=AllowAny, **options)

    @server.tool(read_only=True)
    def token(ctx: Context) -> str:
        """Show which token a request would carry; nobody does so outside of a test."""
        return ctx.upstream("acme").token()

    @server.tool
    async def atoken(ctx: Context) -> str:
        """The same, without a thread of its own."""
        upstream = await ctx.aupstream("acme")
        headers = await upstream.aheaders()
        return headers["Authorization"]

    return server


def client_of(user: Any, **options: Any) -> MCPClient:
    return MCPClient(server=reading(), user=user, raise_exceptions=False, **options)


@pytest.fixture
def site_url(site, acme):
    """Set the URL of the pages; an in-memory client has no host that it could come from."""
    site.MCP_DJANGO = {
        **SETTINGS,
        "BASE_URL": "https://shop.example",
        "OAUTH": configured(),
    }


def test_access_that_is_there_is_handed_out(acme):
    user = make_user()
    make_grant(user)
    client = client_of(user)
    assert client.call_tool("token").text == "access-0"
    assert client.call_tool("atoken").text == "Bearer access-0"
    assert acme.asked == []


def test_access_is_renewed_also_in_a_tool_that_may_not_write(acme):
    user = make_user()
    make_grant(user, expires_at=timezone.now() - timedelta(seconds=1))
    text = client_of(user).call_tool("token").text
    grant = UpstreamGrant.objects.get()
    assert text == decrypt(grant.access_cipher) != "access-0"
    assert decrypt(grant.refresh_cipher) == acme.refresh_token


def test_httpx_sends_the_token_sync_and_async(acme):
    user = make_user()
    make_grant(user)
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200)

    ctx = Context(server=None, principal=principal_for(user), protocol_version="")
    auth = ctx.upstream("acme").auth
    with httpx.Client(transport=httpx.MockTransport(answer), auth=auth) as client:
        client.get("https://acme.example/files")

    async def ask() -> None:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, auth=auth) as client:
            await client.get("https://acme.example/files")

    asyncio.run(ask())
    assert seen == ["Bearer access-0"] * 2


@pytest.mark.spec("AUT-10")
def test_threat_22_what_a_tool_sends_out_carries_nothing_of_the_call(acme, site):
    user = make_user()
    make_grant(user)
    server = MCPServer("outgoing")
    sent: list[httpx.Request] = []

    @server.tool(read_only=True)
    def fetch(ctx: Context) -> int:
        """Fetch something with the user's access at Acme."""

        def answer(request: httpx.Request) -> httpx.Response:
            sent.append(request)
            return httpx.Response(200)

        auth = ctx.upstream("acme").auth
        with httpx.Client(transport=httpx.MockTransport(answer), auth=auth) as client:
            return client.get("https://acme.example/files").status_code

    module = ModuleType("urlconf")
    module.urlpatterns = [path("out/mcp", server.urls), *urls.urlpatterns]
    site.ROOT_URLCONF = module
    clear_url_caches()
    token = make_token(user, make_app(), resource=(f"{ORIGIN}/out/mcp",))
    assert (
        call(token, path="/out/mcp", tool="fetch").json()["result"]["content"][0]["text"] == "200"
    )
    (request,) = sent
    assert request.headers["Authorization"] == "Bearer access-0"
    assert token not in f"{request.url} {request.headers.raw} {request.content!r}"


@pytest.mark.spec("AUT-33")
def test_user_without_access_is_sent_to_a_page_and_the_call_goes_on(acme, site_url):
    user = make_user()
    client = client_of(user)
    result = client.call_tool("token")
    (question,) = result.questions
    assert question["params"]["mode"] == "url"
    url = urlsplit(question["params"]["url"])
    assert (url.netloc, url.path) == ("shop.example", "/oauth/upstream/acme/connect")
    browser = Client()
    browser.force_login(user)
    page = browser.get(f"{url.path}?{url.query}")
    assert page.status_code == 200
    assert acme.asked == []
    sent = browser.post(f"{url.path}?{url.query}")
    query = asked_by(sent["Location"])
    acme.nonce = query["nonce"]
    back = browser.get("/oauth/upstream/acme/callback", {"code": "c", "state": query["state"]})
    assert back.status_code == 200
    assert "connected" in back.content.decode()
    access = decrypt(UpstreamGrant.objects.get().access_cipher)
    assert client.call_tool("token").text == access


@pytest.mark.spec("AUT-33")
def test_question_is_settled_by_the_page_and_not_by_a_yes(acme, site_url):
    user = make_user()
    client = client_of(user)
    result = client.call_tool("token", answers=[ACCEPT])
    assert result.questions
    refused = client.call_tool("token", answers=[DECLINE], check=False)
    assert refused.is_error


@pytest.mark.spec("AUT-33")
def test_client_that_opens_no_pages_is_told_the_address(acme, site_url):
    client = client_of(make_user(), capabilities={})
    result = client.call_tool("token", check=False)
    assert result.is_error
    assert "https://shop.example/oauth/upstream/acme/connect" in result.text


def test_nobody_has_no_account_elsewhere(acme):
    result = client_of(None).call_tool("token", check=False)
    assert result.is_error
    assert "Sign in first" in result.text


def test_access_that_ends_during_a_call_is_told_to_the_model(acme):
    user = make_user()
    make_grant(user, expires_at=timezone.now() - timedelta(seconds=1))
    acme.refusal = (400, {"error": "invalid_grant"})
    result = client_of(user).call_tool("token", check=False)
    assert result.is_error
    assert "Connect the account again" in result.text
    assert UpstreamGrant.objects.get().status == UpstreamGrant.Status.REVOKED


def test_nobody_to_ask_is_told_by_an_exception(acme, site_url):
    ctx = Context(server=None, principal=principal_for(make_user()), protocol_version="")
    with pytest.raises(UpstreamNotConnected, match=r"Open https://shop\.example/oauth"):
        ctx.upstream("acme")


def test_provider_that_fails_is_told_to_the_model(acme):
    user = make_user()
    make_grant(user, expires_at=timezone.now() - timedelta(seconds=1))
    acme.refusal = (503, {})
    result = client_of(user).call_tool("token", check=False)
    assert result.is_error
    assert "Try again in a moment" in result.text


def test_unknown_provider_is_named(acme):
    ctx = Context(server=None, principal=principal_for(make_user()), protocol_version="")
    with pytest.raises(ImproperlyConfigured, match=r"upstream provider 'nobody' is not in.*'acme'"):
        ctx.upstream("nobody")


@pytest.mark.spec("AUT-33")
def test_page_is_for_the_one_who_was_asked(acme):
    ada, eve = make_user(), make_user("eve")
    interaction = new_interaction(principal_for(ada))
    page = f"/oauth/upstream/acme/connect?interaction={interaction}"
    assert Client().get(page)["Location"].startswith("/login/")
    browser = Client()
    browser.force_login(eve)
    assert browser.get(page).status_code == 403
    assert browser.post(page).status_code == 403
    assert browser.get("/oauth/upstream/acme/connect?interaction=").status_code == 403
    browser.force_login(ada)
    assert browser.get(page).status_code == 200
    # A user may also open the page directly.
    assert browser.get("/oauth/upstream/acme/connect").status_code == 200


@pytest.mark.spec("AUT-33")
def test_page_sends_nobody_on_without_a_csrf_token(acme):
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(make_user())
    assert browser.post("/oauth/upstream/acme/connect").status_code == 403
    assert browser.post("/oauth/upstream/acme/disconnect").status_code == 403


def test_user_ends_his_access_and_nobody_elses(acme):
    ada, eve = make_user(), make_user("eve")
    make_grant(ada)
    make_grant(eve)
    browser = Client()
    browser.force_login(ada)
    assert "Disconnect" in browser.get("/oauth/upstream/acme/connect").content.decode()
    assert browser.post("/oauth/upstream/acme/disconnect").status_code == 200
    live = UpstreamGrant.objects.filter(status=UpstreamGrant.Status.LIVE)
    assert [grant.user for grant in live] == [eve]
    assert [form["token"] for form in acme.forms] == ["refresh-1", "access-0"]


def test_site_without_the_app_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(apps, "is_installed", lambda name: name != "mcp_django.oauth")
    ctx = Context(server=None, principal=anonymous_principal(), protocol_version="")
    with pytest.raises(ImproperlyConfigured, match="INSTALLED_APPS"):
        ctx.upstream("acme")
