"""Django's admin with the pages of this package, on a site whose CSP forbids inline code."""

import os
from pathlib import Path

import pytest
from oauth2_provider.models import get_access_token_model

from mcp_django.oauth.models import ClientProfile, Consent
from tests.oauth import parties

pytestmark = pytest.mark.requires("chromium")


@pytest.fixture
def admin(site, visit):
    """An administrator's browser, signed in."""
    site.MIDDLEWARE = ["tests.kit.strict.strict", *site.MIDDLEWARE]
    parties.make_user("root", is_staff=True, is_superuser=True)
    visitor = visit()
    visitor.open("/admin/")
    visitor.sign_in("root")
    return visitor


def test_administrators_look_and_revoke_under_a_strict_policy(admin, ada, program, tmp_path):
    place = Path(os.environ.get("MCP_TEST_SCREENSHOTS", tmp_path))
    resource = f"{admin.live}/mcp"
    row = Consent.objects.create(
        user=ada, client_id=program.client_id, resource=resource, scopes=["mcp"]
    )
    profile = ClientProfile.objects.get_or_create(client_id=program.client_id)[0]
    parties.make_token(ada, program, resource=(resource,))
    for name, path in {
        "index": "",
        "consents": "mcp_oauth/consent/",
        "consent": f"mcp_oauth/consent/{row.pk}/change/",
        "revoke": f"mcp_oauth/consent/{row.pk}/revoke/",
        "profiles": "mcp_oauth/clientprofile/",
        "profile": f"mcp_oauth/clientprofile/{profile.pk}/change/",
        "new-profile": "mcp_oauth/clientprofile/add/",
    }.items():
        admin.open(f"/admin/{path}")
        assert admin.page.locator("#content").is_visible(), path
        admin.page.screenshot(path=place / f"admin-{name}.png", full_page=True)
    admin.open("/admin/mcp_oauth/consent/")
    admin.page.locator("input.action-select").check()
    admin.page.select_option("select[name=action]", label="Revoke access")
    admin.page.get_by_role("button", name="Go").click()
    admin.page.get_by_role("button", name="Revoke access").click()
    admin.page.locator(".messagelist").wait_for()
    assert admin.page.locator(".messagelist").inner_text() == "Access revoked for 1 connection."
    assert not Consent.objects.exists()
    assert not get_access_token_model().objects.exists()
    # The tests of pages rely on this: the console reports a violation of the policy.
    assert admin.errors == []


def test_our_pages_keep_their_own_policy_on_a_strict_site(admin, program, callback):
    # The site's `form-action` would block the redirect to the client.
    admin.connect(program)
    admin.press("Allow")
    admin.page.wait_for_url(f"{callback.url}?*")
    assert callback.parameters["code"]
