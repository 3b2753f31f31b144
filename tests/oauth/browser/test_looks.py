"""Every page in every look: light, dark, narrow, right to left, and in forced colors."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache
from django.utils import timezone

from mcp_django.oauth.models import Consent
from tests.oauth import parties
from tests.oauth.browser.looks import LOOKS, Looker
from tests.oauth.upstream.parties import make_grant

pytestmark = [pytest.mark.requires("chromium", "axe"), pytest.mark.heavy]
HOSTILE = "Your bank\u202egro.live\u202c <b>approved</b> & " + "x" * 70
ARABIC = "مساعد الطلبات"
VENDOR = "https://assistants.of-a-vendor-with-a-rather-long-name.example/clients/desktop.json"
MANY = {f"orders:thing-{n}": f"Do thing number {n} with the orders of yours" for n in range(12)}
LONG = {"orders:" + "averylongname" * 5: "Keep an eye on everything " * 8}
CLIENTS: dict[str, dict[str, Any]] = {
    "published": {
        "name": "Vendor Desktop",
        "registration_source": "cimd",
        "client_id": VENDOR,
        "cimd_expires_at": timezone.now() + timedelta(days=1),
    },
    "approved": {"name": "Our own assistant", "registration_source": "manual"},
    "hostile": {"name": HOSTILE},
    "arabic": {"name": ARABIC},
    "nameless": {"name": ""},
    "app": {"name": "Cursor", "redirect_uris": "cursor://anysphere.cursor-mcp/oauth/callback"},
}


@pytest.fixture(params=LOOKS)
def looker(request, visit, ada, tmp_path):
    """A `Looker` for a signed-in user, with each look in turn."""
    visitor = visit(**LOOKS[request.param])
    visitor.open("/login/?next=/oauth/connections/")
    visitor.sign_in("ada")
    looker = Looker(visitor, request.param, tmp_path)
    looker.visitor = visitor
    direction = "rtl" if request.param == "right-to-left" else "ltr"
    assert visitor.page.evaluate("document.dir") == direction
    return looker


def test_the_question_of_every_kind_of_client(looker, program, ada):
    visitor = looker.visitor
    visitor.connect(program)
    looker.look_at("question-loopback")
    for name, values in CLIENTS.items():
        visitor.connect(parties.make_app(**values))
        looker.look_at(f"question-{name}")
        cache.clear()


def test_the_question_about_more(looker, program, ada, site):
    visitor = looker.visitor
    known = {"user": ada, "client_id": program.client_id, "scopes": ["mcp", "mcp:write"]}
    Consent.objects.create(resource=f"{visitor.live}/mcp", **known)
    visitor.connect(program)
    looker.look_at("question-step-up")
    visitor.connect(program, resource=None)
    looker.look_at("question-unnamed-servers")
    scopes = site.MCP_DJANGO["SCOPES"] | MANY | LONG
    site.MCP_DJANGO = site.MCP_DJANGO | {"SCOPES": scopes}
    visitor.connect(program, scope=" ".join(scopes))
    looker.look_at("question-many-scopes")


def test_connected_assistants(looker, program, ada):
    visitor = looker.visitor
    looker.look_at("connections-none")
    for name, values in CLIENTS.items():
        app = parties.make_app(**values)
        Consent.objects.create(
            user=ada,
            client_id=app.client_id,
            resource=f"{visitor.live}/billing/mcp" if name != "approved" else "",
            scopes=["mcp", "mcp:write"],
            redirect_host="a-rather-long-host-name.of-some-vendor.example:8443",
        )
    # The same name twice: one program that is connected to two servers.
    Consent.objects.create(user=ada, client_id=VENDOR, resource=f"{visitor.live}/mcp")
    gone = {"client_id": "gone" * 10, "scopes": ["mcp", "gone:scope"], "redirect_host": "[::1]:1"}
    Consent.objects.create(user=ada, resource=f"{visitor.live}/no/mcp", **gone)
    visitor.open("/oauth/connections/")
    looker.look_at("connections-many")
    visitor.page.locator("button").first.click()
    looker.look_at("connections-one-ended")


def nobody(user: Any, server: Any, client_id: str) -> bool:
    return False


def test_what_goes_wrong(looker, program, site, monkeypatch):
    visitor = looker.visitor
    visitor.connect(program, redirect_uri="https://evil.example/")
    looker.look_at("error-redirect")
    visitor.connect(program, client_id="nobody")
    looker.look_at("error-client")
    site.MCP_DJANGO = site.MCP_DJANGO | {"OAUTH": {"CAN_CONNECT": f"{__name__}.nobody"}}
    visitor.connect(program)
    looker.look_at("error-account")
    monkeypatch.setattr("mcp_django.oauth.authorize.LIMIT", 0)
    visitor.connect(program)
    looker.look_at("error-limit")
    visitor.expect_statuses(400, 400, 403, 429)


def test_an_account_elsewhere(looker, acme, ada):
    visitor, place = looker.visitor, "/oauth/upstream/acme/connect"
    visitor.open(place)
    looker.look_at("upstream-ask")
    grant = make_grant(ada)
    visitor.open(place)
    looker.look_at("upstream-connected")
    visitor.open("/oauth/connections/")
    looker.look_at("connections-elsewhere")
    grant.delete()
    visitor.open(f"{place}?interaction=nobody")
    looker.look_at("upstream-somebody-else")
    visitor.open("/oauth/upstream/acme/callback?state=x&code=y")
    looker.look_at("upstream-lost")
    visitor.expect_statuses(403, 400)


def test_the_address_of_a_server(looker):
    looker.visitor.open("/mcp")
    looker.look_at("endpoint")
