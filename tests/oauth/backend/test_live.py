"""Threats to a server in a process of its own, tested over a socket."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.kit.drivers import headers_for, message
from tests.kit.processes import serving
from tests.spec import spec

pytestmark = pytest.mark.outside

APPS = ("plain", "application", "raw", "consumer")
APP_NAMES = {
    "plain": "tests.sites.example.asgi:plain",
    "application": "tests.sites.example.asgi:application",
}


@pytest.fixture(scope="module", params=APPS)
def server(request, tmp_path_factory):
    app = APP_NAMES.get(request.param, f"tests.oauth.vault:{request.param}")
    directory = tmp_path_factory.mktemp("vault")
    with serving("uvicorn", app, directory, settings="tests.oauth.vault_settings") as running:
        yield running


@spec("AUT-13", "HTTP-2", "HTTP-32")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
def test_threat_01_foreign_origins_and_hosts_are_refused_by_a_live_server(server, verb):
    body = message("tools/list")
    own = f"127.0.0.1:{server.port}"
    foreign = [
        (403, {"origin": "https://evil.example"}),
        (403, {"origin": "null"}),
        (403, {"origin": f"http://{own}.evil.example"}),
        (400, {"host": "evil.example"}),
        (
            400,
            {"host": f"evil.example:{server.port}", "origin": f"http://evil.example:{server.port}"},
        ),
    ]
    with httpx.Client(timeout=60, trust_env=False) as client:
        for status, named in foreign:
            headers = headers_for(body, host=own, authorization="Bearer x") | named
            content: Any = {"json": body} if verb == "POST" else {}
            answer = client.request(verb, f"{server.url}/mcp", headers=headers, **content)
            assert answer.status_code == status
            assert "www-authenticate" not in answer.headers
        # The same request from the site's own page gets as far as authentication.
        headers = headers_for(body, host=own, origin=f"http://{own}")
        answer = client.post(f"{server.url}/mcp", headers=headers, json=body)
    assert answer.status_code == 401
    assert "resource_metadata=" in answer.headers["www-authenticate"]


@spec("AUT-4", "AUT-14", "AUT-15")
def test_the_challenge_of_a_live_server_leads_to_its_document(server):
    body = message("tools/list")
    with httpx.Client(timeout=60, trust_env=False) as client:
        headers = headers_for(body, host=None)
        answer = client.post(f"{server.url}/vault/mcp", headers=headers, json=body)
        named = answer.headers["www-authenticate"].partition('resource_metadata="')[2].rstrip('"')
        assert named == f"{server.url}/.well-known/oauth-protected-resource/vault/mcp"
        document = client.get(named).json()
    assert document["resource"] == f"{server.url}/vault/mcp"
    assert document["authorization_servers"] == [server.url]
