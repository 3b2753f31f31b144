"""“Connected assistants”, its counterpart for administrators, and the function that both call."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.utils import timezone
from django.utils.formats import date_format
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from mcp_django.models import AuthEvent
from mcp_django.oauth.models import ClientProfile, Consent
from mcp_django.oauth.revoking import revoke_access, revoke_client, revoke_everything
from tests.oauth import parties
from tests.oauth.asking import answer, ask
from tests.overrides.site import decide_of_server_elsewhere

pytestmark = pytest.mark.django_db
PAGE = "/oauth/connections/"
ADMIN = "/admin/mcp_oauth/consent/"


def consent(user: Any, app: Any, **more: Any) -> Consent:
    values = {"resource": parties.RESOURCE, "scopes": ["mcp"], "redirect_host": "client.example"}
    return Consent.objects.create(user=user, client_id=app.client_id, **(values | more))


def live(user: Any) -> tuple[int, int]:
    """Return how many access tokens and how many refresh tokens are still valid."""
    refreshes = get_refresh_token_model().objects.filter(user=user, revoked__isnull=True)
    return get_access_token_model().objects.filter(user=user).count(), refreshes.count()


def test_the_page_is_for_whoever_is_signed_in(client, user):
    assert client.get(PAGE)["Location"] == f"/login/?next={PAGE}"
    client.force_login(user)
    assert b"No assistant is connected." in client.get(PAGE).content


def test_the_page_says_who_may_do_what_where_and_since_when(client, user, app):
    client.force_login(user)
    answer(client, ask(client, app, scope="mcp mcp:write"), scope=["mcp:write"])
    page = client.get(PAGE).content.decode()
    for text in ("Example Client", "not verified", "Orders", parties.RESOURCE, "client.example"):
        assert text in page
    assert "Change things" in page
    assert "Not yet" in page
    parties.make_token(user, app)
    assert "Not yet" not in client.get(PAGE).content.decode()


@pytest.mark.usefixtures("unpinned")
def test_the_page_calls_a_server_as_another_process_has_titled_it(client, user, app):
    consent(user, app)
    client.force_login(user)
    assert "Orders" in client.get(PAGE).content.decode()
    decide_of_server_elsewhere("orders", title="Tickets")
    assert "Tickets" in client.get(PAGE).content.decode()


def test_the_page_costs_the_same_for_one_and_for_many(client, user, django_assert_num_queries):
    client.force_login(user)
    for number in range(3):
        consent(user, parties.make_app(name=f"Client {number}"))
    with django_assert_num_queries(6):  # session, user, consents, clients, two kinds of tokens
        client.get(PAGE)


def test_other_users_connections_are_not_seen_and_not_found(client, user, app):
    row = consent(parties.make_user("grace"), app)
    client.force_login(user)
    assert "Example Client" not in client.get(PAGE).content.decode()
    assert client.post(f"{PAGE}{row.pk}/disconnect/").status_code == 404
    assert client.post(f"{PAGE}999999/disconnect/").status_code == 404
    assert Consent.objects.filter(pk=row.pk).exists()


def test_looking_disconnects_nothing(client, user, app):
    row = consent(user, app)
    client.force_login(user)
    assert client.get(f"{PAGE}{row.pk}/disconnect/").status_code == 405
    assert Consent.objects.exists()


def test_disconnecting_ends_one_client_at_one_server(client, user, app):
    other = parties.make_app(name="Other")
    row = consent(user, app)
    consent(user, app, resource=parties.OTHER_RESOURCE)
    consent(user, other)
    parties.make_token(user, app)
    parties.make_token(user, app, resource=(parties.OTHER_RESOURCE,))
    parties.make_token(user, other)
    parties.make_token(parties.make_user("grace"), app)
    client.force_login(user)
    response = client.post(f"{PAGE}{row.pk}/disconnect/", follow=True)
    assert b"The assistant is disconnected." in response.content
    assert live(user) == (2, 2)
    assert get_access_token_model().objects.count() == 3
    assert not Consent.objects.filter(pk=row.pk).exists()
    [event] = AuthEvent.objects.filter(kind=AuthEvent.Kind.REVOKE)
    assert (event.user, event.client_id) == (user, app.client_id)
    assert client.post(f"{PAGE}{row.pk}/disconnect/").status_code == 404


def test_disconnecting_all(client, user, app):
    for application in (app, parties.make_app(name="Other")):
        consent(user, application)
        parties.make_token(user, application)
    client.force_login(user)
    response = client.post(PAGE, follow=True)
    assert b"2 connections ended." in response.content
    assert live(user) == (0, 0)
    assert b"0 connections ended." in client.post(PAGE, follow=True).content


def test_a_client_that_is_gone_can_still_be_disconnected(client, user, app):
    row = consent(user, app)
    get_application_model().objects.all().delete()
    client.force_login(user)
    assert b"No longer registered" in client.get(PAGE).content
    client.post(f"{PAGE}{row.pk}/disconnect/")
    assert not Consent.objects.exists()


def test_revoking_tells_open_streams_of_every_credential(
    user, app, monkeypatch, django_capture_on_commit_callbacks
):
    credentials: list[str] = []
    monkeypatch.setattr(
        "mcp_django.oauth.revoking.notify_revoked", lambda *names: credentials.extend(names)
    )
    parties.make_token(user, app)
    parties.make_token(user, app, refresh=False)
    families = get_refresh_token_model().objects.values_list("token_family", flat=True)
    singles = get_access_token_model().objects.filter(refresh_token=None)
    names = {f"family:{family}" for family in families}
    names |= {f"checksum:{token.token_checksum}" for token in singles}
    with django_capture_on_commit_callbacks(execute=True):
        assert revoke_access(user, app.client_id) == 2
        assert credentials == []
    assert set(credentials) == names
    assert revoke_access(user, app.client_id) == 0
    assert AuthEvent.objects.filter(kind=AuthEvent.Kind.REVOKE).count() == 1


def test_a_code_that_waits_is_ended_too(client, user, app):
    client.force_login(user)
    answer(client, ask(client, app))
    revoke_access(user, app.client_id, parties.RESOURCE)
    assert not get_grant_model().objects.exists()


def test_a_token_for_several_servers_ends_with_any_of_them(user, app):
    parties.make_token(user, app, resource=(parties.RESOURCE, parties.OTHER_RESOURCE))
    revoke_access(user, app.client_id, parties.OTHER_RESOURCE)
    assert live(user) == (0, 0)


def test_a_refresh_token_older_than_families_ends_too(user, app):
    parties.make_token(user, app)
    get_refresh_token_model().objects.update(token_family=None)
    revoke_access(user, app.client_id)
    assert live(user) == (0, 0)


def test_everything_of_a_user_and_everything_of_a_client(user, app):
    grace, other = parties.make_user("grace"), parties.make_app(name="Other")
    for owner in (user, grace):
        for client in (app, other):
            parties.make_token(owner, client)
    assert revoke_everything(user) == 2
    assert (live(user), live(grace)) == ((0, 0), (2, 2))
    assert revoke_client(app.client_id) == 1
    assert live(grace) == (1, 1)


def staff(name: str, *codenames: str) -> Any:
    """Create a member of staff with these permissions."""
    user = parties.make_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def test_administrators_see_and_find_everybodys(client, user, app):
    row = consent(user, app)
    client.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    for address in ("", "?q=ada", "?q=client.example", f"?user__pk__exact={user.pk}"):
        page = client.get(f"{ADMIN}{address}").content.decode()
        assert "Example Client (Registered itself, not verified)" in page
    assert "0 connected assistants" in client.get(f"{ADMIN}?q=nobody").content.decode()
    assert client.get(f"{ADMIN}{row.pk}/change/").status_code == 200
    assert client.get(f"{ADMIN}add/").status_code == 403


def test_staff_without_the_permission_see_nothing(client, user, app):
    consent(user, app)
    client.force_login(staff("clerk"))
    assert client.get(ADMIN).status_code == 403


def test_staff_who_may_look_may_not_revoke(client, user, app):
    row = consent(user, app)
    client.force_login(staff("clerk", "view_consent"))
    assert "Revoke access" not in client.get(ADMIN).content.decode()
    client.post(ADMIN, {"action": "revoke", "post": "yes", "_selected_action": [row.pk]})
    assert Consent.objects.exists()


def test_administrators_revoke_and_leave_a_trace(client, user, app):
    row = consent(user, app)
    parties.make_token(user, app)
    clerk = staff("clerk", "view_consent", "delete_consent")
    client.force_login(clerk)
    page = client.get(ADMIN).content.decode()
    assert "Revoke access" in page
    assert "delete_selected" not in page
    client.post(ADMIN, {"action": "revoke", "post": "yes", "_selected_action": [row.pk]})
    assert live(user) == (0, 0)
    assert not Consent.objects.exists()
    assert LogEntry.objects.get().user == clerk
    event = AuthEvent.objects.get(kind=AuthEvent.Kind.REVOKE)
    assert (event.user, event.details["by"]) == (user, "clerk")


def test_administrators_revoke_everything_of_a_user(client, user, app):
    row = consent(user, app)
    other = parties.make_app(name="Other")
    consent(user, other)
    parties.make_token(user, other)
    client.force_login(staff("clerk", "view_consent", "delete_consent"))
    # The confirmation first shows everything that will end, including connections not selected.
    page = client.post(ADMIN, {"action": "revoke_users", "_selected_action": [row.pk]})
    text = page.content.decode()
    assert text.count("<li>ada") == 2
    assert "will be rejected" in text
    assert live(user) != (0, 0)
    client.post(ADMIN, {"action": "revoke_users", "post": "yes", "_selected_action": [row.pk]})
    assert live(user) == (0, 0)
    assert not Consent.objects.exists()
    assert LogEntry.objects.count() == 2


def test_the_owner_sees_when_an_assistant_was_last_used(client, user, app):
    row, other = consent(user, app), consent(parties.make_user("grace"), app)
    parties.make_token(user, app)
    used = timezone.now() + timedelta(days=40)
    # `updated` of an access token is the time of the last call.
    get_access_token_model().objects.update(updated=used)
    client.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    shown = date_format(timezone.localtime(used), "SHORT_DATE_FORMAT")
    assert client.get(ADMIN).content.decode().count(shown) == 1
    assert shown in client.get(f"{ADMIN}{row.pk}/change/").content.decode()
    assert shown not in client.get(f"{ADMIN}{other.pk}/change/").content.decode()


def test_the_page_of_a_consent_ends_its_tokens_after_it_has_asked(client, user, app):
    row = consent(user, app)
    parties.make_token(user, app)
    client.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    change = client.get(f"{ADMIN}{row.pk}/change/").content.decode()
    assert f"{ADMIN}{row.pk}/revoke/" in change
    assert "/delete/" not in change
    assert client.post(f"{ADMIN}{row.pk}/delete/", {"post": "yes"}).status_code == 403
    assert "will be rejected" in client.get(f"{ADMIN}{row.pk}/revoke/").content.decode()
    assert live(user) != (0, 0)
    done = client.post(f"{ADMIN}{row.pk}/revoke/", follow=True)
    assert "Access revoked." in done.content.decode()
    assert live(user) == (0, 0)
    assert LogEntry.objects.get().is_deletion()


def test_a_client_is_revoked_for_everybody(client, user, app):
    profile = ClientProfile.objects.create(client_id=app.client_id)
    grace = parties.make_user("grace")
    for owner in (user, grace):
        parties.make_token(owner, app)
    address = "/admin/mcp_oauth/clientprofile/"
    action = {"action": "revoke", "post": "yes", "_selected_action": [profile.pk]}
    client.force_login(staff("clerk", "view_clientprofile", "change_clientprofile"))
    client.post(address, action)
    assert live(user) == (1, 1)
    client.force_login(
        staff("chief", "view_clientprofile", "change_clientprofile", "delete_consent")
    )
    assert "Example Client" in client.get(address).content.decode()
    client.post(address, action)
    assert (live(user), live(grace)) == ((0, 0), (0, 0))
    assert LogEntry.objects.get().object_id == str(profile.pk)


def test_no_machine_gets_an_account_that_may_more_than_whoever_gives_it(client, app):
    clerk = staff("clerk", "add_clientprofile", "change_clientprofile")
    root = parties.make_user("root", is_superuser=True)
    client.force_login(clerk)
    address = "/admin/mcp_oauth/clientprofile/"
    form = {"client_id": app.client_id}
    refused = client.post(f"{address}add/", {**form, "service_user": root.pk})
    assert "no more permissions and groups" in refused.content.decode()
    assert not ClientProfile.objects.exists()
    assert client.post(f"{address}add/", {**form, "service_user": clerk.pk}).status_code == 302
    profile = ClientProfile.objects.get()
    change = f"{address}{profile.pk}/change/"
    assert client.post(change, {**form, "service_user": root.pk}).status_code == 200
    ClientProfile.objects.update(service_user=root)
    # With keys of their own, the clerk could act as that client, and so as its account.
    keys = {"jwks": '{"keys": []}', "service_user": root.pk}
    assert client.post(change, {**form, **keys}).status_code == 403
    assert client.post(change, {**form, "service_user": clerk.pk}).status_code == 403
    profile.refresh_from_db()
    assert (profile.service_user, profile.jwks) == (root, None)


def test_scopes_and_servers_of_a_client_are_selected(client, app):
    profile = ClientProfile.objects.create(
        client_id=app.client_id, allowed_scopes=["former"], allowed_resources=[parties.RESOURCE]
    )
    client.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    address = f"/admin/mcp_oauth/clientprofile/{profile.pk}/change/"
    page = client.get(address)
    form = page.context["adminform"].form
    assert ("mcp", "mcp: Use the tools of this site") in form["allowed_scopes"].field.choices
    # A scope that the site no longer declares is shown, so that it can be cleared.
    assert form["allowed_scopes"].value() == ["former"]
    assert {url for url, _ in form["allowed_resources"].field.choices} >= {parties.RESOURCE}
    assert form["jwks"].value() == ""
    assert app.name in page.content.decode()
    sent = {"allowed_scopes": ["mcp"], "allowed_resources": []}
    assert client.post(address, {**sent, "jwks": ""}).status_code == 302
    profile.refresh_from_db()
    assert (profile.allowed_scopes, profile.allowed_resources, profile.jwks) == (["mcp"], [], None)
    unknown = client.post(address, {"allowed_scopes": ["unknown"]})
    assert unknown.status_code == 200
    assert "unknown is not one of the available choices" in unknown.content.decode()


@pytest.mark.parametrize("model", ["consent", "clientprofile"])
def test_the_lists_of_the_admin_cost_the_same_for_one_and_for_many(
    client, user, model, django_assert_max_num_queries
):
    for number in range(5):
        app = parties.make_app(name=f"Client {number}")
        consent(parties.make_user(f"user-{number}"), app)
        ClientProfile.objects.create(client_id=app.client_id)
    ClientProfile.objects.create(client_id="gone")
    client.force_login(parties.make_user("root", is_staff=True, is_superuser=True))
    # The page of consents also queries the last uses: two types of tokens.
    with django_assert_max_num_queries(11 if model == "consent" else 9):
        page = client.get(f"/admin/mcp_oauth/{model}/").content.decode()
    assert all(f"Client {number}" in page for number in range(5))


def test_nothing_is_shown_where_tenants_with_own_users_share_the_tables(
    client, user, app, settings
):
    """The key of a user here is the key of another user at another tenant."""
    consent(user, app)
    user.is_staff = user.is_superuser = True
    user.save()
    client.force_login(user)
    settings.MCP_DJANGO = {
        **settings.MCP_DJANGO,
        "THREAD_CONTEXT": "tests.sites.tenants.middleware.TenantContext",
    }
    host = {"headers": {"host": "alpha.testserver"}}
    settings.ALLOWED_HOSTS = ["*"]
    assert client.get(PAGE, **host).status_code == 200
    assert client.get(ADMIN, **host).status_code == 200
    settings.TENANT_APPS = ["django.contrib.auth"]
    for path in (PAGE, "/oauth/authorize/", "/oauth/token/", f"{PAGE}1/disconnect/"):
        assert client.get(path, **host).status_code == 404
    assert client.get(ADMIN, **host).status_code == 403
    settings.TENANT_APPS = ["django.contrib.auth", "oauth2_provider", "mcp_django.oauth"]
    assert client.get(PAGE, **host).status_code == 200
