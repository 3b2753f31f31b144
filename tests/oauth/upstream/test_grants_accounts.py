"""The upstream accounts of a user on their own page, and those of all users in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from oauth2_provider.models import get_access_token_model

from mcp_django.oauth.models import UpstreamGrant
from mcp_django.oauth.upstream import bindings
from tests.oauth.parties import SETTINGS, make_app, make_token, make_user
from tests.oauth.upstream.parties import configured, make_grant

pytestmark = pytest.mark.django_db
PAGE = "/oauth/connections/"
ADMIN = "/admin/mcp_oauth/upstreamgrant/"


def staff(name: str, *codenames: str) -> Any:
    user = make_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def bound(user: Any) -> UpstreamGrant:
    """Create a grant with a token of this site that is bound to it."""
    grant = make_grant(user)
    make_token(user, make_app(), refresh=False)
    bindings.bind_token(get_access_token_model().objects.latest("pk"))
    return grant


def test_the_page_of_connections_leads_to_accounts_elsewhere(acme, client, user):
    client.force_login(user)
    page = client.get(PAGE).content.decode()
    assert 'href="/oauth/upstream/acme/connect"' in page
    assert "not connected" in page
    make_grant(make_user("grace"))
    assert "not connected" in client.get(PAGE).content.decode()
    make_grant(user)
    assert "not connected" not in client.get(PAGE).content.decode()
    assert b"Disconnect" in client.get("/oauth/upstream/acme/connect").content


def test_administrators_look_and_change_nothing(acme, client, user):
    grant = make_grant(user)
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    page = client.get(f"{ADMIN}{grant.pk}/change/").content.decode()
    assert "ada.at.acme" in page
    assert 'name="_save"' not in page
    assert client.get(f"{ADMIN}add/").status_code == 403
    assert ADMIN in client.get("/admin/").content.decode()


def test_without_a_provider_the_admin_does_not_speak_of_it(client, user):
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    assert ADMIN not in client.get("/admin/").content.decode()


def test_the_list_costs_the_same_for_one_and_for_many(acme, client, django_assert_max_num_queries):
    for name in ("one", "two", "three", "four", "five"):
        make_grant(make_user(name))
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    with django_assert_max_num_queries(6):  # session, user, two counts, two filters or rows
        client.get(ADMIN)


@pytest.mark.parametrize("way", ["disconnect", "delete_selected", "page"])
def test_administrators_end_access_with_what_stands_on_it(
    acme, client, user, way, django_capture_on_commit_callbacks
):
    grant = bound(user)
    clerk = staff("clerk", "view_upstreamgrant", "delete_upstreamgrant")
    client.force_login(clerk)
    with django_capture_on_commit_callbacks(execute=True):
        if way == "page":
            client.post(f"{ADMIN}{grant.pk}/delete/", {"post": "yes"})
        else:
            client.post(ADMIN, {"action": way, "_selected_action": [grant.pk], "post": "yes"})
    assert not get_access_token_model().objects.exists()
    assert acme.count("/revoke") == 2
    assert LogEntry.objects.get().user == clerk
    rows = UpstreamGrant.objects.filter(pk=grant.pk)
    assert [row.status for row in rows] == (["revoked"] if way == "disconnect" else [])


@pytest.mark.parametrize("way", ["disconnect", "page"])
@pytest.mark.parametrize("lost", ["UPSTREAM", "FIELD_KEYS"])
def test_access_at_a_provider_that_settings_have_no_more_is_ended(
    acme, site, client, user, lost, way
):
    grant = bound(user)
    site.MCP_DJANGO = {
        **SETTINGS,
        "OAUTH": {**configured(), lost: {} if lost == "UPSTREAM" else []},
    }
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    if way == "page":
        client.post(f"{ADMIN}{grant.pk}/delete/", {"post": "yes"})
    else:
        page = client.post(ADMIN, {"action": way, "_selected_action": [grant.pk]})
        assert "The users have to connect again." in page.content.decode()
        assert get_access_token_model().objects.exists()
        client.post(ADMIN, {"action": way, "post": "yes", "_selected_action": [grant.pk]})
    assert not get_access_token_model().objects.exists()
    rows = UpstreamGrant.objects.filter(pk=grant.pk)
    assert [row.status for row in rows] == ([] if way == "page" else ["revoked"])


def test_staff_who_may_look_may_not_disconnect(acme, client, user):
    grant = bound(user)
    client.force_login(staff("clerk", "view_upstreamgrant"))
    assert "Disconnect" not in client.get(ADMIN).content.decode()
    client.post(ADMIN, {"action": "disconnect", "post": "yes", "_selected_action": [grant.pk]})
    assert UpstreamGrant.objects.get().status == "live"


def test_a_user_with_access_elsewhere_can_be_deleted_in_the_admin(acme, client, user):
    # A user with tokens of this site cannot be deleted: the toolkit's admin protects those.
    make_grant(user)
    client.force_login(make_user("root", is_staff=True, is_superuser=True))
    client.post(f"/admin/auth/user/{user.pk}/delete/", {"post": "yes"})
    assert not UpstreamGrant.objects.exists()
