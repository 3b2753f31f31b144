"""Scopes of a client: which it may request, and which it gets by default."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from oauth2_provider.scopes import get_scopes_backend
from oauth2_provider.settings import oauth2_settings

from mcp_django.oauth import provider_settings
from mcp_django.oauth.clients import Scopes, allowed_scopes, requestable_scopes, required_scopes
from mcp_django.oauth.conf import DeclaredScopes
from tests.oauth.documents import CLIENT
from tests.oauth.parties import RESOURCE, SETTINGS, make_app
from tests.oauth.servers import billing, orders

MCP = ["mcp", "mcp:write", "orders:refund"]
OWN = {"api:read": "Read the API", "api:write": "Write the API"}


@pytest.fixture
def shared(settings):
    """A site whose toolkit also serves an API of its own."""
    settings.OAUTH2_PROVIDER = provider_settings(SCOPES=OWN, DEFAULT_SCOPES=["api:read"])


def client_of(source: str) -> Any:
    return make_app(registration_source=source, client_id=CLIENT if source == "cimd" else source)


@pytest.mark.django_db
@pytest.mark.spec("AUT-25")
@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("source", ["dcr", "cimd"])
def test_threat_10_a_client_that_registered_itself_sees_the_scopes_of_servers_alone(source):
    app = client_of(source)
    assert list(requestable_scopes(app)) == MCP
    assert get_scopes_backend().get_available_scopes(app) == [*MCP, "offline_access"]
    assert get_scopes_backend().get_default_scopes(app) == ["mcp"]
    scopes = [
        "api:write",
        "mcp:write",
        "oauth2_provider:registration",
        "offline_access",
        "mcp",
        "mcp",
    ]
    assert allowed_scopes(scopes, app) == ["mcp:write", "mcp"]


@pytest.mark.django_db
@pytest.mark.usefixtures("shared")
def test_a_client_that_was_registered_by_hand_has_the_scopes_of_the_site_too():
    app = client_of("manual")
    assert list(requestable_scopes(app)) == [*OWN, *MCP]
    assert get_scopes_backend().get_default_scopes(app) == ["api:read"]
    named = SimpleNamespace(resource=RESOURCE)
    assert get_scopes_backend().get_default_scopes(app, named) == ["mcp"]
    assert allowed_scopes(["api:write", "mcp", "unknown"], app) == ["api:write", "mcp"]


@pytest.mark.usefixtures("shared")
def test_the_toolkit_knows_the_description_of_every_scope(settings):
    descriptions = get_scopes_backend().get_all_scopes()
    assert isinstance(get_scopes_backend(), Scopes)
    assert descriptions["api:read"] == "Read the API"
    assert descriptions["mcp"] == SETTINGS["SCOPES"]["mcp"]
    assert "offline_access" in descriptions
    settings.OAUTH2_PROVIDER = provider_settings(SCOPES=OWN)
    assert get_scopes_backend().get_default_scopes(
        SimpleNamespace(registration_source="manual")
    ) == [*OWN]


@pytest.mark.django_db
def test_without_scopes_of_its_own_a_site_has_those_of_its_servers():
    assert list(requestable_scopes(client_of("manual"))) == MCP
    assert get_scopes_backend().get_default_scopes(client_of("dcr")) == ["mcp"]
    assert list(requestable_scopes(None)) == MCP


def test_what_servers_need_is_what_is_declared(settings):
    settings.MCP_DJANGO = {"SCOPES": {"other": "Something else"}}
    assert required_scopes([orders, billing]) == []
    settings.MCP_DJANGO = SETTINGS
    assert required_scopes([orders, billing]) == ["mcp"]
    assert required_scopes([]) == []


def test_the_scopes_of_the_toolkit_follow_the_setting(settings):
    scopes = DeclaredScopes()
    assert (list(scopes), len(scopes), scopes["mcp"]) == (MCP, 3, SETTINGS["SCOPES"]["mcp"])
    assert dict(oauth2_settings.SCOPES) == SETTINGS["SCOPES"]
    settings.MCP_DJANGO = {"SCOPES": {"other": "Something else"}}
    assert dict(scopes) == dict(oauth2_settings.SCOPES) == {"other": "Something else"}


@pytest.mark.spec("AUT-12")
def test_staying_connected_is_known_to_the_authorization_server_alone(client):
    metadata = client.get("/.well-known/oauth-authorization-server").json()
    assert "offline_access" in metadata["scopes_supported"]
    resource = client.get("/.well-known/oauth-protected-resource/mcp").json()
    assert "offline_access" not in resource["scopes_supported"]
