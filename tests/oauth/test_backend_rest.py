"""OAuth tokens that REST framework's classes authenticate are checked like any other."""

import pytest
from django.apps import apps

pytest.importorskip("rest_framework")

from tests.kit.drivers import message
from tests.kit.servers import post
from tests.oauth import parties
from tests.spec import spec

pytestmark = pytest.mark.django_db

WHOAMI = message("tools/call", {"name": "whoami"})
TOOLKIT = "oauth2_provider.contrib.rest_framework.OAuth2Authentication"


@pytest.fixture(autouse=True)
def by_rest_framework(site):
    """Authenticate only with the toolkit's class for REST framework."""
    site.MCP_DJANGO = {**parties.SETTINGS, "AUTH": ["drf"], "DRF": [TOOLKIT]}


def test_a_token_for_the_endpoint_is_taken(user, app):
    response = post("/mcp", WHOAMI, token=parties.make_token(user, app))
    assert response.status_code == 200, response.content
    assert "ada" in str(response.json()["result"])


@spec("AUT-9")
@pytest.mark.parametrize("resource", [(), (parties.OTHER_RESOURCE,), (parties.ORIGIN,)])
def test_a_token_for_something_else_is_refused(resource, user, app):
    token = parties.make_token(user, app, resource=resource)
    response = post("/mcp", WHOAMI, token=token)
    assert response.status_code == 401
    assert 'error="invalid_token"' in response["WWW-Authenticate"]


def test_the_token_of_an_inactive_user_is_refused(user, app):
    token = parties.make_token(user, app)
    user.is_active = False
    user.save()
    assert post("/mcp", WHOAMI, token=token).status_code == 401


def test_without_the_app_that_knows_for_what_no_token_is_taken(user, app, monkeypatch):
    token = parties.make_token(user, app)
    is_installed = apps.is_installed
    monkeypatch.setattr(
        apps, "is_installed", lambda name: name != "mcp_django.oauth" and is_installed(name)
    )
    response = post("/mcp", WHOAMI, token=token)
    assert response.status_code == 401
    assert "mcp_django.oauth" in response.json()["error_description"]
