"""Whole journeys: a client over HTTP, its user in Chromium, and the client's calls afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from mcp_django import Context
from mcp_django.oauth.models import Consent
from tests.oauth import parties
from tests.oauth.exchanges import headers_of, message_of
from tests.oauth.servers import orders
from tests.oauth.upstream.parties import ISSUER, FakeProvider

pytestmark = pytest.mark.requires("chromium")
ALL = "mcp mcp:write orders:refund"


@dataclass
class Assistant:
    """A client with the browser of its user."""

    visitor: Any
    app: Any
    callback: Any
    http: httpx.Client
    token: str = ""
    challenges: list[str] = field(default_factory=list)

    def ask(self, scope: str = ALL, **changes: Any) -> None:
        self.callback.parameters = {}
        self.verifier, challenge = parties.pkce()
        self.visitor.connect(self.app, scope=scope, code_challenge=challenge, **changes)

    def redeem(self) -> dict[str, Any]:
        """Exchange the code that the browser received for a token."""
        self.visitor.page.wait_for_url(f"{self.callback.url}?*")
        form = {
            "grant_type": "authorization_code",
            "code": self.callback.parameters["code"][0],
            "client_id": self.app.client_id,
            "redirect_uri": self.callback.url,
            "code_verifier": self.verifier,
        }
        answer = self.http.post("/oauth/token", data=form)
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["access_token"]
        return dict(answer.json())

    def call(self, tool: str = "whoami", **arguments: Any) -> httpx.Response:
        message = message_of(tool, arguments, elicitation={"url": {}})
        return self.http.post("/mcp", json=message, headers=headers_of(tool, self.token))

    def text(self, tool: str = "whoami", **arguments: Any) -> str:
        answer = self.call(tool, **arguments)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["result"]["content"][0]["text"])


@pytest.fixture
def assistant(visit, ada, program, callback):
    """An assistant whose user has not signed in yet."""
    visitor = visit()
    with httpx.Client(base_url=visitor.live, timeout=60) as http:
        yield Assistant(visitor, program, callback, http)


def tags(page: Any) -> dict[str, str]:
    """Return the label of each scope on the page: new, or allowed before."""
    rows = page.locator(".scopes li")
    names = [rows.nth(n).locator("code").inner_text() for n in range(rows.count())]
    labels = [rows.nth(n).locator(".tag").all_inner_texts() for n in range(rows.count())]
    return {name: " ".join(texts) for name, texts in zip(names, labels, strict=True)}


def test_step_up_shows_what_is_new_and_the_call_goes_through(assistant):
    page = assistant.visitor.page
    assistant.ask("mcp")
    assistant.visitor.sign_in("ada")
    assert tags(page) == {"mcp": ""}
    assistant.visitor.press("Allow")
    assert assistant.redeem()["scope"] == "mcp"
    assert assistant.text() == "ada"
    refused = assistant.call("place", item="tea")
    assert refused.status_code == 403
    challenge = refused.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in challenge
    scope = challenge.partition('scope="')[2].partition('"')[0]
    assistant.ask(scope)
    assert tags(page) == {"mcp": "Allowed before", "mcp:write": "New"}
    assistant.visitor.press("Allow")
    assert set(assistant.redeem()["scope"].split()) == {"mcp", "mcp:write"}
    assert assistant.text("place", item="tea") == "Placed tea."


def test_unticking_leaves_a_scope_out_and_takes_it_away_later(assistant):
    assistant.ask()
    assistant.visitor.sign_in("ada")
    assistant.visitor.page.get_by_label("Refund orders").uncheck()
    assistant.visitor.press("Allow")
    assert set(assistant.redeem()["scope"].split()) == {"mcp", "mcp:write"}
    assert assistant.text("place", item="tea") == "Placed tea."
    assert assistant.call("refund", number="1").status_code == 403
    before = assistant.token
    assistant.ask()
    assert tags(assistant.visitor.page)["orders:refund"] == "New"
    assistant.visitor.page.get_by_label("Change things").uncheck()
    assistant.visitor.press("Allow")
    assert set(assistant.redeem()["scope"].split()) == {"mcp", "orders:refund"}
    assistant.token = before
    assert assistant.call().status_code == 401


def test_denying_leaves_what_the_client_had(assistant):
    assistant.ask("mcp")
    assistant.visitor.sign_in("ada")
    assistant.visitor.press("Allow")
    assistant.redeem()
    assistant.ask()
    assistant.visitor.press("Deny")
    assistant.visitor.page.wait_for_url(f"{assistant.callback.url}?*")
    assert assistant.callback.parameters["error"] == ["access_denied"]
    assert assistant.callback.parameters["state"] == ["abc"]
    assert assistant.text() == "ada"
    assert Consent.objects.get().scopes == ["mcp"]


def test_another_account_answers_the_same_request(assistant):
    parties.make_user("grace")
    assistant.ask("mcp orders:refund", state="kept & whole/1", resource=None)
    assistant.visitor.sign_in("ada")
    names = assistant.visitor.page.get_by_role("heading", level=2).all_inner_texts()
    assistant.visitor.press("Use another account")
    assistant.visitor.sign_in("grace")
    page = assistant.visitor.page
    assert page.get_by_role("heading", level=2).all_inner_texts() == names == ["Orders", "Billing"]
    assert list(tags(page)) == ["mcp", "orders:refund"]
    assistant.visitor.press("Allow")
    assert assistant.redeem()["scope"] == "mcp orders:refund"
    assert assistant.callback.parameters["state"] == ["kept & whole/1"]
    assert assistant.text() == "grace"


def only_grace(user: Any, server: Any, client_id: str) -> bool:
    return bool(user.get_username() == "grace")


def test_an_account_that_may_not_connect_can_be_changed(assistant, site):
    site.MCP_DJANGO = site.MCP_DJANGO | {"OAUTH": {"CAN_CONNECT": f"{__name__}.only_grace"}}
    parties.make_user("grace")
    assistant.ask("mcp")
    assistant.visitor.sign_in("ada")
    page = assistant.visitor.page
    page.get_by_role("heading", name="This account cannot connect").wait_for()
    page.get_by_role("link", name="Go back to your assistant").click()
    page.wait_for_url(f"{assistant.callback.url}?*")
    assert assistant.callback.parameters["error"] == ["access_denied"]
    assistant.ask("mcp")
    assistant.visitor.press("Use another account")
    assistant.visitor.expect_statuses(403, 403)
    assistant.visitor.sign_in("grace")
    assistant.visitor.press("Allow")
    assistant.redeem()
    assert assistant.text() == "grace"


@pytest.mark.parametrize("button", ["Disconnect", "Disconnect all"])
def test_after_disconnecting_the_next_call_gets_401(assistant, button):
    assistant.ask()
    assistant.visitor.sign_in("ada")
    assistant.visitor.press("Allow")
    refresh = assistant.redeem()["refresh_token"]
    assert assistant.text() == "ada"
    other = parties.make_app(name="Another")
    user = Consent.objects.get().user
    Consent.objects.create(user=user, client_id=other.client_id, scopes=["mcp"])
    resource = f"{assistant.visitor.live}/mcp"
    kept = parties.make_token(user, other, resource=(resource,))
    assistant.visitor.open("/oauth/connections/")
    card = assistant.visitor.page.get_by_role("article", name="Example Client")
    is_single = button == "Disconnect"
    (card if is_single else assistant.visitor.page).get_by_role(
        "button", name=button, exact=True
    ).click()
    assistant.visitor.page.get_by_role("status").wait_for()
    refused = assistant.call()
    assert refused.status_code == 401
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    form = {"grant_type": "refresh_token", "refresh_token": refresh}
    form["client_id"] = assistant.app.client_id
    assert assistant.http.post("/oauth/token", data=form).json()["error"] == "invalid_grant"
    assistant.token = kept
    assert assistant.call().status_code == (200 if is_single else 401)


@pytest.mark.parametrize("javascript", [True, False])
def test_everything_is_done_without_javascript(visit, ada, program, callback, javascript):
    visitor = visit(java_script_enabled=javascript)
    visitor.connect(program)
    visitor.sign_in("ada")
    visitor.page.get_by_label("Refund orders").uncheck()
    visitor.press("Allow")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert callback.parameters["code"]
    visitor.open("/oauth/connections/")
    visitor.press("Disconnect")
    visitor.page.get_by_text("No assistant is connected.").wait_for()


def at_acme(page: Any, acme: FakeProvider, live: str) -> None:
    """Fake the provider's pages: redirect each visitor back immediately, with a code."""

    def answer(route: Any) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        acme.nonce = query["nonce"][0]
        back = f"{live}/oauth/upstream/acme/callback?code=c&state={query['state'][0]}"
        # Playwright cannot fake a redirect from another host, but Chromium follows this one.
        body = f'<meta http-equiv="refresh" content="0; url={back}">'
        route.fulfill(content_type="text/html", body=body)

    page.route(f"{ISSUER}/**", answer)


def test_consent_goes_on_to_the_provider_and_back(assistant, acme):
    at_acme(assistant.visitor.page, acme, assistant.visitor.live)
    assistant.ask("mcp")
    assistant.visitor.sign_in("ada")
    assistant.visitor.press("Allow")
    assistant.redeem()
    assert assistant.text() == "ada"
    assistant.visitor.open("/oauth/upstream/acme/connect")
    assistant.visitor.press("Disconnect")
    assistant.visitor.page.get_by_role("button", name="Go to Acme").wait_for()
    assert assistant.call().status_code == 401


@pytest.fixture
def reads_files(acme, monkeypatch):
    """Add a tool that uses the caller's access at Acme to a server that itself does not."""
    monkeypatch.setattr(orders, "upstream", "")

    @orders.tool(read_only=True)
    def files(ctx: Context) -> str:
        """List files at Acme."""
        return f"Read with {len(ctx.upstream('acme').token())} characters."

    yield
    orders.tools.pop("files")


def test_a_call_sends_its_own_user_to_the_provider(assistant, visit, acme, reads_files):
    assistant.ask("mcp")
    assistant.visitor.sign_in("ada")
    assistant.visitor.press("Allow")
    assistant.redeem()
    result = assistant.call("files").json()["result"]
    (question,) = result["inputRequests"].values()
    assert question["params"]["mode"] == "url"
    url = question["params"]["url"].removeprefix(assistant.visitor.live)

    # Another user who opens the address is told so, and may sign in as the right user.
    parties.make_user("grace")
    other = visit()
    other.open(url)
    other.sign_in("grace")
    other.page.get_by_text("Another user was asked").wait_for()
    other.expect_statuses(403)
    other.press("Use another account")
    other.sign_in("ada")
    other.page.get_by_role("button", name="Go to Acme").wait_for()
    assert "interaction=" in other.page.url

    at_acme(assistant.visitor.page, acme, assistant.visitor.live)
    assistant.visitor.open(url)
    assistant.visitor.press("Go to Acme")
    assistant.visitor.page.get_by_text("Your account is connected.").wait_for()
    assert assistant.text("files").startswith("Read with")
