"""Tokens of another issuer over every mount, and the test client's errors if the issuer is down."""

from __future__ import annotations

import pytest
from django.core.cache import cache

from mcp_django.exceptions import AuthenticationUnavailable, TooManyAttempts
from mcp_django.testing.transports import ASGIResponse, check_status
from tests.kit.drivers import message
from tests.kit.servers import person
from tests.spec import spec
from tests.transports.mounts import EVERY_MOUNT, ask, in_thread

pytest.importorskip("jwt")

from mcp_django.auth.backends import jwt
from mcp_django.models import ExternalIdentity
from tests.auth.issuers import Issuer, issuer

WHOAMI = message("tools/call", {"name": "whoami"})


@pytest.fixture
def idp(settings):
    """An issuer that the site trusts; loopback needs DEBUG."""
    cache.clear()
    jwt.clear_key_stores()
    with issuer() as provider:
        settings.DEBUG = True
        settings.MCP_DJANGO = {"AUTH": ["jwt"], "JWT": [{"ISSUER": provider.url}]}
        yield provider
    cache.clear()
    jwt.clear_key_stores()


def introduce(idp: Issuer) -> None:
    ExternalIdentity.objects.create(issuer=idp.url, subject="subject-1", user=person())


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_a_token_is_taken_and_refused_over_every_mount(mount, idp):
    await in_thread(introduce, idp)
    good = await ask(mount, "/mcp", WHOAMI, authorization=f"Bearer {idp.token()}")
    assert good.status == 200, good.body
    assert good.json()["result"]["structuredContent"]["user"] == "ada"
    bad = await ask(mount, "/mcp", WHOAMI, authorization=f"Bearer {idp.token(number=1)}")
    assert bad.status == 401
    assert 'error="invalid_token"' in bad.headers["www-authenticate"]
    assert idp.asked["/keys"] == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mount", EVERY_MOUNT)
async def test_an_issuer_that_is_down_costs_no_client_its_token(mount, idp):
    idp.answers.clear()
    answer = await ask(mount, "/mcp", WHOAMI, authorization=f"Bearer {idp.token()}")
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert "www-authenticate" not in answer.headers
    assert answer.json()["error"] == "temporarily_unavailable"


@pytest.mark.parametrize(
    ("status", "expected"), [(503, AuthenticationUnavailable), (429, TooManyAttempts)]
)
def test_the_test_client_tells_waiting_from_being_refused(status, expected):
    response = ASGIResponse()
    response.status, response.headers = status, {"retry-after": "7"}
    with pytest.raises(expected) as caught:
        check_status(response, b'{"error": "x", "error_description": "Wait."}')
    assert (caught.value.message, caught.value.retry_after) == ("Wait.", 7)


@spec("AUT-6", "AUT-9")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mount", EVERY_MOUNT)
@pytest.mark.parametrize("host", ["testserver:0", "testserver:99999"])
async def test_threat_03_address_that_names_no_resource_gets_nobody_past_its_rules(
    host, mount, idp, settings
):
    """With an audience that is not a URL, the host of the request does not matter for the token."""
    issuer = {"ISSUER": idp.url, "AUDIENCES": ["api://shop"]}
    settings.MCP_DJANGO = {"AUTH": ["jwt"], "JWT": [issuer]}
    await in_thread(introduce, idp)
    narrow = f"Bearer {idp.token(aud='api://shop', scope='other')}"
    assert (await ask(mount, "/mcp", WHOAMI, authorization=narrow)).status == 403
    for bearer in (narrow, f"Bearer {idp.token(aud='api://shop')}"):
        answer = await ask(mount, "/mcp", WHOAMI, authorization=bearer, host=host)
        assert answer.status == 401
