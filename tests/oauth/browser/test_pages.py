"""What a user does with the pages, in Chromium, under the pages' own Content-Security-Policy."""

import pytest
from oauth2_provider.models import get_access_token_model, get_grant_model

from mcp_django.oauth.models import Consent
from tests.oauth import parties

pytestmark = pytest.mark.requires("chromium")


def test_signing_in_and_allowing(visit, ada, program, callback):
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    assert visitor.page.get_by_role("heading", level=1).inner_text() == "Connect Example Client?"
    visitor.page.get_by_label("Refund orders").uncheck()
    assert visitor.page.get_by_label("Use the tools of this site").is_disabled()
    visitor.press("Allow")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert callback.parameters["iss"] == [visitor.live]
    assert callback.parameters["state"] == ["abc"]
    assert callback.parameters["code"]
    assert get_grant_model().objects.get().scope == "mcp mcp:write"


def test_denying(visit, ada, program, callback):
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    visitor.press("Deny")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert callback.parameters["error"] == ["access_denied"]
    assert callback.parameters["iss"] == [visitor.live]
    assert not get_grant_model().objects.exists()


def test_using_another_account(visit, ada, program, callback):
    parties.make_user("grace")
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    visitor.press("Use another account")
    visitor.sign_in("grace")
    visitor.page.get_by_text("grace", exact=True).wait_for()
    visitor.press("Allow")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert get_grant_model().objects.get().user.username == "grace"


def test_signing_in_again(visit, ada, program, callback):
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    visitor.connect(program, prompt="login")
    assert visitor.page.get_by_role("heading", level=1).inner_text() == "Sign in again"
    visitor.press("Sign in again")
    visitor.sign_in("ada")
    visitor.press("Allow")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert callback.parameters["code"]


def test_the_keyboard_is_enough(visit, ada, program, callback):
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    keyboard, reached = visitor.page.keyboard, []
    focused = "document.activeElement.value || document.activeElement.tagName"
    for _ in range(6):
        keyboard.press("Tab")
        reached.append(visitor.page.evaluate(focused))
    assert reached == ["mcp:write", "orders:refund", "switch", "allow", "deny", "A"]
    visitor.page.get_by_label("Refund orders").focus()
    keyboard.press("Space")
    # Enter submits the form with its first button, which is not the one that signs out.
    keyboard.press("Enter")
    visitor.page.wait_for_url(f"{callback.url}?*")
    assert get_grant_model().objects.get().scope == "mcp mcp:write"


def test_looking_at_connected_assistants_and_ending_them(visit, ada, program, callback):
    visitor = visit()
    visitor.connect(program)
    visitor.sign_in("ada")
    visitor.press("Allow")
    visitor.page.wait_for_url(f"{callback.url}?*")
    parties.make_token(ada, program, resource=(f"{visitor.live}/mcp",))
    for name in ("Second", "Third"):
        other = parties.make_app(name=name)
        Consent.objects.create(user=ada, client_id=other.client_id, scopes=["mcp"])
    visitor.open("/oauth/connections/")
    card = visitor.page.get_by_role("article", name="Example Client")
    card.get_by_text("Orders", exact=True).wait_for()
    card.get_by_role("button", name="Disconnect").click()
    visitor.page.get_by_text("The assistant is disconnected.").wait_for()
    assert visitor.page.get_by_role("heading", level=2).count() == 2
    assert not get_access_token_model().objects.exists()
    visitor.press("Disconnect all")
    visitor.page.get_by_text("No assistant is connected.").wait_for()
    assert not Consent.objects.exists()


def test_a_request_that_cannot_be_answered_is_explained(visit, ada, program):
    visitor = visit()
    visitor.connect(program, redirect_uri="https://evil.example/")
    visitor.sign_in("ada")
    visitor.page.get_by_text("is not registered for it").wait_for()
    visitor.expect_statuses(400)
