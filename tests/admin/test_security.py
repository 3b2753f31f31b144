"""The security log and the external identities in the admin."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client
from django.utils import timezone
from django.utils.formats import date_format

from mcp_django.auth.security_log import record_event
from mcp_django.models import AuthEvent, ExternalIdentity

pytestmark = pytest.mark.django_db
LOG, IDENTITIES = "/admin/mcp_django/authevent/", "/admin/mcp_django/externalidentity/"


@pytest.fixture(autouse=True)
def _site(settings):
    settings.ROOT_URLCONF = "tests.admin.urls"


@pytest.fixture
def root(client):
    """An administrator, signed in."""
    user = get_user_model().objects.create_superuser("root", password="root")
    client.force_login(user)
    return user


def test_the_log_is_read_and_nothing_else(client, root, rf):
    record_event(AuthEvent.Kind.REVOKE, request=rf.get("/"), user=root, client_id="client-7")
    row = AuthEvent.objects.get()
    for query in ("", "?q=client-7", "?kind__exact=revoke"):
        assert "client-7" in client.get(f"{LOG}{query}").content.decode()
    assert "client-7" not in client.get(f"{LOG}?q=client-8").content.decode()
    page = client.get(f"{LOG}{row.pk}/change/")
    assert page.status_code == 200
    assert b'name="_save"' not in page.content
    assert date_format(timezone.localtime(row.at), "DATETIME_FORMAT") in page.content.decode()
    assert client.get(f"{LOG}add/").status_code == 403
    assert client.post(f"{LOG}{row.pk}/delete/", {"post": "yes"}).status_code == 403


def test_a_user_in_the_log_can_be_deleted(client, root, rf):
    ada = get_user_model().objects.create_user("ada")
    record_event(AuthEvent.Kind.CONSENT, request=rf.get("/"), user=ada)
    client.post(f"/admin/auth/user/{ada.pk}/delete/", {"post": "yes"})
    assert not get_user_model().objects.filter(username="ada").exists()
    assert AuthEvent.objects.get().username == "ada"


def test_an_identity_is_made_by_hand_and_keeps_its_subject(client, root):
    form = {"issuer": "https://login.acme.example", "subject": "u-1", "user": root.pk}
    assert client.post(f"{IDENTITIES}add/", form).status_code == 302
    row = ExternalIdentity.objects.get()
    ada = get_user_model().objects.create_user("ada")
    client.post(f"{IDENTITIES}{row.pk}/change/", {**form, "subject": "u-2", "user": ada.pk})
    row.refresh_from_db()
    assert (row.subject, row.user) == ("u-1", ada)


def clerk(client: Client, *permissions: str) -> Any:
    """Staff with these permissions, signed in."""
    user = get_user_model().objects.create_user("clerk", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client.force_login(user)
    return user


def whom(kind: str, by: Any) -> Any:
    """A user of a kind, as seen by somebody of the staff."""
    user = get_user_model().objects.create_user("ada")
    match kind:
        case "superuser":
            user.is_superuser = True
        case "inactive":
            user.is_active = False
        case "may more":
            user.user_permissions.add(Permission.objects.get(codename="delete_user"))
        case "in a group":
            user.groups.add(Group.objects.create(name="chiefs"))
        case "may as much":
            user.user_permissions.set(by.user_permissions.all())
        case "himself":
            return by
    user.save()
    return user


FORM = {"issuer": "https://id.acme.example", "subject": "clerks-own"}


@pytest.mark.parametrize("kind", ["superuser", "inactive", "may more", "in a group"])
def test_nobody_lets_a_subject_in_as_somebody_who_may_more(client, kind):
    by = clerk(client, "add_externalidentity")
    user = whom(kind, by)
    answer = client.post(f"{IDENTITIES}add/", {**FORM, "user": user.pk})
    assert answer.status_code == 200
    assert "Choose a user who has no more permissions and groups than you have." in (
        answer.content.decode()
    )
    assert not ExternalIdentity.objects.exists()
    by.is_superuser = True
    by.save()
    assert client.post(f"{IDENTITIES}add/", {**FORM, "user": user.pk}).status_code == 302


@pytest.mark.parametrize("kind", ["may as much", "himself"])
def test_a_subject_is_let_in_as_somebody_who_may_no_more(client, kind):
    user = whom(kind, clerk(client, "add_externalidentity", "change_externalidentity"))
    assert client.post(f"{IDENTITIES}add/", {**FORM, "user": user.pk}).status_code == 302
    assert ExternalIdentity.objects.get().user == user


@pytest.mark.parametrize("kind", ["superuser", "inactive", "may more", "in a group"])
def test_neither_the_old_nor_the_new_user_may_more(client, kind):
    by = clerk(client, "change_externalidentity")
    user = whom(kind, by)
    theirs = ExternalIdentity.objects.create(issuer="https://a.example", subject="1", user=user)
    mine = ExternalIdentity.objects.create(issuer="https://a.example", subject="2", user=by)
    address = f"{IDENTITIES}{theirs.pk}/change/"
    assert b'name="_save"' not in client.get(address).content
    assert client.post(address, {"user": by.pk}).status_code == 403
    address = f"{IDENTITIES}{mine.pk}/change/"
    assert b'name="_save"' in client.get(address).content
    assert client.post(address, {"user": user.pk}).status_code == 200
    assert client.post(address, {"user": by.pk}).status_code == 302
    assert {identity.user for identity in ExternalIdentity.objects.all()} == {user, by}
    assert ExternalIdentity.objects.get(pk=theirs.pk).user == user


@pytest.mark.parametrize("model", ["mcp_django/externalidentity", "mcp_oauth/clientprofile"])
def test_no_key_reveals_the_name_of_its_user(client, model):
    name = model.partition("/")[2]
    by = clerk(client, f"add_{name}")
    field = "user" if name == "externalidentity" else "service_user"
    users = [get_user_model().objects.create_user(f"known-{n}") for n in range(3)]
    get_user_model().objects.filter(pk=users[0].pk).update(is_superuser=True)
    get_user_model().objects.filter(pk=users[1].pk).update(is_active=False)
    address, errors = f"/admin/{model}/add/", set()
    for key in (*(user.pk for user in users), 10**6):
        answer = client.post(address, {field: key})
        assert "known-" not in answer.content.decode()
        errors.add(str(answer.context["adminform"].form.errors.get(field)))
    # No error for the third; the same message for the others and for a key that does not exist.
    assert len(errors) == 2
    by.user_permissions.add(Permission.objects.get(codename="view_user"))
    assert "known-2" in client.post(address, {field: users[2].pk}).content.decode()


def test_the_page_of_an_identity_shows_the_name_of_its_user_only(client):
    ada = whom("may as much", clerk(client, "change_externalidentity"))
    bob = get_user_model().objects.create_user("bob", is_superuser=True)
    row = ExternalIdentity.objects.create(issuer="https://a.example", subject="1", user=ada)
    address = f"{IDENTITIES}{row.pk}/change/"
    assert f">{ada.username}<" in client.get(address).content.decode()
    refused = client.post(address, {"user": bob.pk})
    assert refused.status_code == 200
    assert "bob" not in refused.content.decode()


@pytest.mark.parametrize("address", [LOG, IDENTITIES])
def test_a_list_costs_the_same_for_one_and_for_many(
    client, root, rf, address, django_assert_max_num_queries
):
    for number in range(5):
        user = get_user_model().objects.create_user(f"user-{number}")
        record_event(AuthEvent.Kind.ISSUE, request=rf.get("/"), user=user)
        ExternalIdentity.objects.create(issuer="https://a.example", subject=number, user=user)
    with django_assert_max_num_queries(7):
        assert client.get(address).status_code == 200
