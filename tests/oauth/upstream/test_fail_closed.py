"""A server that requires upstream access rejects calls if the provider's grant is unknown."""

from __future__ import annotations

import json
from typing import Any

import pytest
from channels.routing import URLRouter
from django.urls import re_path
from oauth2_provider.models import get_access_token_model

from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream import bindings
from tests.kit.drivers import Connection, headers_for, message
from tests.kit.servers import post
from tests.oauth.parties import OTHER_RESOURCE, RESOURCE, SETTINGS, make_app, make_token, make_user
from tests.oauth.servers import billing, orders
from tests.oauth.upstream.parties import configured, make_grant
from tests.transports.mounts import in_thread

pytestmark = pytest.mark.django_db(transaction=True)
PING = message("tools/call", {"name": "whoami", "arguments": {}})
BOTH = (RESOURCE, OTHER_RESOURCE)


def bound(user: Any, app: Any, **more: Any) -> str:
    """Issue a token that is bound to its user's upstream grants, as the token endpoint binds it."""
    plaintext = make_token(user, app, **more)
    bindings.bind_token(get_access_token_model().objects.latest("pk"))
    return plaintext


@pytest.mark.spec("AUT-31")
@pytest.mark.parametrize("upstream", [{}, {"other": configured()["UPSTREAM"]["acme"]}])
def test_threat_26_provider_that_is_not_configured_shuts_its_server(acme, site, upstream):
    user = make_user()
    make_grant(user)
    token = bound(user, make_app())
    assert post("/mcp", PING, token=token).status_code == 200
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": {**configured(), "UPSTREAM": upstream}}
    answer = post("/mcp", PING, token=token)
    assert answer.status_code == 503
    assert "WWW-Authenticate" not in answer
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": configured()}
    assert post("/mcp", PING, token=token).status_code == 200


@pytest.mark.spec("AUT-31")
@pytest.mark.parametrize("root_path", ["", "/prefix"])
async def test_threat_26_mount_without_a_urlconf_honors_what_its_server_stands_on(acme, root_path):
    """The URLconf does not have `/raw/mcp`, and on a raw mount no thread knows the prefix."""
    app = URLRouter([re_path("^(?:prefix/)?(?:raw/)?mcp$", orders.asgi)])
    user, client = await in_thread(make_user), await in_thread(make_app)
    for path in ("/raw/mcp", "/mcp"):
        resource = (f"http://testserver{root_path}{path}",)
        unbound = await in_thread(make_token, user, client, resource=resource)
        answer = await ask_raw(app, path, unbound, root_path)
        assert answer.status == 401, path


async def ask_raw(app: Any, path: str, token: str, root_path: str) -> Any:
    headers = headers_for(PING, authorization=f"Bearer {token}")
    body = json.dumps(PING).encode()
    connection = Connection(app, f"{root_path}{path}", body, headers, "POST", root_path=root_path)
    try:
        return await connection.start()
    finally:
        await connection.close()


@pytest.mark.spec("AUT-31")
def test_threat_26_access_at_one_provider_opens_no_server_of_another(acme, site, monkeypatch):
    user = make_user()
    make_grant(user)
    token = bound(user, make_app(), resource=BOTH)
    assert post("/billing/mcp", PING, token=token).status_code == 200
    monkeypatch.setattr(billing, "upstream", "beta")
    providers = {**configured()["UPSTREAM"], "beta": configured()["UPSTREAM"]["acme"]}
    site.MCP_DJANGO = {**SETTINGS, "OAUTH": {**configured(), "UPSTREAM": providers}}
    assert post("/mcp", PING, token=token).status_code == 200
    assert post("/billing/mcp", PING, token=token).status_code == 401


def test_provider_that_was_done_away_with_holds_nothing_up(acme, site, monkeypatch):
    user = make_user()
    make_grant(user)
    token = bound(user, make_app(), resource=BOTH)
    UpstreamGrant.objects.update(provider="gone")
    monkeypatch.setattr(orders, "upstream", "")
    assert post("/mcp", PING, token=token).status_code == 200
